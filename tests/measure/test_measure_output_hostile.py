"""Files that are damaged, or that somebody wrote to harm: a named error or a comparison, and nothing else."""

import contextlib
import copy
import hashlib
import json
import math
import os
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_records import sample_measurement, sample_session

from pytest_stepprof.errors import OutputError, StepprofError, StoreError
from pytest_stepprof.measure.outputs.stored import compare_with_stored, stored_payload
from pytest_stepprof.measure.outputs.summary import summarize_leaves
from pytest_stepprof.measure.outputs.taking import TakenOutputs, compare_outputs, take_outputs
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, OutputPart, StoredOutputs
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store import json_text
from pytest_stepprof.store.directory import Store

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse .* tensor support:UserWarning",
    "ignore:torch.quantize_per:UserWarning",
    "ignore:The PyTorch API of nested tensors:UserWarning",
)


def _everything() -> dict[str, object]:
    dense = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])
    scales, zeros = torch.tensor([0.5, 0.25]), torch.tensor([0, 1])
    rows = [torch.ones(2, 2), torch.zeros(3, 2)]
    return {
        "dense": dense,
        "complex": torch.tensor([3 + 4j]),
        "large": torch.arange(500.0),
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "bsr": torch.ones(4, 6).to_sparse_bsr((2, 3)),
        "jagged": torch.nested.nested_tensor(rows, layout=torch.jagged),
        "with lengths": torch.nested.nested_tensor_from_jagged(
            torch.ones(5, 2), torch.tensor([0, 2, 5]), torch.tensor([1, 3])
        ),
        "nested": torch.nested.nested_tensor(rows),
        "quantized": torch.quantize_per_tensor(dense, 0.5, 1, torch.qint8),
        "channels": torch.quantize_per_channel(dense, scales, zeros, 0, torch.quint8),
        "eight": dense.to(torch.float8_e5m2),
        "eight large": torch.arange(3000.0).to(torch.float8_e5m2),
        "list": [1, 2.5, 1 + 2j, True, None, "text", b"bytes"],
    }


def _taken() -> TakenOutputs:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return take_outputs(_everything(), limit_bytes=2000)


TAKEN = _taken()
RECORD = msgspec.json.encode(TAKEN.stored)


def _compare(stored: StoredOutputs, payload: bytes) -> OutputComparison:
    """Compare with what is sound, on both sides, and with itself."""
    sound = TAKEN.stored, TAKEN.payload
    compare_outputs(stored, payload, stored, payload, rtol=None, atol=None)
    compare_outputs(*sound, stored, payload, rtol=0, atol=0)
    return compare_outputs(stored, payload, *sound, rtol=None, atol=None)


def _signed(stored: StoredOutputs, payload: bytes) -> StoredOutputs:
    """Make a record fit a payload, as a hostile writer would."""
    digest = hashlib.sha256(payload).hexdigest() if payload else None
    return msgspec.structs.replace(stored, payload_sha256=digest, payload_bytes=len(payload))


def test_what_is_compared_here_is_of_every_kind() -> None:
    assert _compare(TAKEN.stored, TAKEN.payload).status == "equal"
    nodes = TAKEN.stored.nodes
    assert {node.kind for node in nodes} == {"container", "tensor", "number", "text", "bytes", "none"}
    assert [node.path for node in nodes if node.sample is not None] == ["['large']", "['eight large']"]
    assert len({node.layout for node in nodes}) == 9


def _node(path: str, **changes: object) -> StoredOutputs:
    """Give the sound record with one node changed."""
    nodes = [msgspec.structs.replace(node, **changes) if node.path == path else node for node in TAKEN.stored.nodes]
    return msgspec.structs.replace(TAKEN.stored, nodes=tuple(nodes))


def _part(path: str, name: str, tensor: torch.Tensor, **changes: object) -> tuple[StoredOutputs, bytes]:
    """Put another tensor in the place of a part, and a record that is in accord with it."""
    tensors = safetensors.torch.load(TAKEN.payload)
    (node,) = (node for node in TAKEN.stored.nodes if node.path == path)
    parts = []
    for part in node.parts:
        if part.name == name:
            tensors["forged"] = tensor
            dtype = str(tensor.dtype).removeprefix("torch.")
            part = OutputPart(name=name, payload_key="forged", shape=tuple(tensor.shape), dtype=dtype)
        parts.append(part)
    payload = safetensors.torch.save(tensors)
    return _signed(_node(path, parts=tuple(parts), **changes), payload), payload


