import pytest
from trace_events import (
    complete,
    data_trace,
    kernel,
    label,
    launch,
    memory,
    operator,
    step,
    trace_of,
)

from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import (
    SYNCHRONIZE_LABEL,
    calls_by_label,
    find_steps,
    user_labels,
)
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import Counter, OperatorCost, RegionCost, Window

H100 = "nvidia_h100_infer_bert_small.json.gz"


def region(window: Window, name: str) -> RegionCost:
    return next(cost for cost in window.regions if cost.name == name)


def operator_cost(window: Window, name: str) -> OperatorCost:
    return next(cost for cost in window.operators if cost.name == name)


def counters(window: Window) -> dict[str, tuple[int, ...]]:
    return {counter.name: counter.per_step for counter in window.counters}


def host_window() -> Window:
    """Two steps of 100 us on thread 1; the second has a label more, and works on thread 2 as well."""
    return reduce_window(
        trace_of(
            operator("aten::early", 5, 2),
            step(2, 10, 100),
            label("forward", 20, 50),
            operator("aten::linear", 25, 30),
            operator("aten::addmm", 30, 10),
            operator("aten::addmm", 32, 3),
            operator("aten::between", 112, 3),
            step(3, 120, 100),
            label("forward", 130, 20),
            label("forward", 140, 30),
            label("forward", 145, 10, tid=2),
            operator("aten::linear", 145, 5, tid=2),
            label("backward", 175, 10),
            operator("aten::copy_", 190, 4),
            operator("aten::clone", 195, 4),
            operator("aten::late", 230, 1),
        ),
        device_expected=False,
    )


def test_steps_and_elapsed() -> None:
    window = host_window()
    assert window.steps == (2, 3)
    assert window.elapsed_ns == (100_000, 100_000)


def test_regions_are_unions_with_self_times() -> None:
    window = host_window()
    assert [cost.name for cost in window.regions] == ["forward", "backward"]
    assert region(window, "forward") == RegionCost(
        name="forward",
        calls=(1, 3),
        total_cpu_ns=(50_000, 40_000),
        self_cpu_ns=(20_000, 20_000 + 20_000 + 5_000),
        device_work_ns=None,
    )
    assert region(window, "backward").calls == (0, 1)


def test_operators_count_a_recursion_once_in_total() -> None:
    window = host_window()
    assert operator_cost(window, "aten::addmm") == OperatorCost(
        name="aten::addmm", calls=(2, 0), self_cpu_ns=10_000, total_cpu_ns=10_000, device_work_ns=None
    )
    assert operator_cost(window, "aten::linear") == OperatorCost(
        name="aten::linear", calls=(1, 1), self_cpu_ns=25_000, total_cpu_ns=35_000, device_work_ns=None
    )
    costs = [cost.self_cpu_ns for cost in window.operators]
    assert costs == sorted(costs, reverse=True)


def test_an_event_belongs_to_the_step_in_which_it_starts() -> None:
    window = host_window()
    assert operator_cost(window, "aten::between").calls == (1, 0)
    names = {cost.name for cost in window.operators}
    assert not names & {"aten::early", "aten::late"}


def test_counters_of_the_host() -> None:
    assert counters(host_window()) == {
        "operator calls": (4, 3),
        "copies": (0, 2),
        "recompilations": (0, 0),
        "compiled regions": (0, 0),
        "calls of aten::linear": (1, 1),
        "calls of aten::addmm": (2, 0),
        "calls of aten::between": (1, 0),
        "calls of aten::copy_": (0, 1),
        "calls of aten::clone": (0, 1),
    }


def test_exact_means_that_all_steps_agree() -> None:
    by_name = {counter.name: counter for counter in host_window().counters}
    assert by_name["calls of aten::linear"] == Counter(
        name="calls of aten::linear", unit="calls", per_step=(1, 1), exact=True
    )
    assert not by_name["operator calls"].exact


