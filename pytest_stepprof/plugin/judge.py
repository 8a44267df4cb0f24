"""What a session is compared with: the baseline as it was when the session began."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec
import pytest

from pytest_stepprof.analysis.compare import compare_stored
from pytest_stepprof.analysis.conditions import other_conditions
from pytest_stepprof.analysis.history import StoredTest, histories
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.quality import compare_quality
from pytest_stepprof.analysis.result_gates import result_alone
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.measure.outputs.stored import compare_with_stored
from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.record.comparison import Reason, TestComparison, Verdict
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.record.window import Window
from pytest_stepprof.store.baseline_changes import closest_first
from pytest_stepprof.store.directory import Store

_NAMED = 5


@dataclass(frozen=True)
class Judge:
    """Compares tests with a baseline.

    ``results_only`` is for adding to a baseline without comparing with it: only a changed result can fail then.
    ``accept_results`` lets a changed result pass as well.
    """

    store: Store
    baseline: str
    sessions: tuple[Session, ...]
    results_only: bool = False
    accept_results: bool = False

    @cached_property
    def _stored(self) -> dict[str, tuple[StoredTest, ...]]:
        return histories(self.sessions)

    def known(self, keys: Iterable[str]) -> int:
        """Return how many of the tests the baseline holds."""
        return sum(key in self._stored for key in keys)

    def stored_result(self, key: str) -> StoredOutputs | None:
        """Return the result that the baseline holds for a test, ``None`` where it holds none."""
        newest = self._newest(key)
        return None if newest is None else newest.outputs

    def window_before(self, key: str) -> Window | None:
        """Return the window that a test is compared with, ``None`` where the baseline holds none."""
        newest = self._newest(key)
        return None if newest is None else newest.window

    def _newest(self, key: str) -> Measurement | None:
        return self._stored[key][-1].measurement if key in self._stored else None

    def known_names(self) -> tuple[str, ...]:
        """Return the names of the baselines that there are, those first that look like the one asked for."""
        return closest_first(self.store.baseline_names(), self.baseline)

    def lack(self) -> str | None:
        """Say which baselines there are instead of the one asked for; ``None`` where that has sessions."""
        if not self.baseline or self.sessions:
            return None
        known = first_few([f"'{name}'" for name in self.known_names()], _NAMED)
        return printable(f"no such baseline, {f'there are {known}' if known else 'there is none at all yet'}")

    def judge(
        self, step: MeasuredStep, settings: JudgeSettings, environment: Environment, tests_sharing_level: int
    ) -> TestComparison | None:
        """Compare a measured step; ``None`` when there is nothing to compare with and nobody asked for it.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        measurement = step.measurement
        assert measurement is not None, "only measured steps are judged"
        stored = self._stored.get(measurement.test.key, ())
        if not stored and self.results_only:
            return None
        return compare_stored(
            measurement,
            stored,
            now_environment=environment,
            outputs=self._outputs(step, stored[-1].measurement, settings) if stored else None,
            judge=self._in_force(settings),
            tests_sharing_level=tests_sharing_level,
            baseline=self.baseline,
            accept_results=self.accept_results,
            baseline_exists=bool(self.sessions),
        )

    def check_result(self, step: MeasuredStep, test: TestIdentity, settings: JudgeSettings) -> TestComparison:
        """Compare the result of a step that ran once, unmeasured.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        newest = self._newest(test.key)
        if newest is None:
            return unmeasured(test, "no baseline", (f"Baseline '{self.baseline}' does not hold this test.",))
        quality = compare_quality(newest.quality, step.quality)
        conditions = other_conditions(newest, step, quality_decides=quality.decides)
        if conditions:
            return unmeasured(test, "not comparable", (*conditions, *quality.obstacles))
        outputs = self._outputs(step, newest, settings)
        return result_alone(test, newest, quality, outputs, settings)

    def _in_force(self, settings: JudgeSettings) -> JudgeSettings:
        return (
            msgspec.structs.replace(settings, counters="off", memory="off", time="off")
            if self.results_only
            else settings
        )

    def _outputs(self, step: MeasuredStep, before: Measurement, settings: JudgeSettings) -> OutputComparison:
        return compare_with_stored(self.store, before.outputs, step.outputs.stored, step.outputs.payload, settings)


def unmeasured(test: TestIdentity, verdict: Verdict, reasons: Iterable[str]) -> TestComparison:
    """Say about a test what needs no measurement."""
    return TestComparison(
        key=test.key,
        node_id=test.node_id,
        verdict=verdict,
        reasons=tuple(Reason(gate="conditions", weight="decides", text=text) for text in reasons),
        outputs=None,
        counters=(),
        time=None,
        failed_gates=(),
    )


def load_judges(config: pytest.Config, store: Store) -> tuple[list[Judge], tuple[str, ...]]:
    """Return the judges of a session, and why sessions of their baselines cannot be read.

    The first compares with the baseline asked for. Adding to another baseline needs a second one, which looks at
    results only; a session without any baseline has a judge without a name.

    Raises:
        pytest.UsageError: a baseline's name cannot be one, or none of its sessions can be read.
    """
    compared, saved = config.getoption("stepprof_baseline"), config.getoption("stepprof_save")
    accept_results = bool(config.getoption("stepprof_update_outputs"))
    judges: list[Judge] = []
    unreadable: list[str] = []
    for name in dict.fromkeys((compared or saved or "", saved or compared or "")):
        sessions, reasons = _readable(store, name)
        if reasons and name == saved:
            raise pytest.UsageError(
                f"stepprof: sessions of the baseline '{name}' cannot be read, the newest one maybe, so that a result "
                f"which was replaced on purpose could come back. Repair or delete them before you add to it: "
                f"{' '.join(reasons)}"
            )
        judges.append(Judge(store, name, sessions, results_only=name != compared, accept_results=accept_results))
        unreadable += reasons
    return judges, tuple(unreadable)


def _readable(store: Store, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    try:
        sessions, unreadable = store.read_baseline(name) if name else ((), ())
    except StepprofError as error:
        raise pytest.UsageError(f"stepprof: {error}") from None
    if unreadable and not sessions:
        raise pytest.UsageError(f"stepprof: no session of the baseline '{name}' can be read: {' '.join(unreadable)}")
    return sessions, unreadable
