"""``stepprof baseline record``: several fresh sessions for a baseline, one process after the other."""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.cli.ab_live import LiveLine
from pytest_stepprof.cli.baseline import baseline_document
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.cli.pytest_process import ended, pytest_exit_code, run_pytest
from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.store.baseline_names import checked_name
from pytest_stepprof.store.directory import Store

_MOST_SESSIONS = 1000
_TESTS_NAMED = 3
_REPORT = "report.json"
_OWN = {
    "--stepprof-save": "the NAME that you gave is the one that is saved to",
    "--stepprof-dir": "name the folder with `stepprof baseline record NAME --dir DIR`",
    "--collect-only": "sessions are measured here",
}
_DESCRIPTION = (
    "Run `pytest --stepprof --stepprof-save=NAME` several times, each in a fresh process, so that the baseline knows "
    "how much sessions differ from one another. It stops at the first one that fails; what is stored by then stays. "
    "What stands behind -- is pytest's: paths, -k, -m, options."
)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One session that joined the baseline, the folder where it is stored, and how long it took."""

    report: ReportRecord
    store: Path
    duration_s: float

    def in_words(self) -> str:
        """Say what it measured, in one line."""
        names = [measurement.test.node_id for session in self.report.sessions for measurement in session.measurements]
        named = first_few(names, _TESTS_NAMED)
        session_id = self.report.sessions[-1].session_id
        return f"{self.duration_s:.1f} s, {counted(len(names), 'test')} measured ({named}), session {session_id}"


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof baseline record``; what stands behind ``--`` is pytest's."""
    parser.usage = "stepprof baseline record NAME [options] [-- pytest arguments]"
    parser.description = _DESCRIPTION
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="the baseline's name; it is made, or gets more sessions")
    parser.add_argument("--sessions", type=_count, default=5, metavar="N", help="how many sessions to measure (5)")


def run(arguments: argparse.Namespace) -> Outcome:
    """Measure session after session, say how each went, and show what the baseline can see then.

    Raises:
        UsageError: the name cannot be one, or pytest's arguments would do something else.
    """
    from pytest_stepprof.ab.temporary import termination_as_interrupt

    checked_name(arguments.name)
    _refuse_own(arguments.pytest_arguments)
    live, recorded = LiveLine(), list[_Recorded]()
    try:
        with termination_as_interrupt():
            failed = _measured(arguments, live, recorded)
    except KeyboardInterrupt:
        stopped = f"interrupted: {_so_far(arguments, recorded)}"
        return Outcome(_shown(arguments, recorded), (stopped,), ExitCode.INTERRUPTED)
    finally:
        live.clear()
    if failed is not None:
        return failed
    return Outcome(_shown(arguments, recorded))


def _measured(arguments: argparse.Namespace, live: LiveLine, recorded: list[_Recorded]) -> Outcome | None:
    """Fill ``recorded``; return what to say when a session failed."""
    for number in range(1, arguments.sessions + 1):
        place = f"session {number} of {arguments.sessions}"
        with tempfile.TemporaryDirectory(prefix="stepprof-record-") as folder:
            began = time.perf_counter()
            log = Path(folder, "output.txt")
            words = [*_options(arguments, Path(folder)), *arguments.pytest_arguments]
            status = run_pytest(words, log, tell=partial(_tell, live, place))
            duration_s = time.perf_counter() - began
            if status != 0:
                return _failed(arguments, place, status, log, recorded)
            recorded.append(_read(Path(folder, _REPORT), duration_s))
        live.stay(f"{place}: {recorded[-1].in_words()}")
    return None


def _tell(live: LiveLine, place: str, elapsed_s: float) -> None:
    live.move(f"{place}: {elapsed_s:.0f} s")


def _options(arguments: argparse.Namespace, folder: Path) -> list[str]:
    where = [] if arguments.dir is None else [f"--stepprof-dir={Path(arguments.dir).absolute()}"]
    report = f"--stepprof-report=json:{folder / _REPORT}"
    return ["--stepprof", f"--stepprof-save={arguments.name}", report, *where]


def _read(path: Path, duration_s: float) -> _Recorded:
    """Read what the session says of itself.

    Raises:
        StepprofError: it says nothing, or was not stored.
    """
    from pytest_stepprof.report.json_report import read_report

    try:
        report = read_report(path.read_bytes(), path)
    except FileNotFoundError as error:
        raise StepprofError(
            "pytest ended well and stepprof measured nothing, expected a session: look at what `pytest --stepprof` "
            "does with the same arguments (is the plugin switched off?)."
        ) from error
    if report.stored_at is None:
        raise StepprofError("the session passed and was not stored: look at what `pytest --stepprof` says at its end.")
    return _Recorded(report, Path(report.stored_at).absolute().parent.parent, duration_s)


def _failed(
    arguments: argparse.Namespace, place: str, status: int, log: Path, recorded: Sequence[_Recorded]
) -> Outcome:
    """Show all that the failing session wrote, and say what is stored."""
    text = "\n".join(printable(line) for line in log.read_text(encoding="utf-8", errors="replace").splitlines())
    told = f"{place} {ended(status)}, its output is on standard output; {_so_far(arguments, recorded)}"
    return Outcome(text, (told,), pytest_exit_code(status))


def _so_far(arguments: argparse.Namespace, recorded: Sequence[_Recorded]) -> str:
    if not recorded:
        return f"no session was added to the baseline '{arguments.name}'"
    sessions = counted(len(recorded), "session was", "sessions were")
    stay = "stays" if len(recorded) == 1 else "stay"
    return f"{sessions} added to the baseline '{arguments.name}' by then, and {stay} there"


def _shown(arguments: argparse.Namespace, recorded: Sequence[_Recorded]) -> str:
    """Show the whole baseline, older sessions of it included: that is what the next session is compared with."""
    if not recorded:
        return ""
    sessions, _ = Store(recorded[-1].store).read_baseline(arguments.name)
    return render(baseline_document(arguments.name, sessions), markdown=False)


def _refuse_own(words: Sequence[str]) -> None:
    for word in words[: words.index("--")] if "--" in words else words:
        option = word.partition("=")[0]
        if option in _OWN:
            raise UsageError(f"found {option} among pytest's arguments, expected no such option: {_OWN[option]}.")


def _count(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MOST_SESSIONS:
        raise argparse.ArgumentTypeError(f"found {text}, expected 1 to {_MOST_SESSIONS} sessions")
    return value
