"""Modules, shapes, compilation, reading and counters of a window, on timelines that are written by hand."""

from collections.abc import Callable

import pytest
from trace_events import Event, any_trace, complete, data_trace, kernel, label, launch, operator, step, trace_of

from pytest_stepprof.analysis.window import selection
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX, READ_LABEL, has_compiled_regions
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import ModuleCost, NamedCount, ShapeCost, Window


def reduced(*events: Event, device_expected: bool = True) -> Window:
    return reduce_window(trace_of(*events), device_expected=device_expected)


def module(path: str, ts: float, dur: float) -> Event:
    return label(MODULE_LABEL_PREFIX + path, ts, dur)


def shaped(name: str, ts: float, dur: float, dims: list[list[int]]) -> Event:
    types = ["float"] * len(dims)
    return complete("cpu_op", name, ts, dur, **{"Input Dims": dims, "Input type": types})


def counters(window: Window) -> dict[str, tuple[int, ...]]:
    return {counter.name: counter.per_step for counter in window.counters}


def test_modules_are_no_regions() -> None:
    window = reduced(
        step(0, 0, 100),
        label("forward", 5, 50),
        module("encoder", 10, 40),
        module("encoder.0", 12, 10),
        operator("aten::mm", 14, 4),
        launch(1, 15),
        module("encoder.0", 30, 10),
        kernel(1, 60, 7),
    )
    assert [cost.name for cost in window.regions] == ["forward"]
    assert window.modules == (
        ModuleCost(path="encoder", calls=(1,), total_cpu_ns=(40_000,), self_cpu_ns=(20_000,), device_work_ns=(7_000,)),
        ModuleCost(
            path="encoder.0", calls=(2,), total_cpu_ns=(20_000,), self_cpu_ns=(16_000,), device_work_ns=(7_000,)
        ),
    )


def test_shapes_apart() -> None:
    window = reduced(
        step(0, 0, 100),
        shaped("aten::mm", 10, 10, [[2, 3], [3, 4]]),
        launch(1, 12),
        shaped("aten::mm", 30, 30, [[8, 3], [3, 4]]),
        operator("aten::mm", 70, 5),
        step(1, 100, 100),
        shaped("aten::mm", 110, 10, [[2, 3], [3, 4]]),
        kernel(1, 50, 7),
        operator("aten::mm", 170, 5),
    )
    assert window.shapes == (
        ShapeCost(
            name="aten::mm",
            shapes="[[8, 3], [3, 4]]",
            types="[float, float]",
            calls=(1, 0),
            self_cpu_ns=30_000,
            total_cpu_ns=30_000,
            device_work_ns=0,
        ),
        ShapeCost(
            name="aten::mm",
            shapes="[[2, 3], [3, 4]]",
            types="[float, float]",
            calls=(1, 1),
            self_cpu_ns=20_000,
            total_cpu_ns=20_000,
            device_work_ns=7_000,
        ),
    )
    assert window.operators[0].calls == (3, 2)


def test_no_shapes_without_shapes() -> None:
    assert reduced(step(0, 0, 100), operator("aten::mm", 10, 10)).shapes == ()


def test_shapes_of_a_real_step_add_up_to_its_operators() -> None:
    window = reduce_window(any_trace("nvidia_h100_infer_bert_small.json.gz"), device_expected=True)
    for name in ("aten::addmm", "aten::view"):
        operator_cost = next(cost for cost in window.operators if cost.name == name)
        shapes = [cost for cost in window.shapes if cost.name == name]
        assert sum(cost.self_cpu_ns for cost in shapes) == operator_cost.self_cpu_ns
        assert sum(cost.calls[0] for cost in shapes) == operator_cost.calls[0]
    assert window.shapes[0].shapes.startswith("[[")


