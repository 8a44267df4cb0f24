"""Rules for counters, as people write them: text on the command line and in ini files, a mapping in a marker.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

Mode = Literal["fail", "warn", "off"]
GATE_MODES: tuple[Mode, ...] = get_args(Mode)
NO_RULES = "none"
_MODES = ", ".join(GATE_MODES)
_HOW_IN_TEXT = (
    f"expected PATTERN=MODE with a mode of {_MODES}, several separated by commas (such as calls of aten::*=off, "
    "copies=warn)"
)
_HOW_IN_A_MARKER = (
    f"expected a mapping of patterns to one of {_MODES}, such as {{'calls of aten::*': 'off', 'copies': 'warn'}}"
)


class RuleForPattern(NamedTuple):
    """What a change does of the counters whose name matches the pattern."""

    pattern: str
    mode: Mode


def counter_rules(value: object) -> tuple[RuleForPattern, ...]:
    """Read ``PATTERN=MODE``, several separated by commas or line breaks, or a marker's mapping.

    What stands behind a pattern's last equals sign is its mode, so that a pattern may hold such signs itself; one that
    holds a comma can stand in a marker.

    Raises:
        ValueError: the value cannot be understood; the message says what was expected.
    """
    if isinstance(value, Mapping):
        return tuple(_from_mapping(pattern, mode) for pattern, mode in value.items())
    if not isinstance(value, str):
        raise ValueError(_HOW_IN_A_MARKER)
    parts = [part.strip() for part in re.split(r"[,\n]", value) if part.strip()]
    if not parts:
        raise ValueError(f"{_HOW_IN_TEXT}, or {NO_RULES}")
    return () if parts == [NO_RULES] else tuple(_from_text(part) for part in parts)


def _from_text(part: str) -> RuleForPattern:
    pattern, _, mode = (piece.strip() for piece in part.rpartition("="))
    if not pattern or mode not in GATE_MODES:
        raise ValueError(f"{_HOW_IN_TEXT}, not {part!r}")
    return RuleForPattern(pattern, mode)


def _from_mapping(pattern: object, mode: object) -> RuleForPattern:
    if not isinstance(pattern, str) or not pattern.strip():
        raise ValueError(f"{_HOW_IN_A_MARKER}, not the pattern {pattern!r}")
    if not isinstance(mode, str) or mode not in GATE_MODES:
        raise ValueError(f"{_HOW_IN_A_MARKER}, not {mode!r} for {pattern!r}")
    return RuleForPattern(pattern.strip(), mode)
