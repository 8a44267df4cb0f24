"""How a test is judged once its fail rules are in force."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pytest_stepprof.analysis.fail_rules import FailRule
from pytest_stepprof.record.settings import JudgeSettings, TimeRule


def apply_fail_rules(settings: JudgeSettings, rules: Sequence[FailRule]) -> JudgeSettings:
    """Set the gates that rules name to ``fail``, and let their growth decide where they give one."""
    return msgspec.structs.replace(settings, **changes_of_rules(rules))


def changes_of_rules(rules: Sequence[FailRule]) -> dict[str, Any]:
    """Return the fields of JudgeSettings that rules set, with their values; of each gate the last rule holds."""
    of_gate = {rule.gate: rule for rule in rules}
    changes: dict[str, Any] = {"fixed_rules": tuple(rule.text for rule in of_gate.values())}
    for rule in of_gate.values():
        changes[rule.gate] = "fail"
        if rule.growth and rule.gate == "time":
            changes["time_rule"] = TimeRule(text=rule.text, relative=rule.relative, absolute_ns=rule.absolute)
        elif rule.growth:
            changes |= {"memory_tolerance": rule.relative, "memory_tolerance_bytes": int(rule.absolute)}
    return changes
