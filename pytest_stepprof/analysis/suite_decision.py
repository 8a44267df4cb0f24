"""Which tests of a suite are slower? Decided while rounds come in, with one error rate for all tests and all looks.

Two margins: a test is ``regressed`` when the lower end of its interval is above the tolerance, ``improved`` when the
upper end is below minus the tolerance, else ``not regressed`` when the upper end is below the limit. Otherwise more
rounds are needed, up to the last look. Each end is a one-sided Student t bound over the log-ratios of the rounds.

The lower end carries the suite's error rate: a group-sequential Holm procedure (Ye, Li, Liu and Yao, Stat. Med. 32,
2013). ``shared_by`` tests were fixed before round 1. A test is rejected when its lower end, at the look's share of
``level / (shared_by - rejected so far)``, is above the tolerance; after a rejection those still running are examined
again at the same look. Whoever leaves without being rejected stays in the count. The upper end uses ``level`` per test
with the same looks and is not adjusted for the number of tests.

A level below 1 % needs eight rounds to reject: where a process is fast or slow by chance, five rounds are five like
signs once in a thousand. Which looks those are follows from ``level / shared_by`` alone, so that the boundaries of all
later levels belong together.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit

from pytest_stepprof.analysis.group_sequential import last_level, nominal_levels
from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.analysis.time_verdict import verdict_of
from pytest_stepprof.record.comparison import Verdict
from pytest_stepprof.record.settings import JudgeSettings

LOOKS = (5, 8, 11, 15)
"""Numbers of rounds after which a test may be decided."""

FEWEST_ROUNDS_AT_A_SHARED_LEVEL = 8
"""Fewer rounds can only accept where a test's share of the level is below ``LEVEL_FOR_FEWEST_ROUNDS``."""

