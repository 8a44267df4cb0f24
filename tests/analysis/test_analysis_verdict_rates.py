"""How often the decision is wrong, and how often it catches what is there: a small part of ``tox -e verdicts``."""

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import binomtest
from simulated_suites import (
    IMPROVED,
    INCONCLUSIVE,
    LOOKS,
    NOISES,
    NOT_REGRESSED,
    REGRESSED,
    VERDICTS,
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

from pytest_stepprof.analysis.suite_decision import TestValues, decide
from pytest_stepprof.record.settings import JudgeSettings

SETTINGS = JudgeSettings()
SUITES = {1: 20_000, 10: 10_000}
CHANGES = np.log1p([-0.03, 0.0, 0.01, 0.02, 0.03, 0.05, 0.10])

every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())


def drawn(noise: Noise, tests: int, runs: int, counts: tuple[int, ...] = LOOKS) -> Iterator[Summaries]:
    source = np.random.default_rng([20, tests])
    for chunk in chunks(runs, 100_000 // tests):
        yield summaries_of(noise(source, (chunk, tests, counts[-1])), counts)


def upper_bound(found: int, of: int) -> float:
    """Clopper and Pearson's, one-sided 95 %."""
    return float(binomtest(found, of).proportion_ci(0.90, method="exact").high)


def alarms(decided: Decided) -> int:
    return int((decided.verdicts == REGRESSED).any(axis=1).sum())


def share(decided: Decided, verdict: int) -> float:
    return float((decided.verdicts == verdict).mean())


@every_noise
@pytest.mark.parametrize("ended_at", [5, 6, 8, 9, 13, 15])
def test_deciding_at_once_is_the_public_decision(noise: Noise, ended_at: int) -> None:
    source = np.random.default_rng([3, ended_at])
    counts = sorted({*(look for look in LOOKS if look <= ended_at), ended_at})
    for tests, shared_by in ((1, 1), (4, 4), (10, 13)):
        changes = source.choice(CHANGES, (6, tests, 1))
        values = changes + source.choice([0.01, 0.03], (6, tests, 1)) * noise(source, (6, tests, ended_at))
        at_once = decided_at_once(
            summaries_of(values, counts), shared_by=shared_by, settings=SETTINGS, ended_at=ended_at
        )
        for run in range(len(values)):
            suite = {
                str(test): TestValues(
                    rounds=tuple(range(1, ended_at + 1)),
                    log_ratios=tuple(values[run, test].tolist()),
                    settings=SETTINGS,
                )
                for test in range(tests)
            }
            one_by_one = decide(suite, shared_by=shared_by, ended=True).values()
            assert [decision.verdict for decision in one_by_one] == [VERDICTS[i] for i in at_once.verdicts[run]]
            assert [decision.rounds for decision in one_by_one] == at_once.rounds[run].tolist()


@every_noise
@pytest.mark.parametrize("tests", SUITES)
def test_false_alarms_of_a_suite_stay_at_the_level(noise: Noise, tests: int) -> None:
    """Unchanged, and exactly at the tolerance; with a spread of 20 % hardly a test is accepted before it can alarm."""
    found = dict.fromkeys([(spread, change) for spread in (0.01, 0.02, 0.04, 0.2) for change in (0.0, 0.01)], 0)
    for summaries in drawn(noise, tests, SUITES[tests]):
        for spread, change in found:
            decided = decided_at_once(summaries.scaled(spread, change), shared_by=tests, settings=SETTINGS)
            found[spread, change] += alarms(decided)
    assert all(upper_bound(count, SUITES[tests]) <= 1.5 * SETTINGS.level for count in found.values()), found
    assert found[0.2, 0.01] > 0, "nothing was simulated"


@every_noise
def test_tests_at_the_limit_are_accepted_no_more_often_than_the_level_says(noise: Noise) -> None:
    accepted = dict.fromkeys((0.01, 0.02, 0.04), 0)
    for summaries in drawn(noise, 10, 3_000):
        for spread in accepted:
            decided = decided_at_once(summaries.scaled(spread, 0.05), shared_by=10, settings=SETTINGS)
            accepted[spread] += int((decided.verdicts == NOT_REGRESSED).sum())
    assert all(upper_bound(count, 30_000) <= 1.5 * SETTINGS.level for count in accepted.values()), accepted


@pytest.mark.parametrize("noise", [normal, NOISES["bimodal process"]], ids=["normal", "bimodal process"])
def test_real_regressions_beside_them_raise_no_alarm_of_unchanged_tests(noise: Noise) -> None:
    false = 0
    for summaries in drawn(noise, 10, 10_000):
        wide = summaries.scaled(0.2, 0.0)
        means = wide.means + np.where(np.arange(10) < 5, np.log(1.01), np.log(2.0))
        decided = decided_at_once(wide._replace(means=means), shared_by=10, settings=SETTINGS)
        assert share(Decided(decided.verdicts[:, 5:], decided.rounds), REGRESSED) > 0.9
        false += int((decided.verdicts[:, :5] == REGRESSED).any(axis=1).sum())
    assert upper_bound(false, 10_000) <= 1.5 * SETTINGS.level
    assert false > 0.2 * SETTINGS.level * 10_000, "handing the level on has to be seen"


@pytest.mark.parametrize(("ended_at", "tests"), [(5, 1), (7, 1), (9, 1), (9, 10), (13, 10)])
def test_a_budget_that_ends_early_raises_no_more_alarms(ended_at: int, tests: int) -> None:
    found, counts = 0, tuple(sorted({*LOOKS, ended_at}))
    for summaries in drawn(normal, tests, 10_000, counts):
        wide = summaries.scaled(0.2, 0.01)
        found += alarms(decided_at_once(wide, shared_by=tests, settings=SETTINGS, ended_at=ended_at))
    assert 0.5 * SETTINGS.level < found / 10_000
    assert upper_bound(found, 10_000) <= 1.5 * SETTINGS.level


@pytest.mark.parametrize(
    ("tests", "spread", "change", "least"),
    [(1, 0.021, 0.05, 0.95), (10, 0.021, 0.05, 0.95), (10, 0.021, 0.10, 0.99), (10, 0.04, 0.10, 0.99)],
)
def test_slower_tests_are_caught(tests: int, spread: float, change: float, least: float) -> None:
    for summaries in drawn(normal, tests, 3_000):
        decided = decided_at_once(summaries.scaled(spread, change), shared_by=tests, settings=SETTINGS)
        assert share(decided, REGRESSED) >= least


@every_noise
def test_unchanged_tests_are_accepted_with_few_rounds(noise: Noise) -> None:
    for spread, most_rounds, most_open in ((0.01, 5.5, 0.01), (0.02, 6.5, 0.01), (0.04, 11, 0.10)):
        for summaries in drawn(noise, 10, 1_000):
            decided = decided_at_once(summaries.scaled(spread, 0.0), shared_by=10, settings=SETTINGS)
            assert share(decided, INCONCLUSIVE) <= most_open
            assert share(decided, IMPROVED) <= 0.001
            assert decided.rounds.mean() < most_rounds


def test_a_large_suite_of_processes_that_are_fast_or_slow_by_chance_holds_because_five_rounds_only_accept() -> None:
    """Five like signs come once in a thousand, and so in 3 of 100 suites of 30 tests."""
    source, runs, five = np.random.default_rng(9), 4_000, 0
    found = 0
    for chunk in chunks(runs, 2_000):
        values = processes_of_two_kinds(source, (chunk, 30, 15), slow=0.5, share=0.9999)
        found += alarms(decided_at_once(summaries_of(0.02 * values + np.log(1.01)), shared_by=30, settings=SETTINGS))
        five += int(np.any(np.all(values[..., :5] > 1, axis=2), axis=1).sum())
    assert five / runs > 0.02
    assert upper_bound(found, runs) <= 1.5 * SETTINGS.level


def test_rounds_that_remember_each_other_break_the_level() -> None:
    """No procedure here holds it: this is why autocorrelation is looked for and reported."""
    (summaries,) = drawn(autocorrelated_rounds(0.5), 10, 3_000)
    decided = decided_at_once(summaries.scaled(0.2, 0.01), shared_by=10, settings=SETTINGS)
    assert alarms(decided) / 3_000 > 10 * SETTINGS.level