def test_reading_is_a_union_within_the_step() -> None:
    window = reduced(
        step(0, 0, 100),
        label(READ_LABEL, 10, 20),
        label("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 15, 10),
        step(1, 100, 50),
        label(READ_LABEL, 140, 30),
    )
    assert window.read_cpu_ns == (20_000, 10_000)


def test_time_outside_of_operators_is_what_no_thread_covers() -> None:
    window = reduced(
        step(0, 0, 100),
        label("forward", 0, 100),
        operator("aten::a", 10, 20),
        operator("aten::b", 20, 20, tid=2),
        launch(1, 35, 10),
        {**complete("overhead", "Lazy Function Loading", 60, 5), "pid": -1},
        complete("python_function", "train.py(3): step", 0, 100),
        kernel(1, 70, 20),
        step(1, 100, 10),
    )
    assert window.outside_operators_ns == (60_000, 10_000)


OF_A_POOL = ("cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaFreeAsync", "hipMallocAsync", "cudaMallocAsyncOther")


def test_compiler_at_work() -> None:
    window = reduced(
        operator("early (dynamo_timed)", 0, 5),
        step(0, 10, 100),
        operator("Torch-Compiled Region: 0/0", 12, 2),
        operator("_compile.compile_inner (dynamo_timed)", 20, 30),
        operator("backend (dynamo_timed)", 25, 10),
        operator("Torch-Compiled Region: 0/1", 60, 2),
        complete("cuda_runtime", "cudaMalloc", 70, 2),
        complete("cuda_runtime", "cudaMalloc", 72, 2),
        *(complete("cuda_runtime", name, 74, 1) for name in OF_A_POOL),
        complete("overhead", "Lazy Function Loading", 80, 2),
        step(1, 120, 100),
        operator("Torch-Compiled Region: 0/1", 130, 2),
    )
    assert (window.compilations, window.compilation_cpu_ns) == ((2, 0), (30_000, 0))
    assert window.unwarmed == (
        NamedCount(name="cudaMalloc", count=2),
        NamedCount(name="Lazy Function Loading", count=1),
    )
    found = counters(window)
    assert (found["recompilations"], found["compiled regions"]) == ((1, 0), (2, 1))


def test_without_the_compiler_its_counters_are_known_zeros() -> None:
    """Growth from 0 is growth: a missing counter would be no side of a comparison."""
    found = counters(reduced(step(0, 0, 100), operator("aten::mm", 10, 10), step(1, 100, 100)))
    assert (found["recompilations"], found["compiled regions"]) == ((0, 0), (0, 0))
    assert not has_compiled_regions(data_trace("nvidia_h100_infer_bert_small.json.gz"))


def test_graph_launches_are_a_known_zero_where_calls_were_recorded() -> None:
    assert counters(reduced(step(0, 0, 100), launch(1, 12)))["graph launches"] == (0,)
    assert "graph launches" not in counters(reduced(step(0, 0, 100), operator("aten::mm", 10, 10)))


@pytest.mark.parametrize("names", [("cudaFree", "cudaMalloc"), ("cudaMalloc", "cudaFree")])
def test_ties_are_in_the_order_of_names_not_of_the_file(names: tuple[str, str]) -> None:
    calls = [complete("cuda_runtime", name, 10 + at, 1) for at, name in enumerate(names)]
    waits = [complete("cuda_runtime", name.replace("cuda", "cudaStreamSynchronize"), 20, 1) for name in names]
    window = reduced(step(0, 0, 100), *calls, *waits)
    assert [event.name for event in window.unwarmed] == ["cudaFree", "cudaMalloc"]
    assert [cost.name for cost in window.synchronizations] == [
        "cudaStreamSynchronizeFree",
        "cudaStreamSynchronizeMalloc",
    ]


def test_operators_are_ranked_and_counters_come_in_time() -> None:
    """The order of counters does not depend on how long anything took."""
    window = reduced(step(0, 0, 100), operator("aten::short", 10, 1), operator("aten::long", 20, 9))
    assert [cost.name for cost in window.operators] == ["aten::long", "aten::short"]
    names = [counter.name for counter in window.counters]
    assert names[-2:] == ["calls of aten::short", "calls of aten::long"]
    assert names[:-2] == ["operator calls", "copies", "recompilations", "compiled regions"]


def test_findings_are_in_the_window() -> None:
    window = reduced(step(0, 0, 100_000), label(READ_LABEL, 5, 80_000), operator("aten::mm", 90_000, 10_000))
    assert "input pipeline" in {finding.code for finding in window.findings}


@pytest.mark.parametrize("depth", [1, 2000])
def test_deeply_nested_labels_and_operators(depth: int) -> None:
    """Every level launched the kernel; nothing here recurses."""
    events = [operator(f"aten::{level % 7}", 10 + level / 100, 80 - level / 50) for level in range(depth)]
    window = reduced(step(0, 0, 100), *events, launch(1, 50, 0.01), kernel(1, 60, 5))
    assert {cost.device_work_ns for cost in window.operators} == {5_000}
    assert sum(cost.self_cpu_ns for cost in window.operators) == 80_000


def many_names_and_steps(names: int, steps: int) -> list[Event]:
    marks = [step(number, 10 * number, 10) for number in range(steps)]
    return [*marks, *(operator(f"aten::{number}", 1 + number / 1000, 0.001) for number in range(names))]


def test_tables_are_no_larger_than_the_events_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of names times steps costs memory by their product; ordinary ones stay far below their events."""
    monkeypatch.setattr(selection, "_CELLS", 300)
    assert len(reduced(*many_names_and_steps(20, 20)).operators) == 20
    with pytest.raises(
        TraceError, match=r"400 names in 20 steps make a table of 8000 cells; expected at most 1980 for a trace of 420"
    ):
        reduced(*many_names_and_steps(400, 20))


@pytest.mark.parametrize("kind", ["label", "module", "copy", "wait"])
def test_every_table_is_limited(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_CELLS", 0)
    monkeypatch.setattr(selection, "_CELLS_PER_EVENT", 1)
    one: dict[str, Callable[[int], Event]] = {
        "label": lambda at: label(f"region {at}", at, 1),
        "module": lambda at: module(f"layer.{at}", at, 1),
        "copy": lambda at: {**kernel(-1, at, 1, cat="gpu_memcpy"), "name": f"Memcpy {at}"},
        "wait": lambda at: complete("cuda_runtime", f"cudaStreamSynchronize{at}", at, 1),
    }
    events = [step(number, 10 * number, 10) for number in range(3)]
    assert reduced(*events, one[kind](1)).steps == (0, 1, 2)
    with pytest.raises(TraceError, match="9 names in 3 steps"):
        reduced(*events, *(one[kind](at) for at in range(9)))
