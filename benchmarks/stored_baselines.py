"""How often a comparison with a stored baseline is wrong, on recorded sessions of unchanged code.

Each session of the half that the stated noise was not fitted to is held against earlier neighbouring sessions, through
the public ``compare_time``: as it is, and as if its steps took 1.5, 2 and 3 times as long. For one session, all pairs
of that half in both directions are a row of their own. Beside it: the same by medians, as records without a decile have
nothing else, and by a fixed rule, whose error rates nobody states. Asserts nothing; says so when the recording is not
there.
"""

import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from tabulate import tabulate

from pytest_stepprof.analysis.time_verdict import SessionTime, compare_time
from pytest_stepprof.record.comparison import Verdict
from pytest_stepprof.record.settings import JudgeSettings, TimeRule

RECORDED = Path(__file__).parents[1].parent / "shared" / "noise" / "null_sessions.json.gz"
FITTED = 6
"""Sessions at the beginning that the stated noise was fitted to: they may stand in a baseline, and judge nothing."""

CHANGES = (1.0, 1.5, 2.0, 3.0)
COUNTS = (1, 2, 3, 4, 5, 6)
STATED = JudgeSettings()
FIXED = JudgeSettings(time_rule=TimeRule(text="time:25%", relative=0.25))


class Recorded(NamedTuple):
    """One test in one session: nanoseconds per step."""

    median_ns: float
    quiet_ns: float

    def slower(self, factor: float, *, quiet: bool) -> SessionTime:
        """The session as if all its steps took ``factor`` times as long."""
        return SessionTime(self.median_ns * factor, quiet_ns=self.quiet_ns * factor if quiet else None)


class Pair(NamedTuple):
    """One test in the sessions of a baseline, oldest first, and in session number ``session``, which is judged."""

    baseline: tuple[Recorded, ...]
    after: Recorded
    session: int


class Way(NamedTuple):
    """How a pair is judged."""

    name: str
    settings: JudgeSettings
    quiet: bool
    sharing: int

    def verdict(self, pair: Pair, change: float) -> Verdict:
        return compare_time(
            baseline=[one.slower(1, quiet=self.quiet) for one in pair.baseline],
            after=pair.after.slower(change, quiet=self.quiet),
            settings=self.settings,
            tests_sharing_level=self.sharing,
        ).verdict


WAYS = (
    Way("decile", STATED, quiet=True, sharing=1),
    Way("decile", STATED, quiet=True, sharing=10),
    Way("median", STATED, quiet=False, sharing=1),
    Way("median", STATED, quiet=False, sharing=10),
    Way("fixed time:25%", FIXED, quiet=True, sharing=1),
)


def recorded() -> list[list[Recorded]]:
    """One list per session, with an entry per test."""
    sessions = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return [
        [Recorded(float(np.median(test["ns"])), float(np.quantile(test["ns"], 0.1))) for test in one["tests"].values()]
        for one in sessions
    ]


def neighbours(sessions: Sequence[Sequence[Recorded]], count: int) -> Iterator[Pair]:
    """Every window of ``count`` neighbours with every later session of the judging half, test by test."""
    for begin in range(len(sessions) - count):
        for later in range(max(FITTED, begin + count), len(sessions)):
            for test, after in enumerate(sessions[later]):
                yield Pair(tuple(one[test] for one in sessions[begin : begin + count]), after, later)


def both_ways(sessions: Sequence[Sequence[Recorded]]) -> Iterator[Pair]:
    """Every two sessions of the judging half, test by test, each of them as the baseline."""
    for before, after in permutations(range(FITTED, len(sessions)), 2):
        for one, other in zip(sessions[before], sessions[after], strict=True):
            yield Pair((one,), other, after)


def row(way: Way, sessions: str, pairs: Iterable[Pair]) -> list[object]:
    """How many of the pairs are called ``regressed``, by how much slower the later session is made."""
    held = list(pairs)
    found = {change: [way.verdict(pair, change) for pair in held] for change in CHANGES}
    rates = [100 * verdicts.count("regressed") / len(held) for verdicts in found.values()]
    alarms = found[1.0].count("regressed")
    upper = binomtest(alarms, len(held), alternative="less").proportion_ci(0.95, method="exact").high
    alarmed = {pair.session for pair, verdict in zip(held, found[1.0], strict=True) if verdict == "regressed"}
    judged = {pair.session for pair in held}
    return [
        way.name,
        sessions,
        way.sharing,
        len(held),
        f"{rates[0]:.1f} ({100 * upper:.1f})",
        f"{len(alarmed)} of {len(judged)}",
        *(f"{rate:.1f}" for rate in rates[1:]),
        f"{100 * found[1.0].count('improved') / len(held):.1f}",
    ]


def print_stored() -> None:
    """Print the table, or that there is nothing to make it of."""
    if not RECORDED.is_file():
        print("the recorded sessions are not here: shared/noise/null_sessions.json.gz beside the project")
        return
    sessions = recorded()
    rows = []
    for way in WAYS:
        rows.append(row(way, "1, any order", both_ways(sessions)))
        rows += [row(way, str(count), neighbours(sessions, count)) for count in COUNTS]
    slower = [f"{change:g}x" for change in CHANGES[1:]]
    headers = ["compared by", "baseline", "tests sharing", "pairs", "unchanged (upper bound)", "in sessions", *slower]
    print(
        f"called regressed, % of pairs, at a level of {100 * STATED.level:.0f} %. Pairs share sessions, so that the "
        "upper bound (95 %)\nis too low: beside it, in how many of the judged sessions any alarm was raised\n"
    )
    print(tabulate(rows, [*headers, "called improved"], disable_numparse=True))


if __name__ == "__main__":
    print_stored()
    sys.exit(0)
