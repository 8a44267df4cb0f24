import math

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.measure.outputs.samples import sample_positions
from pytest_stepprof.measure.outputs.taking import TakenOutputs, compare_outputs, take_outputs
from pytest_stepprof.record.outputs import OutputComparison, OutputSample
from pytest_stepprof.record.settings import PathTolerance

NAN, INF = math.nan, math.inf
N, KEPT = 1000, 100


def _sampled(value: torch.Tensor, limit_bytes: int | None = None) -> TakenOutputs:
    limit = KEPT * value.element_size() if limit_bytes is None else limit_bytes
    return take_outputs({"x": value}, limit_bytes=limit)


def _compare(
    before: TakenOutputs,
    after: TakenOutputs,
    rtol: float | None = None,
    atol: float | None = None,
    *patterns: PathTolerance,
) -> OutputComparison:
    return compare_outputs(
        before.stored, before.payload, after.stored, after.payload, rtol=rtol, atol=atol, tolerances=patterns
    )


def _elsewhere(shape: tuple[int, ...] = (N,)) -> int:
    """Give a position that is not in the sample."""
    return min(set(range(math.prod(shape))) - set(sample_positions(math.prod(shape), KEPT).tolist()))


def _inside() -> int:
    return int(sample_positions(N, KEPT)[KEPT // 2])


def _with(value: torch.Tensor, position: int, number: float) -> torch.Tensor:
    twin = value.clone()
    twin.reshape(-1)[position] = number
    return twin


ONES = torch.ones(N)
KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", [*KINDS, torch.float8_e4m3fn])
def test_the_same_tensor_is_equal_and_said_to_be_sampled(dtype: torch.dtype) -> None:
    taken = _sampled(torch.arange(N).remainder(2).to(dtype))
    sample = taken.stored.nodes[1].sample
    assert sample is not None
    assert (sample.elements, sample.kept) == (N, KEPT)
    comparison = _compare(taken, taken, 0, 0)
    assert (comparison.status, comparison.leaves_compared, comparison.sampled) == ("equal", 1, ("['x']",))


def test_what_is_whole_is_not_said_to_be_sampled() -> None:
    taken = take_outputs({"x": ONES})
    assert _compare(taken, taken).sampled == ()


@pytest.mark.parametrize("dtype", [*KINDS, torch.float8_e4m3fn])
def test_a_changed_element_inside_the_sample_is_found_at_its_place(dtype: torch.dtype) -> None:
    before = torch.ones(50, 20).to(dtype)
    after = torch.ones(50, 20)
    after.reshape(-1)[_inside()] = 0
    mismatch = _compare(_sampled(before), _sampled(after.to(dtype))).mismatches[0]
    assert (mismatch.path, mismatch.kind) == ("['x']", "value")
    assert mismatch.message.startswith(f"of {N} elements {KEPT} are stored: 1 of {KEPT} elements differ by more than")
    assert mismatch.worst_index == divmod(_inside(), 20)
    assert (mismatch.elements, mismatch.largest_absolute) == (KEPT, 1.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({_elsewhere(): 3.0}, "largest magnitude 1 before, 3 after (may differ by 1.13e-05)"),
        ({_elsewhere(): -1.0}, "sums with random signs are 2 apart (may be 0.00214)"),
        ({_elsewhere(): 0.0}, "euclidean norm 31.6227766 before, 31.6069613 after (may differ by 0.000357)"),
    ],
)
def test_a_change_outside_the_sample_shows_in_the_figures(changes: dict[int, float], words: str) -> None:
    after = ONES.clone()
    for position, number in changes.items():
        after[position] = number
    comparison = _compare(_sampled(ONES), _sampled(after))
    (mismatch,) = comparison.mismatches
    beginning = f"the sample of {KEPT} elements agrees, but the whole of {N} does not: "
    assert (mismatch.kind, mismatch.tolerance_from) == ("value", "float32")
    assert mismatch.message.startswith(beginning)
    assert words in mismatch.message


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1e-2, 0.3]))
def test_differences_within_the_tolerance_everywhere_are_never_a_mismatch(seed: int, rtol: float) -> None:
    numbers = torch.Generator().manual_seed(seed)
    before = torch.randn(N, generator=numbers, dtype=torch.float64)
    after = before + before.abs() * rtol * (torch.rand(N, generator=numbers, dtype=torch.float64) * 2 - 1)
    assert _compare(_sampled(before), _sampled(after), rtol, 0).status == "equal"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_elements_that_changed_places_are_found_although_every_norm_is_the_same(dtype: torch.dtype) -> None:
    before = torch.randn(N, generator=torch.Generator().manual_seed(3)).to(dtype)
    outside = sorted(set(range(N)) - set(sample_positions(N, KEPT).tolist()))
    after = before.clone()
    after[outside] = before[outside[::-1]]
    (mismatch,) = _compare(_sampled(before), _sampled(after)).mismatches
    assert "sums with random signs" in mismatch.message


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_exact_dtypes_have_to_agree_in_their_digest(dtype: torch.dtype) -> None:
    before = torch.arange(N).remainder(2).to(dtype)
    outside = sorted(set(range(N)) - set(sample_positions(N, KEPT).tolist()))
    even, odd = next(p for p in outside if not p % 2), next(p for p in outside if p % 2)
    after = before.clone()
    after[even], after[odd] = before[odd], before[even]
    (mismatch,) = _compare(_sampled(before), _sampled(after), 9.0, 9.0).mismatches
    assert "the digests of the whole differ" in mismatch.message


