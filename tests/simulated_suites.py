"""Simulated rounds of a suite, and the decision over very many of them at once.

Noise is made with standard deviation 1 and scaled. What happens inside a round (bursts, drift, autocorrelation) is
simulated visit by visit, 24 blocks of four visits, and reduced to a round's value as ``stepprof ab`` does: half of
B1 + B2 - A1 - A2, the median over blocks. ``decided_at_once`` repeats ``suite_decision.decide`` with arrays, for suites
in which no round is missing and all tests share one setting; a test holds that both give the same answers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from pytest_stepprof.analysis.group_sequential import last_level, nominal_levels
from pytest_stepprof.record.comparison import Verdict
from pytest_stepprof.record.settings import JudgeSettings

Floats = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int, int]], Floats]
"""Draws runs x tests x rounds values with mean 0 and standard deviation 1."""

LOOKS = (5, 8, 11, 15)
VERDICTS: tuple[Verdict, ...] = ("inconclusive", "regressed", "improved", "not regressed")
INCONCLUSIVE, REGRESSED, IMPROVED, NOT_REGRESSED = range(4)

_BLOCKS = 24
_VISITS = 4 * _BLOCKS
_SIGNS = np.array([[-1, 1, 1, -1], [1, -1, -1, 1]]) / 2
_BANK_SEED = 5


def normal(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    return source.standard_normal(shape)


def heavy_tailed(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """Student's t with 3 degrees of freedom: its variance is 3."""
    return np.asarray(source.standard_t(3, shape)) / math.sqrt(3)


