import pytest
from trace_events import (
    Event,
    any_trace,
    data_trace,
    kernel,
    label,
    launch,
    memory,
    operator,
    step,
    trace_of,
)

from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.completeness import copies_without_record, launches_without_kernel, observe
from pytest_stepprof.analysis.window.device_side import device_side
from pytest_stepprof.analysis.window.steps import find_steps, whole_trace
from pytest_stepprof.record.window import DeviceObservation

STEPS = (step(4, 10, 100), step(5, 110, 100))


def observed(*events: Event, device_expected: bool | None = True) -> DeviceObservation:
    return observation(trace_of(*STEPS, *events), device_expected=device_expected)


def observation(trace: Trace, *, device_expected: bool | None = True) -> DeviceObservation:
    steps = find_steps(trace)
    return observe(trace, device_side(trace, steps), steps, device_expected=device_expected)


def device_memory(ts: float) -> Event:
    return {**memory(ts, 8), "args": {"Bytes": 8, "Device Type": 1, "Device Id": 0}}


HEALTHY = (launch(1, 20), kernel(1, 30, 10), launch(2, 120), kernel(2, 130, 10))


@pytest.mark.parametrize(
    ("events", "status", "reason", "work_ns"),
    [
        (HEALTHY, "observed", "", (10_000, 10_000)),
        ((), "not observed", "device activity was asked for, but no device event came", None),
        (
            (launch(1, 20), launch(2, 120)),
            "not observed",
            "2 kernel launches in the active steps, but no device event came",
            None,
        ),
        (
            (launch(1, 20), launch(2, 120), kernel(9, 1, 2)),
            "not observed",
            "2 kernel launches in the active steps, but no device event came (1 device event outside of the active "
            "steps)",
            None,
        ),
        (
            (*HEALTHY, launch(3, 140)),
            "incomplete",
            "1 of 3 kernel launches have no kernel",
            (10_000, 10_000),
        ),
        (
            (*HEALTHY[:2], launch(3, 40), launch(4, 130)),
            "incomplete",
            "2 of 3 kernel launches have no kernel; nothing launched after the first of these was seen on the device: "
            "a full buffer looks like this; no device event in step 5",
            (10_000, 0),
        ),
        (
            (*HEALTHY, launch(3, 40), launch(4, 50)),
            "incomplete",
            "2 of 4 kernel launches have no kernel",
            (10_000, 10_000),
        ),
        (HEALTHY[:2], "observed", "", (10_000, 0)),  # nothing was asked for in step 5
        ((*HEALTHY[:2], launch(3, 140, name="cudaMemsetAsync")), "observed", "", (10_000, 0)),
        (  # without calls, nobody knows what was asked for
            (kernel(-1, 30, 10),),
            "incomplete",
            "no device event in step 5",
            (10_000, 0),
        ),
        (
            (*HEALTHY, launch(3, 40, name="cudaGraphLaunch"), launch(4, 140, name="cudaGraphLaunch")),
            "incomplete",
            "2 of 2 graph launches without a device event",
            (10_000, 10_000),
        ),
        (
            (*HEALTHY, launch(3, 40, name="hipGraphLaunch"), kernel(3, 50, 1), launch(4, 45, name="hipGraphLaunch")),
            "incomplete",
            "1 of 2 graph launches without a device event",
            (11_000, 10_000),
        ),
        (  # whose kernels these are is not written: they may be the graph's
            (*HEALTHY, launch(3, 40, name="cudaGraphLaunch"), kernel(9, 50, 5)),
            "observed",
            "1 device event without a launch call: for the step, for no region",
            (15_000, 10_000),
        ),
        (
            (*HEALTHY, launch(3, 40, name="cudaMemcpyAsync")),
            "incomplete",
            "1 of 1 copy call without a device event",
            (10_000, 10_000),
        ),
        (  # some drivers copy with a kernel
            (*HEALTHY, launch(3, 140, name="hipMemcpyAsync"), kernel(3, 150, 5)),
            "observed",
            "",
            (10_000, 15_000),
        ),
        (
            (*HEALTHY, kernel(2, 150, 5)),
            "incomplete",
            "steps with equally many launches have 1, 2 kernels",
            (10_000, 15_000),
        ),
        (
            (*HEALTHY, kernel(7, 150, 8e14)),
            "incomplete",
            "1 event that lasted longer than a week left out",
            (10_000, 10_000),
        ),
        (
            (launch(1, 20), kernel(1, 30, 10), launch(2, 120), launch(3, 121), kernel(2, 130, 10), kernel(3, 140, 10)),
            "observed",
            "",
            (10_000, 20_000),
        ),
        (  # one launch of a graph more, and the kernels that go with it
            (*HEALTHY, launch(3, 140, name="cudaGraphLaunch"), kernel(3, 150, 5), kernel(3, 160, 5)),
            "observed",
            "",
            (10_000, 20_000),
        ),
        (  # what nobody launched may belong to either step: no sign of loss
            (*HEALTHY, kernel(-1, 40, 5)),
            "observed",
            "1 device event without a launch call: for the step, for no region",
            (15_000, 10_000),
        ),
        (
            (*HEALTHY, kernel(-1, 40, 5), kernel(-1, 150, 5)),
            "observed",
            "2 device events without a launch call: for the step, for no region",
            (15_000, 15_000),
        ),
        (
            (launch(1, 20), kernel(1, 15, 10), launch(2, 120), kernel(2, 130, 10)),
            "observed",
            "",
            (10_000, 10_000),
        ),
    ],
)
def test_status(events: tuple[Event, ...], status: str, reason: str, work_ns: tuple[int, ...] | None) -> None:
    found = observed(*events)
    assert (found.status, found.reason, found.work_ns) == (status, reason, work_ns)


