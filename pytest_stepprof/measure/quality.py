"""The declared measures of a result's quality, which decide where a change is meant to alter the result a little."""

import math
import numbers
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import numpy as np
import torch

from pytest_stepprof.analysis.labels import printable, refused_label
from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.random_state import capture_random_state, restore_random_state
from pytest_stepprof.record.quality import QualityValue

LONGEST_NAME = 100
"""Characters of a measure's name: it stands in every line about it."""

Measure = Callable[[Any], Any]
"""Takes the first step's result, on the CPU and apart from the step's memory, and returns one number."""

Margin = float | Mapping[str, float]
"""By how much measures may become worse, each in its own unit: one for all of them, or one by name."""


def quality_problems(
    quality: Mapping[str, Measure] | None, margin: Margin | None, lower_is_better: tuple[str, ...]
) -> list[str]:
    """Say what is wrong with a declaration of quality; an empty list when nothing is."""
    if quality is None:
        given = [("quality_margin", margin is not None), ("quality_lower_is_better", bool(lower_is_better))]
        return [
            f"{name} is given and quality is not; expected quality={{'name': function}}." for name, is_ in given if is_
        ]
    if not isinstance(quality, Mapping) or not quality or not all(isinstance(name, str) for name in quality):
        return [f"quality is {quality!r}; expected a dict of names and functions, such as {{'accuracy': accuracy}}."]
    uncallable = [name for name, measure in quality.items() if not callable(measure)]
    if uncallable:
        found = type_name(quality[uncallable[0]])
        return [f"quality[{uncallable[0]!r}] is a {found}; expected a function that takes the step's result."]
    strangers = [name for name in lower_is_better if name not in quality]
    if strangers:
        return [f"quality_lower_is_better names {strangers[0]!r}; expected names of quality: {_listed(quality)}."]
    return _wrong_names(quality) or _margin_problems(quality, margin)


def _margin_problems(quality: Mapping[str, Measure], margin: Margin | None) -> list[str]:
    if margin is None:
        return [
            "quality is given and quality_margin is not; expected by how much a measure may become worse, in its own "
            "unit: one number for all of them, or a dict by name."
        ]
    if isinstance(margin, Mapping) and set(margin) != set(quality):
        return [f"quality_margin has margins for {_listed(margin)}; expected the names of quality: {_listed(quality)}."]
    wrong = [one for one in (margin.values() if isinstance(margin, Mapping) else (margin,)) if not _is_margin(one)]
    return [f"quality_margin is {one!r}; expected a finite number, 0 or more." for one in wrong[:1]]


def _is_margin(value: object) -> bool:
    return _is_real(value) and _fits_a_float(value) and math.isfinite(value) and value >= 0


def _fits_a_float(value: float) -> bool:
    """Say whether a number can be stored: whole numbers of Python have no largest one."""
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _wrong_names(quality: Mapping[str, Measure]) -> list[str]:
    """Find names that must not be stored, or that nobody could read; labels go through the same look."""
    for name in quality:
        reason = refused_label(name)
        if not name.strip() or len(name) > LONGEST_NAME:
            return [f"quality has a name of {len(name)} characters; expected 1 to {LONGEST_NAME}, not all blank."]
        if reason is not None:
            return [
                f"the name of quality that begins with {printable(name[:4])!r}… is refused: {reason}. Expected a word "
                "for what is measured."
            ]
    return []


def _is_real(value: object) -> TypeGuard[float]:
    """Say whether a value is a real number of Python or NumPy; a truth value is none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"


def measured_quality(
    quality: Mapping[str, Measure] | None, margin: Margin | None, lower_is_better: tuple[str, ...], result: Any
) -> tuple[QualityValue, ...]:
    """Give each measure of one result, of which each gets a copy of its own: it may work in place.

    What a measure raises goes through; random sources are as before afterwards.

    Raises:
        UsageError: a measure returned anything but one real number.
    """
    if not quality or margin is None:
        return ()
    random_state = capture_random_state()
    try:
        values = {name: _as_number(name, measure(independent_copy(result))) for name, measure in quality.items()}
    finally:
        restore_random_state(random_state)
    return tuple(
        QualityValue(
            name=printable(name),
            value=value if math.isfinite(value) else None,
            margin=float(margin[name] if isinstance(margin, Mapping) else margin),
            better="lower" if name in lower_is_better else "higher",
            not_finite="" if math.isfinite(value) else repr(value),
        )
        for name, value in values.items()
    )


def _as_number(name: str, found: object) -> float:
    value = found
    if isinstance(value, torch.Tensor | np.ndarray) and math.prod(value.shape) == 1:
        value = value.item()
    if _is_real(value) and not _fits_a_float(value):
        raise UsageError(
            f"quality[{name!r}] returned a {type_name(found)} beyond {sys.float_info.max:.2g}; expected a number that "
            "fits a float."
        )
    if _is_real(value):
        return float(value)
    shape = f" of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor | np.ndarray) else ""
    raise UsageError(
        f"quality[{name!r}] returned a {type_name(found)}{shape}; expected one real number: of Python or NumPy, or "
        "a tensor with one element."
    )
