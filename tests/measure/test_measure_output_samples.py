"""Results above the limit: which elements are kept, the figures over all of them, and what is refused."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs import samples
from pytest_stepprof.measure.outputs.samples import (
    MOST_KEPT,
    PROJECTIONS,
    chosen_elements,
    equal_share,
    kept_elements,
    row_major_pieces,
    sample_figures,
    sample_positions,
    take_sample,
)
from pytest_stepprof.measure.outputs.taking import same_outputs, take_outputs
from pytest_stepprof.record.outputs import StoredOutputs


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40), st.data())
def test_positions_are_one_of_each_stretch(elements: int, data: st.DataObject) -> None:
    kept = data.draw(st.integers(0, min(elements, 5000)))
    positions = sample_positions(elements, kept)
    assert (positions.dtype, positions.shape) == (np.int64, (kept,))
    assert all(index * elements // kept <= at for index, at in enumerate(positions.tolist()))
    assert all(at < (index + 1) * elements // kept for index, at in enumerate(positions.tolist()))
    assert np.array_equal(positions, sample_positions(elements, kept))


def test_positions_are_the_same_in_every_process_and_version() -> None:
    assert sample_positions(1000, 5).tolist() == [185, 295, 537, 656, 823]
    assert sample_positions(2**40, 3).tolist() == [39372402415, 568918796824, 989054305432]


def test_positions_do_not_fall_in_step_with_a_pattern() -> None:
    seen = np.bincount(sample_positions(64_000, 1000) % 64, minlength=64)
    assert seen.max() < 40
    assert np.count_nonzero(seen) == 64


@pytest.mark.parametrize(("elements", "kept"), [(3, 4), (3, -1), (-1, 0)])
def test_impossible_numbers_are_an_error(elements: int, kept: int) -> None:
    with pytest.raises(ValueError, match=f"cannot keep {kept} of {elements}"):
        sample_positions(elements, kept)


def test_choosing_positions_leaves_the_random_numbers_alone() -> None:
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    sample_positions(1000, 10)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 3000))
def test_shares_fill_the_limit_and_never_pass_it(sizes: list[int], limit: int) -> None:
    share = equal_share(sizes, limit)
    if share is None:
        assert sum(sizes) <= limit
    else:
        assert sum(sizes) > limit
        assert sum(min(size, share) for size in sizes) <= limit
        assert sum(min(size, share + 1) for size in sizes) > limit


def test_what_the_small_ones_leave_goes_to_the_large_ones() -> None:
    assert equal_share([10, 1000, 400], 910) == 500
    assert equal_share([10, 1000, 1000], 910) == 450
    assert equal_share([], 0) is None


def test_a_share_in_elements() -> None:
    assert kept_elements(100, 4, 400) == 100
    assert kept_elements(100, 4, 399) == 99
    assert kept_elements(100, 4, 0) == 1
    assert kept_elements(0, 4, 0) == 0
    assert kept_elements(10**9, 1, 10**8) == MOST_KEPT


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(np.int16, hnp.array_shapes(min_dims=0, max_dims=4, max_side=5)), st.integers(1, 20), st.booleans())
def test_pieces_are_the_elements_in_row_major_order(array: np.ndarray, most: int, flipped: bool) -> None:
    tensor = torch.from_numpy(array)
    tensor = tensor.permute(tuple(reversed(range(tensor.dim())))) if flipped else tensor
    pieces = list(row_major_pieces(tensor, most))
    assert all(piece.numel() <= most for piece in pieces)
    assert torch.cat(pieces).tolist() == tensor.flatten().tolist()


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex32, torch.bool,
    torch.int8, torch.uint8, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("contiguous", [True, False], ids=["contiguous", "strided"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sample_of_every_dtype(dtype: torch.dtype, contiguous: bool) -> None:
    tensor = torch.arange(24.0).reshape(4, 6).to(dtype)
    tensor = tensor if contiguous else tensor.t()
    row, sample = take_sample(tensor, 7)
    flat = tensor.contiguous().view(-1)
    expected = [flat[position].to(torch.complex64).item() for position in sample_positions(24, 7).tolist()]
    assert row.to(torch.complex64).tolist() == expected
    assert (row.dtype, row.shape) == (dtype, (7,))
    content = flat.view(torch.uint8).numpy().tobytes()
    sizes = [1.0] * 23 if dtype is torch.bool else [abs(value.to(torch.complex64).item()) for value in flat]
    assert msgspec.structs.asdict(sample) == {
        "elements": 24,
        "kept": 7,
        "sha256": hashlib.sha256(content).hexdigest(),
        "values_sha256": hashlib.sha256(content).hexdigest(),
        "not_finite": 0,
        "sum_of_magnitudes": pytest.approx(sum(sizes)),
        "euclidean_norm": pytest.approx(sum(size**2 for size in sizes) ** 0.5),
        "largest_magnitude": max(sizes),
        "projections": tuple(
            pytest.approx(sum(one * sign for one, sign in zip(_real_numbers(flat), signs, strict=True)))
            for signs in (_signs(number, len(_real_numbers(flat))) for number in range(PROJECTIONS))
        ),
    }


def _real_numbers(flat: torch.Tensor) -> list[float]:
    numbers = [one.to(torch.complex64).item() for one in flat]
    return (
        [part for one in numbers for part in (one.real, one.imag)] if flat.is_complex() else [n.real for n in numbers]
    )


def _signs(number: int, count: int) -> list[int]:
    """The lowest byte of each word comes first, and in a byte the highest bit; a set bit is a minus."""
    content = b"".join(
        int(word).to_bytes(8, "little") for word in np.random.PCG64([number]).random_raw(count // 64 + 1)
    )
    bits = [byte >> place & 1 for byte in content for place in reversed(range(8))]
    return [1 - 2 * bit for bit in bits[:count]]


# the first 130 signs of both projections, as they are in every stored baseline
GOLDEN = [
    "+-+------+++++-+--++++-+--+--++---++-------+-+--++++-----+-+++--+"
    "+-++++---+-+-----+--++--+++++-+-----+++-+----+-+++-+++++-+++-+--+",
    "-----------++-++++-+++-++----++-----++---+----+-+++++--+-+++++--+"
    "--++--+-+-+-++++-+-++-+--+++++--+---+---++-+--++-+-+++-----++----",
]


@pytest.mark.parametrize("number", range(PROJECTIONS))
def test_signs_are_those_of_every_stored_baseline(number: int) -> None:
    found = []
    for place in range(130):
        alone = torch.zeros(130, dtype=torch.float64)
        alone[place] = 1
        found.append(sample_figures(alone).projections[number])
    assert "".join("-" if sign == -1 else "+" for sign in found) == GOLDEN[number]


@pytest.mark.parametrize("most", [1, 7, 63, 64, 65, 1000])
@pytest.mark.parametrize("shape", [(997,), (31, 37), (3, 2, 177)])
def test_figures_do_not_depend_on_how_much_is_read_at_a_time(
    most: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = torch.Generator().manual_seed(5)
    tensor = torch.randint(-1000, 1000, shape, generator=numbers).to(torch.float64)  # sums of these are exact
    tensor.view(-1)[5] = -0.0
    whole = sample_figures(tensor)
    monkeypatch.setattr(samples, "row_major_pieces", partial(row_major_pieces, most=most))
    in_pieces = sample_figures(tensor)
    assert in_pieces.euclidean_norm == pytest.approx(whole.euclidean_norm, rel=1e-14)
    assert msgspec.structs.replace(in_pieces, euclidean_norm=whole.euclidean_norm) == whole
    assert whole.values_sha256 != whole.sha256
    assert sample_figures(tensor + 0.0).values_sha256 == whole.values_sha256 == sample_figures(tensor + 0.0).sha256


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (0, 0.0, 0.0, 0.0)),
        ([0.0, -0.0], (0, 0.0, 0.0, 0.0)),
        ([NAN, INF, -INF, 3.0, -4.0], (3, 7.0, 5.0, 4.0)),
        ([NAN], (1, 0.0, 0.0, 0.0)),
        ([1e300, -1e300], (0, 2e300, pytest.approx(2**0.5 * 1e300), 1e300)),
        ([1.7e308, 1.7e308], (0, None, None, 1.7e308)),
        ([3e-320, 4e-320], (0, pytest.approx(7e-320, rel=1e-3), pytest.approx(5e-320, rel=1e-3), 4e-320)),
    ],
)
def test_figures_of_what_is_hard_to_add_up(values: list[float], expected: tuple[int, object, object, object]) -> None:
    sample = sample_figures(torch.tensor(values, dtype=torch.float64))
    found = (sample.not_finite, sample.sum_of_magnitudes, sample.euclidean_norm, sample.largest_magnitude)
    assert found == expected


def test_a_complex_number_is_finite_when_both_of_its_parts_are() -> None:
    sample = sample_figures(torch.tensor([3 + 4j, complex(INF, 0), complex(0, NAN)]))
    assert (sample.not_finite, sample.sum_of_magnitudes) == (2, 5.0)
    huge = sample_figures(torch.tensor([complex(1.7e308, 1.7e308)], dtype=torch.complex128))
    assert (huge.not_finite, huge.largest_magnitude) == (0, None)


def test_figures_of_many_pieces_are_those_of_the_whole() -> None:
    whole = torch.linspace(-3, 5, 2**21 + 77)
    sample = sample_figures(whole)
    assert sample.sha256 == hashlib.sha256(whole.numpy().data).hexdigest()
    wide = whole.double()
    assert sample.sum_of_magnitudes == pytest.approx(wide.abs().sum().item(), rel=1e-12)
    assert sample.euclidean_norm == pytest.approx(wide.norm().item(), rel=1e-12)
    assert sample.largest_magnitude == 5.0
    shown_otherwise = sample_figures(whole.repeat(2).view(2, -1).t()[:, 1])
    assert shown_otherwise == sample


def test_an_expanded_tensor_is_never_written_out() -> None:
    larger_than_any_memory = torch.full((1,), 3.0).expand(2**25, 2**25)
    assert next(row_major_pieces(larger_than_any_memory)).unique().tolist() == [3]
    assert chosen_elements(larger_than_any_memory, 5).tolist() == [3, 3, 3, 3, 3]


def test_tensors_above_their_share_are_sampled_and_the_others_are_whole() -> None:
    result = {"small": torch.arange(10.0), "large": torch.arange(1000.0).reshape(20, 50), "none": torch.zeros(0)}
    taken = take_outputs(result, limit_bytes=1000)
    nodes = {node.path: node for node in taken.stored.nodes}
    large, tensors = nodes["['large']"], safetensors.torch.load(taken.payload)
    assert (large.shape, large.dtype, nodes["['small']"].sample) == ((20, 50), "float32", None)
    assert large.sample is not None
    assert (large.sample.elements, large.sample.kept) == (1000, (1000 - 40) // 4)
    expected = sample_positions(1000, 240).astype(np.float32)
    assert np.array_equal(tensors[large.payload_key or ""].numpy(), expected)
    assert msgspec.json.decode(msgspec.json.encode(taken.stored), type=StoredOutputs) == taken.stored
    assert take_outputs(result, limit_bytes=4040).stored.nodes[2].sample is None
    assert take_outputs(result, limit_bytes=4039).stored.nodes[2].sample is not None


def test_the_same_structure_keeps_the_same_elements_whatever_the_values_are() -> None:
    one, two = ([torch.full((500,), value), torch.full((900,), value)] for value in (0.0, 1.0))
    kept = [[node.sample for node in take_outputs(result, limit_bytes=2000).stored.nodes[1:]] for result in (one, two)]
    assert [[sample.kept for sample in samples if sample] for samples in kept] == [[250, 250], [250, 250]]


def test_aliases_share_one_sample() -> None:
    tensor = torch.arange(1000.0)
    taken = take_outputs([tensor, tensor.detach(), tensor], limit_bytes=400)
    assert len({node.payload_key for node in taken.stored.nodes[1:]}) == 1
    assert {node.sample.kept for node in taken.stored.nodes[1:] if node.sample} == {100}


KINDS_OF_LARGE: dict[str, Callable[[], Any]] = {
    "float": lambda: torch.linspace(1, 2, 600),
    "complex": lambda: torch.linspace(1, 2, 600) * (1 + 1j),
    "complex conjugate": lambda: (torch.linspace(1, 2, 600) * (1 + 1j)).conj(),
    "flags": lambda: torch.arange(600) % 3 == 0,
    "integers": lambda: torch.arange(600, dtype=torch.int64),
    "unsigned": lambda: torch.arange(600, dtype=torch.int64).to(torch.uint16),
    "float8": lambda: torch.linspace(1, 2, 600).to(torch.float8_e4m3fn),
    "odd bytes": lambda: torch.arange(600, dtype=torch.int64).to(torch.uint8).view(torch.bits8),
    "array": lambda: np.linspace(1, 2, 600),
    "array, other end first": lambda: np.linspace(1, 2, 600).astype(">f8"),
    "array, read only": lambda: np.broadcast_to(np.linspace(1, 2, 600), (2, 600)),
}


@pytest.mark.parametrize("name", KINDS_OF_LARGE)
def test_sampled_leaves_of_every_kind_compare_and_a_changed_element_changes_the_digest(name: str) -> None:
    value = KINDS_OF_LARGE[name]()
    taken = take_outputs({"x": value}, limit_bytes=100)
    comparison = same_outputs(taken, take_outputs({"x": value}, limit_bytes=100), rtol=0, atol=0)
    assert (comparison.status, comparison.sampled, comparison.leaves_compared) == ("equal", ("['x']",), 1)
    changed = np.array(value, order="C") if isinstance(value, np.ndarray) else value.resolve_conj().clone()
    flat = changed.reshape(-1) if isinstance(changed, np.ndarray) else changed.view(-1)
    unseen = next(at for at in range(600) if at not in sample_positions(flat.shape[0], _kept(taken)))
    as_bytes = flat.view(np.uint8) if isinstance(flat, np.ndarray) else flat.view(torch.uint8)
    as_bytes[unseen * (as_bytes.shape[0] // flat.shape[0])] ^= 1
    after = take_outputs({"x": changed}, limit_bytes=100)
    assert same_outputs(taken, after, rtol=0, atol=0).status == "differ"


def _kept(taken: object) -> int:
    sample = taken.stored.nodes[1].sample  # type: ignore[attr-defined]
    return int(sample.kept)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12), min_size=1, max_size=5),
    st.integers(0, 4000),
)
def test_a_limit_is_kept_but_for_one_element_of_each(shapes: list[tuple[int, ...]], limit: int) -> None:
    taken = take_outputs([torch.ones(shape) for shape in shapes], limit_bytes=limit)
    stored = sum(tensor.nbytes for tensor in safetensors.torch.load(taken.payload).values())
    assert stored <= max(limit, 4 * len(shapes))
    sampled = [node for node in taken.stored.nodes if node.sample is not None]
    assume(sampled)
    assert stored >= min(limit, 4 * len(shapes)) - 4 * len(shapes)


TOO_LARGE: dict[str, tuple[Callable[[], object], str]] = {
    "text": (
        lambda: "x" * 101,
        r"result\['k'\]\[0\] is text of 101 bytes, but one test may store 100.*digest.*--stepprof-outputs-limit",
    ),
    "text in bytes, not characters": (lambda: "ü" * 51, r"is text of 102 bytes"),
    "bytes": (
        lambda: bytearray(101),
        r"result\['k'\]\[0\] is bytes of 101 bytes, but .*raise --stepprof-outputs-limit",
    ),
    "many texts": (
        lambda: ["x" * 60, "y" * 60],
        r"result\['k'\]\[0\]\[1\] is text, with which text, .* come to 120 bytes",
    ),
    "many numbers": (lambda: [1.5] * 40, r"\[33\] is a number, .*Return long lists of numbers as one tensor"),
    "sparse": (
        lambda: torch.eye(10).to_sparse(),
        r"result\['k'\]\[0\] is stored in parts, of which no sample .* 160 of 200 bytes",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(101), 0.1, 0, torch.qint8),
        r"in parts.* raise --stepprof-outputs-limit",
    ),
}


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:.*quantiz.*")
@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_cannot_be_sampled_is_refused_above_the_limit(name: str) -> None:
    make, message = TOO_LARGE[name]
    value = make()
    with pytest.raises(OutputError, match=message):
        take_outputs({"k": [value]}, limit_bytes=100)
    take_outputs({"k": [value]}, limit_bytes=400)


def test_text_and_parts_leave_the_rest_of_the_limit_to_the_tensors() -> None:
    (_, _, _, dense) = take_outputs(["x" * 40, EYE, torch.zeros(100)], limit_bytes=200).stored.nodes
    assert dense.sample is not None
    assert dense.sample.kept == (200 - 40 - 4 * 16 - 4 * 4) // 4


EYE = torch.eye(4).to_sparse()


def test_memory_that_is_a_part_as_well_is_stored_whole() -> None:
    values = EYE.values()
    taken = take_outputs([values, EYE, torch.zeros(1000)], limit_bytes=200)
    assert [node.sample is not None for node in taken.stored.nodes[1:]] == [False, False, True]
    assert same_outputs(taken, taken).status == "equal"


def test_memory_that_becomes_a_part_later_is_not_sampled_either() -> None:
    sparse = torch.eye(30).to_sparse()
    taken = take_outputs([sparse.values(), torch.zeros(1000), sparse], limit_bytes=2 * 30 * 8 + 30 * 4 + 40)
    assert [node.sample is not None for node in taken.stored.nodes[1:]] == [False, True, False]
    assert same_outputs(taken, taken).status == "equal"


def test_a_sample_of_float8_holds_bytes_and_its_figures_are_over_numbers() -> None:
    value = torch.linspace(-2, 1, 600).to(torch.float8_e4m3fn)
    taken = take_outputs([value], limit_bytes=100)
    node = taken.stored.nodes[1]
    assert node.sample is not None
    assert (node.sample.kept, node.sample.largest_magnitude) == (100, 2.0)
    (part,) = node.parts
    assert (part.shape, part.dtype) == ((100,), "uint8")
    stored = safetensors.torch.load(taken.payload)[part.payload_key].view(torch.float8_e4m3fn)
    assert stored.float().tolist() == value.float()[torch.from_numpy(sample_positions(600, 100))].tolist()


def test_nothing_is_sampled_below_the_default_limit() -> None:
    assert take_outputs(torch.zeros(10**6)).stored.nodes[0].sample is None
