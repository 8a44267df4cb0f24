"""How often verdicts were right where the truth is known: code that did not change, and slowdowns made on purpose."""

import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from scipy import stats

from pytest_stepprof.analysis.other_rules import Call, rule_calls
from pytest_stepprof.analysis.round_value import values_by_test
from pytest_stepprof.analysis.suite_decision import LOOKS, TestValues, decide
from pytest_stepprof.record.comparison import TestComparison, Verdict
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.self_check import Load, SelfCheckRun, SlowdownKind
from pytest_stepprof.record.settings import JudgeSettings

QUIET_SPREAD = 0.021
"""Standard deviation of a round's log-ratio up to which 5 % have to be found in 95 of 100."""

_BOUND = 0.95
_SIMULATED = 400
_STEP = re.compile(r"\bname='(\w+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCase:
    """One test in one comparison, with its true change.

    ``true_ratio`` is 1 for unchanged code, ``kind`` is there otherwise. ``beside_slowed`` says that other tests of the
    same comparison were made slower. ``verdict`` is that of the time alone. ``most_rounds`` is how many rounds the
    comparison had time for. ``log_ratios`` has one value per round, in order. ``calls`` says what other tools' rules
    made of the same values.
    """

    key: str
    step: str
    suite: int
    load: Load
    sharing: int
    true_ratio: float
    kind: SlowdownKind | None
    beside_slowed: bool
    verdict: Verdict
    ratio: float | None
    before_ns: float | None
    rounds: int
    most_rounds: int
    log_ratios: tuple[float, ...]
    calls: Mapping[str, Call]


@dataclass(frozen=True, slots=True)
class Rate:
    """``hits`` of ``of`` cases, with exact one-sided 95 % bounds (Clopper and Pearson, Biometrika 26, 1934)."""

    hits: int
    of: int

    @property
    def share(self) -> float | None:
        """The part of 1, ``None`` without cases."""
        return self.hits / self.of if self.of else None

    @property
    def lower(self) -> float:
        """With 95 % confidence the true rate is at least this."""
        return float(stats.beta.ppf(1 - _BOUND, self.hits, self.of - self.hits + 1)) if self.hits else 0.0

    @property
    def upper(self) -> float:
        """With 95 % confidence the true rate is at most this."""
        return float(stats.beta.ppf(_BOUND, self.hits + 1, self.of - self.hits)) if self.hits < self.of else 1.0


def known_cases(run: SelfCheckRun) -> tuple[KnownCase, ...]:
    """Return all tests of a comparison that was judged; none when it ended before."""
    record = run.record
    if record is None or record.comparison is None:
        return ()
    return tuple(_cases(run, record, record.comparison.tests))


def _cases(run: SelfCheckRun, record: AbRecord, tests: Sequence[TestComparison]) -> Iterator[KnownCase]:
    values = values_by_test(record.rounds)
    slowed = {one.name: one for one in run.slowed}
    most_rounds = _most_rounds(record, tests)
    for test in tests:
        step = step_name(test.key)
        change = slowed.get(step)
        of_test = values.get(test.key, {})
        yield KnownCase(
            key=test.key,
            step=step,
            suite=run.suite,
            load=run.load,
            sharing=record.tests_sharing_level,
            true_ratio=1.0 if change is None else change.units_after / change.units_before,
            kind=None if change is None else change.kind,
            beside_slowed=len(slowed) > (change is not None),
            verdict=test.verdict if test.time is None else test.time.verdict,
            ratio=None if test.time is None else test.time.ratio,
            before_ns=None if test.time is None else test.time.before_ns,
            rounds=len(of_test),
            most_rounds=most_rounds,
            log_ratios=tuple(of_test[number].log_ratio for number in sorted(of_test)),
            calls=rule_calls([found for done in record.rounds for found in done.tests if found.key == test.key]),
        )


def _most_rounds(record: AbRecord, tests: Sequence[TestComparison]) -> int:
    """Fewer than were allowed when the comparison ended with a test that more rounds might have decided."""
    undecided = any(test.time is not None and test.time.verdict == "inconclusive" for test in tests)
    return min(len(record.rounds), record.most_rounds) if undecided else record.most_rounds


def step_name(key: str) -> str:
    """Return the bundled step's name in a test's key.

    Raises:
        ValueError: the key is none of the bundled tests'.
    """
    found = _STEP.search(key)
    if found is None:
        raise ValueError(f"found the test {key!r}, expected one with a parameter `name`, as all bundled tests have")
    return found.group(1)


def rate(cases: Sequence[KnownCase], verdict: Verdict) -> Rate:
    """Count the cases with this verdict among all of them."""
    return Rate(sum(case.verdict == verdict for case in cases), len(cases))


def rate_of_rule(cases: Sequence[KnownCase], rule: str, *calls: Call) -> Rate:
    """Count what one of the other tools' rules called so, among the cases that it could judge."""
    made = [case.calls[rule] for case in cases if rule in case.calls]
    return Rate(sum(call in calls for call in made), len(made))


def round_spreads(cases: Sequence[KnownCase]) -> dict[str, float]:
    """Return the standard deviation of a round's log-ratio by test key, pooled over all comparisons of that test.

    One comparison's own spread is a poor guess after five rounds, and those with a small one are decided early.
    """
    variances: dict[str, list[tuple[int, float]]] = {}
    for case in cases:
        if len(case.log_ratios) > 1:
            variances.setdefault(case.key, []).append((len(case.log_ratios) - 1, variance(case.log_ratios)))
    return {
        key: math.sqrt(sum(count * value for count, value in found) / sum(count for count, _ in found))
        for key, found in variances.items()
    }


def mean_ratio(cases: Sequence[KnownCase]) -> float | None:
    """Return the geometric mean of the ratios that were seen; ``None`` where there is none."""
    logs = [math.log(case.ratio) for case in cases if case.ratio is not None]
    return math.exp(fmean(logs)) if logs else None


def predicted_rate(
    *, spread: float, true_ratio: float, sharing: int, settings: JudgeSettings, most_rounds: int = LOOKS[-1]
) -> float:
    """Return how often a slowdown has to be found, by simulation through ``decide`` with a fixed seed.

    Rounds are independent and normal with this ``spread`` around the true log-ratio, ``most_rounds`` of them (at least
    one), and no other test of the suite is rejected before, which would give this one a larger level.
    """
    source = random.Random(0)  # noqa: S311 - a simulation
    found = 0
    for _ in range(_SIMULATED):
        values = tuple(source.gauss(math.log(true_ratio), spread) for _ in range(most_rounds))
        test = TestValues(rounds=tuple(range(1, most_rounds + 1)), log_ratios=values, settings=settings)
        found += decide({"": test}, shared_by=sharing, ended=True)[""].verdict == "regressed"
    return found / _SIMULATED
