"""One pytest session that measures, or that checks results against a baseline."""

import dataclasses
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

import pytest_stepprof
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.result_gates import judge_runs
from pytest_stepprof.errors import StepprofError, StoreError, UsageError
from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.conditions import torch_facts
from pytest_stepprof.measure.device import TorchDevice
from pytest_stepprof.measure.outputs.taking import TakenOutputs
from pytest_stepprof.measure.phases import Instruments, MeasuredStep, check_step, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.plugin import benchmark_bridge, hooks
from pytest_stepprof.plugin.checked_lines import checked_lines, workers_line
from pytest_stepprof.plugin.identity import identify
from pytest_stepprof.plugin.joining import not_comparable_line, poor_baseline_lines
from pytest_stepprof.plugin.live_line import LiveLine
from pytest_stepprof.plugin.places import short_path, store_directory
from pytest_stepprof.plugin.recorded import BENCHMARK_KEY, recorded
from pytest_stepprof.plugin.settings import judge_settings, measure_settings
from pytest_stepprof.plugin.verdicts import Verdicts
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.session import Session, SessionStatus
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.junit import properties
from pytest_stepprof.report.quantities import counted
from pytest_stepprof.report.terminal import render_terminal
from pytest_stepprof.store.directory import Store
from pytest_stepprof.store.environment import collect_environment
from pytest_stepprof.store.git import commit_facts
from pytest_stepprof.store.waiting import WaitingPayloads

