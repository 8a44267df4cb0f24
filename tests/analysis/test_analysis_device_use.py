"""The device's timeline, its launches and its copies, on timelines that are written by hand (microseconds)."""

import pytest
from trace_events import Event, complete, kernel, label, launch, operator, step, trace_of

from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import READ_LABEL
from pytest_stepprof.record.window import CopyGroup, DeviceUse, LaunchUse, SynchronizationCost, Window

STEP = step(0, 10, 100)
NCCL, HTOD, DTOH = (
    "ncclDevKernel_AllReduce_Sum_f32",
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy DtoH (Device -> Pinned)",
)


def reduced(*events: Event) -> Window:
    return reduce_window(trace_of(*events), device_expected=True)


def device(*events: Event) -> DeviceUse:
    (use,) = reduced(STEP, *events).devices
    return use


def copy(correlation: int, ts: float, dur: float, *, name: str = HTOD, size: int = 8) -> Event:
    found = kernel(correlation, ts, dur, cat="gpu_memcpy")
    found["args"]["bytes"] = size
    return {**found, "name": name}


def exchange(correlation: int, ts: float, dur: float, *, stream: int = 20) -> Event:
    return {**kernel(correlation, ts, dur, stream=stream), "name": NCCL}


def call(name: str, correlation: int, ts: float, dur: float, *, tid: int = 1) -> Event:
    return launch(correlation, ts, dur, name=name, tid=tid)


def test_two_streams_are_one_timeline_with_three_lengths() -> None:
    use = device(kernel(-1, 20, 10, stream=1), kernel(-1, 25, 10, stream=2), kernel(-1, 60, 5, stream=2))
    assert (use.streams, use.kernels) == (2, (3,))
    assert (use.sum_ns, use.union_ns, use.span_ns) == (25_000, 20_000, 45_000)
    assert (use.busy_ns, use.idle_ns) == ((20_000,), (80_000,))


def test_classes_may_overlap() -> None:
    use = device(
        kernel(-1, 20, 10),
        exchange(-1, 25, 20),
        copy(-1, 40, 10),
        kernel(-1, 60, 5, cat="gpu_memset"),
    )
    assert (use.compute_ns, use.copy_ns) == ((15_000,), (10_000,))
    assert (use.communication_ns, use.communication_alone_ns) == ((20_000,), (10_000,))
    assert use.busy_ns == (35_000,)
    assert use.kernels == (2,)


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", True),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", True),
        ("rcclGenericKernel", True),
        ("mscclKernel_Sum_half_Simple_Fast(ncclDevComm*)", True),
        ("void at::native::nccl_like_kernel", False),
        ("gemm", False),
    ],
)
def test_communication_by_name(name: str, communicates: bool) -> None:
    use = device({**kernel(-1, 20, 10), "name": name})
    assert use.communication_ns == (10_000 if communicates else 0,)
    assert use.compute_ns == (0 if communicates else 10_000,)


def test_busy_is_clipped_to_the_steps_work_is_not() -> None:
    window = reduced(step(0, 10, 100), step(1, 115, 100), launch(1, 105), kernel(1, 108, 20), kernel(-1, 300, 5))
    (use,) = window.devices
    assert use.work_ns == (20_000, 0)
    assert use.busy_ns == (2_000, 13_000)
    assert use.idle_ns == (98_000, 87_000)
    assert use.sum_ns == 20_000


def test_each_device_has_its_own_timeline() -> None:
    first, second = reduced(STEP, kernel(-1, 20, 10, device=2), kernel(-1, 20, 30, device=9)).devices
    assert (first.device, first.busy_ns, first.idle_ns) == (2, (10_000,), (90_000,))
    assert (second.device, second.busy_ns, second.idle_ns) == (9, (30_000,), (70_000,))


def test_a_device_without_work_in_the_steps_is_no_device_of_the_window() -> None:
    assert [use.device for use in reduced(STEP, kernel(-1, 20, 10), kernel(-1, 500, 10, device=1)).devices] == [0]