def test_a_new_nan_outside_the_sample_is_counted() -> None:
    comparison = _compare(_sampled(ONES), _sampled(_with(ONES, _elsewhere(), NAN)), 9.0, 9.0)
    (mismatch,) = comparison.mismatches
    assert mismatch.kind == "not finite"
    assert mismatch.message.endswith("does not: 0 elements are not finite before, 1 after")


def test_a_new_nan_inside_the_sample_goes_by_position() -> None:
    mismatch = _compare(_sampled(ONES), _sampled(_with(ONES, _inside(), NAN)), 9.0, 9.0).mismatches[0]
    assert (mismatch.kind, mismatch.worst_index) == ("not finite", (_inside(),))


def test_a_norm_that_float64_cannot_hold_is_none_on_both_sides_or_a_mismatch() -> None:
    huge = torch.full((N,), 1.7e308, dtype=torch.float64)
    taken = _sampled(huge)
    assert taken.stored.nodes[1].sample is not None
    assert taken.stored.nodes[1].sample.sum_of_magnitudes is None
    other = _sampled(huge * (1 - 2**-30))
    assert _compare(taken, other).status == "equal"
    small = _sampled(torch.ones(N, dtype=torch.float64))
    said = [mismatch.message for mismatch in _compare(taken, small).mismatches]
    assert any("sum of magnitudes beyond float64 before, 1000 after" in message for message in said)


def test_patterns_reach_sampled_leaves() -> None:
    after = _sampled(ONES * 1.5)
    assert _compare(_sampled(ONES), after).status == "differ"
    assert _compare(_sampled(ONES), after, None, None, PathTolerance(pattern="['x']", rtol=0.6)).status == "equal"


@pytest.mark.parametrize("dtype", [*KINDS, torch.float8_e4m3fn])
@pytest.mark.parametrize("whole_first", [True, False])
def test_a_whole_tensor_is_compared_with_a_sample_of_another(dtype: torch.dtype, whole_first: bool) -> None:
    value = torch.arange(N).remainder(7).to(dtype)
    sides = [_sampled(value, 2**20), _sampled(value)]
    assert [taken.stored.nodes[1].sample is None for taken in sides] == [True, False]
    comparison = _compare(*(sides if whole_first else sides[::-1]), 0, 0)
    assert (comparison.status, comparison.sampled) == ("equal", ("['x']",))
    changed = torch.arange(N).remainder(7)
    changed[_elsewhere()] = 0 if dtype is torch.bool and changed[_elsewhere()] else 200
    pair = [_sampled(changed.to(dtype), 2**20), sides[1]]
    assert _compare(*(pair if whole_first else pair[::-1])).status == "differ"


def test_samples_of_other_sizes_are_equal_only_by_their_digest() -> None:
    small, large = _sampled(ONES, 100), _sampled(ONES, 800)
    assert _compare(small, large, 0, 0).status == "equal"
    (mismatch,) = _compare(small, _sampled(ONES * 2, 800), 9.0, 9.0).mismatches
    assert mismatch.message.startswith("of its 1000 elements 25 are stored before and 200 after")
    assert "--stepprof-outputs-limit was another one" in mismatch.message


def test_another_shape_is_said_and_samples_are_not_compared() -> None:
    comparison = _compare(_sampled(torch.ones(N)), _sampled(torch.ones(10, 100)))
    assert [mismatch.kind for mismatch in comparison.mismatches] == ["shape"]


@settings(max_examples=60, deadline=None)
@given(
    rtol=st.floats(0, 0.5),
    atol=st.floats(0, 0.5),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.complex128]),
)
def test_what_is_close_element_by_element_is_close_in_its_norms(
    rtol: float, atol: float, seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    before = torch.randn(N, generator=generator, dtype=torch.float64).to(dtype)
    moves = (torch.rand(N, generator=generator, dtype=torch.float64) * 2 - 1) * (1 - 1e-5)
    after = (before.to(torch.complex128) + moves * (atol + rtol * before.abs().to(torch.float64))).real
    after = after.to(dtype) if not dtype.is_complex else after + 1j * before.imag
    assert _compare(_sampled(before), _sampled(after), rtol + 1e-6, atol + 1e-6).status == "equal"


@settings(max_examples=60, deadline=None)
@given(position=st.integers(0, N - 1), dtype=st.sampled_from([torch.float32, torch.int32, torch.complex64]))
def test_one_large_change_is_found_wherever_it_is(position: int, dtype: torch.dtype) -> None:
    before = torch.arange(N).to(dtype)
    after = _with(before, position, 5000.0)
    comparison = _compare(_sampled(before), _sampled(after))
    assert {mismatch.path for mismatch in comparison.mismatches} == {"['x']"}


def test_the_record_comes_back_from_json() -> None:
    sample = _sampled(ONES).stored.nodes[1].sample
    assert msgspec.json.decode(msgspec.json.encode(sample), type=OutputSample) == sample
