"""Findings about operators: which of them dominate, and what kind of work they do."""

import msgspec
import pytest
from finding_patterns import (
    codes,
    dominant_on_the_device,
    dominant_on_the_host,
    only,
    value,
)
from finding_windows import (
    MS,
    device_window,
    each,
    host_window,
    incomplete,
    operator,
)

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.record.window import (
    Counter,
    ShapeCost,
)

# Operators


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("aten::mm", "arithmetic"),
        ("aten::addmm", "arithmetic"),
        ("aten::baddbmm", "arithmetic"),
        ("aten::_scaled_mm", "arithmetic"),
        ("aten::linear", "arithmetic"),
        ("aten::_addmm_activation", "arithmetic"),
        ("aten::mkldnn_convolution", "arithmetic"),
        ("aten::convolution_backward", "arithmetic"),
        ("aten::cudnn_convolution", "arithmetic"),
        ("aten::_slow_conv2d_forward", "arithmetic"),
        ("aten::_flash_attention_forward", "arithmetic"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "arithmetic"),
        ("aten::mkldnn_rnn_layer", "arithmetic"),
        ("aten::_cudnn_rnn", "arithmetic"),
        ("aten::lstm", "arithmetic"),
        ("aten::_thnn_fused_gru_cell", "arithmetic"),
        ("aten::linalg_solve_ex", "arithmetic"),
        ("aten::mv", "arithmetic"),
        ("aten::dot", "arithmetic"),
        ("aten::_fft_r2c", "arithmetic"),
        ("aten::index", "moves data"),
        ("aten::index_select", "moves data"),
        ("aten::embedding_dense_backward", "moves data"),
        ("aten::cat", "moves data"),
        ("aten::gather", "moves data"),
        ("aten::sort", "moves data"),
        ("gloo:all_reduce", "exchanges data"),
        ("c10d::allreduce_", "exchanges data"),
        ("record_param_comms", "exchanges data"),
        ("aten::add_", "not matrix or convolution"),
        ("aten::addcmul_", "not matrix or convolution"),
        ("aten::comm", "not matrix or convolution"),
        ("aten::native_layer_norm", "not matrix or convolution"),
        ("aten::_foreach_addcdiv_", "not matrix or convolution"),
        ("aten::max_pool2d_with_indices", "not matrix or convolution"),
        ("aten::upsample_bilinear2d", "not matrix or convolution"),
        ("aten::nonlinear_thing", "not matrix or convolution"),
        ("## Call CompiledFxGraph fzhid7r ##", "torch.compile has generated"),
        ("triton_poi_fused_add_0", "torch.compile has generated"),
        ("my_extension::step", "not matrix or convolution"),
    ],
)
def test_what_kind_of_work_dominates(name: str, word: str) -> None:
    finding = only(host_window(operators=(operator(name, 60), operator("aten::other", 20))))
    assert finding.code == "dominant operator"
    assert word in finding.hypothesis
    assert ("bf16 autocast" in finding.next_check) == (word == "arithmetic")


@pytest.mark.parametrize(
    ("types", "advised"),
    [("[float, float]", True), ("[c10::BFloat16, c10::BFloat16]", False), ("[c10::Half]", False), ("", True)],
)
def test_a_lower_precision_is_not_advised_twice(types: str, advised: bool) -> None:
    shape = ShapeCost(
        name="aten::addmm",
        shapes="[[8]]",
        types=types,
        calls=each(1),
        self_cpu_ns=1,
        total_cpu_ns=1,
        device_work_ns=None,
    )
    check = only(msgspec.structs.replace(dominant_on_the_host(30), shapes=(shape,))).next_check
    assert ("bf16 autocast" in check) == advised


@pytest.mark.parametrize("asked", [(), ("CPU",)], ids=["a file", "measured on the CPU"])
def test_a_device_that_was_used_and_not_seen_gets_no_advice_of_the_hosts(asked: tuple[str, ...]) -> None:
    window = msgspec.structs.replace(dominant_on_the_host(60), activities_asked=asked)
    assert codes(window) == ["dominant operator"]
    device = msgspec.structs.replace(window.device, suspected=True, reason="aten::cudnn_convolution was called")
    assert find(msgspec.structs.replace(window, device=device)) == ()
    graphs = (Counter(name="graph launches", unit="calls", per_step=each(1), exact=True),)
    assert find(msgspec.structs.replace(window, counters=graphs)) == ()


