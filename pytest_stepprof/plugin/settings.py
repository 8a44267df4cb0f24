"""From a test's options to the records that say how it is measured and how it is judged."""

import pytest

from pytest_stepprof.analysis.fail_rules import FailRule
from pytest_stepprof.analysis.ruled import apply_fail_rules
from pytest_stepprof.plugin import fail_on, hooks, options
from pytest_stepprof.plugin.identity import identify
from pytest_stepprof.record.settings import CounterRule, JudgeSettings, MeasureSettings, PathTolerance


def measure_settings(item: pytest.Item) -> MeasureSettings:
    """Return how a test is measured, from command line, marker, ini and defaults.

    A rule about memory needs it recorded: that has a window of its own, so that nothing else changes.
    """
    values = options.resolve(item.config, hooks.marker_keywords(item))
    ruled = any(rule.gate == "memory" for rule in _rules(item))
    return MeasureSettings(
        device=values["device"],
        warmup_steps=values["warmup_steps"],
        window_wait_steps=values["window_wait_steps"],
        window_warmup_steps=values["window_warmup_steps"],
        window_active_steps=values["window_active_steps"],
        runs=values["runs"],
        steps_per_run=values["steps_per_run"],
        run_time_s=values["run_time"],
        budget_s=values["budget"],
        record_shapes=values["shapes"],
        record_stacks=values["stacks"],
        record_memory=values["memory"] or ruled,
        record_modules=values["modules"],
        keep_trace=values["trace"],
        seed=values["seed"],
        outputs_limit_bytes=values["outputs_limit"],
    )


def judge_settings(item: pytest.Item) -> JudgeSettings:
    """Return how a test is judged, from marker, command line, ini and defaults."""
    values = options.resolve(item.config, hooks.marker_keywords(item))
    growth = values["memory_tolerance"]
    settings = JudgeSettings(
        tolerance=values["tolerance"],
        limit=values["limit"],
        level=values["level"],
        outputs=values["outputs"],
        counters=values["counters"],
        time=values["time"],
        rtol=values["rtol"],
        atol=values["atol"],
        tolerances=tuple(PathTolerance(**one._asdict()) for one in values["output_tolerances"]),
        counter_rules=tuple(CounterRule(**one._asdict()) for one in values["counter_rules"]),
        memory=values["memory_growth"],
        memory_tolerance=growth.share,
        memory_tolerance_bytes=growth.size_bytes,
    )
    return apply_fail_rules(settings, _rules(item))


def _rules(item: pytest.Item) -> tuple[FailRule, ...]:
    test = identify(item)
    return fail_on.fail_rules(item.config, hooks.marker_keywords(item), test.node_id, test.key)