def test_allocations_only_when_memory_was_recorded() -> None:
    window = reduce_window(
        trace_of(step(0, 10, 100), memory(5, 8), memory(20, 64), memory(30, 8), memory(40, -64)), device_expected=False
    )
    assert counters(window)["allocations"] == (2,)
    assert "allocations" not in counters(host_window())


def device_window(*, device_expected: bool = True) -> Window:
    return reduce_window(
        trace_of(
            kernel(90, 0, 5),
            launch(91, 5),  # a warm-up step's launch; its kernel runs in the first active step
            step(0, 10, 100),
            kernel(91, 12, 4),
            label("forward", 20, 30),
            operator("aten::mm", 22, 10),
            launch(1, 24),
            complete("cuda_runtime", "cudaStreamSynchronize", 60, 5, correlation=80),
            kernel(1, 70, 50),
            step(1, 120, 100),
            label("forward", 130, 30),
            operator("aten::mm", 132, 10),
            launch(2, 134),
            launch(3, 145, name="cudaMemcpyAsync"),
            complete("cuda_runtime", "cudaStreamSynchronize", 170, 5, correlation=81),
            kernel(2, 215, 50, stream=7),  # the step has ended when the device gets to it
            kernel(3, 240, 30, stream=9, cat="gpu_memcpy"),
            label(SYNCHRONIZE_LABEL, 200, 15),
            complete("cuda_runtime", "cudaDeviceSynchronize", 201, 10, correlation=82),
        ),
        device_expected=device_expected,
    )


def test_device_work_belongs_to_the_step_that_launched_it() -> None:
    window = device_window()
    assert window.device.status == "observed"
    assert window.device.work_ns == (50_000, 55_000)
    assert region(window, "forward").device_work_ns == (50_000, 55_000)
    assert operator_cost(window, "aten::mm").device_work_ns == 100_000


def test_device_work_of_a_region_any_thread_of_an_operator_its_own() -> None:
    window = reduce_window(
        trace_of(
            step(0, 10, 100),
            label("backward", 20, 60),
            operator("aten::waiting", 20, 60),
            operator("aten::mm", 30, 10, tid=2),
            launch(1, 35, tid=2),
            kernel(1, 40, 10),
            kernel(-1, 36, 3),  # nobody is known to have launched it
        ),
        device_expected=True,
    )
    assert window.device.work_ns == (13_000,)
    assert region(window, "backward").device_work_ns == (10_000,)
    assert operator_cost(window, "aten::mm").device_work_ns == 10_000
    assert operator_cost(window, "aten::waiting").device_work_ns == 0


def test_device_work_of_labels_at_their_borders() -> None:
    """A launch belongs to a label from its start on, and no longer at its end; after the last step to none."""
    window = reduce_window(
        trace_of(
            step(0, 10, 100),
            label("first", 20, 10),
            label("second", 30, 10),
            label("long", 90, 100),
            operator("aten::long", 91, 50, tid=2),
            *(event for at in (20, 30, 40) for event in (launch(at, at), kernel(at, at + 5, 1))),
            launch(1, 120, tid=2),
            kernel(1, 130, 10),
        ),
        device_expected=True,
    )
    assert {cost.name: cost.device_work_ns for cost in window.regions} == {
        "first": (1_000,),
        "second": (1_000,),
        "long": (0,),
    }
    assert operator_cost(window, "aten::long").device_work_ns == 0


def test_device_work_of_operators_that_overlap_in_part() -> None:
    """The first one has ended when the second, which began while it ran, launches."""
    window = reduce_window(
        trace_of(
            step(0, 10, 100),
            operator("aten::first", 20, 10),
            operator("aten::second", 25, 10),
            launch(1, 27),
            kernel(1, 40, 1),
            launch(2, 32),
            kernel(2, 50, 2),
        ),
        device_expected=True,
    )
    assert operator_cost(window, "aten::first").device_work_ns == 1_000
    assert operator_cost(window, "aten::second").device_work_ns == 3_000