STEP_KEY = pytest.StashKey[MeasuredStep]()
WIDTH_OF_A_FILE = 120
"""Columns of the report where nobody's window limits it."""


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
        self._started = datetime.now(UTC)
        self._session_id = self._store.new_session_id(self._started)
        self._verdicts = Verdicts(config, self._store)
        self._live = LiveLine(config)
        self._measured: dict[str, MeasuredStep] = {}
        self._payloads = WaitingPayloads()
        self._did_not_pass: dict[str, str] = {}
        self._broke: dict[str, str] = {}
        self._environment: Environment | None = None
        self._closing_lines = [
            (f"stepprof: warning: left out of the baseline: {why}", True) for why in self._verdicts.unreadable
        ]
        self._interrupted = False
        self._record: Session | None = None
        self._stored_at: str | None = None

    def pytest_report_header(self) -> str:
        """Say in one line what this session does."""
        doing = "measuring" if self._measuring else "checking results only"
        with_baseline = ""
        if self._config.getoption("stepprof_baseline"):
            judge = self._verdicts.judge
            with_baseline = f", baseline '{printable(judge.baseline)}' ({counted(len(judge.sessions), 'session')})"
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
        self._verdicts.share_level_among(keys)
        if keys and self._measuring and not session.config.option.collectonly:
            self._facts()  # before a test or its fixtures can change the environment

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
        keep_trace_in = partial(self._store.trace_directory, self._session_id) if settings.keep_trace else None
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
        step = recorded(item, benchmark, self._with_trace_named(_with_judge(step, judge)))
        item.stash[STEP_KEY] = dataclasses.replace(step, output=None)  # the person's tensors are not kept
        self._measured[test.key] = dataclasses.replace(step, output=None, outputs=self._put_aside(step.outputs))
        return step

    def _put_aside(self, outputs: TakenOutputs) -> TakenOutputs:
        """Let a result wait outside of memory until the session is stored: a suite may have many, up to 64 MiB each."""
        if outputs.stored.payload_sha256 is not None:
            self._payloads.add(outputs.stored.payload_sha256, outputs.payload)
        return TakenOutputs(stored=outputs.stored, payload=b"")

    def _with_trace_named(self, step: MeasuredStep) -> MeasuredStep:
        if step.trace_path is None or step.measurement is None:
            return step
        name = step.trace_path.relative_to(self._store.directory).as_posix()
        window = msgspec.structs.replace(step.measurement.window, trace_file=name)
        return dataclasses.replace(step, measurement=msgspec.structs.replace(step.measurement, window=window))

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

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin anew: a rerun is judged by its own measurement, which a fixture may take already."""
        _forget_earlier_attempt(item)

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
            comparison = self._verdicts.compare(item, step, self._facts())
            others = self._verdicts.compare_with_others(item, step, self._facts())
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

    def _facts(self) -> Environment:
        if self._environment is None:
            self._environment = collect_environment(torch_facts(), root=self._config.rootpath)
        return self._environment

    def _note_failure(self, item: pytest.Item, error: BaseException) -> None:
        if not hooks.uses_stepprof(item):
            return
        test = identify(item)
        broke = not isinstance(error, (pytest.skip.Exception, pytest.xfail.Exception))
        if broke and test.key in self._measured:
            told = isinstance(error, StepprofError)
            self._verdicts.note_error(test, str(error) if told else "The test failed after its step was measured.")
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
        """Store what was measured; add it to the baseline when that was asked for and everything passed."""
        if not self._measuring or session.config.option.collectonly:
            return
        wanted = self._config.getoption("stepprof_save")
        if wanted and exitstatus == pytest.ExitCode.OK:
            self._leave_out_what_did_not_pass()
        if not self._measured:
            if wanted:
                self._refuse(session, f"nothing was measured, so the baseline '{wanted}' stays as it is")
            return
        if wanted:
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            self._verdicts.joining.show(reporter, wanted, self._measured)
        self._record = self._session_record("interrupted" if self._interrupted else _status(exitstatus))
        digests = [step.outputs.stored.payload_sha256 for step in self._measured.values()]
        self._payloads.keep_only(digest for digest in digests if digest is not None)
        try:
            self._stored_at = short_path(self._store.save_session(self._record, self._payloads))
            if wanted:
                self._join(session, wanted, self._record)
        except StoreError as error:
            if wanted:
                self._refuse(session, f"the baseline '{printable(wanted)}' stays as it is: {error}")
            else:
                self._closing_lines.append((f"stepprof: warning: this session was not stored: {error}", True))

    def _join(self, session: pytest.Session, baseline: str, record: Session) -> None:
        """Add the stored session to a baseline, unless it would bring in a result that nobody could compare."""
        unchecked = self._verdicts.joining.unchecked(self._measured)
        if unchecked and not self._config.getoption("stepprof_update_outputs"):
            self._refuse(session, not_comparable_line(baseline, unchecked))
            return
        self._store.append_to_baseline(baseline, record)
        self._closing_lines.append((f"stepprof: added to the baseline '{printable(baseline)}'", False))
        self._closing_lines += poor_baseline_lines(record.measurements)
        self._closing_lines += [
            (f"stepprof: added without comparing its result: {node_id} (not comparable)", True) for node_id in unchecked
        ]

    def pytest_unconfigure(self) -> None:
        """Let go of the results that waited, however the session ended."""
        self._payloads.close()

    def _leave_out_what_did_not_pass(self) -> None:
        """Keep what an xfailed or skipped test has measured out of a session that may join a baseline."""
        for key in self._did_not_pass.keys() & self._measured.keys():
            del self._measured[key]
            self._closing_lines.append(
                (f"stepprof: not stored: {printable(self._did_not_pass[key])} was measured, but did not pass", False)
            )

    def _refuse(self, session: pytest.Session, message: str) -> None:
        self._closing_lines.append((f"stepprof: {message}", True))
        if session.exitstatus == pytest.ExitCode.OK:  # what was asked for did not happen
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _session_record(self, status: SessionStatus) -> Session:
        measurements = tuple(step.measurement for step in self._measured.values() if step.measurement is not None)
        return Session(
            stepprof_version=pytest_stepprof.__version__,
            session_id=self._session_id,
            started_at_utc=self._started.isoformat(timespec="seconds"),
            status=status,
            environment=self._facts(),
            commit=commit_facts(self._config.rootpath, ignore=self._store.directory),
            measurements=measurements,
            comparison=self._verdicts.record(measurements),
        )

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Show the report."""
        if self._record is not None:
            verbosity = self._config.get_verbosity()
            document = build_report(
                self._record,
                self._record.comparison,
                verbosity=verbosity,
                stored_at=self._stored_at,
                reasons_in_full=verbosity >= 1,  # every failing test has told its own
            )
            writer = self._config.get_terminal_writer()
            width = writer.fullwidth if terminalreporter.isatty else max(writer.fullwidth, WIDTH_OF_A_FILE)
            terminalreporter.section("stepprof", sep="=", bold=True)
            terminalreporter.write_line(render_terminal(document, width=width, colour=writer.hasmarkup).rstrip())
        if not self._measuring:
            for line in self._checked_lines():
                terminalreporter.write_line(line)
        for line, alarming in self._closing_lines:
            terminalreporter.write_line(line, red=alarming)

    def _checked_lines(self) -> Iterator[str]:
        baseline = self._verdicts.judge.baseline
        if hooks.leaves_tests_to_workers(self._config):
            yield workers_line(baseline)
            return
        checked = self._verdicts.comparisons
        broken = len(self._broke.keys() - checked.keys())
        verbose = self._config.get_verbosity() >= 1
        yield from checked_lines(tuple(checked.values()), baseline, broken=broken, verbose=verbose)


def _with_judge(step: MeasuredStep, settings: JudgeSettings) -> MeasuredStep:
    """Store how the test is judged beside what was measured, so that it is judged alike when it is compared later."""
    assert step.measurement is not None, "only measured steps are judged later"
    return dataclasses.replace(step, measurement=msgspec.structs.replace(step.measurement, judge=settings))


def _forget_earlier_attempt(item: pytest.Item) -> None:
    for key in (STEP_KEY, BENCHMARK_KEY):
        if key in item.stash:
            del item.stash[key]
    item.user_properties[:] = [entry for entry in item.user_properties if not str(entry[0]).startswith("stepprof_")]


def _status(exitstatus: int) -> SessionStatus:
    if exitstatus == pytest.ExitCode.OK:
        return "passed"
    return "failed" if exitstatus == pytest.ExitCode.TESTS_FAILED else "interrupted"