def _sample(**changes: object) -> object:
    (node,) = (node for node in TAKEN.stored.nodes if node.path == "['large']")
    assert node.sample is not None
    return msgspec.structs.replace(node.sample, **changes)


HUGE = 2**62
NODES: dict[str, tuple[str, dict[str, object], str]] = {
    "negative shape": ("['dense']", {"shape": (-2, -3)}, r"\['dense'\].*but the record says float32 \[-2, -3\]"),
    "huge shape": ("['dense']", {"shape": (HUGE, HUGE)}, "but the record says"),
    "a million dimensions": ("['large']", {"shape": (1,) * 10**6}, "impossible numbers"),
    "no shape": ("['dense']", {"shape": None}, "without shape or dtype"),
    "no dtype": ("['dense']", {"dtype": None}, "without shape or dtype"),
    "unknown dtype": ("['dense']", {"dtype": "float128"}, "dtype is 'float128'.*written by a newer stepprof"),
    "another dtype": ("['dense']", {"dtype": "int32"}, "are float32.*but the record says int32"),
    "wrong pairs": ("['dense']", {"dtype": "complex64 as real pairs"}, "but the record says complex64"),
    "unknown layout": ("['coo']", {"layout": "sparse_dia"}, "layout is 'sparse_dia'.*newer stepprof.*update"),
    "layout without parts": ("['dense']", {"layout": "sparse_coo"}, "do not belong together"),
    "parts without layout": ("['coo']", {"layout": None}, "do not belong together"),
    "parts of another layout": ("['coo']", {"layout": "sparse_csr"}, "parts indices, values, expected col_indices"),
    "no parts": ("['coo']", {"parts": ()}, "parts none, expected indices, values"),
    "no values": ("['dense']", {"payload_key": None}, "do not belong together"),
    "missing values": ("['dense']", {"payload_key": "tensor 99"}, r"\['dense'\] \(before\) are missing"),
    "number without value": ("['list'][0]", {"value": None}, "it has no value"),
    "no number": ("['list'][0]", {"value": "1" * 5000}, r"number at \['list'\]\[0\] \(before\) is '111"),
    "text as number": ("['list'][1]", {"value": "one"}, "is 'one'"),
    "container in a leaf": ("['dense']", {"keys": ("0",)}, "a tensor with things inside"),
    "sample of more than all": ("['large']", {"sample": _sample(kept=501)}, "impossible numbers"),
    "sample of another size": ("['large']", {"sample": _sample(elements=HUGE)}, "impossible numbers"),
    "sample of fewer": ("['large']", {"sample": _sample(kept=3)}, r"but the record says float32 \[3\]"),
    "negative count": ("['large']", {"sample": _sample(not_finite=-1)}, "impossible numbers"),
    "negative norm": ("['large']", {"sample": _sample(euclidean_norm=-1.0)}, "impossible numbers"),
    "sample of sparse": ("['coo']", {"sample": _sample(elements=6, kept=6)}, "a sample of a sparse_coo tensor"),
    "whole called sample": ("['dense']", {"sample": _sample(elements=6, kept=6)}, r"\[2, 3\], but the record says"),
    "more sizes": ("['coo']", {"shape": (2,)}, "indices have the shape"),
    "narrower": ("['coo']", {"shape": (2, 2)}, "indices of dimension 1 reach from 0 to 2, expected 0 to 1"),
    "fewer rows": ("['csr']", {"shape": (1, 3)}, r"crow_indices have the shape \[3\], expected \[2\]"),
    "blocks that do not fit": ("['bsr']", {"shape": (6, 6)}, "crow_indices have the shape"),
    "no ragged size": ("['jagged']", {"shape": (2, 3, 2)}, "values have the shape"),
    "nested of more": ("['nested']", {"shape": (HUGE, -1, 2)}, "there are 2 parts"),
    "nested of others": ("['nested']", {"shape": (2, 2, 2)}, r"part 1 has the shape \[3, 2\]"),
    "axis in words": ("['channels']", {"facts": (("axis", "zero"),)}, "axis is 'zero'"),
    "axis beyond": ("['channels']", {"facts": (("axis", "2"),)}, "axis is '2'"),
    "eight bits of more": ("['eight']", {"shape": (2, 2)}, r"bits have the shape \[2, 3\], expected \[2, 2\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_a_node_that_cannot_be_right_is_named(name: str) -> None:
    path, changes, message = NODES[name]
    with pytest.raises(OutputError, match=f"(?s){message}"):
        compare_outputs(_node(path, **changes), TAKEN.payload, TAKEN.stored, TAKEN.payload, rtol=None, atol=None)
    forged = _node(path, **changes)
    with pytest.raises(OutputError):
        compare_outputs(forged, TAKEN.payload, forged, TAKEN.payload, rtol=None, atol=None)


PARTS: dict[str, tuple[str, str, torch.Tensor, str]] = {
    "index beyond": ("['coo']", "indices", torch.tensor([[0, 0, 1], [0, 2, 3]]), "reach from 0 to 3, expected 0 to 2"),
    "index below": ("['coo']", "indices", torch.tensor([[0, 0, 1], [0, -2, 2]]), "reach from -2 to 2"),
    "float indices": ("['coo']", "indices", torch.zeros(2, 3), "indices are float32, not whole numbers"),
    "fewer indices": ("['coo']", "indices", torch.tensor([[0], [0]]), r"values have the shape \[3\], expected \[1\]"),
    "offsets that go down": ("['csr']", "crow_indices", torch.tensor([0, 5, 3]), "reach from 0 to 5, expected 0 to 3"),
    "offsets from one": ("['csr']", "crow_indices", torch.tensor([1, 2, 3]), "do not lead from 0 to 3"),
    "offsets down": ("['bsr']", "crow_indices", torch.tensor([0, 4, 2]), "crow_indices go down"),
    "column beyond": ("['csr']", "col_indices", torch.tensor([0, 2, 3]), "col_indices reach from 0 to 3"),
    "no blocks": ("['bsr']", "values", torch.zeros(4), "without blocks"),
    "empty blocks": ("['bsr']", "values", torch.zeros(4, 0, 3), "without blocks"),
    "offsets of more": ("['jagged']", "offsets", torch.tensor([0, 2, 9]), "offsets reach from 0 to 9, expected 0 to 5"),
    "offsets back": ("['jagged']", "offsets", torch.tensor([0, 5, 2]), "offsets go down"),
    "too few offsets": ("['jagged']", "offsets", torch.tensor([0, 5]), r"offsets have the shape \[2\]"),
    "more lengths": ("['with lengths']", "lengths", torch.tensor([1, 3, 1]), r"lengths have the shape \[3\]"),
    "longer than all": ("['with lengths']", "lengths", torch.tensor([1, 9]), "lengths reach from 1 to 9"),
    "other integers": ("['quantized']", "integers", torch.zeros(6, dtype=torch.int8), "integers have the shape"),
    "float integers": ("['quantized']", "integers", torch.zeros(2, 3), "integers are float32"),
    "more scales": ("['channels']", "scales", torch.ones(3), r"scales have the shape \[3\], expected \[2\]"),
    "wide bits": ("['eight']", "bits", torch.zeros(2, 3, dtype=torch.int16), "bits are int16"),
    "bits of a sample": ("['eight large']", "bits", torch.zeros(3, dtype=torch.uint8), "bits have the shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_belong_to_no_such_tensor_are_named(name: str) -> None:
    path, part, tensor, message = PARTS[name]
    stored, payload = _part(path, part, tensor)
    with pytest.raises(OutputError, match=message) as raised:
        compare_outputs(stored, payload, TAKEN.stored, TAKEN.payload, rtol=None, atol=None)
    assert f"{path} (before)" in str(raised.value)
    assert str(raised.value).endswith("Store this baseline again.")


def test_two_parts_of_one_name() -> None:
    (node,) = (node for node in TAKEN.stored.nodes if node.path == "['coo']")
    forged = _node("['coo']", parts=(*node.parts, node.parts[0]))
    with pytest.raises(OutputError, match="two parts have one name"):
        compare_outputs(TAKEN.stored, TAKEN.payload, forged, TAKEN.payload, rtol=None, atol=None)


def _container(*keys: str, path: str = "") -> OutputNode:
    return OutputNode(path=path, kind="container", type_name="list", keys=keys)


NUMBER = OutputNode(path="[0]", kind="number", type_name="int", value="1")
TREES: dict[str, tuple[tuple[OutputNode, ...], str]] = {
    "nothing": ((), "is empty"),
    "too few": ((_container("0", "1"), NUMBER), "ends too early"),
    "too many": ((_container("0"), NUMBER, NUMBER), "belong to no container"),
    "twice": ((_container("0", "0"), NUMBER, NUMBER), "two of its keys are the same"),
    "a million deep": ((_container("0"),) * 10**6, "ends too early"),
    "a million deep, complete": ((*(_container("0"),) * 10**6, NUMBER), "more than 250 containers deep"),
    "a million in one": ((_container(*map(str, range(10**6))), NUMBER), "ends too early"),
}


@pytest.mark.parametrize("name", TREES)
def test_a_structure_that_cannot_be_one_is_named(name: str) -> None:
    nodes, message = TREES[name]
    forged = StoredOutputs(nodes=nodes, leaf_count=1, payload_sha256=None, payload_bytes=0)
    with pytest.raises(OutputError, match=message):
        compare_outputs(forged, b"", forged, b"", rtol=None, atol=None)
    with pytest.raises(OutputError, match=message):
        summarize_leaves(forged, b"")


def test_the_deepest_result_that_can_be_taken_can_be_compared() -> None:
    deep: object = 1
    for _ in range(201):
        deep = [deep]
    taken = take_outputs(deep)
    found = compare_outputs(taken.stored, b"", taken.stored, b"", rtol=None, atol=None)
    assert (found.status, found.leaves_compared) == ("equal", 1)


def _file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(dtype: str, shape: list[int], start: int, stop: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


FILES: dict[str, bytes] = {
    "junk": b"junk",
    "zeros": bytes(64),
    "a header of 2**63": _file(b"{}", length=2**63),
    "a header of 90 MB": _file(b"{}", length=90_000_000),
    "a header of one byte less": _file({"a": _entry("F32", [1], 0, 4)}, bytes(4), length=10),
    "no JSON": _file(b"not JSON at all"),
    "JSON of another shape": _file([1, 2, 3]),
    "deep JSON": _file(b"[" * 100_000),
    "values beyond the end": _file({"a": _entry("F32", [2**40], 0, 2**42)}, bytes(4)),
    "a shape that overflows": _file({"a": _entry("F32", [2**62, 2**62, 4], 0, 4)}, bytes(4)),
    "a negative shape": _file({"a": _entry("F32", [-1], 0, 4)}, bytes(4)),
    "offsets backwards": _file({"a": _entry("F32", [1], 4, 0)}, bytes(4)),
    "an unknown dtype": _file({"a": _entry("F128", [1], 0, 16)}, bytes(16)),
    "bytes that belong to nobody": _file({"a": _entry("F32", [1], 0, 4)}, bytes(8)),
    "values that overlap": _file({"a": _entry("F32", [1], 0, 4), "b": _entry("F32", [1], 2, 6)}, bytes(6)),
    "none of a huge shape": _file({"tensor 0": _entry("F32", [0, 2**62, 2**62], 0, 0)}),
}


@pytest.mark.parametrize("name", FILES)
def test_a_payload_that_claims_what_it_is_not(name: str) -> None:
    forged = _signed(TAKEN.stored, FILES[name])
    tracemalloc.start()
    try:
        with pytest.raises(OutputError, match=r"not a safetensors file|are missing|but the record says"):
            compare_outputs(forged, FILES[name], TAKEN.stored, TAKEN.payload, rtol=None, atol=None)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_sparse_tensor_of_a_huge_shape_costs_what_it_stores() -> None:
    huge = torch.sparse_coo_tensor([[5], [2**30]], [1.0], (2**31, 2**31), check_invariants=True)
    taken = take_outputs(huge)
    assert compare_outputs(taken.stored, taken.payload, taken.stored, taken.payload, rtol=0, atol=0).status == "equal"
    assert summarize_leaves(taken.stored, taken.payload)[""].endswith(
        "1 stored elements, mean 1, std 0, min 1, max 1, 0 not finite"
    )


def test_a_payload_of_another_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    outputs = TAKEN.stored
    session = sample_session(measurements=(sample_measurement(outputs=outputs),))
    store.save_session(session, {str(outputs.payload_sha256): TAKEN.payload})
    (path,) = (tmp_path / "payloads").iterdir()
    assert stored_payload(store, outputs) == TAKEN.payload
    os.truncate(path, 2**40)  # a hole: the disk holds none of this TiB
    with pytest.raises(StoreError, match=rf"has {2**40} bytes, expected {len(TAKEN.payload)}. Delete it and measure"):
        compare_with_stored(store, outputs, outputs, TAKEN.payload, JudgeSettings())
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=MemoryError))  # as where less than that is at hand
    forged = msgspec.structs.replace(outputs, payload_bytes=2**40)
    with pytest.raises(StoreError, match="larger than the memory at hand"):
        compare_with_stored(store, forged, outputs, TAKEN.payload, JudgeSettings())


def test_a_baseline_of_an_older_torch_on_another_device_is_compared() -> None:
    """As torch 2.6 wrote it on an accelerator, before tensors were taken apart: dtypes are words, fields missing."""
    record = {
        "nodes": [
            {
                "path": "",
                "kind": "tensor",
                "type_name": "torch.Tensor",
                "shape": [2],
                "dtype": "float32",
                "device_kind": "cuda",
                "payload_key": "tensor 0",
            }
        ],
        "leaf_count": 1,
        "payload_sha256": None,
        "payload_bytes": 0,
    }
    payload = safetensors.torch.save({"tensor 0": torch.tensor([1.0, 2.0])})
    old = _signed(msgspec.json.decode(json.dumps(record), type=StoredOutputs), payload)
    new = take_outputs(torch.tensor([1.0, 2.5]))
    found = compare_outputs(old, payload, new.stored, new.payload, rtol=None, atol=None).mismatches
    assert [(mismatch.kind, mismatch.message.split(";")[0]) for mismatch in found] == [
        ("device", "on cuda before, on cpu after"),
        ("value", "1 of 2 elements differ by more than rtol 1.3e-06, atol 1e-05"),
    ]


SLOW = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FLIPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4)


def _flipped(content: bytes, flips: list[tuple[int, int]]) -> bytes:
    changed = bytearray(content)
    for at, bits in flips:
        changed[at % len(changed)] ^= bits
    return bytes(changed)


def _only_named_errors(stored: StoredOutputs, payload: bytes) -> None:
    for action in (lambda: _compare(stored, payload), lambda: summarize_leaves(stored, payload)):
        with contextlib.suppress(OutputError):
            action()


@SLOW
@given(flips=FLIPS, cut=st.none() | st.integers(0, 10**6), signed=st.booleans())
def test_any_damage_to_the_payload_is_a_named_error(
    flips: list[tuple[int, int]], cut: int | None, signed: bool
) -> None:
    payload = _flipped(TAKEN.payload, flips)
    payload = payload if cut is None else payload[: cut % len(payload)]
    if signed:
        _only_named_errors(_signed(TAKEN.stored, payload), payload)
    elif payload != TAKEN.payload:
        with pytest.raises(OutputError, match="are damaged"):
            _compare(TAKEN.stored, payload)


@SLOW
@given(flips=FLIPS)
def test_any_damage_to_the_payload_header_is_a_named_error(flips: list[tuple[int, int]]) -> None:
    header = 8 + struct.unpack("<Q", TAKEN.payload[:8])[0]
    payload = _flipped(TAKEN.payload[:header], flips) + TAKEN.payload[header:]
    _only_named_errors(_signed(TAKEN.stored, payload), payload)


@SLOW
@given(flips=FLIPS, cut=st.none() | st.integers(0, 10**6))
def test_any_damage_to_the_record_is_a_named_error(flips: list[tuple[int, int]], cut: int | None) -> None:
    record = _flipped(RECORD, flips)
    record = record if cut is None else record[: cut % len(record)]
    try:
        stored = msgspec.json.decode(record, type=StoredOutputs)
    except (msgspec.DecodeError, UnicodeDecodeError):  # the store names the file, see below
        return
    _only_named_errors(stored, TAKEN.payload)


BUILTINS: dict[str, Any] = msgspec.json.decode(RECORD)
WORDS = [
    "",
    "0",
    "indices",
    "sparse_csr",
    "bits",
    "jagged",
    "float8_e5m2",
    "complex64 as real pairs",
    "nan",
    "-1",
    "1j",
]
HOSTILE = st.one_of(
    st.none(),
    st.sampled_from([0, 1, 2, 3, 5, 6, -1, 2**31, 2**62, 2**63, 2**64 - 1, 10**30]),
    st.sampled_from(WORDS),
    st.sampled_from([[], [0], [-1, 3], [2, 3], [3, 2], [2**62, 2**62], ["0"], ["0", "0"], [["axis", "1"]]]),
    st.floats(allow_nan=False, allow_infinity=False),
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every way into a nested structure of dicts and lists, those of what lies deeper included."""
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [found for key, item in entries for found in [(*place, key), *_places(item, (*place, key))]]


PLACES = _places(BUILTINS)


@settings(SLOW, max_examples=600)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), HOSTILE), min_size=1, max_size=3))
def test_any_change_of_a_field_is_a_named_error_or_a_comparison(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    record = copy.deepcopy(BUILTINS)
    for place, value in changes:
        inside = record
        try:
            for step in place[:-1]:
                inside = inside[step]
            inside[place[-1]] = value
        except (TypeError, IndexError, KeyError):
            continue  # the change before this one took the place away
    try:
        stored = msgspec.convert(record, StoredOutputs, strict=True)
    except (msgspec.ValidationError, OverflowError):
        return
    _only_named_errors(stored, TAKEN.payload)


def _stored_session(folder: Path) -> tuple[Store, Session]:
    store = Store(folder)
    session = sample_session(measurements=(sample_measurement(outputs=TAKEN.stored),))
    store.save_session(session, {str(TAKEN.stored.payload_sha256): TAKEN.payload})
    return store, session


@settings(SLOW, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(flips=FLIPS, cut=st.booleans(), payload=st.booleans())
def test_any_damage_to_a_file_of_the_store_is_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], cut: bool, payload: bool
) -> None:
    folder = tmp_path_factory.mktemp("store")
    store, session = _stored_session(folder)
    path = next((folder / ("payloads" if payload else "sessions")).iterdir())
    content = path.read_bytes()
    path.write_bytes(content[: flips[0][0] % len(content)] if cut else _flipped(content, flips))
    undamaged = path.read_bytes() == content
    with contextlib.suppress(StepprofError):
        (measurement,) = store.load_session(session.session_id).measurements
        compare_with_stored(store, measurement.outputs, TAKEN.stored, TAKEN.payload, JudgeSettings())
        assert undamaged or not payload


def test_a_session_of_nothing_but_brackets(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="damaged"):
        json_text.decode(b'{"schema_version": 1, "a": ' + b"[" * 10**6, Session, tmp_path / "x.json")


def test_norms_that_no_number_holds_are_refused() -> None:
    sample = _sample(largest_magnitude=math.inf)
    with pytest.raises(OutputError, match="impossible numbers"):
        _compare(_node("['large']", sample=sample), TAKEN.payload)


REPLACEMENTS: list[Callable[[], object]] = [lambda: [1, 2], lambda: torch.ones(2), lambda: "text", lambda: None]


@pytest.mark.parametrize("make", REPLACEMENTS)
def test_a_sound_result_of_another_kind_is_compared(make: Callable[[], object]) -> None:
    taken = take_outputs(make())
    found = compare_outputs(TAKEN.stored, TAKEN.payload, taken.stored, taken.payload, rtol=None, atol=None)
    assert found.status == "differ"
