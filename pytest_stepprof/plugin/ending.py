"""How a session that measured ends: its record, the baseline that it joins, its reports, its last lines."""

from collections.abc import Callable, Collection, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import cached_property

import msgspec
import pytest

import pytest_stepprof
from pytest_stepprof.analysis.busy import busy_text
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.errors import StoreError
from pytest_stepprof.measure.conditions import torch_facts
from pytest_stepprof.measure.outputs.taking import TakenOutputs
from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.plugin.joining import not_comparable_line
from pytest_stepprof.plugin.journaling import Journaling
from pytest_stepprof.plugin.places import short_path
from pytest_stepprof.plugin.reports import Reports
from pytest_stepprof.plugin.verdicts import Verdicts
from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.session import Session, SessionStatus
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.report.rendering import WIDTH_OF_A_FILE
from pytest_stepprof.report.terminal import render_terminal
from pytest_stepprof.store.directory import Store
from pytest_stepprof.store.environment import collect_environment
from pytest_stepprof.store.git import commit_facts
from pytest_stepprof.store.waiting import WaitingPayloads

_MISSING_NAMED = 5


class Ending:
    """Keeps what a session has measured until its end, and then stores, adds to the baseline, reports and tells.

    Measurements are journaled as they come: what was measured before a process was killed is not lost.
    """

    def __init__(self, config: pytest.Config, store: Store, verdicts: Verdicts) -> None:
        """Choose the session's name and check where its reports are to go.

        Raises:
            pytest.UsageError: a report cannot be written where it is wanted.
        """
        self._config = config
        self._store = store
        self._verdicts = verdicts
        self._started = datetime.now(UTC)
        self.session_id = store.new_session_id(self._started)
        self._reports = Reports(config, self.session_id)
        self._journaling = Journaling(store)
        self._payloads = WaitingPayloads()
        self._lines = [(f"stepprof: warning: left out of the baseline: {why}", True) for why in verdicts.unreadable]
        self._record: Session | None = None
        self._stored_at: str | None = None

    @cached_property
    def facts(self) -> Environment:
        """Where the session runs, as it was when somebody first asked."""
        return collect_environment(torch_facts(), root=self._config.rootpath)

    @cached_property
    def _commit(self) -> Commit:
        return commit_facts(self._config.rootpath, ignore=self._store.directory)

    def put_aside(self, outputs: TakenOutputs) -> TakenOutputs:
        """Let a result wait outside of memory until the session is stored: a suite may have many, up to 64 MiB each."""
        if outputs.stored.payload_sha256 is not None:
            self._payloads.add(outputs.stored.payload_sha256, outputs.payload)
        return TakenOutputs(stored=outputs.stored, payload=b"")

    def write_down(self, measurement: Measurement) -> None:
        """Keep a measurement from being lost with this process."""
        self._journaling.add(measurement, lambda: self._session("interrupted", ()))

    def finish(
        self,
        session: pytest.Session,
        measured: MutableMapping[str, MeasuredStep],
        did_not_pass: Mapping[str, str],
        *,
        status: SessionStatus,
        not_selected: Callable[[TestIdentity], bool],
    ) -> None:
        """Store what was measured; add it to the baseline when that was asked for and everything passed; report.

        ``did_not_pass`` names tests by key; what they have measured is left out of a session that joins a baseline.
        """
        wanted = self._config.getoption("stepprof_save")
        if wanted and status == "passed":
            self._leave_out(measured, did_not_pass)
        measurements = tuple(step.measurement for step in measured.values() if step.measurement is not None)
        if measured and wanted:
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            self._verdicts.joining.show(reporter, wanted, measured)
        record = self._session(status, measurements)
        comparison = self._verdicts.record(measurements, self.session_id, not_selected)
        record = self._judged_as_a_whole(session, msgspec.structs.replace(record, comparison=comparison))
        if measured:
            self._record = record
            self._keep(session, measured, record)
        elif wanted:
            self._refuse(session, f"nothing was measured, so the baseline '{printable(wanted)}' stays as it is")
        self._end_journal(stored=self._stored_at is not None or not measured)
        if self._reports:
            self._report(session, record)

    def finish_check(self, session: pytest.Session, not_selected: Callable[[TestIdentity], bool]) -> None:
        """Name the baseline's tests whose results could not be checked; where the person is strict, they fail."""
        comparison = self._verdicts.record((), self.session_id, not_selected)
        if comparison is None:
            return
        faults = self._verdicts.strict_faults(comparison)
        for fault in faults:
            self._refuse(session, f"strict: {fault}")
        if comparison.missing_tests and not faults:
            named = first_few([test.node_id for test in comparison.missing_tests], _MISSING_NAMED)
            self._lines.append((f"stepprof: missing, though the baseline holds it: {named}", False))

    def show(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Show the report, and whatever else has to be said at the end."""
        if self._record is not None:
            verbosity = self._config.get_verbosity()
            in_full = verbosity >= 1  # every failing test has told its own reasons
            document = build_report(self._reported(self._record), verbosity=verbosity, reasons_in_full=in_full)
            writer = self._config.get_terminal_writer()
            width = writer.fullwidth if terminalreporter.isatty else max(writer.fullwidth, WIDTH_OF_A_FILE)
            terminalreporter.section("stepprof", sep="=", bold=True)
            terminalreporter.write_line(render_terminal(document, width=width, colour=writer.hasmarkup).rstrip())
        for line, alarming in (*self._lines, *self._journaling.lines(self.session_id)):
            terminalreporter.write_line(line, red=alarming)

    def close(self) -> None:
        """Let go of what waited, however the session ended."""
        self._payloads.close()
        self._journaling.keep()

    def _session(self, status: SessionStatus, measurements: tuple[Measurement, ...]) -> Session:
        return Session(
            stepprof_version=pytest_stepprof.__version__,
            session_id=self.session_id,
            started_at_utc=self._started.isoformat(timespec="seconds"),
            status=status,
            environment=self.facts,
            commit=self._commit,
            measurements=measurements,
        )

    def _judged_as_a_whole(self, session: pytest.Session, record: Session) -> Session:
        """Fail a session for what no test of its can be blamed for, where the person is strict."""
        faults = self._verdicts.strict_faults(record.comparison)
        for fault in faults:
            self._refuse(session, f"strict: {fault}")
        failed = bool(faults) and record.status == "passed"
        return msgspec.structs.replace(record, status="failed") if failed else record

    def _keep(self, session: pytest.Session, measured: Mapping[str, MeasuredStep], record: Session) -> None:
        wanted = self._config.getoption("stepprof_save")
        digests = [step.outputs.stored.payload_sha256 for step in measured.values()]
        self._payloads.keep_only(digest for digest in digests if digest is not None)
        try:
            self._stored_at = short_path(self._store.save_session(record, self._payloads))
            if wanted:
                self._join(session, wanted, record, measured)
        except StoreError as error:
            if wanted:
                self._refuse(session, f"the baseline '{printable(wanted)}' stays as it is: {error}")
            else:
                self._lines.append((f"stepprof: warning: this session was not stored: {error}", True))

    def _join(self, session: pytest.Session, baseline: str, record: Session, keys: Collection[str]) -> None:
        """Add the stored session to a baseline, unless it would bring in a result that nobody could compare."""
        unchecked = self._verdicts.joining.unchecked(keys)
        if unchecked and not self._config.getoption("stepprof_update_outputs"):
            self._refuse(session, not_comparable_line(baseline, unchecked))
            return
        self._store.append_to_baseline(baseline, record)
        self._lines.append((f"stepprof: added to the baseline '{printable(baseline)}'", False))
        if (busy := busy_text(record.measurements)) is not None:
            self._lines.append((f"stepprof: {busy}", True))
        self._lines += [
            (f"stepprof: added without comparing its result: {node_id} (not comparable)", True) for node_id in unchecked
        ]

    def _end_journal(self, *, stored: bool) -> None:
        if stored:
            self._journaling.drop()
        elif (path := self._journaling.keep()) is not None:
            self._lines.append(
                (f"stepprof: what was measured, without the results, stays in {short_path(path)}", False)
            )

    def _report(self, session: pytest.Session, record: Session) -> None:
        self._lines += [*self._reports.deliver(self._reported(record))]
        if self._reports.failed:
            _fail(session)

    def _leave_out(self, measured: MutableMapping[str, MeasuredStep], did_not_pass: Mapping[str, str]) -> None:
        """Keep what an xfailed or skipped test has measured out of a session that may join a baseline."""
        for key in did_not_pass.keys() & measured.keys():
            del measured[key]
            self._lines.append(
                (f"stepprof: not stored: {printable(did_not_pass[key])} was measured, but did not pass", False)
            )

    def _reported(self, record: Session) -> ReportRecord:
        return report_record(
            (record,),
            record.comparison,
            self._verdicts.judge.sessions if record.comparison is not None else (),
            stored_at=self._stored_at,
            unreadable=self._verdicts.unreadable,
        )

    def _refuse(self, session: pytest.Session, message: str) -> None:
        self._lines.append((f"stepprof: {message}", True))
        _fail(session)


def _fail(session: pytest.Session) -> None:
    """Give a session that passed another exit code: what was asked for did not happen."""
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
