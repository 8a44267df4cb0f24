"""``stepprof compare``: a stored session against a baseline, by the same function that judges under pytest."""

import argparse

from pytest_stepprof.analysis.compare import compare_sessions
from pytest_stepprof.cli.baseline import stored_baseline
from pytest_stepprof.cli.chosen import add_session_argument, chosen_session, chosen_store
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.build import build_report

_NOT_COMPARED = ("no baseline", "not comparable")
_DEFAULTS = JudgeSettings()


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof compare``."""
    parser.set_defaults(run=run)
    parser.add_argument("baseline", metavar="BASELINE", help="the baseline's name")
    add_session_argument(parser)
    add_format_options(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 as well when a test could not be judged")
    for name, kind, meaning in (
        ("tolerance", _size, "slowdown that is tolerated, as a share"),
        ("limit", _size, "slowdown that must be excluded to say `not regressed`, as a share"),
        ("level", _level, "probability that unchanged code is called regressed, over all tests together"),
    ):
        default = getattr(_DEFAULTS, name)
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{meaning} ({default:g})")
    parser.add_argument("--rtol", type=_size, help="relative tolerance of outputs, for all dtypes")
    parser.add_argument("--atol", type=_size, help="absolute tolerance of outputs, for all dtypes")


def run(arguments: argparse.Namespace) -> Outcome:
    """Judge the session again, against the baseline as it is stored now."""
    from pytest_stepprof.measure.stored_outputs import compare_stored_outputs  # imports torch

    judge = _judge(arguments)
    store = chosen_store(arguments)
    baseline_sessions, remarks = stored_baseline(store, arguments.baseline)
    session, more_remarks = chosen_session(store, arguments.session)
    comparison = compare_sessions(
        session,
        arguments.baseline,
        baseline_sessions,
        outputs=compare_stored_outputs(store, session, baseline_sessions, judge),
        judge=judge,
        tests_sharing_level=_tests_in_both(session, baseline_sessions),
    )
    document = build_report(session, comparison, verbosity=arguments.verbose, stored_at=str(store.directory))
    text = render(document, markdown=arguments.markdown)
    return Outcome(text, (*remarks, *more_remarks), exit_code(comparison, strict=arguments.strict))


def exit_code(comparison: Comparison, *, strict: bool) -> ExitCode:
    """Turn verdicts into the exit code: a regression wins over a broken test, and nothing compared is never a pass.

    With ``strict``, a test that could not be judged, or that only the baseline has, counts as a regression.
    """
    tests = comparison.tests
    if any(_regressed(test) for test in tests):
        return ExitCode.REGRESSED
    if any(test.verdict == "error" for test in tests):
        return ExitCode.BROKEN
    if all(test.verdict in _NOT_COMPARED for test in tests):
        return ExitCode.USAGE
    unjudged = any(test.verdict in ("inconclusive", "not comparable") for test in tests)
    return ExitCode.REGRESSED if strict and (unjudged or comparison.missing) else ExitCode.NOTHING_REGRESSED


def _regressed(test: TestComparison) -> bool:
    return test.verdict != "error" and (test.verdict == "regressed" or bool(test.failed_gates))


def _tests_in_both(session: Session, baseline_sessions: tuple[Session, ...]) -> int:
    known = {measurement.test.key for stored in baseline_sessions for measurement in stored.measurements}
    return sum(measurement.test.key in known for measurement in session.measurements)


def _judge(arguments: argparse.Namespace) -> JudgeSettings:
    if (arguments.rtol is None) != (arguments.atol is None):
        given, lacking = ("--rtol", "--atol") if arguments.atol is None else ("--atol", "--rtol")
        raise UsageError(f"found {given} alone, expected both or none: give {lacking} as well (0 is possible).")
    return JudgeSettings(
        tolerance=arguments.tolerance,
        limit=arguments.limit,
        level=arguments.level,
        rtol=arguments.rtol,
        atol=arguments.atol,
    )


def _level(text: str) -> float:
    value = float(text)
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(f"found {text}, expected a probability between 0 and 0.5")
    return value


def _size(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text}, expected a number that is not negative (0.05 is 5 %)")
    return value