LEVEL_FOR_FEWEST_ROUNDS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TestValues:
    """What is known of one test: the natural log of head / base for each round that gave a value.

    ``rounds`` are the numbers of these rounds, increasing; other rounds gave none.
    """

    __test__ = False

    rounds: tuple[int, ...]
    log_ratios: tuple[float, ...]
    settings: JudgeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the values say of one test; all but levels and counts are on the log scale.

    ``decided`` says that more rounds change nothing: a verdict was reached, or the last look was. An ``inconclusive``
    test that is not decided needs more rounds than there are. ``rounds`` values are behind it. ``spread`` is their
    standard deviation, ``None`` for a single one. ``lower`` and ``upper`` are one-sided bounds at ``level_lower`` and
    ``level_upper``. ``smallest_visible`` is the mean from which this test would have been called ``regressed``, had
    all values been shifted alike; ``None`` where so few rounds call nothing so, which takes ``rounds_to_reject``.
    ``note`` says what kept the verdict from being another one; often empty.
    """

    verdict: Verdict
    decided: bool
    rounds: int
    mean: float
    spread: float | None
    lower: float
    upper: float
    level_lower: float
    level_upper: float
    smallest_visible: float | None
    rounds_to_reject: int
    note: str


def decide(
    tests: Mapping[str, TestValues], *, shared_by: int, ended: bool, looks: tuple[int, ...] = LOOKS
) -> dict[str, Decision]:
    """Decide all tests, by replaying their rounds from the first. The same values always give the same answer.

    ``shared_by`` counts all tests that could run on both sides, also those without a value (which are not in
    ``tests``). ``ended`` says that no more rounds come: tests still running get one last look with the level that is
    left. Tests that are not decided are ``inconclusive``, their bounds those that they would have if it ended now.
    Values after a test's decision are not used.

    Raises:
        ValueError: a test has no value, values that are not finite or rounds that do not increase, or fewer share the
            level than there are tests.
    """
    _check(tests, shared_by)
    rule = _Rule(shared_by, looks)
    settled: dict[str, Decision] = {}
    for number in sorted({number for test in tests.values() for number in test.rounds}):
        at_look = {key: look for key, look in _looks_at(number, tests, looks) if key not in settled}
        examined = _examined(at_look, rule, _rejected(settled))
        settled |= {key: decision for key, decision in examined.items() if decision.decided}
    running = {
        key: _Look(test.log_ratios, test.settings, last=True) for key, test in tests.items() if key not in settled
    }
    if ended:
        settled |= _examined(running, rule, _rejected(settled))
    else:
        settled |= {key: _waiting(_judged(look, rule, _rejected(settled))) for key, look in running.items()}
    return {key: settled[key] for key in tests}


def levels_at_the_end(
    count: int, *, shared_by: int, settings: JudgeSettings, looks: tuple[int, ...]
) -> tuple[float | None, float]:
    """Return the levels of both ends of an interval if the rounds end at ``count``, nothing having been rejected.

    The lower one is ``None`` where so few rounds reject nothing.

    Raises:
        ValueError: there is no look at so few, or so many, rounds.
    """
    if not looks[0] <= count <= looks[-1]:
        raise ValueError(f"rounds are looked at from {looks[0]} to {looks[-1]}, not at {count!r}")
    rule, look = _Rule(shared_by, looks), _Look((0.0,) * count, settings, last=True)
    lower = None if rule.accepts_only(count, settings) else rule.lower_level(look, 0)
    return lower, rule.upper_level(look)


class _Look(NamedTuple):
    """One test when it is examined. After the ``last`` look no other comes, planned or not."""

    values: tuple[float, ...]
    settings: JudgeSettings
    last: bool


class _Rule(NamedTuple):
    """What was fixed before round 1."""

    shared_by: int
    looks: tuple[int, ...]

    def rounds_to_reject(self, settings: JudgeSettings) -> int:
        shared = settings.level / self.shared_by < LEVEL_FOR_FEWEST_ROUNDS
        return max(self.looks[0], FEWEST_ROUNDS_AT_A_SHARED_LEVEL if shared else 0)

    def accepts_only(self, count: int, settings: JudgeSettings) -> bool:
        return count < self.rounds_to_reject(settings)

    def lower_level(self, look: _Look, rejected: int) -> float:
        """Give the level of the lower end, with so many tests rejected already.

        A look that may only accept rejects nothing and spends nothing; it shows the level that it would have had.
        """
        silent = sum(self.accepts_only(count, look.settings) for count in self.looks)
        shown = 0 if self.accepts_only(len(look.values), look.settings) else silent
        return self._level(look, look.settings.level / (self.shared_by - rejected), shown)

    def upper_level(self, look: _Look) -> float:
        return self._level(look, look.settings.level, 0)

    def _level(self, look: _Look, level: float, silent: int) -> float:
        count = len(look.values)
        if look.last:
            return last_level(level, self.looks, count, silent=silent)
        return nominal_levels(level, self.looks, silent=silent)[self.looks.index(count)]


def _check(tests: Mapping[str, TestValues], shared_by: int) -> None:
    if shared_by < max(1, len(tests)):
        raise ValueError(f"{len(tests)} tests share the level, not {shared_by!r} (and at least 1 does)")
    for key, test in tests.items():
        if not test.log_ratios or not all(map(math.isfinite, test.log_ratios)):
            raise ValueError(f"{key}: at least one finite log-ratio is needed, not {test.log_ratios!r}")
        if len(test.rounds) != len(test.log_ratios) or any(b <= a for a, b in pairwise(test.rounds)):
            raise ValueError(f"{key}: one increasing round number for each value is needed, not {test.rounds!r}")


def _looks_at(number: int, tests: Mapping[str, TestValues], looks: tuple[int, ...]) -> Iterator[tuple[str, _Look]]:
    """Yield the tests that reach one of their looks with this round."""
    for key, test in tests.items():
        count = bisect_right(test.rounds, number)
        if count in looks and test.rounds[count - 1] == number:
            yield key, _Look(test.log_ratios[:count], test.settings, last=False)


def _rejected(settled: Mapping[str, Decision]) -> int:
    return sum(decision.verdict == "regressed" for decision in settled.values())


def _examined(at_look: Mapping[str, _Look], rule: _Rule, rejected: int) -> dict[str, Decision]:
    """Examine tests at one look; each rejection gives the others a larger share of the level, until none comes."""
    slower: dict[str, Decision] = {}
    while True:
        others = {
            key: _judged(look, rule, rejected + len(slower)) for key, look in at_look.items() if key not in slower
        }
        more = {key: decision for key, decision in others.items() if decision.verdict == "regressed"}
        if not more:
            return slower | others
        slower |= more


def _judged(look: _Look, rule: _Rule, rejected: int) -> Decision:
    """Judge one test at the levels that ``rejected`` rejections so far leave."""
    count, settings = len(look.values), look.settings
    level_lower, level_upper = rule.lower_level(look, rejected), rule.upper_level(look)
    mean = fmean(look.values)
    below, above = _half_width(look.values, level_lower), _half_width(look.values, level_upper)
    verdict, note = _verdict(look, rule, verdict_of(mean - below, mean + above, settings))
    return Decision(
        verdict=verdict,
        decided=verdict != "inconclusive" or count == rule.looks[-1],
        rounds=count,
        mean=mean,
        spread=stdev(look.values) if count > 1 else None,
        lower=mean - below,
        upper=mean + above,
        level_lower=level_lower,
        level_upper=level_upper,
        smallest_visible=None if rule.accepts_only(count, settings) else below + math.log1p(settings.tolerance),
        rounds_to_reject=rule.rounds_to_reject(settings),
        note=note,
    )


def _half_width(values: Sequence[float], level: float) -> float:
    """Return how far a one-sided bound lies from the mean: Student's t, or the stated noise for a single value."""
    count = len(values)
    if count == 1:
        return log_ratio_half_width(level)
    return _quantile(level, count - 1) * stdev(values) / math.sqrt(count)


@lru_cache(maxsize=4096)
def _quantile(level: float, degrees_of_freedom: int) -> float:
    return -float(stdtrit(degrees_of_freedom, level))


def _verdict(look: _Look, rule: _Rule, by_interval: Verdict) -> tuple[Verdict, str]:
    """Turn what the interval says into what may be said with so few rounds, with the reason where they differ."""
    count = len(look.values)
    if count < rule.looks[0]:
        noise = f"; {NOISE_DESCRIPTION}" if count == 1 else ""
        return "inconclusive", f"not enough rounds for a verdict ({count} of at least {rule.looks[0]}){noise}"
    if by_interval not in ("regressed", "improved") or not rule.accepts_only(count, look.settings):
        return by_interval, ""
    share = f"{100 * look.settings.level:.3g} %" + (f", shared by {rule.shared_by} tests" if rule.shared_by > 1 else "")
    fewer = f"at a level below {100 * LEVEL_FOR_FEWEST_ROUNDS:g} % for each test ({share}), fewer than "
    fewer += f"{FEWEST_ROUNDS_AT_A_SHARED_LEVEL} rounds can only accept"
    accepted = by_interval == "improved" and (look.last or count == rule.looks[-1])
    return "not regressed" if accepted else "inconclusive", f"{by_interval} by its interval, but {fewer}"


def _waiting(decision: Decision) -> Decision:
    """Take back what would only be said if no more rounds came."""
    return replace(decision, verdict="inconclusive", decided=False)
