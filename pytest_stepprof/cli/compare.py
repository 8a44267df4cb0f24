"""``stepprof compare``: a stored session against a baseline, by the same function that judges under pytest."""

import argparse
from collections.abc import Sequence

from pytest_stepprof.analysis.compare import compare_sessions, newest
from pytest_stepprof.cli.baseline import stored_baseline
from pytest_stepprof.cli.chosen import add_session_argument, chosen_session, chosen_store
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.where import where_lines

_NOT_COMPARED = ("no baseline", "not comparable")


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


_RULES = (
    ("tolerance", _size, "slowdown that is tolerated, as a share"),
    ("limit", _size, "slowdown that must be excluded to say `not regressed`, as a share"),
    ("level", _level, "probability that unchanged code is called regressed, over all tests together"),
    ("rtol", _size, "relative tolerance of outputs, for all dtypes"),
    ("atol", _size, "absolute tolerance of outputs, for all dtypes"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof compare``."""
    parser.set_defaults(run=run)
    parser.add_argument("baseline", metavar="BASELINE", help="the baseline's name")
    add_session_argument(parser)
    add_format_options(parser)
    parser.add_argument("--strict", action="store_true", help="exit with 1 as well when a test could not be judged")
    for name, kind, meaning in _RULES:
        parser.add_argument(f"--{name}", type=kind, help=f"{meaning} (default: as each test was measured with)")


def run(arguments: argparse.Namespace) -> Outcome:
    """Judge the session again, against the baseline as it is stored now."""
    from pytest_stepprof.measure.outputs.stored import compare_stored_outputs  # imports torch

    overrides = {name: getattr(arguments, name) for name, *_ in _RULES if getattr(arguments, name) is not None}
    store = chosen_store(arguments)
    stored, remarks = stored_baseline(store, arguments.baseline)
    session, more_remarks = chosen_session(store, arguments.session)
    baseline_sessions = _others(stored, session, arguments.baseline)
    comparison = compare_sessions(
        session,
        arguments.baseline,
        baseline_sessions,
        outputs=compare_stored_outputs(store, session, baseline_sessions, overrides),
        overrides=overrides,
        tests_sharing_level=_tests_in_both(session, baseline_sessions),
    )
    document = build_report(
        session,
        comparison,
        verbosity=arguments.verbose,
        stored_at=str(store.directory),
        where=_where(session, comparison, baseline_sessions),
    )
    text = render(document, markdown=arguments.markdown)
    return Outcome(text, (*remarks, *more_remarks), exit_code(comparison, strict=arguments.strict))


def _where(
    session: Session, comparison: Comparison, baseline_sessions: Sequence[Session]
) -> dict[str, tuple[str, ...]]:
    """Say of each test, by its key, where it went from the newest session's window to this session's."""
    judged = {test.key: test for test in comparison.tests}
    found = {}
    for measurement in session.measurements:
        key = measurement.test.key
        _, before = newest(baseline_sessions, key) or (None, None)
        found[key] = where_lines(judged[key], None if before is None else before.window, measurement.window)
    return found


def exit_code(comparison: Comparison, *, strict: bool) -> ExitCode:
    """Turn verdicts into the exit code: a regression wins over a broken test, and nothing compared is never a pass.

    A slowdown where the time gate only warns is none. With ``strict``, a test that could not be judged, or that only
    one side has, counts as a regression.
    """
    tests = comparison.tests
    if any(test.failed_gates and test.verdict != "error" for test in tests):
        return ExitCode.REGRESSED
    if any(test.verdict == "error" for test in tests):
        return ExitCode.BROKEN
    if all(test.verdict in _NOT_COMPARED for test in tests):
        return ExitCode.USAGE
    unjudged = any(test.verdict in ("inconclusive", *_NOT_COMPARED) for test in tests)
    return ExitCode.REGRESSED if strict and (unjudged or comparison.missing) else ExitCode.NOTHING_REGRESSED


def _others(stored: tuple[Session, ...], session: Session, baseline: str) -> tuple[Session, ...]:
    """Leave the session itself out of the baseline: compared with itself, nothing could ever have changed.

    Raises:
        UsageError: nothing is left.
    """
    others = tuple(one for one in stored if one.session_id != session.session_id)
    if not others:
        raise UsageError(
            f"found only session {session.session_id} itself in the baseline '{baseline}', expected another one to "
            "compare it with: measure again, or name another session: stepprof compare BASELINE SESSION."
        )
    return others


def _tests_in_both(session: Session, baseline_sessions: tuple[Session, ...]) -> int:
    known = {measurement.test.key for stored in baseline_sessions for measurement in stored.measurements}
    return sum(measurement.test.key in known for measurement in session.measurements)