def test_clocks_that_differ_are_counted_and_make_launches_unknown() -> None:
    found = observed(
        launch(1, 20), kernel(1, 15, 10), launch(2, 120), kernel(2, 130, 10), launch(3, 5), kernel(3, 1, 1)
    )
    assert (found.status, found.early_events) == ("observed", 1)
    assert found.late_launch_reason == "1 device event before the launch: the clocks of host and device differ"


@pytest.mark.parametrize(
    ("events", "reason"), [(HEALTHY, ""), ((*HEALTHY, launch(3, 40)), "the device's side is incomplete")]
)
def test_late_launches_are_known_of_a_complete_side_only(events: tuple[Event, ...], reason: str) -> None:
    assert observed(*events).late_launch_reason == reason


def test_nothing_asked_is_said_so() -> None:
    found = observed(device_expected=False)
    assert (found.reason, found.suspected) == ("no device activity was asked for", False)


@pytest.mark.parametrize(
    ("events", "sign"),
    [
        ((launch(1, 20), launch(2, 500)), "1 kernel launch in the active steps"),
        ((launch(1, 20, name="cudaGraphLaunch"),), "1 graph launch in the active steps"),
        ((launch(1, 20, name="cudaMemcpyAsync"),), "1 call of the device's runtime in the active steps"),
        ((launch(1, 20, name="urEnqueueUSMFill"),), "1 call of the device's runtime"),
        ((operator("aten::cudnn_convolution", 20, 5),), "operators that only devices have (aten::cudnn_convolution)"),
        ((operator("aten::_cudnn_rnn", 20, 5),), "(aten::_cudnn_rnn)"),
        ((operator("aten::miopen_batch_norm", 20, 5),), "(aten::miopen_batch_norm)"),
        ((operator("aten::_flash_attention_forward", 20, 5),), "(aten::_flash_attention_forward)"),
        ((label("nccl:all_reduce", 20, 5),), "(nccl:all_reduce)"),
        ((device_memory(30),), "allocations on a device"),
    ],
)
@pytest.mark.parametrize("device_expected", [True, False, None])
def test_signs_of_a_device_that_was_not_watched(
    events: tuple[Event, ...], sign: str, device_expected: bool | None
) -> None:
    found = observed(*events, device_expected=device_expected)
    assert (found.status, found.suspected, found.work_ns) == ("not observed", True, None)
    assert sign in found.reason


