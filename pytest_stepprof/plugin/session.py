"""One pytest session that measures, or that checks results against a baseline."""

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.result_gates import judge_runs
from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.device import TorchDevice
from pytest_stepprof.measure.phases import Instruments, MeasuredStep, check_step, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.plugin import benchmark_bridge, hooks
from pytest_stepprof.plugin.checked_lines import checked_lines, workers_line
from pytest_stepprof.plugin.ending import Ending
from pytest_stepprof.plugin.identity import identify
from pytest_stepprof.plugin.live_line import LiveLine
from pytest_stepprof.plugin.places import short_path, store_directory
from pytest_stepprof.plugin.recorded import BENCHMARK_KEY, recorded
from pytest_stepprof.plugin.selection import Selection
from pytest_stepprof.plugin.settings import judge_settings, measure_settings
from pytest_stepprof.plugin.step_keeping import (
    STEP_KEY,
    forget_earlier_attempt,
    status_of,
    with_judge,
    with_trace_named,
)
from pytest_stepprof.plugin.verdicts import Verdicts
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.report.junit import properties
from pytest_stepprof.report.quantities import counted
from pytest_stepprof.store.directory import Store


def check_once(item: pytest.Item, request: StepRequest, under_test: TorchDevice) -> MeasuredStep:
    """Run a step once, measure nothing, store nothing."""
    settings = measure_settings(item)
    return check_step(request, settings, Instruments(wall_clock, time.time_ns), under_test=under_test)


