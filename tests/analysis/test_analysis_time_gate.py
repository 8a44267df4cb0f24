"""The sentence of the time gate: the ratio that decided comes first, and no ratio is a bare number."""

import msgspec
import pytest
from report_scene import time_comparison
from sample_records import sample_measurement

from pytest_stepprof.analysis.time_gate import judge_time
from pytest_stepprof.record.comparison import TimeComparison
from pytest_stepprof.record.settings import JudgeSettings

_QUIET = msgspec.structs.replace(
    time_comparison(4e6, 0.9, 1.4, "regressed"),
    ratio=1.0,
    quantile=0.1,
    before_quantile_ns=2e6,
    after_quantile_ns=2e6,
)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            "time:25%",
            ": medians 2.00 ms/step before, 4.00 ms/step now, 2.00x slower; in the fastest 10 % of steps 2.00 ms/step "
            "before, 2.00 ms/step now, 1.00x; interval 1.11x faster to 1.40x slower, ",
        ),
        (
            None,
            ": 2.00 ms/step before, 2.00 ms/step now in the fastest 10 % of steps, 1.00x (medians 2.00 ms/step before, "
            "4.00 ms/step now); interval 1.11x faster to 1.40x slower, ",
        ),
    ],
)
def test_a_fixed_rule_is_told_by_the_medians_that_it_judged(rule: str | None, said: str) -> None:
    """The fastest steps may not have changed at all: 1.00x would be no reason to fail."""
    time: TimeComparison = msgspec.structs.replace(_QUIET, fixed_rule=rule)
    measurement = sample_measurement()
    (found,) = judge_time(time, measurement, measurement, JudgeSettings(), None, decides=True).reasons
    assert said in found.text
