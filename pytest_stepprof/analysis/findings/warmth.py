"""Does the window do what a warm step does not do any more?"""

import re

from pytest_stepprof.analysis.findings.shares import calls_per_step, counts_text, evidence, part_of
from pytest_stepprof.analysis.listing import counted, listed
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import Window

_ALLOCATING = re.compile(r"(Malloc|Free|HostAlloc)", re.IGNORECASE)


def compilation_in_the_window(window: Window) -> tuple[Finding, ...]:
    """The compiler works in the steps that were to be warm, be it in one of them only."""
    part = part_of(window, window.compilation_cpu_ns)
    if not part.matters:
        return ()
    events = f", {counts_text(window, window.compilations, 'timed event')}" if window.compilations else ""
    return (
        Finding(
            code="compilation in the window",
            share=part.share,
            observation=f"The compiler is at work for {part.text}{events}.",
            evidence=(
                *part.evidence("compilation"),
                calls_per_step("timed events of the compiler", window.compilations),
            ),
            hypothesis="Shapes or values that differ may cause recompilation, or the warm-up could be too short.",
            next_check="Warm up longer (--stepprof-warmup-steps); TORCH_LOGS=recompiles says what differs.",
        ),
    )


def allocator_not_warm(window: Window) -> tuple[Finding, ...]:
    """Raw allocations of the device, one or more for each step: a few may be left from warming up.

    How long they last is not in the record, so that there is no share. A trace without steps begins cold.
    """
    raw = [found for found in window.unwarmed if _ALLOCATING.search(found.name) and found.count > 0]
    steps = len(window.elapsed_ns)
    if window.whole_trace or not steps or sum(found.count for found in raw) < steps:
        return ()
    named = listed([f"{found.name} {counted(found.count, 'time')}" for found in raw])
    return (
        Finding(
            code="allocator not warm",
            share=None,
            observation=f"In {counted(steps, 'active step')} the allocator still asks the driver for memory, or gives "
            f"it back: {named}.",
            evidence=tuple(evidence(found.name, found.count / steps, "calls/step") for found in raw),
            hypothesis="Sizes that differ, a short warm-up, empty_cache() or nearly full memory could be behind it.",
            next_check="Warm up longer (--stepprof-warmup-steps); try PYTORCH_CUDA_ALLOC_CONF="
            "expandable_segments:True.",
        ),
    )