def test_idle_while_reading() -> None:
    use = device(
        label(READ_LABEL, 10, 30),
        label("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 35, 10, tid=2),
        label("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__init__", 80, 10),
        kernel(-1, 20, 15),
    )
    assert use.idle_while_reading_ns == (10_000 + 10_000,)


@pytest.mark.parametrize(
    ("events", "late_us"),
    [
        # The launch comes when the device has been dry since 30.
        ((launch(1, 12), kernel(1, 20, 10), launch(2, 45), kernel(2, 50, 10)), 10 + 20),
        # It comes at the very moment at which the device runs dry.
        ((launch(1, 12), kernel(1, 20, 10), launch(2, 30), kernel(2, 50, 10)), 10 + 20),
        # It had come before: the gap has another reason.
        ((launch(1, 12), kernel(1, 20, 10), launch(2, 29), kernel(2, 50, 10)), 10),
        # Another stream is still busy when the launch comes, and there is no gap in the union.
        ((launch(1, 12), kernel(1, 20, 30, stream=1), launch(2, 45), kernel(2, 50, 10, stream=2)), 10),
        # Nobody knows who launched it.
        ((launch(1, 12), kernel(1, 20, 10), kernel(-1, 50, 10)), 10),
        # Two pieces of work end the gap; the launch of one of them was not late.
        ((launch(1, 12), kernel(1, 20, 10), launch(2, 45), launch(3, 25), kernel(2, 50, 5), kernel(3, 50, 5)), 10),
        # A later kernel of the same launch of a graph.
        ((call("cudaGraphLaunch", 1, 12, 1), kernel(1, 20, 10), kernel(1, 50, 10)), 10),
        # The first work of the trace, launched before the step: the device had never been busy.
        ((launch(1, 5), kernel(1, 20, 10), launch(2, 12), kernel(2, 30, 10)), 10),
        # A piece of work that takes no time does not end a gap.
        ((launch(1, 12), kernel(1, 20, 10), launch(2, 45), launch(3, 25), kernel(2, 50, 5), kernel(3, 50, 0)), 10 + 20),
        # Nothing comes after the last work.
        ((launch(1, 10), kernel(1, 10, 10)), 0),
        # The gap ends with work of the next step: what lies in this step counts here.
        ((launch(1, 10), kernel(1, 10, 10), launch(2, 130), kernel(2, 140, 10)), 90),
    ],
)
def test_idle_before_late_launches(events: tuple[Event, ...], late_us: int) -> None:
    assert device(*events).idle_late_launch_ns == (1000 * late_us,)


def test_launches() -> None:
    window = reduced(
        STEP,
        operator("aten::mm", 12, 20),
        launch(1, 14, 4),
        launch(2, 16, 4, tid=2),  # its thread has no operator
        call("cudaGraphLaunch", 3, 30, 5),
        call("cudaMemcpyAsync", 4, 40, 5),
        kernel(1, 20, 10),
        kernel(2, 50, 9.999),
        kernel(3, 70, 1),
        copy(4, 75, 1),
    )
    assert window.launches == LaunchUse(
        calls=(2,),
        launch_cpu_ns=(6_000,),
        short_kernels=(1,),
        without_operator=(1,),
        median_kernel_ns=10_000,  # of 10 000 and 9 999, rounded to even
        median_queue_ns=20_000,
        largest_queue_ns=34_000,
    )
    counters = {counter.name: counter.per_step for counter in window.counters}
    assert (counters["kernel launches"], counters["graph launches"]) == ((2,), (1,))


def test_clocks_that_differ_leave_no_delay_and_no_late_launch() -> None:
    """The same window 40 us apart: by the device's clock no launch is late, and every delay is wrong by as much."""
    window = reduced(STEP, launch(1, 30, 5), kernel(1, 20, 1), launch(2, 60), kernel(2, 70, 2))
    (use,) = window.devices
    assert (use.busy_ns, use.idle_late_launch_ns) == ((3_000,), None)
    launches = window.launches
    assert launches is not None
    assert (launches.calls, launches.median_kernel_ns) == ((2,), 1_500)
    assert (launches.median_queue_ns, launches.largest_queue_ns) == (None, None)
    assert (window.transfer_cpu_ns, window.transfer_waiting_ns) == (None, None)


def test_late_launches_of_the_same_window_whole_and_cut() -> None:
    """The gap that the missing kernel would have ended is not late any more: a number would be too low."""
    whole = (launch(1, 20), kernel(1, 21, 10), launch(2, 80), kernel(2, 81, 10))
    assert device(*whole).idle_late_launch_ns == (11_000 + 50_000,)
    window = reduced(STEP, *whole[:-1])
    assert window.device.status == "incomplete"
    assert (window.devices[0].idle_late_launch_ns, window.devices[0].idle_ns) == (None, (90_000,))
    assert window.launches is not None
    assert window.launches.largest_queue_ns == 1_000


def test_no_kernel_matched_is_no_number() -> None:
    launches = reduced(STEP, kernel(-1, 20, 1)).launches
    assert launches is not None
    assert (launches.median_kernel_ns, launches.median_queue_ns, launches.largest_queue_ns) == (None, None, None)


def test_copies_by_kind_and_size() -> None:
    window = reduced(
        step(0, 10, 100),
        call("cudaMemcpyAsync", 1, 20, 6),
        copy(1, 30, 10, size=64),
        call("cudaMemcpyAsync", 2, 40, 6),
        copy(2, 42, 3, size=64),
        copy(-1, 60, 1, name=DTOH, size=4),
        step(1, 120, 100),
        call("cudaMemcpyAsync", 3, 130, 6, tid=2),
        copy(3, 140, 5, size=64),
        call("cudaMemcpyAsync", 5, 134, 6),
        copy(5, 145, 5, size=64),
    )
    assert window.copies == (
        CopyGroup(
            kind=HTOD,
            size_bytes=64,
            calls=(2, 2),
            work_ns=(13_000, 10_000),
            recurring=True,
            direction="host to device",
        ),
        CopyGroup(
            kind=DTOH, size_bytes=4, calls=(1, 0), work_ns=(1_000, 0), recurring=False, direction="device to host"
        ),
    )
    assert window.transfer_cpu_ns == (12_000, 10_000)


def test_one_step_shows_no_recurrence() -> None:
    (group,) = reduced(STEP, copy(-1, 20, 1)).copies
    assert not group.recurring


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        (HTOD, "host to device"),
        (DTOH, "device to host"),
        ("Memcpy DtoD (Device -> Device)", "within the device"),
        ("Memcpy PtoP (Device -> Device)", "between devices"),
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "host to device"),
        ("Memcpy D2M (DEVICE -> MEMORY(Unknown))", "device to host"),
        ("Memcpy H2D (HOST -> DEVICE)", "host to device"),
        ("Memcpy D2H (DEVICE -> HOST)", "device to host"),
        ("Memcpy D2D (DEVICE -> DEVICE)", "within the device"),
        ("CopyHostToDevice", "host to device"),
        ("CopyDeviceToHost", "device to host"),
        ("CopyDeviceToDevice", "within the device"),
        ("MEMCPY", "unknown"),
        ("Memcpy HtoH (Pageable -> Pageable)", "unknown"),
    ],
)
def test_directions_by_name(name: str, direction: str) -> None:
    window = reduced(STEP, call("cudaMemcpyAsync", 1, 20, 6), copy(1, 30, 1, name=name))
    assert [group.direction for group in window.copies] == [direction]
    over_the_bus = direction in ("host to device", "device to host")
    assert window.transfer_cpu_ns == (6_000 if over_the_bus else 0,)


