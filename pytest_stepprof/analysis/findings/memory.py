"""Which part of the step stands at the peak of its memory?"""

from pytest_stepprof.analysis.findings.shares import LEAST_SHARE, evidence, mean
from pytest_stepprof.analysis.listing import listed
from pytest_stepprof.analysis.units import byte_size
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import HolderMemory, MemoryUse, Window

_LEAST_PEAK_BYTES = 8 * 2**20
"""A step whose memory rises by less than this has no peak worth a word."""
_HOLDERS_NAMED = 3


def memory_peak(window: Window) -> tuple[Finding, ...]:
    """The peak of memory above the level at the step's start, and who stands at it.

    Of several devices it is that with the largest peak; the host's memory only where no device's is worth a word.
    """
    ranked = sorted(window.memory, key=lambda use: (use.device == "cpu", -max(use.peak_bytes, default=0), use.device))
    return next((found for use in ranked if (found := _of_device(window, use))), ())


def _of_device(window: Window, use: MemoryUse) -> tuple[Finding, ...]:
    peak_bytes = max(use.peak_bytes, default=0)
    total_bytes = use.peak_total_bytes
    thin = total_bytes is not None and peak_bytes < LEAST_SHARE * total_bytes
    holders = _holders(use, peak_bytes)
    if peak_bytes < _LEAST_PEAK_BYTES or thin or (use.peak_holder is None and not holders):
        return ()
    total = "" if total_bytes is None else f" ({byte_size(total_bytes)} in all)"
    stands = "" if use.peak_holder is None else f"; at the peak, {use.peak_holder} is at work"
    kept = listed([f"{holder.name} {byte_size(mean(holder.kept_bytes))}" for holder in holders])
    keeps = f". Kept when its label closes, what is in it included: {kept}" if kept else ""
    return (
        Finding(
            code="memory peak",
            share=None,
            observation=f"On {use.device}, memory rises to {byte_size(peak_bytes)} above the start of a "
            f"{'trace' if window.whole_trace else 'step'}{total}{stands}{keeps}.",
            evidence=(
                evidence("peak above the start", peak_bytes, "bytes"),
                *(() if total_bytes is None else (evidence("peak in all", total_bytes, "bytes"),)),
                *(evidence(holder.name, mean(holder.kept_bytes), "bytes/step") for holder in holders),
            ),
            hypothesis="A large intermediate result there, or in training what is kept for backward, may set the peak.",
            next_check=_check(window),
        ),
    )


def _holders(use: MemoryUse, peak_bytes: int) -> list[HolderMemory]:
    """Who keeps a share of the peak that is worth a word, the largest first."""
    least_bytes = max(1, LEAST_SHARE * peak_bytes)
    keeping = [holder for holder in use.holders if mean(holder.kept_bytes) >= least_bytes]
    return sorted(keeping, key=lambda holder: (-mean(holder.kept_bytes), holder.name))[:_HOLDERS_NAMED]


def _check(window: Window) -> str:
    finer = "" if window.modules else "; --stepprof-modules names the module"
    return f"Try torch.utils.checkpoint, bf16 autocast or a smaller batch{finer}."