def test_counters_of_the_device() -> None:
    found = counters(device_window())
    assert found["kernel launches"] == (1, 1)
    assert found["graph launches"] == (0, 0)
    assert found["synchronizations"] == (1, 1)
    assert found["device copies"] == (0, 1)
    assert found["device copied bytes"] == (0, 0)


def test_the_wait_that_ends_the_window_ends_the_last_step() -> None:
    window = device_window()
    assert window.elapsed_ns == (100_000, 80_000)
    assert SYNCHRONIZE_LABEL not in {cost.name for cost in window.regions}


def test_a_real_step() -> None:
    window = reduce_window(data_trace(H100), device_expected=True)
    assert window.steps == (6,)
    assert window.elapsed_ns == (4_426_114,)
    assert window.device.work_ns == (309_437,)
    found = counters(window)
    assert found["operator calls"] == (479,)
    assert found["kernel launches"] == (60,)
    assert found["device copies"] == (1,)
    assert found["calls of aten::view"] == (94,)
    assert sum(cost.self_cpu_ns for cost in window.operators) <= window.elapsed_ns[0]
    assert all(cost.self_cpu_ns <= cost.total_cpu_ns for cost in window.operators)


def test_launches_without_a_device_are_not_zero_work() -> None:
    window = reduce_window(data_trace("cpu_only_step_no_gpu.json.gz"), device_expected=True)
    assert window.device.status == "not observed"
    assert window.device.work_ns is None
    assert all(cost.device_work_ns is None for cost in window.regions + window.operators)
    assert not {"device copies", "kernel launches", "graph launches", "synchronizations"} & set(counters(window))


def test_names_are_stored_printable() -> None:
    window = reduce_window(data_trace("torch213_labels_python_export.json"), device_expected=False)
    assert {"étape", "tab\\x09here", "back\\slash"} <= {cost.name for cost in window.regions}


@pytest.mark.parametrize("name", ["recurrent_small_h2d_gpu_annotations.json.gz", "launches_but_no_gpu_events.json.gz"])
def test_no_step_is_an_error(name: str) -> None:
    with pytest.raises(TraceError, match="no ProfilerStep"):
        reduce_window(data_trace(name), device_expected=True)


def test_labels_of_people() -> None:
    trace = trace_of(
        label("before", 0, 1),
        step(0, 10, 100),
        label("forward", 20, 5),
        label("stepprof: read batch", 30, 5),
        label("gc_data: compile_id=0/0", 40, 5),
        label("forward", 50, 5),
        step(1, 120, 10),
    )
    assert user_labels(trace) == ("before", "forward")
    assert calls_by_label(trace, find_steps(trace)) == {"forward": (2, 0), "stepprof: read batch": (1, 0)}


@pytest.mark.parametrize(("counted", "calls", "launches"), [(True, (3,), (2,)), (False, (1,), (1,))])
def test_what_reading_does_is_counted_where_it_belongs_to_the_step(
    counted: bool, calls: tuple[int, ...], launches: tuple[int, ...]
) -> None:
    trace = trace_of(
        step(0, 10, 100),
        label("stepprof: read batch", 20, 30),
        operator("aten::stack", 25, 10),
        operator("aten::copy_", 40, 5),
        launch(1, 41, name="cudaMemcpyAsync"),
        kernel(1, 42, 1, cat="gpu_memcpy"),
        launch(3, 44),
        kernel(3, 46, 1),
        memory(43, 16),
        operator("aten::copy_", 50, 5),
        memory(50, 64),
        launch(2, 51),
        kernel(2, 60, 3),
    )
    window = reduce_window(trace, device_expected=True, reading_counted=counted)
    seen = counters(window)
    assert (seen["operator calls"], seen["kernel launches"], window.reading_counted) == (calls, launches, counted)
    assert seen["device copies"] == ((1,) if counted else (0,))
    assert seen["allocations"] == ((2,) if counted else (1,))
    assert ("calls of aten::stack" in seen) is counted
    assert operator_cost(window, "aten::copy_").calls == (2,)  # costs show all of it