@pytest.mark.parametrize(
    ("copied", "busy", "cpu_us", "waiting_us"),
    [
        ((850, 2), (0, 850), 20, 830),  # loss.item(): all but the copy is waiting
        ((850, 2), (100, 400), 550, 300),  # only a busy device is waited for
        ((850, 2), (860, 950), 850, 0),
        ((25, 2), (0, 25), 845, 5),
        ((871, 2), (100, 300), 850, 0),  # the call had returned before its copy began
    ],
)
def test_waiting_in_a_call_that_copies_is_no_transfer(
    copied: tuple[int, int], busy: tuple[int, int], cpu_us: int, waiting_us: int
) -> None:
    begin, end = busy
    window = reduced(
        step(0, 0, 1000),
        call("cudaMemcpyAsync", 1, 20, 850),
        copy(1, *copied, name=DTOH),
        kernel(-1, begin, end - begin),
        kernel(-1, 30, 900, device=1),
    )
    assert (window.transfer_cpu_ns, window.transfer_waiting_ns) == ((1000 * cpu_us,), (1000 * waiting_us,))


def test_a_graph_with_copies_is_launched_not_transferred() -> None:
    window = reduced(STEP, call("cudaGraphLaunch", 1, 20, 6), kernel(1, 30, 1), copy(1, 32, 1))
    assert (window.transfer_cpu_ns, window.transfer_waiting_ns) == ((0,), (0,))


