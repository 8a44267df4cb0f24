"""Results that differ where a first look does not see it: half-infinite numbers, flags, attributes beside fields."""

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import KEEP, Flag
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.outputs.taking import same_outputs, take_outputs
from pytest_stepprof.record.outputs import OutputMismatch

INF, NAN = math.inf, math.nan


def _mismatches(before: Any, after: Any, **tolerances: float) -> tuple[OutputMismatch, ...]:
    return same_outputs(take_outputs(before), take_outputs(after), **tolerances).mismatches


@pytest.mark.parametrize("make", [complex, lambda one, two: torch.complex(torch.tensor([one]), torch.tensor([two]))])
@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ((INF, 1.0), (INF, 2.0), False),
        ((1.0, -INF), (2.0, -INF), False),
        ((INF, INF), (INF, -INF), False),
        ((INF, 1.0), (INF, 1.0), True),
        ((INF, 0.0), (INF, -0.0), True),
        ((NAN, 1.0), (NAN, 2.0), True),
        ((NAN, INF), (NAN, 2.0), False),
    ],
)
def test_a_complex_number_with_an_infinite_part_counts_with_both(
    make: Any, before: Any, after: Any, same: bool
) -> None:
    found = _mismatches([make(*before)], [make(*after)])
    assert [mismatch.kind for mismatch in found] == ([] if same else ["not finite"])


def test_a_complex_number_whose_magnitude_is_beyond_float64_equals_itself_and_no_other() -> None:
    huge = complex(1.3e308, 1.3e308)
    assert _mismatches(huge, huge, rtol=0, atol=0) == ()
    assert _mismatches(huge, huge) == ()
    assert [mismatch.kind for mismatch in _mismatches(huge, complex(1, 1))] == ["value"]


def test_a_difference_beyond_float64_is_not_called_zero_before() -> None:
    (mismatch,) = _mismatches(torch.tensor([1.7e308]).double() * 1, -torch.tensor([1.7e308], dtype=torch.float64))
    assert "zero before" not in mismatch.message


class Bits(Flag, boundary=KEEP):
    A = 1


def test_flags_without_a_name_are_known_by_their_value() -> None:
    assert len(_mismatches([Bits(8)], [Bits(16)])) == 1
    assert _mismatches([Bits(8)], [Bits(8)]) == ()


@dataclass
class Loss:
    value: float

    def __post_init__(self) -> None:
        self.twice = torch.tensor(2.0)
        self._hidden = object()


class Rows(list):  # type: ignore[type-arg]
    scale: Any


class Both(tuple):  # type: ignore[type-arg]
    scale: Any


class _Pair(NamedTuple):
    one: int


class Pair(_Pair):
    scale: Any


def _with(made: Any, name: str, value: object) -> Any:
    setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Loss(1.0), "twice"),
        (lambda: Rows([1]), "scale"),
        (lambda: Both([1]), "scale"),
        (lambda: Pair(1), "scale"),
    ],
    ids=["dataclass", "list", "tuple", "named tuple"],
)
def test_attributes_that_were_set_beside_fields_and_items_belong_to_the_result(make: Any, name: str) -> None:
    one, other = (_with(make(), name, torch.full((2,), number)) for number in (2.0, 3.0))
    (mismatch,) = _mismatches({"r": one}, {"r": other})
    assert (mismatch.path, mismatch.largest_absolute) == (f"['r'].{name}", 1.0)
    copied = independent_copy(one)
    getattr(one, name).fill_(9)
    assert getattr(copied, name).tolist() == [2, 2]
    assert type(copied) is type(one)


class Boxes(torch.Tensor):
    """Boxes whose format is a part of what they mean."""


def _boxes(**attributes: object) -> torch.Tensor:
    made = torch.ones(2, 4).as_subclass(Boxes)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def test_plain_attributes_of_a_tensors_own_class_have_to_agree() -> None:
    one = _boxes(format="XYXY", canvas=(3, 4), _cache=object(), empty=None)
    assert _mismatches([one], [_boxes(format="XYXY", canvas=(3, 4))]) == ()
    (mismatch,) = _mismatches([one], [_boxes(format="XYWH", canvas=(3, 4))])
    assert (mismatch.path, mismatch.kind) == ("[0]", "structure")
    assert mismatch.message == "attribute format: XYXY before, XYWH after"
    (mismatch,) = _mismatches([one], [_boxes(format="XYXY")])
    assert mismatch.message == "attribute canvas: (3, 4) before, absent after"


def test_other_attributes_of_a_tensors_own_class_are_refused() -> None:
    with pytest.raises(
        OutputError, match=r"result\[0\] is of type .*Boxes.*attribute mask is of type torch.Tensor: retu"
    ):
        take_outputs([_boxes(mask=torch.ones(2))])


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (10**5000, r"more digits than Python is willing to write.*hex"),
        (Decimal(1), r"Return float\(...\), if that is exact enough, or str"),
        (Fraction(1, 3), r"Return float\(...\)"),
        (np.datetime64("2020-01-01"), r"astype\('int64'\)"),
        (np.longdouble(1), r"Return it as a number that Python has"),
    ],
    ids=["digits", "decimal", "fraction", "date", "long double"],
)
def test_numbers_that_are_refused_come_with_their_own_advice(value: object, advice: str) -> None:
    if isinstance(value, np.longdouble) and np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("longdouble is float64 here")
    with pytest.raises(OutputError, match=advice):
        take_outputs([value])


def test_long_paths_are_shortened_in_messages() -> None:
    with pytest.raises(OutputError) as error:
        take_outputs({"k" * 5000: [{1}]})
    assert len(str(error.value)) < 800
    assert "kkk ... kkk" in str(error.value)


def test_sums_that_look_alike_are_written_with_more_digits() -> None:
    before = torch.arange(100_000)
    after = before.clone()
    after[5:9] += torch.tensor([0, 1, 0, 0])
    limit = {"limit_bytes": 80}
    (mismatch, *_) = same_outputs(take_outputs(before, **limit), take_outputs(after, **limit)).mismatches
    assert "sum of magnitudes 4999950000 before, 4999950001 after" in mismatch.message
