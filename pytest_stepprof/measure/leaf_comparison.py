"""Two leaves of the same kind: how many elements differ, by how much, and where."""

from dataclasses import dataclass

import numpy as np
import torch

from pytest_stepprof.record.outputs import OutputMismatch

# Relative and absolute tolerance by dtype: the table in the documentation of torch.testing.assert_close (torch 2.13).
# torch has no public function for it; a test holds this table against assert_close itself.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


@dataclass(frozen=True)
class Tolerance:
    """``|after - before| <= absolute + relative * |before|`` is close enough."""

    relative: float
    absolute: float


def tolerance_for(dtype: str, rtol: float | None, atol: float | None) -> Tolerance:
    """Give the tolerance for a dtype's short name; ``rtol`` and ``atol`` replace theirs, but never for exact dtypes."""
    if dtype not in TOLERANCES:
        return Tolerance(0.0, 0.0)
    relative, absolute = TOLERANCES[dtype]
    return Tolerance(relative if rtol is None else rtol, absolute if atol is None else atol)


def compare_values(
    before: torch.Tensor, after: torch.Tensor, path: str, tolerance: Tolerance
) -> tuple[OutputMismatch, ...]:
    """Compare two dense CPU tensors of one dtype and shape, element by element.

    First where NaN, +inf and -inf stand (kind ``not finite``), then, by ``tolerance``, the elements that are finite
    on both sides (kind ``value``). Integers and booleans are compared exactly. The largest differences are those of
    the elements beyond the tolerance, the relative one over those that were not zero before, both in float64.
    """
    if before.is_floating_point() or before.is_complex():
        return _compare_inexact(_wide(before), _wide(after), path, tolerance)
    return _compare_exact(before.numpy(), after.numpy(), path)


def _wide(tensor: torch.Tensor) -> np.ndarray:
    wide = tensor.to(torch.complex128) if tensor.is_complex() else tensor.to(torch.float64)
    return wide.numpy()


def _compare_inexact(
    before: np.ndarray, after: np.ndarray, path: str, tolerance: Tolerance
) -> tuple[OutputMismatch, ...]:
    both_finite = np.isfinite(before) & np.isfinite(after)
    moved = ~both_finite & ~_same_not_finite(before, after)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = np.abs(after - before)
        size = np.abs(before)
        beyond = both_finite & ~(difference <= tolerance.absolute + tolerance.relative * size)
        relative = difference / size
    found = []
    if moved.any():
        found.append(_not_finite(before, after, moved, path, tolerance))
    if beyond.any():
        found.append(_value(difference, np.where(size > 0, relative, np.nan), beyond, path, tolerance))
    return tuple(found)


def _same_not_finite(before: np.ndarray, after: np.ndarray) -> Flags:
    """Say where both sides have the same pattern of NaN, +inf, -inf and finite, part by part for complex."""
    if np.iscomplexobj(before):
        return _same_not_finite(before.real, after.real) & _same_not_finite(before.imag, after.imag)
    same_nan = np.isnan(before) == np.isnan(after)
    same_up = np.isposinf(before) == np.isposinf(after)
    same_down = np.isneginf(before) == np.isneginf(after)
    same: Flags = same_nan & same_up & same_down
    return same


def _compare_exact(before: np.ndarray, after: np.ndarray, path: str) -> tuple[OutputMismatch, ...]:
    beyond = before != after
    if not beyond.any():
        return ()
    # uint64 arithmetic wraps, so this is exact for every pair of integers of up to 64 bits
    with np.errstate(over="ignore"):
        difference = np.maximum(before, after).astype(np.uint64) - np.minimum(before, after).astype(np.uint64)
    size = np.abs(before.astype(np.float64))
    relative = np.divide(difference, size, out=np.full(size.shape, np.nan), where=size > 0)
    return (_value(difference, relative, beyond, path, Tolerance(0.0, 0.0)),)


def _not_finite(
    before: np.ndarray, after: np.ndarray, moved: np.ndarray, path: str, tolerance: Tolerance
) -> OutputMismatch:
    index = _index(int(np.argmax(moved)), moved.shape)
    count = int(moved.sum())
    return OutputMismatch(
        path=path,
        kind="not finite",
        message=f"{count} of {moved.size} elements are not finite in the same way on both sides; "
        f"the first is {before[index]} before and {after[index]} after{_at(index)}",
        elements=moved.size,
        elements_beyond=count,
        worst_index=index,
        relative_tolerance=tolerance.relative,
        absolute_tolerance=tolerance.absolute,
    )


def _value(
    difference: np.ndarray, relative: np.ndarray, beyond: np.ndarray, path: str, tolerance: Tolerance
) -> OutputMismatch:
    index = _index(int(np.argmax(np.where(beyond, difference, 0))), beyond.shape)
    count = int(beyond.sum())
    absolute = _finite(difference[index])
    ratios = relative[beyond & np.isfinite(relative)]
    largest_relative = _finite(ratios.max()) if ratios.size else None
    return OutputMismatch(
        path=path,
        kind="value",
        message=_sentence(count, beyond.size, absolute, largest_relative, index, tolerance),
        elements=beyond.size,
        elements_beyond=count,
        largest_absolute=absolute,
        largest_relative=largest_relative,
        worst_index=index,
        relative_tolerance=tolerance.relative,
        absolute_tolerance=tolerance.absolute,
    )


def _sentence(
    count: int, total: int, absolute: float | None, relative: float | None, index: tuple[int, ...], tolerance: Tolerance
) -> str:
    largest = "beyond float64" if absolute is None else f"{absolute:.6g}"
    ratio = "has no value (zero before)" if relative is None else f"{relative:.6g}"
    return (
        f"{count} of {total} elements differ by more than rtol {tolerance.relative:g}, atol {tolerance.absolute:g}; "
        f"the largest absolute difference is {largest}{_at(index)}; the largest relative one {ratio}"
    )


def _at(index: tuple[int, ...]) -> str:
    return f", at {list(index)}" if index else ""


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(part) for part in np.unravel_index(flat, shape)) if shape else ()


def _finite(value: np.generic) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None
