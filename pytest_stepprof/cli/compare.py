"""``stepprof compare``: stored sessions against a baseline, by the same function that judges under pytest."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_stepprof.analysis.fail_rules import FailRule, parse_fail_rule
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.cli.chosen import chosen_session, chosen_store
from pytest_stepprof.cli.compared import broken_tests, ending_remarks, not_selected, shared_level
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import add_format_options
from pytest_stepprof.cli.reports import add_report_option, delivered, wanted_reports
from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.baseline_changes import closest_first
from pytest_stepprof.store.directory import Store

if TYPE_CHECKING:
    from pytest_stepprof.report.material import Material

_NOT_COMPARED = ("no baseline", "not comparable")
_NAMED = 5


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


def _fail_rule(text: str) -> FailRule:
    try:
        return parse_fail_rule(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text!r}, {error}") from None


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof compare``."""
    parser.set_defaults(run=run)
    parser.add_argument("baseline", metavar="BASELINE", help="the baseline's name")
    several = "a session's name (the newest one by default); several are parts of one, of one commit, with other tests"
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help=several)
    add_format_options(parser)
    add_report_option(parser)
    strict = "exit with 1 as well when a test could not be judged, is new, or was not measured"
    parser.add_argument("--strict", action="store_true", help=strict)
    for name, kind, meaning in _RULES:
        parser.add_argument(f"--{name}", type=kind, help=f"{meaning} (default: as each test was measured with)")
    rule = "fail by a rule of your own: time:25%%, time:10%%+0.5ms, memory:10%%+8MiB, counters, outputs; repeatable"
    parser.add_argument("--fail-on", type=_fail_rule, action="append", default=[], metavar="RULE", help=rule)


def run(arguments: argparse.Namespace) -> Outcome:
    """Judge the sessions again, against the baseline as it is stored now."""
    from pytest_stepprof.report.build import build_report
    from pytest_stepprof.report.material import material_of
    from pytest_stepprof.report.recording import report_record

    store = chosen_store(arguments)
    sessions, remarks = _chosen_sessions(store, arguments.sessions)
    wanted = wanted_reports(arguments.report, session_id=sessions[-1].session_id, markdown=arguments.markdown)
    stored, unreadable = _stored_baseline(store, arguments.baseline)
    others = _others(stored, sessions, arguments.baseline)
    comparison = _compared(store, sessions, arguments.baseline, others, overrides_of(arguments))
    record = report_record(sessions, comparison, others, stored_at=str(store.directory), unreadable=unreadable)

    def material() -> "Material":
        return material_of(record, verbosity=max(arguments.verbose, 1))

    badly_ended = tuple(ending_remarks(sessions, arguments.baseline))
    told = (*remarks, *unreadable, *badly_ended, *_about(comparison, store))
    code = exit_code(comparison, strict=arguments.strict)
    if code == ExitCode.REGRESSED and exit_code(comparison, strict=False) == ExitCode.NOTHING_REGRESSED:
        told += ("strict: no gate failed, but a test is not judged, new or missing",)
    if code == ExitCode.NOTHING_REGRESSED and badly_ended:
        code = ExitCode.BROKEN  # what broke, or was not reached, might have said something else
    outcome = Outcome("", told, code)
    return delivered(wanted, build_report(record, verbosity=arguments.verbose), material, outcome)


