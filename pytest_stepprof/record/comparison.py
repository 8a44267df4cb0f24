"""What a comparison with a baseline says."""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.quality import QualityChange
from pytest_stepprof.record.window import CounterScope

Verdict = Literal["regressed", "not regressed", "improved", "inconclusive", "not comparable", "no baseline", "error"]
Gate = Literal["outputs", "quality", "counters", "memory", "time", "conditions"]
Weight = Literal["decides", "warns", "informs"]
Standing = Literal["compared", "new test", "no baseline", "much faster"]
"""How a test stands to its baseline, beside its verdict. ``new test``: the baseline exists, and does not hold it.
``no baseline``: there is no such baseline. ``much faster``: so much that the baseline may be stale, or the step may not
do its work any more."""
Compared = Literal["compared", "no baseline", "nothing compared"]
"""What became of a whole comparison. ``nothing compared``: the baseline exists, and no test of both was comparable."""


class Reason(Record, frozen=True, kw_only=True):
    """One sentence behind a verdict. ``decides`` made it, ``warns`` wants attention, ``informs`` explains."""

    gate: Gate
    weight: Weight
    text: str


class CounterChange(Record, frozen=True, kw_only=True):
    """A counter that is not what it was, in calls, bytes or whatever its unit is, per step.

    ``gated`` growth fails a test, ``warned`` says that the rules want the change named as a warning.
    ``certain_bound`` says that active steps did not agree: ``before`` is the most that one took, ``after`` the least
    that one takes, so that the counter grew at least from one to the other. With ``some_steps`` as well, ``before`` is
    0 in every step and ``after`` the most that one takes, while others still take none.
    """

    name: str
    unit: str
    before: int
    after: int
    gated: bool
    certain_bound: bool = False
    some_steps: bool = False
    warned: bool = False
    scope: CounterScope = "step"


class MemoryChange(Record, frozen=True, kw_only=True):
    """Peak memory of one device (or of one ``holder``, a region or module, on it) before and after, in bytes.

    The largest peak of the active steps counts on both sides. ``allowed_bytes`` is the largest value that would not
    have been called growth: before, plus the relative and the absolute part of the tolerance.
    """

    device: str
    holder: str | None
    before_bytes: int
    after_bytes: int
    allowed_bytes: int
    grew: bool


class TimeComparison(Record, frozen=True, kw_only=True):
    """Time per step before and after (medians of a session, or their geometric means over rounds), and their ratio.

    ``ratio`` is after / before (above 1 is slower), whatever the unit in which it is shown. The interval covers
    with ``1 - 2 * level_per_test``; ``smallest_visible_ratio`` is the slowdown that this comparison could have
    called ``regressed`` had the medians been exactly that far apart, ``None`` where it could call nothing so
    (``noise`` says why). ``noise`` says where the interval comes from.
    Where the two ends have levels of their own, ``level_per_test`` is the lower end's and ``level_upper`` the upper's;
    ``rounds`` is how many rounds of fresh processes are behind it (``None``: two sessions were compared). The levels
    are then those of one look at the rounds: all looks together hold what the rules say (``JudgeSettings.level``).
    ``baseline_medians_ns`` are the medians of the baseline's sessions behind the interval, oldest first (``before_ns``
    is their geometric mean); empty where rounds are behind it. Where ``quantile`` is given, ``ratio`` and its interval
    are those of this quantile of each session's samples (0.1: nine of ten samples took longer) and not of the medians,
    which another program's load moves more; the two next fields are the quantiles that were compared, in nanoseconds
    per step, before being the geometric mean over sessions. ``fixed_rule`` is the rule of the person's that decided
    in place of the interval, as it was written (``time:25%``); its error rates are not known.
    """

    before_ns: float
    after_ns: float
    ratio: float
    ratio_lower: float
    ratio_upper: float
    level_per_test: float
    tests_sharing_level: int
    smallest_visible_ratio: float | None
    noise: str
    verdict: Verdict
    level_upper: float | None = None
    rounds: int | None = None
    baseline_medians_ns: tuple[float, ...] = ()
    quantile: float | None = None
    before_quantile_ns: float | None = None
    after_quantile_ns: float | None = None
    fixed_rule: str | None = None


class ColdStartChange(Record, frozen=True, kw_only=True):
    """The very first step before and after, in nanoseconds. One value a side, so that it decides nothing.

    ``baseline_ns`` are the first steps of all sessions that count, oldest first; ``before_ns`` is the newest one's.
    """

    before_ns: int
    after_ns: int
    baseline_ns: tuple[int, ...] = ()


class TestComparison(Record, frozen=True, kw_only=True):
    """One test against the baseline: one verdict, and the reasons for it, each with the gate that gave it.

    Five gates can fail a test: outputs, quality, counters, memory, time. Where the person declared measures of quality,
    these decide in place of equal outputs (``quality``). Other conditions fail nothing, and forbid to compare.
    ``outputs`` and ``time`` are ``None`` where they were not compared. ``where`` says in short lines where a regression
    went, ``remedy`` what would make a test judgeable that could not be judged, ``hint`` what a new test may have been
    called before.
    """

    __test__ = False

    key: str
    node_id: str
    verdict: Verdict
    reasons: tuple[Reason, ...]
    outputs: OutputComparison | None
    counters: tuple[CounterChange, ...]
    time: TimeComparison | None
    failed_gates: tuple[Gate, ...]
    quality: tuple[QualityChange, ...] = ()
    memory: tuple[MemoryChange, ...] = ()
    standing: Standing = "compared"
    cold_start: ColdStartChange | None = None
    where: tuple[str, ...] = ()
    remedy: str | None = None
    hint: str | None = None


class MissingTest(Record, frozen=True, kw_only=True):
    """A test of the baseline that was not measured. ``hint`` says what it may be called now, ``None`` without one."""

    __test__ = False

    key: str
    node_id: str
    hint: str | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """Sessions against a baseline.

    ``missing`` are the baseline's tests that were not measured, by key, and ``missing_tests`` the same with what is
    known of them. ``not_selected`` counts those that a selection (``-k``, ``-m``, arguments) left out: they are not
    missing. ``sessions`` are the sessions that were compared, several where a commit was measured in shards; empty in
    old records. ``known_baselines`` are named where there is no baseline of this name. ``remarks`` hold for all of it.
    """

    baseline: str
    baseline_sessions: tuple[str, ...]
    tests_sharing_level: int
    tests: tuple[TestComparison, ...]
    missing: tuple[str, ...]
    compared: Compared = "compared"
    sessions: tuple[str, ...] = ()
    missing_tests: tuple[MissingTest, ...] = ()
    not_selected: int = 0
    known_baselines: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
