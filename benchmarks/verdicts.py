"""How often the verdict on time is wrong, and how often it catches what is there: simulated suites, seeded.

1. **unchanged and slower suites**: six kinds of noise x standard deviations of a round x true changes x suites. A
   false alarm is a suite of tests at or below the tolerance in which any test is called ``regressed``; a miss is a test
   as slow as the limit that is called ``not regressed``.
2. **mixed suites**: half of the tests are slower by 10 %, the others exactly at the tolerance: rejecting the first
   raises the level of the others, which must raise no false alarm.
3. **budgets that end early**, with one last look.
4. **noise that breaks what the procedure assumes**, beside the same without it. Asserts nothing.
5. **stored baselines** on recorded sessions of unchanged code (``stored_baselines``). Asserts nothing.

In 1 to 3 the upper Clopper-Pearson bound (one-sided, 95 %) of each rate has to be within 1.5 times the level; the exit
code says whether it is. Decisions come from ``decided_at_once`` of the tests, which is held equal to the public
``suite_decision.decide``. The same noise serves all true changes and standard deviations, so rows are not independent.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from simulated_suites import (
    IMPROVED,
    INCONCLUSIVE,
    LOOKS,
    NOISES,
    NOT_REGRESSED,
    REGRESSED,
    Decided,
    Noise,
    Summaries,
    autocorrelated_rounds,
    chunks,
    decided_at_once,
    normal,
    processes_of_two_kinds,
    summaries_of,
)
from stored_baselines import print_stored
from tabulate import tabulate

from pytest_stepprof.record.settings import JudgeSettings

SPREADS = (0.01, 0.02, 0.04)
CHANGES = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)
SUITES = (1, 10, 30)
LARGE_SUITE = 60
WIDE = 0.2
"""Standard deviation of a round at which hardly a test leaves as accepted, so that all of the level is used."""

LARGEST_RATE = 1.5
"""Times the level: where the upper bound of a false alarm's rate has to be."""

SETTINGS = JudgeSettings()


class Rate(NamedTuple):
    """So many of so many."""

    found: int
    of: int

    @property
    def upper(self) -> float:
        interval = binomtest(self.found, self.of).proportion_ci(0.90, method="exact")
        return float(interval.high)

    @property
    def holds(self) -> bool:
        return self.upper <= LARGEST_RATE * SETTINGS.level

    def __str__(self) -> str:
        mark = "" if self.holds else " !"
        return f"{100 * self.found / self.of:.2f} (<= {100 * self.upper:.2f}){mark}"


class Tally:
    """Counts over the chunks of one cell."""

    def __init__(self) -> None:
        self.runs = self.tests = self.alarmed = self.rounds = 0
        self.verdicts = np.zeros(4, np.int64)

    def add(self, decided: Decided, unchanged: slice = slice(None)) -> None:
        """Count one chunk; only the tests in ``unchanged`` can raise a false alarm."""
        self.runs += len(decided.verdicts)
        self.tests += decided.verdicts.size
        self.alarmed += int((decided.verdicts[:, unchanged] == REGRESSED).any(axis=1).sum())
        self.rounds += int(decided.rounds.sum(dtype=np.int64))
        self.verdicts += np.bincount(decided.verdicts.ravel(), minlength=4)

    @property
    def alarms(self) -> Rate:
        return Rate(self.alarmed, self.runs)

    def rate(self, verdict: int) -> Rate:
        return Rate(int(self.verdicts[verdict]), self.tests)

    def percent(self, verdict: int) -> float:
        return 100 * float(self.verdicts[verdict]) / self.tests

    @property
    def mean_rounds(self) -> float:
        return self.rounds / self.tests