class StepprofSession:
    """The plugin object of a session that measures (``--stepprof``) or checks results (``--stepprof-baseline``)."""

    def __init__(self, config: pytest.Config, *, measuring: bool) -> None:
        self._config = config
        self._measuring = measuring
        self._store = Store(store_directory(config))
        self._verdicts = Verdicts(config, self._store)
        self._ending = Ending(config, self._store, self._verdicts)
        self._selection = Selection(config)
        config.pluginmanager.register(self._selection, "stepprof-selection")
        self._live = LiveLine(config)
        self._measured: dict[str, MeasuredStep] = {}
        self._did_not_pass: dict[str, str] = {}
        self._broke: dict[str, str] = {}
        self._interrupted = False

    def pytest_report_header(self) -> str:
        """Say in one line what this session does."""
        doing = "measuring" if self._measuring else "checking results only"
        with_baseline = ""
        if self._config.getoption("stepprof_baseline"):
            judge = self._verdicts.judge
            about = judge.lack() or counted(len(judge.sessions), "session")
            with_baseline = f", baseline '{printable(judge.baseline)}' ({about})"
        return f"stepprof: {doing}, records in {short_path(self._store.directory)}{with_baseline}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Prepare the bridge to pytest-benchmark before its fixture can be made."""
        for item in items:
            if hooks.uses_stepprof(item) and "benchmark" in getattr(item, "fixturenames", ()):
                benchmark_bridge.prepare(item)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Fix, before anything is measured, how many tests share the session's false-alarm rate."""
        keys = {identify(item).key for item in session.items if hooks.uses_stepprof(item)}
        self._selection.selected(keys)
        self._verdicts.share_level_among(keys)

    def take(self, item: pytest.Item, request: StepRequest, *, benchmark: Any, under_test: TorchDevice) -> MeasuredStep:
        """Measure a step, or run it once when this session only checks results."""
        if not self._measuring:
            step = check_once(item, request, under_test)
            item.stash[STEP_KEY] = dataclasses.replace(step, output=None)  # the person's tensors are not kept
            return step
        name = printable(item.name)
        instruments = Instruments(
            clock=wall_clock, unix_clock=time.time_ns, progress=lambda text: self._live.show(f"{name}: {text}")
        )
        settings = measure_settings(item)
        keep_trace_in = partial(self._store.trace_directory, self._ending.session_id) if settings.keep_trace else None
        test, judge = identify(item), judge_settings(item)
        self._refuse_second(test)
        try:
            step = measure_step(
                request,
                settings,
                instruments,
                under_test=under_test,
                test=test,
                judge=judge,
                keep_trace_in=keep_trace_in,
            )
        finally:
            self._live.clear()
        step = recorded(item, benchmark, with_trace_named(with_judge(step, judge), self._store.directory))
        item.stash[STEP_KEY] = dataclasses.replace(step, output=None)  # the person's tensors are not kept
        self._measured[test.key] = dataclasses.replace(step, output=None, outputs=self._ending.put_aside(step.outputs))
        if step.measurement is not None:
            self._ending.write_down(step.measurement)
        return step

    def _refuse_second(self, test: TestIdentity) -> None:
        """Keep one test's record from replacing another's; a rerun replaces its own.

        Raises:
            UsageError: another test has the same identity.
        """
        earlier = self._measured.get(test.key)
        if earlier is None or earlier.measurement is None or earlier.measurement.test.node_id == test.node_id:
            return
        raise UsageError(
            f"{test.node_id} has the same identity as {earlier.measurement.test.node_id}: {test.key}. Expected "
            "parameters that differ in their text, because records are found again by it."
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Begin anew: a rerun is judged by its own measurement, which a fixture may take already."""
        __tracebackhide__ = True
        forget_earlier_attempt(item)
        try:
            return (yield)
        except BaseException as error:
            self._note_failure(item, error)
            raise

    def pytest_keyboard_interrupt(self) -> None:
        """Remember Ctrl-C and ``pytest.exit``, whatever exit code the latter asks for."""
        self._interrupted = True

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Judge a test after its body has passed, as part of its own call, so that xfail and reruns behave."""
        __tracebackhide__ = True
        try:
            result = yield
        except BaseException as error:
            self._note_failure(item, error)
            raise
        if STEP_KEY in item.stash:
            self._pass_judgement(item, item.stash[STEP_KEY])
            self._did_not_pass.pop(identify(item).key, None)
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Let go of the test's result, which pytest would keep with the item until the session ends."""
        if STEP_KEY in item.stash:
            del item.stash[STEP_KEY]

    def _pass_judgement(self, item: pytest.Item, step: MeasuredStep) -> None:
        try:
            comparison = self._verdicts.compare(item, step, self._ending.facts)
            others = self._verdicts.compare_with_others(item, step, self._ending.facts)
            shown = [] if comparison is None else [(self._verdicts.judge.baseline, comparison)]
            self._verdicts.note_joining(item, step, [*shown, *others])
        except StepprofError as error:
            self._note_failure(item, error)
            pytest.fail(f"stepprof: error: {error}", pytrace=False)
        if step.measurement is not None or (comparison is not None and comparison.failed_gates):
            item.user_properties += list(properties(comparison, step.measurement))
        for baseline, judged in (*shown, *others):
            if {"outputs", "quality"} & {*judged.failed_gates}:
                self._mark_benchmark_as_wrong(item)
            failure = self._verdicts.failure(step, judged, baseline)
            if failure is not None:
                pytest.fail(failure, pytrace=False)
        self._judge_runs(item, step)

    def _judge_runs(self, item: pytest.Item, step: MeasuredStep) -> None:
        """Fail a test whose runs measured another step than the one that was checked, where no comparison has."""
        if step.measurement is None:
            return
        judged = judge_runs(step.measurement, judge_settings(item).outputs)
        if judged.failed:
            self._mark_benchmark_as_wrong(item)
            self._did_not_pass[identify(item).key] = item.nodeid
            pytest.fail(f"stepprof: {'; '.join(said.text for said in judged.reasons)}", pytrace=False)

    def _note_failure(self, item: pytest.Item, error: BaseException) -> None:
        if not hooks.uses_stepprof(item):
            return
        test = identify(item)
        broke = not isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception))
        measured = test.key in self._measured
        if broke and (measured or (self._measuring and _is_a_fault_of(item, error))):
            told = f"The test failed {'after' if measured else 'before'} its step was measured."
            self._verdicts.note_error(test, str(error) if isinstance(error, StepprofError) else told)
        self._mark_benchmark_as_wrong(item)
        if BENCHMARK_KEY not in item.stash:
            benchmark_bridge.use_in_vain(getattr(item, "funcargs", {}).get("benchmark"))
        self._did_not_pass[test.key] = item.nodeid
        if broke:
            self._broke[test.key] = item.nodeid

    def _mark_benchmark_as_wrong(self, item: pytest.Item) -> None:
        if BENCHMARK_KEY in item.stash:
            benchmark_bridge.mark_as_wrong(item.stash[BENCHMARK_KEY])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Store what was measured; add it to the baseline when that was asked for and everything passed; report."""
        if session.config.option.collectonly:
            return
        if not self._measuring:
            if not hooks.shares_the_machine(self._config):  # else each process has seen a part of the tests only
                self._ending.finish_check(session, self._not_there)
        else:
            self._ending.finish(
                session,
                self._measured,
                self._did_not_pass,
                status="interrupted" if self._interrupted else status_of(exitstatus),
                not_selected=self._selection.not_selected,
            )

    def _not_there(self, test: TestIdentity) -> bool:
        """Whether a test without a checked result is not one of those that are missing."""
        return self._selection.not_selected(test) or test.key in self._did_not_pass

    def pytest_unconfigure(self) -> None:
        """Let go of what waited, however the session ended."""
        self._ending.close()

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Show the report."""
        if not self._measuring:
            for line in self._checked_lines():
                terminalreporter.write_line(line)
        self._ending.show(terminalreporter)

    def _checked_lines(self) -> Iterator[str]:
        judge = self._verdicts.judge
        baseline = judge.baseline
        if hooks.leaves_tests_to_workers(self._config):
            yield workers_line(baseline)
            return
        checked = self._verdicts.comparisons
        broken = len(self._broke.keys() - checked.keys())
        verbose = self._config.get_verbosity() >= 1
        yield from checked_lines(tuple(checked.values()), baseline, broken=broken, verbose=verbose)
        if (lack := judge.lack()) is not None:
            yield f"stepprof: baseline '{printable(baseline)}': {lack}"


def _is_a_fault_of(item: pytest.Item, error: BaseException) -> bool:
    """Whether what ended a test before it was measured is its own fault, and nobody expects it."""
    interrupted = isinstance(error, (KeyboardInterrupt, pytest.exit.Exception))
    return not interrupted and item.get_closest_marker("xfail") is None