def bimodal_process(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """Each process is fast or slow by the toss of a coin; that makes 95 % of the variance."""
    return processes_of_two_kinds(source, shape, slow=0.5, share=0.95)


def processes_of_two_kinds(
    source: np.random.Generator, shape: tuple[int, int, int], *, slow: float, share: float
) -> Floats:
    base, head = (source.random(shape) < slow for _ in range(2))
    jumps = (head.astype(float) - base) / math.sqrt(2 * slow * (1 - slow))
    return np.asarray(math.sqrt(share) * jumps + math.sqrt(1 - share) * source.standard_normal(shape))


def bursty(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """A load comes and goes (20 % of the time, 10 visits long in the mean) and slows visits by 15 %."""
    return source.choice(_bank(_load), shape)


def drifting(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """A round's visits become up to 10 % slower on a line, and up to 10 % on a bend that levels off."""
    return np.asarray(source.choice(_bank(_drift), shape))


def autocorrelated_within_rounds(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
    """Visits follow each other with a lag-1 correlation of 0.8."""
    return source.choice(_bank(_chain), shape)


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy-tailed": heavy_tailed,
    "bursty": bursty,
    "drifting": drifting,
    "autocorrelated within rounds": autocorrelated_within_rounds,
    "bimodal process": bimodal_process,
}


def autocorrelated_rounds(correlation: float) -> Noise:
    """Make rounds that remember the round before."""

    def noise(source: np.random.Generator, shape: tuple[int, int, int]) -> Floats:
        return _chained(source.standard_normal(shape), correlation)

    return noise


def _chained(values: Floats, correlation: float) -> Floats:
    """Turn independent values into an autoregressive series along the last axis, in place; variances stay 1."""
    for i in range(1, values.shape[-1]):
        values[..., i] = correlation * values[..., i - 1] + math.sqrt(1 - correlation**2) * values[..., i]
    return values


def _load(source: np.random.Generator, rounds: int) -> Floats:
    begins, ends = 0.025, 0.1
    loaded, state = np.empty((rounds, _VISITS)), source.random(rounds) < begins / (begins + ends)
    for visit in range(_VISITS):
        loaded[:, visit] = state
        state = np.where(state, source.random(rounds) >= ends, source.random(rounds) < begins)
    return math.log(1.15) * loaded + 0.01 * source.standard_normal(loaded.shape)


def _drift(source: np.random.Generator, rounds: int) -> Floats:
    time = np.linspace(0, 1, _VISITS)
    line, bend, scale = 0.1 * source.random((rounds, 1)), 0.1 * source.random((rounds, 1)), source.random((rounds, 1))
    settled = 1 - np.exp(-time / (0.02 + 0.3 * scale))
    return np.asarray(line * time + bend * settled + 0.001 * source.standard_normal((rounds, _VISITS)))


def _chain(source: np.random.Generator, rounds: int) -> Floats:
    return 0.03 * _chained(source.standard_normal((rounds, _VISITS)), 0.8)


@cache
def _bank(visits: Callable[[np.random.Generator, int], Floats], size: int = 100_000) -> Floats:
    """Simulate many rounds visit by visit, once; both signs (the sides are alike), standard deviation 1."""
    source = np.random.default_rng(_BANK_SEED)
    values = np.concatenate([_round_values(visits(source, 10_000), source) for _ in range(size // 10_000)])
    both = np.concatenate([values, -values])
    return np.asarray(both / np.std(both))


def _round_values(visits: Floats, source: np.random.Generator) -> Floats:
    orders = source.permuted(np.tile(np.arange(_BLOCKS) % 2, (len(visits), 1)), axis=1)
    blocks = (visits.reshape(len(visits), _BLOCKS, 4) * _SIGNS[orders]).sum(axis=2)
    return np.asarray(np.median(blocks, axis=1))


class Summaries(NamedTuple):
    """Means and standard deviations of the first ``counts[i]`` rounds; both are looks x runs x tests."""

    counts: tuple[int, ...]
    means: Floats
    spreads: Floats

    def scaled(self, spread: float, change: float) -> "Summaries":
        """Give unit noise a standard deviation and a true relative change."""
        return Summaries(self.counts, spread * self.means + math.log1p(change), spread * self.spreads)


def summaries_of(values: Floats, counts: Sequence[int] = LOOKS) -> Summaries:
    first = [values[..., :count] for count in counts]
    means, spreads = [part.mean(axis=-1) for part in first], [part.std(axis=-1, ddof=1) for part in first]
    return Summaries(tuple(counts), np.stack(means), np.stack(spreads))


class Decided(NamedTuple):
    """What was decided of each test of each run (an index into ``VERDICTS``), and after how many rounds."""

    verdicts: NDArray[np.int8]
    rounds: NDArray[np.int8]


class Look(NamedTuple):
    """Student's quantiles that a look ``after`` so many rounds uses; ``lower[r]`` with ``r`` tests rejected so far."""

    after: int
    last: bool
    accepts_only: bool
    lower: Floats
    upper: float


@cache
def looks_of(shared_by: int, settings: JudgeSettings, ended_at: int) -> tuple[Look, ...]:
    planned = [_look(count, shared_by, settings, last=False) for count in LOOKS if count <= ended_at]
    return (*planned, *([] if ended_at == LOOKS[-1] else [_look(ended_at, shared_by, settings, last=True)]))


def _look(count: int, shared_by: int, settings: JudgeSettings, *, last: bool) -> Look:
    shared = settings.level / shared_by < 0.01
    accepts_only = shared and count < 8
    silent = 1 if shared and not accepts_only else 0

    def quantile(level: float, silent: int) -> float:
        if last:
            return float(student_t.isf(last_level(level, LOOKS, count, silent=silent), count - 1))
        return float(student_t.isf(nominal_levels(level, LOOKS, silent=silent)[LOOKS.index(count)], count - 1))

    lower = [quantile(settings.level / (shared_by - rejected), silent) for rejected in range(shared_by)]
    return Look(count, last, accepts_only, np.array([*lower, math.inf]), quantile(settings.level, 0))


def decided_at_once(
    summaries: Summaries, *, shared_by: int, settings: JudgeSettings, ended_at: int = LOOKS[-1]
) -> Decided:
    """Decide all tests of all runs; ``ended_at`` is the round after which the budget was spent."""
    shape = summaries.means.shape[1:]
    verdicts, rounds = np.zeros(shape, np.int8), np.full(shape, ended_at, np.int8)
    for look in looks_of(shared_by, settings, ended_at):
        i = summaries.counts.index(look.after)
        means, errors = summaries.means[i], summaries.spreads[i] / math.sqrt(look.after)
        running = verdicts == INCONCLUSIVE
        _examine(look, means, errors, verdicts, settings)
        rounds[running & (verdicts != INCONCLUSIVE)] = look.after
    return Decided(verdicts, rounds)


def _examine(look: Look, means: Floats, errors: Floats, verdicts: NDArray[np.int8], settings: JudgeSettings) -> None:
    tolerance, limit = math.log1p(settings.tolerance), math.log1p(settings.limit)
    upper = means + look.upper * errors
    slower = _slower(look, means - tolerance, errors, verdicts)
    running = verdicts == INCONCLUSIVE
    improved = running & ~slower & (upper < -tolerance)
    if not look.accepts_only:
        verdicts[slower] = REGRESSED
        verdicts[improved] = IMPROVED
        improved = np.zeros_like(improved)
    held_back = improved & (not look.last)
    verdicts[running & (verdicts == INCONCLUSIVE) & ~slower & ~held_back & (upper < limit)] = NOT_REGRESSED


def _slower(look: Look, above: Floats, errors: Floats, verdicts: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Find the tests whose lower end is above the tolerance; rejections (unless none may be) share their level."""
    rejected, running = (verdicts == REGRESSED).sum(axis=1), verdicts == INCONCLUSIVE
    slower: NDArray[np.bool_] = running & (above > look.lower[rejected][:, None] * errors)
    rows = np.flatnonzero(slower.any(axis=1))
    while not look.accepts_only and len(rows):
        quantile = look.lower[rejected[rows] + slower[rows].sum(axis=1)]
        more = running[rows] & ~slower[rows] & (above[rows] > quantile[:, None] * errors[rows])
        slower[rows] |= more
        rows = rows[more.any(axis=1)]
    return slower


def chunks(runs: int, largest: int = 20_000) -> Iterator[int]:
    """Split a number of runs into parts that fit into memory."""
    for start in range(0, runs, largest):
        yield min(largest, runs - start)