@pytest.mark.parametrize(
    "event",
    [
        operator("aten::cudnn_is_acceptable", 20, 5),
        operator("aten::_use_cudnn_ctc_loss", 20, 5),
        operator("aten::_scaled_dot_product_flash_attention_for_cpu", 20, 5),
        operator("aten::cudnn_convolution", 500, 5),
        label("my cudnn_convolution", 20, 5),
        launch(1, 20, name="cudaDeviceSynchronize"),
        launch(1, 20, name="cudaGetDeviceCount"),
        launch(1, 20, name="cudaStreamQuery"),
        launch(1, 500),
        memory(30, 8),
        device_memory(500),
    ],
)
def test_no_sign_of_a_device(event: Event) -> None:
    assert not observed(event).suspected


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ((), "the file holds neither device events nor launches"),
        ((launch(1, 500),), "device activity was asked for, but no device event came"),
    ],
)
def test_a_file_says_itself_whether_a_device_was_asked_for(events: tuple[Event, ...], reason: str) -> None:
    assert observed(*events, device_expected=None).reason == reason


def of_process(event: Event, process: int) -> Event:
    return {**event, "pid": process}


def test_launches_of_two_processes_that_count_alike_are_not_joined() -> None:
    """Each rank counts its calls from 1: a kernel's number says which call, not of which rank."""
    calls = (launch(1, 20), of_process(launch(1, 30), 200), of_process(launch(2, 40), 200))
    trace = trace_of(*STEPS, *calls, kernel(1, 50, 5), kernel(1, 60, 5, device=1), kernel(2, 115, 5, device=1))
    side = device_side(trace, find_steps(trace))
    assert (side.call.tolist(), side.step.tolist(), side.ambiguous) == ([-1, -1, 2], [0, 0, 0], 2)
    found = observation(trace)
    assert found.late_launch_reason == "2 device events may have been launched by any of several processes"


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("cudaMemcpyAsync", True),
        ("cuMemcpyHtoDAsync_v2", True),
        ("hipMemcpyWithStream", True),
        ("urEnqueueUSMMemcpy", True),
        ("zeCommandListAppendMemoryCopy", True),
        ("cudaMemsetAsync", False),
        ("cudaLaunchKernel", False),
    ],
)
def test_copy_calls_by_name(name: str, asks: bool) -> None:
    trace = trace_of(launch(1, 5, name=name))
    assert len(copies_without_record(device_side(trace, whole_trace(trace)))) == int(asks)


def test_unions_are_per_device() -> None:
    found = observed(
        kernel(1, 15, 10, stream=1),
        kernel(2, 20, 10, stream=2),
        kernel(3, 20, 10, device=1),
        kernel(4, 21, 20, device=1, cat="gpu_user_annotation"),
    )
    assert found.work_ns == (15_000 + 10_000, 0)


@pytest.mark.parametrize(
    ("name", "launched"),
    [
        ("cudaLaunchKernel", True),
        ("cudaLaunchKernelExC", True),
        ("cudaLaunchCooperativeKernel", True),
        ("cuLaunchKernelEx", True),
        ("hipExtModuleLaunchKernel", True),
        ("urEnqueueKernelLaunch", True),
        ("cudaMemsetAsync", False),
        ("cudaGraphLaunch", False),
        ("cudaLaunchHostFunc", False),
    ],
)
def test_kernel_launches_by_name(name: str, launched: bool) -> None:
    trace = trace_of(launch(1, 5, name=name))
    assert len(launches_without_kernel(device_side(trace, whole_trace(trace)))) == int(launched)


def test_fills_without_a_device_event_are_healthy() -> None:
    assert observation(data_trace("nvidia_h100_infer_bert_small.json.gz")).status == "observed"
    assert observation(data_trace("rocm_mi300_infer_bert_small.json.gz")).work_ns == (390_748,)


def test_three_steps_of_data_parallel_training() -> None:
    found = observation(any_trace("nvidia_a100_train_ddp2_nccl.json.gz"))
    assert found.status == "observed"
    assert found.work_ns == (49_438_921, 49_728_926, 58_332_167)
