"""What waiting for a core has to do with the values of rounds, in words: how much was taken off, and what could be."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from pytest_stepprof.analysis.round_value import RoundValue

_WORTH_TELLING = 0.02
_LARGE_SPREAD = 0.03


def waiting_text(values: Sequence[RoundValue], spread: float | None) -> str | None:
    """Say how much of both sides' time was waiting for a core and was taken off, where it is above 2 % of either's.

    Where nothing could be taken off in some round although the rounds spread by 3 % or more, say what would allow it.
    """
    of_visits = [value for value in values if value.blocks]
    known = [value.waited for value in of_visits if value.waited is not None]
    if known:
        base, head = (fmean(waited[side] for waited in known) for side in (0, 1))
        if max(base, head) > _WORTH_TELLING:
            some = "" if len(known) == len(of_visits) else f", in {len(known)} of {len(of_visits)} rounds"
            return f"waiting for a core taken off: {_percent(base)} of base's time, {_percent(head)} of head's{some}"
    if len(known) < len(of_visits) and spread is not None and spread >= _LARGE_SPREAD:
        return (
            "waiting for a core could not be taken off: several threads or processes were at work (OMP_NUM_THREADS=1 "
            "would allow it), or the system does not tell"
        )
    return None


def waiting_by_round(values: Mapping[int, RoundValue]) -> str | None:
    """The same by round number: base's and head's shares, of the rounds in which one is above 2 %."""
    told = [
        f"round {number} {_percent(value.waited[0])} and {_percent(value.waited[1])}"
        for number, value in sorted(values.items())
        if value.waited is not None and max(value.waited) > _WORTH_TELLING
    ]
    return ", ".join(told) or None


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
