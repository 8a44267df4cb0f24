"""What every finding needs: a part of the steps' time as a share, and its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_stepprof.analysis.units import milliseconds, per_step, percent
from pytest_stepprof.record.finding import Evidence, EvidenceUnit
from pytest_stepprof.record.window import Window

LEAST_SHARE = 0.03
"""A finding that is about less of the step than this says nothing: evidence of that size is thin."""
USUAL_SHARE = 0.10
"""Of what every step does some of (Python between operators, changes of layout), less than this says nothing either."""
SMALL_CALL_NS = 10_000
"""Self time of a call below which calling an operator costs about as much as what it does."""
_UNLIKE = 1.5, 0.10
"""Steps differ if the largest share is this many times the smallest, and this much above it."""


@dataclass(frozen=True, slots=True)
class Part:
    """A time of each active step beside that step's own; both are empty where the record does not hold it."""

    part_ns: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    whole: str
    """What the share is of: a step, or a trace without steps."""

    @property
    def share(self) -> float:
        """The part of all active steps' time, at most 1: threads and devices side by side may add up to more."""
        elapsed_ns = sum(self.elapsed_ns)
        return min(1.0, sum(self.part_ns) / elapsed_ns) if elapsed_ns > 0 else 0.0

    @property
    def mean_ns(self) -> float:
        """The part per step."""
        return mean(self.part_ns)

    @property
    def steps_with(self) -> int:
        """How many steps have a part that is worth a word."""
        pairs = zip(self.part_ns, self.elapsed_ns, strict=True)
        return sum(part > 0 and part >= LEAST_SHARE * elapsed for part, elapsed in pairs)

    @property
    def matters(self) -> bool:
        """Whether the part is worth a word over all steps together, be it because of a single one."""
        return self.share >= LEAST_SHARE

    @property
    def recurs(self) -> bool:
        """Whether it is worth a word in most of the steps, so that one step's stall is not taken for a habit."""
        return self.matters and 2 * self.steps_with > len(self.part_ns)

    @property
    def text(self) -> str:
        """As a person reads it: ``69.3 ms of 174 ms per profiled step (39.6 %, in 4 of 6 steps)``."""
        of_what = "in the profiled trace" if self.whole == "trace" else "per profiled step"
        numbers = f"{milliseconds(self.mean_ns)} of {milliseconds(mean(self.elapsed_ns))} {of_what}"
        return f"{numbers} ({percent(self.share)}{self.where})"

    @property
    def short_text(self) -> str:
        """The part alone: ``69.3 ms (39.6 %)``."""
        return f"{milliseconds(self.mean_ns)} ({percent(self.share)}{self.where})"

    @property
    def where(self) -> str:
        """In how many of the steps, unless in all of them; the range of their shares, if they differ much."""
        steps = len(self.part_ns)
        if self.steps_with not in (0, steps):
            return f", in {self.steps_with} of {steps} steps"
        shares = [min(1.0, part / span) for part, span in zip(self.part_ns, self.elapsed_ns, strict=True) if span > 0]
        least, most = min(shares, default=0.0), max(shares, default=0.0)
        factor, difference = _UNLIKE
        if most < factor * least or most < least + difference:
            return ""
        return f"; single steps {percent(least)} to {percent(most)}"

    def evidence(self, name: str) -> tuple[Evidence, Evidence]:
        """The part as numbers: per step, and as a share."""
        return per_step_ns(name, self.part_ns), evidence(name, self.share, "share of the step")


def part_of(window: Window, part_ns: Sequence[int] | None) -> Part:
    """Set a time per active step beside the steps' own; of what the record does not hold, nothing is known."""
    whole = "trace" if window.whole_trace else "step"
    if not part_ns or len(part_ns) != len(window.elapsed_ns):
        return Part((), (), whole)
    return Part(tuple(max(0, part) for part in part_ns), tuple(max(0, span) for span in window.elapsed_ns), whole)


def part_of_all(window: Window, total_ns: int) -> Part:
    """Set a time of all active steps together beside their own; how it is spread over them is not known."""
    whole = "trace" if window.whole_trace else "step"
    steps = len(window.elapsed_ns)
    if not steps:
        return Part((), (), whole)
    each, rest = divmod(max(0, total_ns), steps)
    mean_elapsed_ns = tuple([sum(max(0, span) for span in window.elapsed_ns) // steps] * steps)
    return Part(tuple(each + (row < rest) for row in range(steps)), mean_elapsed_ns, whole)


def lesser(first: Part, second: Part) -> Part:
    """What two parts have in common at most, step by step."""
    if len(first.part_ns) != len(second.part_ns):
        return Part((), (), first.whole)
    pairs = zip(first.part_ns, second.part_ns, strict=True)
    return Part(tuple(min(pair) for pair in pairs), first.elapsed_ns, first.whole)


def mean(values: Sequence[int]) -> float:
    """The arithmetic mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def evidence(name: str, value: float, unit: EvidenceUnit) -> Evidence:
    """One number behind a finding."""
    return Evidence(name=name, value=value, unit=unit)


def per_step_ns(name: str, values_ns: Sequence[int]) -> Evidence:
    """A time as evidence: its mean over the active steps."""
    return evidence(name, mean(values_ns), "ns/step")


def calls_per_step(name: str, calls: Sequence[int]) -> Evidence:
    """A count as evidence: its mean over the active steps."""
    return evidence(name, mean(calls), "calls/step")


def counts_text(window: Window, counts: Sequence[int], noun: str, plural: str | None = None) -> str:
    """Counts as a person reads them: ``1 call per step``, ``10 to 12 calls per step``, ``3 calls in the trace``."""
    nouns = noun if max(counts, default=0) == 1 else plural or noun + "s"
    return f"{per_step(counts)} {nouns} {'in the trace' if window.whole_trace else 'per step'}"
