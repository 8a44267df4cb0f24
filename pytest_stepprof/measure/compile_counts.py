"""What ``torch.compile`` did since the test's first step: graph breaks and graphs, as counters of the measurement.

torch keeps these numbers for itself (``torch._dynamo.utils.counters``); where they are not as expected there are no
such counters. What was compiled before stays compiled, and nobody counts it again: after another test that has run the
same code there would be fewer. So they are given only where the test began with no compiled code at all in this
process: as the first of its session that compiles, or after ``torch._dynamo.reset()``. Nor are they given when the
budget took warm-up steps away, because a step that was not taken may have been the one with another shape.
"""

import sys
from dataclasses import dataclass
from typing import Any

from pytest_stepprof.record.window import Counter

GRAPH_BREAKS = "graph breaks in the whole test"
COMPILATIONS = "compilations in the whole test"


@dataclass(frozen=True)
class CompileCounts:
    """How many graph breaks and graphs there were in this process up to a moment; ``compiled_code`` was alive then."""

    graph_breaks: int = 0
    graphs: int = 0
    compiled_code: bool = False


def compile_counts() -> CompileCounts:
    """Read torch's own numbers: all 0 where nothing was compiled yet, or where this torch keeps them elsewhere."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return CompileCounts()
    codes = getattr(getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None), "seen_ids", None)
    return CompileCounts(
        graph_breaks=sum(counters["graph_break"].values()) if "graph_break" in counters else 0,
        graphs=counters["stats"]["unique_graphs"] if "stats" in counters else 0,
        compiled_code=codes is None or len(codes) > 0,
    )


def compile_counters(before: CompileCounts, after: CompileCounts, *, warmed_up: bool) -> tuple[Counter, ...]:
    """Return the counters from the one moment to the other, none where they would depend on what ran before.

    ``warmed_up`` says that all warm-up steps that were asked for were taken.
    """
    graphs, breaks = after.graphs - before.graphs, after.graph_breaks - before.graph_breaks
    if before.compiled_code or not warmed_up or not (graphs or breaks):
        return ()
    return (_counter(GRAPH_BREAKS, "breaks", breaks), _counter(COMPILATIONS, "graphs", graphs))


def _counter(name: str, unit: str, count: int) -> Counter:
    return Counter(name=name, unit=unit, per_step=(count,), exact=True, scope="measurement")