def overrides_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of JudgeSettings that the arguments set, ``--fail-on`` among them, with their values."""
    from pytest_stepprof.analysis.ruled import changes_of_rules

    overrides = {name: getattr(arguments, name) for name, *_ in _RULES if getattr(arguments, name) is not None}
    return {**overrides, **changes_of_rules(arguments.fail_on)} if arguments.fail_on else overrides


def _compared(
    store: Store, sessions: Sequence[Session], baseline: str, others: Sequence[Session], overrides: Mapping[str, Any]
) -> Comparison:
    from pytest_stepprof.analysis.compare import compare_sessions
    from pytest_stepprof.measure.outputs.stored import compare_stored_outputs  # imports torch

    outputs: dict[str, OutputComparison] = {}
    damaged: dict[str, str] = {}
    for session in sessions:
        compared, unreadable = compare_stored_outputs(store, session, others, overrides)
        outputs |= compared
        damaged |= unreadable
    comparison = compare_sessions(
        sessions,
        baseline,
        others,
        outputs=outputs,
        overrides=overrides,
        tests_sharing_level=shared_level(sessions, baseline, others),
        known_baselines=() if others else closest_first(store.baseline_names(), baseline),
        not_selected=not_selected(sessions, baseline, others),
        broken=broken_tests(sessions, damaged),
    )
    return _with_where(comparison, sessions, others)


def _with_where(comparison: Comparison, sessions: Sequence[Session], others: Sequence[Session]) -> Comparison:
    """Say of each test where it went, from the newest window of the baseline to that of now."""
    from pytest_stepprof.report.where import where_lines

    before = {one.test.key: one.window for session in others for one in session.measurements}
    after = {one.test.key: one.window for session in sessions for one in session.measurements}
    tests = (
        msgspec.structs.replace(test, where=where_lines(test, before.get(test.key), after.get(test.key)))
        for test in comparison.tests
    )
    return msgspec.structs.replace(comparison, tests=tuple(tests))


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
    if comparison.compared != "compared" or not any(_was_compared(test) for test in tests):
        return ExitCode.USAGE
    unjudged = any(test.verdict in ("inconclusive", *_NOT_COMPARED) for test in tests)
    return ExitCode.REGRESSED if strict and (unjudged or comparison.missing) else ExitCode.NOTHING_REGRESSED


def _was_compared(test: TestComparison) -> bool:
    """Whether anything of a test was held against another side, if only its result."""
    return test.outputs is not None or test.verdict not in _NOT_COMPARED


def _about(comparison: Comparison, store: Store) -> tuple[str, ...]:
    """What standard error says of a comparison that compared nothing."""
    if comparison.compared == "no baseline":
        known = first_few(comparison.known_baselines, _NAMED) or "none"
        return (f"found no baseline {comparison.baseline!r} in {store.directory}, there are: {known}.",)
    if comparison.compared == "nothing compared":
        return (f"nothing was compared: no test could be held against the baseline {comparison.baseline!r}.",)
    return ()


def _chosen_sessions(store: Store, names: Sequence[str]) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Load the sessions that are named, as parts of one, or the newest one.

    Raises:
        UsageError: they are no parts of one, or one of them was never stored.
        StoreError: one cannot be read.
    """
    from pytest_stepprof.analysis.shards import as_one

    left_over = [name for name in names if name in store.unfinished()]
    if left_over:
        raise UsageError(
            f"session {left_over[0]} was never stored, because its process ended too early, and its results are not "
            "there: expected one that is. `stepprof show` shows what it had measured."
        )
    if not names:
        session, unreadable = chosen_session(store, None)
        if unreadable:  # an older one in its place would be judged as if it were of now
            raise StoreError(
                f"{' '.join(unreadable)} Or name the session to compare: stepprof compare BASELINE SESSION."
            )
        return (session,), ()
    chosen = [chosen_session(store, name) for name in dict.fromkeys(names)]
    return as_one([session for session, _ in chosen]), tuple(remark for _, remarks in chosen for remark in remarks)


def _stored_baseline(store: Store, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Load a baseline's readable sessions, none where there is no such baseline, and a remark for each unreadable one.

    Raises:
        StoreError: it has sessions, and none of them can be read.
    """
    sessions, remarks = store.read_baseline(name)
    if remarks and not sessions:
        raise StoreError(f"no session of the baseline {name!r} can be read: {' '.join(remarks)}")
    return sessions, remarks


def _others(stored: Sequence[Session], sessions: Sequence[Session], baseline: str) -> tuple[Session, ...]:
    """Leave the sessions themselves out of the baseline: compared with itself, nothing could ever have changed.

    Raises:
        UsageError: nothing is left.
    """
    themselves = {session.session_id for session in sessions}
    others = tuple(one for one in stored if one.session_id not in themselves)
    if stored and not others:
        raise UsageError(
            f"found only session {stored[-1].session_id} itself in the baseline '{baseline}', expected another one to "
            "compare it with: measure again, or name another session: stepprof compare BASELINE SESSION."
        )
    return others
