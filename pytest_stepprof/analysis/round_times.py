"""From the rounds of two sides to each test's time: the verdict, the interval behind it, and what speaks against it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_stepprof.analysis.judged import reason
from pytest_stepprof.analysis.looks import looks_until
from pytest_stepprof.analysis.null_controls import Control, Outliers, mean_disagreement, null_controls, outliers
from pytest_stepprof.analysis.round_value import RoundValue, values_by_test
from pytest_stepprof.analysis.round_waiting import waiting_text
from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.analysis.suite_decision import Decision, TestValues, decide
from pytest_stepprof.record.comparison import Reason, TimeComparison
from pytest_stepprof.record.lockstep import AbRecord, LockstepRound, SideOfTest, TestRound
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.record.turns import Begun, SideName

_LARGEST_LOG = 700.0  # whose exponential is a number that a record can hold


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """All that the rounds say of one test's time. ``values`` are by round number, ``decided`` is on the log scale.

    ``doubts`` are reasons that change no verdict: violated controls, means that tell another story, tensors that stayed
    where they were. ``outliers`` are counted on each side, among the samples of each round; all of them are used.
    ``read_ahead`` are the sides of which some process went on while the other side measured.
    """

    time: TimeComparison
    decided: Decision
    values: Mapping[int, RoundValue]
    controls: tuple[Control, ...]
    outliers: Mapping[SideName, Outliers]
    read_ahead: tuple[SideName, ...]
    doubts: tuple[Reason, ...]


def times_of_rounds(record: AbRecord, settings: Mapping[str, JudgeSettings]) -> dict[str, RoundTimes]:
    """Judge each test of ``settings`` that some round gave a value for, as it stands when the rounds are over."""
    values = {key: of for key, of in values_by_test(record.rounds).items() if of and key in settings}
    sharing = max(1, len(values), record.tests_sharing_level)
    decisions = decisions_of(values, settings, shared_by=sharing, most_rounds=record.most_rounds, ended=True)
    taken = _rounds_by_test(record.rounds)
    found = {}
    for key, of in values.items():
        tolerance = settings[key].tolerance
        controls = null_controls(taken[key], tolerance=tolerance)
        found[key] = RoundTimes(
            time=_comparison(decisions[key], tuple(of.values()), sharing),
            decided=decisions[key],
            values=of,
            controls=controls,
            outliers=_outliers(tuple(of.values())),
            read_ahead=tuple(sorted({side for test in taken[key] for side in test.not_stopped})),
            doubts=tuple(_doubts(controls, tuple(of.values()), taken[key], tolerance)),
        )
    return found


def without_rounds(before_ns: float, after_ns: float, sharing: int, settings: JudgeSettings) -> TimeComparison:
    """Show what the check alone saw of a test that no round gave a value for: with its noise, and never decided."""
    level = settings.level / sharing
    half_width = log_ratio_half_width(level)
    middle = math.log(after_ns) - math.log(before_ns)
    return TimeComparison(
        before_ns=before_ns,
        after_ns=after_ns,
        ratio=math.exp(middle),
        ratio_lower=_finite_exp(middle - half_width),
        ratio_upper=_finite_exp(middle + half_width),
        level_per_test=level,
        tests_sharing_level=sharing,
        smallest_visible_ratio=None,
        noise=f"no round gave a value; {NOISE_DESCRIPTION}",
        verdict="inconclusive",
        rounds=0,
    )


def _rounds_by_test(rounds: Sequence[LockstepRound]) -> dict[str, tuple[TestRound, ...]]:
    """Collect, by test key, what each round says of it, in the order of rounds."""
    found: dict[str, list[TestRound]] = {}
    for done in rounds:
        for test in done.tests:
            found.setdefault(test.key, []).append(test)
    return {key: tuple(tests) for key, tests in found.items()}


def _outliers(values: Sequence[RoundValue]) -> dict[SideName, Outliers]:
    """Count outliers round by round: that a process is slower as a whole makes none of its samples one."""
    base = [outliers(value.before_samples_ns) for value in values]
    head = [outliers(value.after_samples_ns) for value in values]
    return {"base": _together(base), "head": _together(head)}


def _together(counts: Sequence[Outliers]) -> Outliers:
    return Outliers(*(sum(numbers) for numbers in zip(*counts, strict=True)))


def decisions_of(
    values: Mapping[str, Mapping[int, RoundValue]],
    settings: Mapping[str, JudgeSettings],
    *,
    shared_by: int,
    most_rounds: int,
    ended: bool,
) -> dict[str, Decision]:
    """Decide by the values of rounds: while they come in and in the report, so that the two cannot part.

    ``values`` are by test key and round number, and ``shared_by`` tests were fixed before the first round.
    """
    asked = {key: _asked(of, settings[key]) for key, of in values.items() if of}
    return decide(asked, shared_by=shared_by, ended=ended, looks=looks_until(most_rounds))


def _asked(values: Mapping[int, RoundValue], judge: JudgeSettings) -> TestValues:
    numbers = sorted(values)
    log_ratios = tuple(values[number].log_ratio for number in numbers)
    return TestValues(rounds=tuple(numbers), log_ratios=log_ratios, settings=judge)


def _comparison(decided: Decision, values: Sequence[RoundValue], sharing: int) -> TimeComparison:
    """Put a decision into the terms of a report.

    The two times shown have the geometric mean of all rounds and both sides in their middle, and the ratio that the
    rounds gave between them: the level of a machine moves from round to round, and the ratio within one does not.
    """
    used = values[: decided.rounds]
    middle = fmean(math.log(value.before_ns) / 2 + math.log(value.after_ns) / 2 for value in used)
    return TimeComparison(
        before_ns=math.exp(middle - decided.mean / 2),
        after_ns=math.exp(middle + decided.mean / 2),
        ratio=_finite_exp(decided.mean),
        ratio_lower=_finite_exp(decided.lower),
        ratio_upper=_finite_exp(decided.upper),
        level_per_test=decided.level_lower,
        level_upper=decided.level_upper,
        tests_sharing_level=sharing,
        smallest_visible_ratio=None if decided.smallest_visible is None else _finite_exp(decided.smallest_visible),
        noise=_noise_text(decided, used),
        verdict=decided.verdict,
        rounds=decided.rounds,
    )


def _noise_text(decided: Decision, used: Sequence[RoundValue]) -> str:
    """Where the interval comes from, and what kept it from saying more."""
    parts = [decided.note]
    if not decided.note and decided.smallest_visible is None and decided.verdict == "inconclusive":
        parts = [f"it takes {decided.rounds_to_reject} rounds to call one"]
    if decided.spread is not None:
        parts.append(f"t interval over {decided.rounds} rounds, spread of a round {100 * decided.spread:.2g} %")
    parts.append(waiting_text(used, decided.spread) or "")
    return "; ".join(filter(None, parts)) or NOISE_DESCRIPTION


def _doubts(
    controls: Sequence[Control], values: Sequence[RoundValue], rounds: Sequence[TestRound], tolerance: float
) -> Iterator[Reason]:
    for control in controls:
        if control.violated:
            yield reason("time", "warns", control.sentence)
    means = mean_disagreement(values, tolerance=tolerance)
    if means is not None:
        yield reason("time", "warns", means)
    yield from _not_moved(rounds)


def _not_moved(rounds: Sequence[TestRound]) -> Iterator[Reason]:
    """Say which tensors stayed where they were though sets were to be fresh, and warn where that differs by side."""
    base, head = (
        [side.begun for side in sides if side is not None] for sides in zip(*map(_sides, rounds), strict=True)
    )
    why_base, why_head = _why_not_moved(base), _why_not_moved(head)
    if why_base == why_head:
        if why_base:
            yield reason("time", "informs", f"Tensors stayed at their addresses within a round ({why_base}).")
        return
    text = (
        "Within a round, not the same tensors stayed at their addresses on both sides: one side's memory layout, lucky "
        f"or not, may be in the values. On base: {why_base or 'none'}. On head: {why_head or 'none'}."
    )
    yield reason("time", "warns", text)


def _sides(test: TestRound) -> tuple[SideOfTest | None, SideOfTest | None]:
    return test.base, test.head


def _why_not_moved(sets_of_rounds: Sequence[Sequence[Begun]]) -> str:
    """All that was said of tensors that stayed; empty where all of them moved."""
    return "; ".join(
        dict.fromkeys(one.not_moved for sets in sets_of_rounds for one in sets if one.not_moved is not None)
    )


def _finite_exp(value: float) -> float:
    """Keep what two wildly different rounds say inside the numbers that a record can hold."""
    return math.exp(max(-_LARGEST_LOG, min(_LARGEST_LOG, value)))
