"""A person's own rules about what fails a test, as they write them: ``time:25%``, ``memory:10%+8MiB``, ``counters``.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from pytest_stepprof.analysis.byte_sizes import parse_memory_tolerance

RuledGate = Literal["time", "memory", "counters", "outputs"]

_GATES: tuple[RuledGate, ...] = ("time", "memory", "counters", "outputs")
_EXPECTED = "expected time:25%, time:10%+0.5ms, memory:10%+8MiB, or one of time, memory, counters, outputs alone"
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)")
_UNIT_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_MOST_PERCENT = 10**6


class FailRule(NamedTuple):
    """One rule for one gate. Without ``growth`` the gate fails a test and judges as it always does.

    ``relative`` is a share of what was (0.1 is 10 %), ``absolute`` comes on top, in nanoseconds or bytes. ``pattern``
    says for which tests it holds, ``None`` for all.
    """

    text: str
    gate: RuledGate
    growth: bool = False
    relative: float = 0.0
    absolute: float = 0.0
    pattern: str | None = None


def parse_fail_rule(text: str) -> FailRule:
    """Parse ``GATE`` or ``GATE:GROWTH``, growth being a share, a time or size with its unit, or both joined by ``+``.

    Raises:
        ValueError: the text is none of these; says what was expected.
    """
    written = text.strip()
    name, colon, growth = (part.strip() for part in written.partition(":"))
    gate = next((known for known in _GATES if known == name), None)
    if gate is None or (colon and (not growth or gate in ("counters", "outputs"))):
        raise ValueError(_EXPECTED)
    if not colon:
        return FailRule(written, gate)
    relative, absolute = _time_growth(growth) if gate == "time" else _memory_growth(growth)
    return FailRule(written, gate, True, relative, absolute)


def parse_pattern_rule(line: str) -> FailRule:
    """Parse ``RULE`` or ``PATTERN = RULE``, in which ``*`` of the pattern stands for any text of a test's id.

    Raises:
        ValueError: the rule cannot be understood, or there is no pattern before ``=``.
    """
    pattern, equals, rule = line.rpartition("=")
    if not equals:
        return parse_fail_rule(line)
    if not pattern.strip():
        raise ValueError(f"{_EXPECTED}; before '=' a pattern of tests")
    return parse_fail_rule(rule)._replace(pattern=pattern.strip())


def rules_for(rules: Sequence[FailRule], *names: str) -> tuple[FailRule, ...]:
    """Return the rules that hold for a test of these names (its id, its key): of each gate the last one."""
    found = {rule.gate: rule for rule in rules if rule.pattern is None or _matches(rule.pattern, names)}
    return tuple(found.values())


def _matches(pattern: str, names: Sequence[str]) -> bool:
    literal = pattern.replace("[", "[[]")  # a test's parameters stand in brackets
    return any(fnmatchcase(name, literal) for name in names)


def _time_growth(text: str) -> tuple[float, float]:
    parts = [part.strip() for part in text.split("+")]
    shares = [float(found[1]) for part in parts if (found := _SHARE.fullmatch(part))]
    times = [float(found[1]) * _UNIT_NS[found[2]] for part in parts if (found := _TIME.fullmatch(part))]
    beyond = max(shares, default=0) > _MOST_PERCENT
    if beyond or len(shares) > 1 or len(times) > 1 or len(shares) + len(times) < len(parts):
        raise ValueError(f"{_EXPECTED}; units of time are {', '.join(_UNIT_NS)}")
    return sum(shares) / 100, sum(times)


def _memory_growth(text: str) -> tuple[float, float]:
    growth = parse_memory_tolerance(text)
    return growth.share, growth.size_bytes
