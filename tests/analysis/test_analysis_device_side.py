import pytest
from trace_events import Event, any_trace, data_trace, kernel, launch, step, trace_of

from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.completeness import launches_without_kernel, observe
from pytest_stepprof.analysis.window.device_side import device_side
from pytest_stepprof.analysis.window.steps import find_steps, whole_trace
from pytest_stepprof.record.window import DeviceObservation

STEPS = (step(4, 10, 100), step(5, 110, 100))


def observed(*events: Event, device_expected: bool = True) -> DeviceObservation:
    return observation(trace_of(*STEPS, *events), device_expected=device_expected)


def observation(trace: Trace, *, device_expected: bool = True) -> DeviceObservation:
    steps = find_steps(trace)
    return observe(trace, device_side(trace, steps), steps, device_expected=device_expected)


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
            "2 kernel launches in the active steps, but no device event came (1 device events lie outside of the "
            "active steps)",
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
        (
            HEALTHY[:2],
            "incomplete",
            "no device event in step 5",
            (10_000, 0),
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
            "1 events lasted longer than a week and were dropped",
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
            "1 device events have no launch call: they count for the step, for no region",
            (15_000, 10_000),
        ),
        (
            (*HEALTHY, kernel(-1, 40, 5), kernel(-1, 150, 5)),
            "observed",
            "2 device events have no launch call: they count for the step, for no region",
            (15_000, 15_000),
        ),
        (
            (launch(1, 20), kernel(1, 15, 10), launch(2, 120), kernel(2, 130, 10)),
            "observed",
            "1 device events start before their launch: the clocks of host and device differ",
            (10_000, 10_000),
        ),
    ],
)
def test_status(events: tuple[Event, ...], status: str, reason: str, work_ns: tuple[int, ...] | None) -> None:
    found = observed(*events)
    assert (found.status, found.reason, found.work_ns) == (status, reason, work_ns)


def test_nothing_asked_is_said_so() -> None:
    assert observed(device_expected=False).reason == "no device activity was asked for"


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
