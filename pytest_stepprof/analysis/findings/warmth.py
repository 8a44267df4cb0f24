"""Does the window do what a warm step does not do any more?"""

import re

from pytest_stepprof.analysis.findings.device import UNPROFILED
from pytest_stepprof.analysis.findings.shares import calls_per_step, counted, evidence, listed, part_of
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import Window

_ALLOCATING = re.compile(r"(Malloc|Free|HostAlloc)", re.IGNORECASE)


def compilation_in_the_window(window: Window) -> tuple[Finding, ...]:
    """The compiler works in the steps that were to be warm, be it in one of them only."""
    part = part_of(window, window.compilation_cpu_ns)
    if not part.matters:
        return ()
    events = f", {counted(window, window.compilations, 'timed event')}" if window.compilations else ""
    return (
        Finding(
            code="compilation in the window",
            share=part.share,
            observation=f"The compiler is at work for {part.text}{events}: the other shares are not those of a warm "
            "step.",
            evidence=(
                *part.evidence("compilation"),
                calls_per_step("timed events of the compiler", window.compilations),
            ),
            hypothesis="Shapes, types or Python values that differ from step to step may cause it to compile again, or "
            "there could be too few warm-up steps to have seen all of them.",
            next_check="Raise --stepprof-warmup-steps; if it compiles all the same, run the step under "
            "torch.compiler.set_stance('fail_on_recompile') or with TORCH_LOGS=recompiles to see what differs, then "
            f"keep shapes static (padding, drop_last=True) or mark them dynamic. {UNPROFILED}",
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
    named = listed([f"{found.name} {found.count} times" for found in raw])
    return (
        Finding(
            code="allocator not warm",
            share=None,
            observation=f"In the {steps} active steps the allocator still asks the driver for memory, or gives it "
            f"back: {named}.",
            evidence=tuple(evidence(found.name, found.count / steps, "calls/step") for found in raw),
            hypothesis="Sizes that differ from step to step, too few warm-up steps, torch.cuda.empty_cache() in the "
            "step, or memory that is nearly full could be behind it; such calls may wait for the device.",
            next_check="Raise --stepprof-warmup-steps; if the calls stay, take empty_cache() out, keep the shapes of "
            "batches the same, try a smaller batch, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. "
            f"{UNPROFILED}",
        ),
    )
