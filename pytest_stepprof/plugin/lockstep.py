"""One pytest session that is a side of ``stepprof ab``: it measures what it is told to, and only in its own turns.

Nothing is stored and nothing is judged here: all values go to the conductor. A test goes on freely until it calls
``stepprof(...)``, waits there for the other side, does what it is ordered to do, and goes on freely afterwards.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Never

import pytest

from pytest_stepprof.ab.baton import BatonLostError, Player
from pytest_stepprof.analysis.cold_start import asks_for_cold_start
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.device import TorchDevice
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.measured_step import MeasuredStep, check_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.turn import ReleasedError, intra_op_threads, measure_by_turns
from pytest_stepprof.plugin import benchmark_bridge, hooks
from pytest_stepprof.plugin.identity import identify
from pytest_stepprof.plugin.settings import measure_settings
from pytest_stepprof.record.turns import (
    Arrived,
    Collected,
    Ended,
    FoundTest,
    FromConductor,
    Said,
    Selected,
)

_LONGEST_REASON = 2000
_MEASURED = "measured"


class LockstepSession:
    """The plugin object of a session that takes turns with another one."""

    def __init__(self, player: Player) -> None:
        self._baton = _Baton(player)
        self._taken: dict[str, str] = {}  # how the first call of each test ended: measured, or why not
        self._reports: list[pytest.TestReport] = []

    def pytest_report_header(self) -> str:
        """Say in one line what this session does."""
        return f"stepprof: taking turns with the other side of a comparison, as {self._baton.side}; nothing is stored"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
        """Run the tests that both sides are to run, in the conductor's order, out of what the person has selected."""
        result = yield
        found = [(identify(item), item) for item in items if hooks.uses_stepprof(item)]
        self._baton.say(Collected(tests=tuple(FoundTest(key=test.key, node_id=test.node_id) for test, _ in found)))
        by_key = {test.key: item for test, item in reversed(found)}  # of two with one identity, the first
        chosen = [by_key[key] for key in self._selected() if key in by_key]
        others = [item for item in items if all(item is not one for one in chosen)]
        items[:] = chosen
        if others:
            config.hook.pytest_deselected(items=others)
        return result

    def _selected(self) -> tuple[str, ...]:
        heard = self._baton.hear()
        if isinstance(heard, Selected):
            return heard.keys
        raise StepprofError(f"the conductor said {type(heard).__name__} before it had selected any test.")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Say how a test has ended, with its teardown and with all that a plugin repeats of it."""
        self._reports.clear()
        result = yield
        self._baton.say(_ended(identify(item).key, self._reports))
        self._reports.clear()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the running test has come to so far."""
        self._reports.append(report)

    def pytest_unconfigure(self) -> None:
        """Let go of the conductor, who sees then that this side is over."""
        self._baton.close()

    def take(self, item: pytest.Item, request: StepRequest, *, benchmark: Any, under_test: TorchDevice) -> MeasuredStep:
        """Measure a step in turns. What a plugin tries once more is not measured once more.

        Raises:
            StepprofError: the step, its state, its batches or its result are not what they have to be, or this test has
                failed in this round already.
        """
        __tracebackhide__ = True
        key, settings = identify(item).key, measure_settings(item)
        instruments = Instruments(wall_clock, time.time_ns)
        if self._taken.get(key) == _MEASURED:
            return check_step(request, settings, instruments, under_test=under_test)
        if key in self._taken:
            raise StepprofError(f"a comparison tries no test twice in a round. The first time: {self._taken[key]}")
        self._taken[key] = "it was interrupted"
        cold = asks_for_cold_start(request.question)
        self._baton.say(Arrived(key=key, threads=intra_op_threads(), cold_start_only=cold))
        try:
            step = measure_by_turns(request, settings, instruments, under_test=under_test, turns=self._baton)
        except ReleasedError as released:
            self._taken[key] = str(released)
            pytest.skip(f"stepprof ab: {released}")
        except BaseException as error:
            self._taken[key] = f"{type(error).__name__}: {error}"
            raise
        finally:
            benchmark_bridge.use_without_recording(benchmark)
            benchmark_bridge.use_in_vain(benchmark)
        self._taken[key] = _MEASURED
        return step


class _Baton:
    """The line to the conductor; a session without one has nothing to do any more."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.side = player.side

    def say(self, said: Said) -> None:
        try:
            self._player.say(said)
        except BatonLostError as error:
            _leave(error)

    def hear(self) -> FromConductor:
        try:
            return self._player.hear()
        except BatonLostError as error:
            _leave(error)

    def close(self) -> None:
        self._player.close()


def _leave(error: BatonLostError) -> Never:
    """End the session: fixtures are torn down, and no further test begins."""
    pytest.exit(f"stepprof: {error}", returncode=pytest.ExitCode.INTERRUPTED)


def _ended(key: str, reports: Sequence[pytest.TestReport]) -> Ended:
    """Put together how a test has ended; a plugin that repeats tests marks its failed tries as neither."""
    for outcome in ("failed", "skipped"):
        for report in reports:
            if report.outcome == outcome:
                return Ended(key=key, outcome=outcome, why=printable(_reason(report))[:_LONGEST_REASON])
    return Ended(key=key, outcome="passed")


def _reason(report: pytest.TestReport) -> str:
    """Give the one line of a report that says most: the error itself, or the reason of a skip."""
    if isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = report.longreprtext if crash is None else str(crash.message)
    if hasattr(report, "wasxfail"):
        reason = f"xfail {report.wasxfail}: {reason}"
    first_line = next((line for line in reason.splitlines() if line.strip()), "no reason was given")
    return first_line if report.when == "call" else f"{report.when}: {first_line}"
