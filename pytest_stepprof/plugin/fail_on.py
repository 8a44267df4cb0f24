"""A person's own rules about what fails a test: ``--stepprof-fail-on``, the marker's ``fail_on``, ini lines.

Nothing heavy is imported here, because pytest reads this at every start.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

import pytest

from pytest_stepprof.analysis.fail_rules import FailRule, RuledGate, parse_fail_rule, parse_pattern_rule, rules_for
from pytest_stepprof.errors import UsageError

KEYWORD = "fail_on"
INI = "stepprof_fail_on"
_FLAG = "--stepprof-fail-on"
_MODES: dict[RuledGate, str] = {
    "outputs": "outputs",
    "counters": "counters",
    "memory": "memory_growth",
    "time": "time",
}
"""The option that says whether a gate fails, warns or is off."""


def add_options(group: pytest.OptionGroup, parser: pytest.Parser) -> None:
    """Add the option and its ini counterpart."""
    group.addoption(
        _FLAG,
        action="append",
        metavar="RULE",
        help="a fixed rule, repeatable: time:25%%, time:10%%+0.5ms, memory:10%%+8MiB, or a gate alone (outputs, "
        "counters, memory, time) to let it fail",
    )
    parser.addini(INI, "fixed rules, one a line: RULE or PATTERN = RULE", type="linelist", default=[])


def check(config: pytest.Config) -> None:
    """Refuse rules of command line and ini that cannot be understood.

    Raises:
        UsageError: one of them cannot.
    """
    _from_command_line(config)
    _from_ini(config)


def fail_rules(config: pytest.Config, marker: Mapping[str, Any], *names: str) -> tuple[FailRule, ...]:
    """Return the rules of a test of these names: the marker's over the command line's over the ini file's.

    Where a closer place says of a gate whether it fails (``--stepprof-time=off`` on the command line), a rule from
    farther away does not hold for it. Of one place's rules for a gate, the last one counts.

    Raises:
        UsageError: a rule cannot be understood.
    """
    said_by_marker = {gate for gate, option in _MODES.items() if marker.get(option) is not None}
    said = said_by_marker | {gate for gate, option in _MODES.items() if config.getoption(f"stepprof_{option}")}
    rules = (
        *_without(said, _from_ini(config)),
        *_without(said_by_marker, _from_command_line(config)),
        *_from_marker(marker),
    )
    return rules_for(rules, *names)


def _without(gates: Set[RuledGate], rules: list[FailRule]) -> list[FailRule]:
    return [rule for rule in rules if rule.gate not in gates]


def _from_ini(config: pytest.Config) -> list[FailRule]:
    return [_rule(line, f"the ini option {INI}", parse_pattern_rule) for line in config.getini(INI)]


def _from_command_line(config: pytest.Config) -> list[FailRule]:
    return [_rule(text, _FLAG, parse_fail_rule) for text in config.getoption("stepprof_fail_on") or ()]


def _from_marker(marker: Mapping[str, Any]) -> list[FailRule]:
    given = marker.get(KEYWORD, ())
    texts = given if isinstance(given, (tuple, list)) else (given,)
    return [_rule(text, f"@pytest.mark.stepprof({KEYWORD}=...)", parse_fail_rule) for text in texts]


def _rule(text: object, source: str, parse: Callable[[str], FailRule]) -> FailRule:
    try:
        return parse(str(text))
    except ValueError as error:
        raise UsageError(f"{source} is {text!r}; {error}.") from None
