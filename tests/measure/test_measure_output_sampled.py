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
    assert "does not: 0 elements are not finite before, 1 after. A higher --stepprof-outputs-limit" in mismatch.message


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


SMALL, LARGE = 200, 3200  # bytes: 50 and 800 of the elements of a float32 tensor


@pytest.mark.parametrize("dtype", [*KINDS, torch.float8_e4m3fn])
@pytest.mark.parametrize("limits", [(SMALL, LARGE), (LARGE, SMALL), (2**20, SMALL), (SMALL, 2**20)])
def test_another_limit_alone_is_no_difference(dtype: torch.dtype, limits: tuple[int, int]) -> None:
    value = torch.arange(N).remainder(2).to(dtype)
    before, after = (_sampled(value, limit * value.element_size() // 4) for limit in limits)
    comparison = _compare(before, after, 0, 0)
    assert (comparison.status, comparison.leaves_compared, comparison.sampled) == ("equal", 1, ("['x']",))
    said = f"['x']: {limits[0] // 4} of 1000 elements are stored before and {limits[1] // 4} after, because"
    assert comparison.note is None if max(limits) == 2**20 else str(comparison.note).startswith(said)


def test_samples_of_other_sizes_are_equal_within_the_tolerance_although_their_digests_differ() -> None:
    values = torch.randn(N, generator=torch.Generator().manual_seed(1))
    comparison = _compare(_sampled(values, SMALL), _sampled(values * (1 + 5e-7), LARGE))
    assert comparison.status == "equal"
    assert "--stepprof-outputs-limit or the rest of the result was another one" in str(comparison.note)


def test_a_change_in_the_part_that_samples_of_other_sizes_share_is_found_at_its_place() -> None:
    both = sorted({*sample_positions(N, SMALL // 4).tolist()} & {*sample_positions(N, LARGE // 4).tolist()})
    after = _with(ONES, both[3], 0.5)
    value, whole = _compare(_sampled(ONES, SMALL), _sampled(after, LARGE)).mismatches
    assert value.message.startswith(
        f"of 1000 elements 50 are stored before and 800 after, {len(both)} of them on both sides: 1 of {len(both)} "
    )
    assert (value.worst_index, value.largest_absolute) == ((both[3],), 0.5)
    assert whole.message.startswith("the whole of 1000 elements differs: ")


@pytest.mark.parametrize(("number", "rtol", "atol"), [(3.0, None, None), (-1.0, None, None), (1.0000001, 0, 0)])
def test_a_change_elsewhere_is_found_between_samples_of_other_sizes(
    number: float, rtol: float | None, atol: float | None
) -> None:
    shared = {*sample_positions(N, SMALL // 4).tolist()} & {*sample_positions(N, LARGE // 4).tolist()}
    after = _with(ONES, min({*range(N)} - shared), number)
    (mismatch,) = _compare(_sampled(ONES, SMALL), _sampled(after, LARGE), rtol, atol).mismatches
    assert mismatch.message.startswith(f"the sample of {len(shared)} elements agrees, but the whole of 1000 does not: ")


def test_samples_that_share_no_element_are_compared_by_what_is_known_of_the_whole() -> None:
    one, other = (_sampled(ONES, 4), _sampled(ONES, 8))
    assert not {*sample_positions(N, 1).tolist()} & {*sample_positions(N, 2).tolist()}
    assert _compare(one, other, 0, 0).status == "equal"
    (mismatch,) = _compare(one, _sampled(ONES * 2, 8)).mismatches
    assert mismatch.message.startswith("the whole of 1000 elements differs: ")


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


HALF_FINITE = [(complex(NAN, 1), complex(NAN, 1e6)), (complex(1, NAN), complex(-7, NAN))]


def test_the_finite_half_of_an_infinite_number_has_no_part_in_any_figure() -> None:
    sides = [torch.ones(N, dtype=torch.complex64), torch.ones(N, dtype=torch.complex64)]
    sides[0][_elsewhere()], sides[1][_elsewhere()] = complex(INF, 1), complex(INF, 1e6)
    one, other = (_sampled(side).stored.nodes[1].sample for side in sides)
    assert one is not None
    assert other is not None
    assert (one.projections, one.euclidean_norm) == (other.projections, other.euclidean_norm)
    assert _compare(_sampled(sides[0]), _sampled(sides[1])).status == "equal"  # only the digests tell
    assert _compare(_sampled(sides[0]), _sampled(sides[1]), 0, 0).status == "differ"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(("one", "other"), HALF_FINITE)
def test_the_finite_half_of_a_complex_number_that_is_not_finite_counts_no_more_than_in_a_whole_tensor(
    dtype: torch.dtype, one: complex, other: complex
) -> None:
    sides = [torch.ones(N, dtype=dtype), torch.ones(N, dtype=dtype)]
    for place in (_elsewhere(), _inside()):
        sides[0][place], sides[1][place] = one, other
    for tolerances in ((None, None), (0, 0)):
        whole = [_sampled(side, 2**20) for side in sides]
        assert _compare(whole[0], whole[1], *tolerances).status == "equal"
        assert _compare(_sampled(sides[0]), _sampled(sides[1]), *tolerances).status == "equal"


def _nan_with_payload(dtype: torch.dtype) -> torch.Tensor:
    """Give a NaN of the other sign and with a bit more than the usual one."""
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return torch.tensor([NAN], dtype=dtype).view(integers).bitwise_xor(torch.iinfo(integers).min + 1).view(dtype)


INEXACT = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", INEXACT)
@pytest.mark.parametrize("place", [_elsewhere(), _inside()])
def test_values_that_are_equal_are_so_without_any_tolerance_whatever_their_bits_are(
    dtype: torch.dtype, place: int
) -> None:
    before, after = torch.zeros(N, dtype=dtype), torch.zeros(N, dtype=dtype)
    after[place] = -0.0
    before[1], after[1] = NAN, _nan_with_payload(dtype)[0]
    sides = _sampled(before), _sampled(after)
    assert sides[0].stored.nodes[1].sample != sides[1].stored.nodes[1].sample
    assert _compare(*sides, 0, 0).status == "equal"
    after[_elsewhere() + 1] = 1e-7
    assert _compare(sides[0], _sampled(after), 0, 0).status == "differ"


def test_parts_of_complex_numbers_are_equal_without_any_tolerance_whatever_their_bits_are() -> None:
    before, after = torch.zeros(N, dtype=torch.complex64), torch.zeros(N, dtype=torch.complex64)
    after[_elsewhere()] = complex(0.0, -0.0)
    before[_inside()], after[_inside()] = complex(NAN, 1), complex(-NAN, 2)
    assert _compare(_sampled(before), _sampled(after), 0, 0).status == "equal"
    after[_elsewhere()] = complex(1, -0.0)
    assert _compare(_sampled(before), _sampled(after), 0, 0).status == "differ"


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, -1]))
def test_sums_that_float64_has_to_round_do_not_make_a_difference(seed: int, sign: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    before = sign * (1 + torch.rand(N, generator=numbers, dtype=torch.float64)) * 2**20
    after = torch.nextafter(before, before * 2)
    assert _compare(_sampled(before, 2**20), _sampled(after, 2**20), 0, 2**-32).status == "equal"
    assert _compare(_sampled(before), _sampled(after), 0, 2**-32).status == "equal"


def test_the_record_comes_back_from_json() -> None:
    sample = _sampled(ONES).stored.nodes[1].sample
    assert msgspec.json.decode(msgspec.json.encode(sample), type=OutputSample) == sample