def test_half_is_not_most() -> None:
    assert find(host_window(operators=(operator("aten::mm", 30), operator("aten::bmm", 30)))) == ()


def test_the_innermost_operator_dominates_the_device() -> None:
    finding = only(dominant_on_the_device(30))
    assert value(finding, "aten::mm", "ns/step") == 30 * MS


def test_a_wrapper_around_many_operators_dominates_nothing() -> None:
    work = {"device_work_ns": 180 * MS}
    wrapper = operator("autograd::engine::evaluate_function: MmBackward0", 1, **work)
    assert find(device_window(operators=(wrapper, operator("aten::mm", 1, device_work_ns=80 * MS)))) == ()


def test_an_incomplete_device_side_is_told_with_the_dominant_operator() -> None:
    assert "some work is missing" in only(incomplete(dominant_on_the_device(30))).observation


def test_shapes_of_the_dominant_operator() -> None:
    shapes = tuple(
        ShapeCost(
            name="aten::addmm",
            shapes=text,
            types="[float, float]",
            calls=each(2),
            self_cpu_ns=own,
            total_cpu_ns=own,
            device_work_ns=None,
        )
        for text, own in (("[[8], [8, 2]]", 5), ("[[64], [64, 2]]", 500))
    )
    finding = only(msgspec.structs.replace(dominant_on_the_host(30), shapes=shapes))
    assert "The costliest shapes: [[64], [64, 2]] of [float, float] (2 calls per step)." in finding.observation
    assert "--stepprof-shapes" not in finding.next_check
    assert "--stepprof-shapes" in only(dominant_on_the_host(30)).next_check


def test_host_operators_of_a_step_on_a_device_do_not_dominate() -> None:
    operators = (operator("aten::item", 60, device_work_ns=0), operator("aten::add", 1, device_work_ns=0))
    assert find(device_window(operators=operators)) == ()


@pytest.mark.parametrize(
    ("calls", "self_ms", "others_ms"),
    [(900, 30, 0), (3000, 31, 0), (3000, 30, 31)],
    ids=["not many", "not small", "not most of the operators' time"],
)
def test_operators_that_are_not_many_or_not_small(calls: int, self_ms: float, others_ms: float) -> None:
    window = host_window(operators=(operator("aten::add", self_ms, calls), operator("aten::mm", others_ms, 1)))
    assert "many small operators" not in codes(window)


@pytest.mark.parametrize(("calls", "found"), [((1000,) * 3, True), ((999,) * 3, False), ((2000, 2000, 999), False)])
def test_operators_are_many_in_every_step(calls: tuple[int, ...], found: bool) -> None:
    first = msgspec.structs.replace(operator("aten::add", 5), calls=calls)
    assert ("many small operators" in codes(host_window(operators=(first,)))) == found


def test_the_costliest_shapes_on_a_device_are_those_with_most_work() -> None:
    def shape(text: str, own: int, work: int) -> ShapeCost:
        times = {"self_cpu_ns": own, "total_cpu_ns": own, "device_work_ns": work}
        return ShapeCost(name="aten::mm", shapes=text, types="[float]", calls=each(1), **times)

    shapes = (shape("[[1]]", 900, 5), shape("[[2]]", 5, 900))
    assert "The costliest shapes: [[2]]" in (
        only(msgspec.structs.replace(dominant_on_the_device(30), shapes=shapes)).observation
    )


def test_an_operator_dominates_with_more_than_half_of_a_devices_work() -> None:
    half = operator("aten::mm", 1, device_work_ns=90 * MS)
    assert find(device_window(operators=(half,))) == ()
    more = msgspec.structs.replace(half, device_work_ns=90 * MS + 1)
    assert codes(device_window(operators=(more,))) == ["dominant operator"]
