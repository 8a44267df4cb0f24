"""Stored outputs in words: one line a leaf, for a person who decides whether a changed result is the right one."""

import math

import numpy as np
import torch

from pytest_stepprof.measure.outputs.layouts import LAYOUTS
from pytest_stepprof.measure.outputs.leaf_comparison import wide
from pytest_stepprof.measure.outputs.loading import LoadedOutputs
from pytest_stepprof.measure.outputs.parts_comparison import small_floats
from pytest_stepprof.measure.outputs.recipes import REAL_PAIRS
from pytest_stepprof.record.outputs import OutputNode, OutputSample, StoredOutputs

_LONGEST_TEXT = 60
_BLOCK_ELEMENTS = 2**20


def summarize_leaves(stored: StoredOutputs, payload: bytes) -> dict[str, str]:
    """Describe every leaf by its path, ``None`` included: ``float32 [32, 10], mean 0.103, std 1.02, ...``.

    The figures are over the elements that are finite, in float64 (``std`` is that of all of them, divided by their
    number); of a sparse tensor over the stored elements, of a quantized one over its integers, of a sampled one over
    the sample. Complex tensors are described by their magnitudes. Text is shortened to 60 characters.

    Raises OutputError when the payload is not the one that the record names, or the record cannot be right.
    """
    loaded = LoadedOutputs(stored, payload, "to be summarized")
    return {node.path: _line(node, loaded) for node in stored.nodes if node.kind != "container"}


def _line(node: OutputNode, loaded: LoadedOutputs) -> str:
    if node.kind == "none":
        return "None"
    if node.kind in ("text", "bytes"):
        return f"{node.type_name} {_shortened(node)}"
    if node.kind == "number":
        return f"{node.type_name} {_cut(node.value or '')}"
    dtype = (node.dtype or "").removesuffix(REAL_PAIRS)
    words = [f"{dtype} {list(node.shape or ())}", *_words_of_layout(node, loaded)]
    return ", ".join([*words, *_figures(_values(node, loaded)), *([] if node.sample is None else _whole(node.sample))])


def _words_of_layout(node: OutputNode, loaded: LoadedOutputs) -> list[str]:
    if node.layout is None or node.layout == "bits":
        return []
    layout = LAYOUTS[node.layout]
    facts = [f"{name} {value}" for name, value in node.facts]
    if layout.stored is not None:
        facts.append(f"{loaded.parts(node)[layout.places[-1]].shape[-1]} {layout.stored}")
    return [node.layout, *facts]


def _values(node: OutputNode, loaded: LoadedOutputs) -> list[torch.Tensor]:
    """Give the tensors that hold a leaf's numbers, without indices, offsets and scales."""
    if node.layout is None:
        return [loaded.values(node)]
    parts = loaded.parts(node)
    if node.layout == "nested":
        return list(parts.values())
    if node.layout == "bits":
        return [small_floats(parts["bits"], node.dtype or "")]
    return [parts[LAYOUTS[node.layout].values or "integers"]]


def _figures(tensors: list[torch.Tensor]) -> list[str]:
    if all(tensor.dtype is torch.bool for tensor in tensors) and tensors:
        return [f"{sum(int(tensor.sum()) for tensor in tensors)} true"]
    moments = _Moments()
    for tensor in tensors:
        for block in torch.split(tensor.reshape(-1), _BLOCK_ELEMENTS):
            moments.add(block)
    return moments.words()


class _Moments:
    """Mean, deviation and extremes over blocks; Chan, Golub and LeVeque's way of adding the squares of two groups."""

    def __init__(self) -> None:
        self.elements = self.not_finite = 0
        self.mean = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self.of_magnitudes = False

    def add(self, block: torch.Tensor) -> None:
        numbers = wide(block)
        if np.iscomplexobj(numbers):
            self.of_magnitudes, numbers = True, np.abs(numbers)
        finite = numbers[np.isfinite(numbers)]
        self.not_finite += numbers.size - finite.size
        if not finite.size:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(finite.mean())
            squares = float(((finite - mean) ** 2).sum())
            step, total = mean - self.mean, self.elements + finite.size
            self.squares += squares + step * step * self.elements * finite.size / total
            self.mean += step * finite.size / total
        self.elements = total
        self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def words(self) -> list[str]:
        if not self.elements:
            return [f"{self.not_finite} not finite"] if self.not_finite else ["empty"]
        names = "magnitudes: mean" if self.of_magnitudes else "mean"
        deviation = math.sqrt(self.squares / self.elements) if self.squares >= 0 else math.nan
        return [
            f"{names} {self.mean:.6g}",
            f"std {deviation:.6g}",
            f"min {self.low:.6g}",
            f"max {self.high:.6g}",
            f"{self.not_finite} not finite",
        ]


def _whole(sample: OutputSample) -> list[str]:
    norm = "beyond float64" if sample.euclidean_norm is None else f"{sample.euclidean_norm:.9g}"
    return [
        f"of a sample of {sample.kept} out of {sample.elements} elements",
        f"all of them: euclidean norm {norm}, {sample.not_finite} not finite, sha256 {sample.sha256[:12]}",
    ]


def _shortened(node: OutputNode) -> str:
    value = node.value or ""
    if node.kind == "bytes":
        return f"of {len(value) // 2}: {_cut(value)}"
    long = len(value) > _LONGEST_TEXT
    return repr(value[:_LONGEST_TEXT]) + (f"... ({len(value)} characters)" if long else "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"