def drawn(noise: Noise, tests: int, runs: int, *key: int, counts: Sequence[int] = LOOKS) -> Iterator[Summaries]:
    """Draw a suite's noise, chunk by chunk, from a seed that belongs to the cell."""
    source = np.random.default_rng([2024, tests, *key])
    for chunk in chunks(runs, 200_000 // tests):
        yield summaries_of(noise(source, (chunk, tests, counts[-1])), counts)


def print_suites(runs: int, shared_runs: int) -> bool:
    """Print what became of each kind of noise; return whether all rates are as they should be."""
    rows, good = [], True
    for number, (name, noise) in enumerate(NOISES.items()):
        for tests in SUITES:
            cells = {(spread, change): Tally() for spread in SPREADS for change in CHANGES}
            for summaries in drawn(noise, tests, runs if tests == 1 else shared_runs, number):
                for (spread, change), tally in cells.items():
                    tally.add(decided_at_once(summaries.scaled(spread, change), shared_by=tests, settings=SETTINGS))
            for spread in SPREADS:
                row = [cells[spread, change] for change in CHANGES]
                rows.append(suite_row(name, tests, spread, row))
                good &= all(rate.holds for rate in (row[0].alarms, row[1].alarms, row[4].rate(NOT_REGRESSED)))
    headers = ["noise", "tests", "sd %", "alarms at 0", "at 1 %", "2 %", "3 %", "5 %", "10 %", "5 % missed"]
    print(tabulate(rows, [*headers, "inconcl. at 0", "improved at 0", "rounds at 0", "at 5 %"], floatfmt=".4g"))
    return good


def suite_row(name: str, tests: int, spread: float, tallies: Sequence[Tally]) -> list[object]:
    none, tolerance, two, three, five, ten = tallies
    caught = [f"{tally.percent(REGRESSED):.1f}" for tally in (two, three, five, ten)]
    return [
        name,
        tests,
        100 * spread,
        str(none.alarms),
        str(tolerance.alarms),
        *caught,
        str(five.rate(NOT_REGRESSED)),
        f"{none.percent(INCONCLUSIVE):.1f}",
        f"{none.percent(IMPROVED):.2f}",
        f"{none.mean_rounds:.1f}",
        f"{five.mean_rounds:.1f}",
    ]


def print_mixed(runs: int) -> bool:
    """Half of each suite is slower by 10 %; the other half raises the alarms that are false."""
    rows, good = [], True
    for number, (name, noise) in enumerate(NOISES.items()):
        for tests in SUITES[1:]:
            changes = np.log1p(np.where(np.arange(tests) < tests // 2, 0.01, 0.10))
            cells = {spread: Tally() for spread in SPREADS}
            for summaries in drawn(noise, tests, runs, number, 1):
                for spread, tally in cells.items():
                    scaled = summaries.scaled(spread, 0.0)
                    shifted = scaled._replace(means=scaled.means + changes)
                    decided = decided_at_once(shifted, shared_by=tests, settings=SETTINGS)
                    tally.add(decided, slice(0, tests // 2))
            rows.append([name, tests, *(str(tally.alarms) for tally in cells.values())])
            good &= all(tally.alarms.holds for tally in cells.values())
    print(tabulate(rows, ["noise", "tests", *(f"sd {100 * spread:.0f} %" for spread in SPREADS)]))
    return good


def print_ended(runs: int) -> bool:
    """All tests are exactly at the tolerance, and the budget is spent after so many rounds."""
    rows, good = [], True
    ends = (5, 6, 8, 9, 13)
    for number, (name, noise) in enumerate(NOISES.items()):
        for tests in SUITES:
            cells = {end: Tally() for end in ends}
            for summaries in drawn(noise, tests, runs, number, 2, counts=sorted({*LOOKS, *ends})):
                for end, tally in cells.items():
                    scaled = summaries.scaled(WIDE, SETTINGS.tolerance)
                    tally.add(decided_at_once(scaled, shared_by=tests, settings=SETTINGS, ended_at=end))
            rows.append([name, tests, *(str(tally.alarms) for tally in cells.values())])
            good &= all(tally.alarms.holds for tally in cells.values())
    print(tabulate(rows, ["noise", "tests", *(f"after {end}" for end in ends)]))
    return good


def common_to_the_suite(source: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Most of a round's noise hits all tests of the suite alike."""
    runs, _, rounds = shape
    return np.asarray(
        np.sqrt(0.8) * source.standard_normal((runs, 1, rounds)) + np.sqrt(0.2) * source.standard_normal(shape)
    )


def start_order(
    source: np.random.Generator, shape: tuple[int, int, int], *, balanced: bool, share: float
) -> NDArray[np.float64]:
    """Whoever starts first is slower by a fixed amount: drawn each round, or balanced over pairs of rounds."""
    runs, _, rounds = shape
    signs = source.choice([-1.0, 1.0], (runs, 1, rounds))
    if balanced:
        signs[..., 1::2] = -signs[..., 0 : rounds - 1 : 2]
    return np.asarray(np.sqrt(share) * signs + np.sqrt(1 - share) * source.standard_normal(shape))


def skewed(source: np.random.Generator, shape: tuple[int, int, int], *, sign: int) -> NDArray[np.float64]:
    """One side alone has rounds that last much longer: an exponential distribution, which no pair of equals gives."""
    return np.asarray(sign * (source.standard_exponential(shape) - 1))


def growing(source: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """The spread grows threefold from the first round to the last."""
    sizes = np.linspace(1, 3, shape[-1])
    return np.asarray(source.standard_normal(shape) * sizes / np.sqrt(np.mean(sizes**2)))


HOSTILE: dict[str, Noise] = {
    "normal, nothing broken": normal,
    "common to all tests of the suite": common_to_the_suite,
    "spread grows threefold": growing,
    "bimodal, half of the processes slow, nothing else": partial(processes_of_two_kinds, slow=0.5, share=0.9999),
    "bimodal, one process in five slow, nothing else": partial(processes_of_two_kinds, slow=0.2, share=0.9999),
    "bimodal, one process in twenty slow, 95 %": partial(processes_of_two_kinds, slow=0.05, share=0.95),
    "start order decides, drawn, 50 % of the variance": partial(start_order, balanced=False, share=0.5),
    "start order decides, drawn, 95 %": partial(start_order, balanced=False, share=0.95),
    "start order decides, balanced in pairs, 95 %": partial(start_order, balanced=True, share=0.95),
    "skewed to the slow side (head alone)": partial(skewed, sign=1),
    "skewed to the fast side (base alone)": partial(skewed, sign=-1),
    "rounds correlated by 0.1": autocorrelated_rounds(0.1),
    "rounds correlated by 0.2": autocorrelated_rounds(0.2),
    "rounds correlated by 0.3": autocorrelated_rounds(0.3),
    "rounds correlated by 0.5": autocorrelated_rounds(0.5),
    "rounds correlated by 0.8": autocorrelated_rounds(0.8),
}


def print_hostile(runs: int) -> None:
    """Alarms without a change, and exactly at the tolerance: with a spread of 2 %, and with a wide one."""
    rows = []
    for number, (name, noise) in enumerate(HOSTILE.items()):
        row: list[object] = [name]
        for tests in (*SUITES, LARGE_SUITE):
            cells = {cell: Tally() for cell in ((0.02, 0.0), (0.02, SETTINGS.tolerance), (WIDE, SETTINGS.tolerance))}
            for summaries in drawn(noise, tests, runs, number, 3):
                for cell, tally in cells.items():
                    tally.add(decided_at_once(summaries.scaled(*cell), shared_by=tests, settings=SETTINGS))
            row += [f"{100 * tally.alarmed / tally.runs:.2f}" for tally in cells.values()]
        rows.append(row)
    headers = [f"{tests}: {cell}" for tests in (*SUITES, LARGE_SUITE) for cell in ("0", "1 %", "1 %, wide")]
    print(tabulate(rows, ["suites with a false alarm, %", *headers]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="suites of one test per cell (default: %(default)s)")
    parser.add_argument("--shared-runs", type=int, default=100_000, help="larger suites (default: %(default)s)")
    parser.add_argument("--stored-only", action="store_true", help="only 5, which takes seconds")
    chosen = parser.parse_args()
    if chosen.stored_only:
        print_stored()
        return 0
    print("regressed, % of suites (alarms) or of tests; in brackets the upper bound; sd is a round's\n")
    good = print_suites(chosen.runs, chosen.shared_runs)
    print("\nmixed suites: false alarms, % of suites\n")
    good &= print_mixed(chosen.shared_runs)
    print("\nbudgets that end early: false alarms, % of suites\n")
    good &= print_ended(chosen.runs)
    print("\nnoise that breaks what the procedure assumes\n")
    print_hostile(chosen.runs)
    print("\nstored baselines\n")
    print_stored()
    print("\nall rates hold" if good else "\nsome rates, marked with !, do not hold")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
