"""What waiting for a core can explain is no change of the step."""

import math
from collections import namedtuple

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.dispersion import median_without_waiting_ns
from pytest_stepprof.analysis.session_noise import log_ratio_half_width
from pytest_stepprof.analysis.time_verdict import SessionTime, compare_time, waiting_share
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import JudgeSettings

Waited = namedtuple("Waited", ("before", "after"), defaults=(0.0, 0.0))
changed = msgspec.structs.replace
JUDGE = JudgeSettings()


def compared(ratio, waited):
    baseline, after = [SessionTime(1e6, waited.before)], SessionTime(ratio * 1e6, waited.after)
    return compare_time(baseline=baseline, after=after, settings=JUDGE, tests_sharing_level=1)


def runs_that_waited(waited_ns):
    run = sample_measurement().runs[0]
    return (changed(run, steps_per_sample=2, samples_ns=(100, 200, 900), waited_ns=waited_ns),)


def test_the_median_without_waiting_takes_each_samples_own_waiting_off():
    assert median_without_waiting_ns(runs_that_waited((0, 50, 800))) == 50
    assert median_without_waiting_ns(runs_that_waited((0, 150, 9_000))) == 25


def test_waiting_that_is_not_known_for_every_sample_is_not_known():
    assert median_without_waiting_ns(runs_that_waited(())) is None
    assert median_without_waiting_ns(()) is None


@pytest.mark.parametrize(("least", "share"), [(None, 0), (100.0, 0), (130.0, 0), (25.0, 0.75), (0.0, 0.99)], ids=str)
def test_the_share_of_a_median_that_waiting_explains(least, share):
    assert waiting_share(100.0, least) == pytest.approx(share)


def test_each_end_of_the_interval_moves_by_what_waiting_explains():
    quiet, busy = compared(4, Waited()), compared(4, Waited(before=0.5, after=0.75))
    assert busy.ratio == quiet.ratio == pytest.approx(4)
    assert busy.ratio_lower == pytest.approx(quiet.ratio_lower * 0.25)
    assert busy.ratio_upper == pytest.approx(quiet.ratio_upper * 2)
    assert busy.smallest_visible_ratio == pytest.approx(quiet.smallest_visible_ratio * 4 * 2)
    assert math.log(quiet.ratio_upper / 4) == pytest.approx(log_ratio_half_width(0.01))


@pytest.mark.parametrize(
    ("ratio", "waited", "verdict"),
    [
        (17, Waited(), "regressed"),
        (17, Waited(after=0.94), "inconclusive"),
        (17, Waited(before=0.94), "regressed"),
        (4, Waited(after=0.3), "regressed"),
        (1 / 17, Waited(), "improved"),
        (1 / 17, Waited(before=0.94), "inconclusive"),
        (1 / 17, Waited(after=0.94), "improved"),
    ],
)
def test_a_busy_machine_does_not_make_a_verdict(ratio, waited, verdict):
    assert compared(ratio, waited).verdict == verdict


def test_small_shares_widen_and_are_not_worth_a_word():
    assert compared(1, Waited(after=0.01)).noise == compared(1, Waited()).noise
    assert "waiting for a core can explain: 0 % of the time before, 43 % now" in compared(1, Waited(after=0.43)).noise


def test_a_session_on_a_busy_machine_is_not_called_regressed():
    before = sample_measurement()
    slow = changed(before.dispersion, median_ns=before.dispersion.median_ns * 20)
    environment = sample_session().environment

    def verdict(now):
        outputs = OutputComparison(status="equal", leaves_compared=1, mismatches=())
        return compare_test(
            now,
            before,
            now_environment=environment,
            before_environment=environment,
            outputs=outputs,
            judge=JUDGE,
            tests_sharing_level=1,
            baseline="main",
        )

    quiet = changed(before, dispersion=slow, median_without_waiting_ns=slow.median_ns)
    busy = changed(before, dispersion=slow, median_without_waiting_ns=before.dispersion.median_ns)
    assert verdict(quiet).failed_gates == ("time",)
    assert verdict(busy).failed_gates == ()
    assert "95 % now" in verdict(busy).reasons[-1].text
