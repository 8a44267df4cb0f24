"""The bundled steps, what each is made of, and commits that make some of them slower by a known part."""

import pprint
import random
from collections.abc import Mapping, Sequence

from pytest_stepprof.record.self_check import SlowdownKind, SlowedStep

UNITS = 20
"""Equal units of work in every step, its loader's included: one more is 5 % more."""

_UNITS_IN_LOADER = 8

KINDS: Mapping[str, SlowdownKind] = {
    "projection_inference": "more compute",
    "lstm_inference": "more compute",
    "attention_inference": "more compute",
    "mlp_training": "more compute",
    "conv_training": "more compute",
    "normalise_inference": "more allocation",
    "gather_inference": "more allocation",
    "embedding_training": "more allocation",
    "loader_inference": "slower loader",
    "loader_training": "slower loader",
}
"""In which way each bundled step can be made slower."""

_SLOWED: Mapping[SlowdownKind, int] = {"more compute": 2, "more allocation": 2, "slower loader": 1}
"""How many steps of each kind one commit makes slower: half of all, so that the other half shows false alarms."""


def draw_slowed(percent: int, source: random.Random) -> tuple[SlowedStep, ...]:
    """Choose the steps that a commit makes slower by ``percent``; none for 0.

    Raises:
        ValueError: so many percent of a step are no whole number of units.
    """
    more = whole_units(percent)
    if more == 0:
        return ()
    chosen = [
        name
        for kind, count in _SLOWED.items()
        for name in source.sample([name for name, its_kind in KINDS.items() if its_kind == kind], count)
    ]
    return tuple(
        SlowedStep(name=name, kind=KINDS[name], units_before=UNITS, units_after=UNITS + more) for name in sorted(chosen)
    )


def whole_units(percent: int) -> int:
    """Return how many units ``percent`` of a step are.

    Raises:
        ValueError: they are no whole number.
    """
    units, rest = divmod(percent * UNITS, 100)
    if rest or percent < 0:
        raise ValueError(f"found a slowdown of {percent} %, expected a multiple of {100 // UNITS} %")
    return units


def units_text(slowed: Sequence[SlowedStep] = ()) -> str:
    """Return the module that says of how many units each step and each loader is made."""
    loaders = {name: _UNITS_IN_LOADER for name, kind in KINDS.items() if kind == "slower loader"}
    steps = {name: UNITS - loaders.get(name, 0) for name in KINDS}
    for one in slowed:
        (loaders if one.kind == "slower loader" else steps)[one.name] += one.units_after - one.units_before
    return (
        '"""How many equal units of work each step is made of, and how many its loader does for each batch."""\n\n'
        f"STEP = {pprint.pformat(steps, sort_dicts=False)}\n\n"
        f"LOADER = {pprint.pformat(loaders, sort_dicts=False)}\n"
    )