def test_a_copy_that_was_not_seen_is_no_zero() -> None:
    window = reduced(STEP, launch(1, 20), kernel(1, 25, 5), call("cudaMemcpyAsync", 2, 40, 6))
    assert (window.device.status, window.transfer_cpu_ns, window.transfer_waiting_ns) == ("incomplete", None, None)
    assert not {"device copies", "device copied bytes"} & {counter.name for counter in window.counters}


def test_transfer_is_not_known_without_calls() -> None:
    assert reduced(STEP, copy(-1, 20, 1)).transfer_cpu_ns is None


def test_synchronizations() -> None:
    window = reduced(
        step(0, 10, 100),
        call("cudaStreamSynchronize", 1, 20, 6),
        call("cudaStreamSynchronize", 2, 22, 6, tid=2),
        call("cudaDeviceSynchronize", 3, 40, 30),
        step(1, 120, 100),
        call("cudaStreamSynchronize", 4, 130, 1),
    )
    assert window.synchronizations == (
        SynchronizationCost(name="cudaDeviceSynchronize", calls=(1, 0), waiting_cpu_ns=(30_000, 0)),
        SynchronizationCost(name="cudaStreamSynchronize", calls=(2, 1), waiting_cpu_ns=(8_000, 1_000)),
    )


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaEventSynchronize", True),
        ("cuCtxSynchronize", True),
        ("hipStreamSynchronize", True),
        ("zeEventHostSynchronize", True),
        ("zeCommandQueueSynchronize", True),
        ("urQueueFinish", True),
        ("urEventWait", True),
        ("piQueueFinish", True),
        ("cudaStreamWaitEvent", False),
        ("cudaMemcpy", False),
        ("cudaEventQuery", False),
        ("urEnqueueEventsWait", False),
    ],
)
def test_synchronizations_by_name(name: str, waits: bool) -> None:
    assert [cost.name for cost in reduced(STEP, call(name, 1, 20, 6)).synchronizations] == [name] * waits


def test_an_incomplete_side_keeps_its_numbers_beside_the_reason() -> None:
    window = reduced(STEP, launch(1, 20), kernel(1, 30, 10), launch(2, 40))
    assert (window.device.status, window.device.reason) == ("incomplete", "1 of 2 kernel launches have no kernel")
    assert window.devices[0].busy_ns == (10_000,)
    assert window.launches is not None
    assert "device copies" not in {counter.name for counter in window.counters}


def test_labels_of_the_device_are_neither_work_nor_time() -> None:
    window = reduced(
        STEP,
        label("forward", 12, 10),
        launch(1, 14),
        kernel(1, 30, 10),
        {**kernel(-1, 29, 50, cat="gpu_user_annotation"), "name": "forward"},
        {**complete("cuda_sync", "Stream Sync", 30, 60), "pid": 0},
    )
    assert window.devices[0].busy_ns == (10_000,)
    (region,) = window.regions
    assert (region.calls, region.total_cpu_ns, region.device_work_ns) == ((1,), (10_000,), (10_000,))
