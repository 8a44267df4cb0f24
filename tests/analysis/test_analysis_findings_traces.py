"""Findings of traces: a step on a device with a fault and the same step cured, and real files of torch.profiler."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from trace_events import Event, any_trace, complete, data_trace, kernel, label, launch, operator, step, trace_of

from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.validity import validity_notices
from pytest_stepprof.record.finding import Finding, FindingCode
from pytest_stepprof.record.notice import NoticeCode
from pytest_stepprof.record.window import Window

Numbers = Iterator[int]
Step = Callable[[float, Numbers], list[Event]]
"""The events of a step that lasts a thousand us from a moment on; its launches take the next numbers."""

PERIOD_US, STEP_US = 1100, 1000
READING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def steps_of(build: Step, steps: int = 3) -> Trace:
    numbers = count(1)
    events = [
        event
        for number in range(steps)
        for event in (step(number, number * PERIOD_US, STEP_US), *build(number * PERIOD_US, numbers))
    ]
    return trace_of(*events)


def window_of(build: Step, steps: int = 3) -> Window:
    return reduce_window(steps_of(build, steps), device_expected=True)


def said(window: Window) -> dict[FindingCode, Finding]:
    return {finding.code: finding for finding in window.findings}


def work(
    numbers: Numbers, at: float, begin: float, end: float, *, name: str = "aten::mm", tid: int = 1, stream: int = 7
) -> list[Event]:
    """An operator that launches a kernel at one moment, which runs from another to a third."""
    number = next(numbers)
    return [
        operator(name, at - 1, 3, tid=tid),
        launch(number, at, tid=tid),
        kernel(number, begin, end - begin, stream=stream),
    ]


def two_kernels(at: float, numbers: Numbers, *, begin: float = 10) -> list[Event]:
    """Both launched early; then the device is busy until the step ends."""
    middle = (begin + 995) / 2
    return [
        *work(numbers, at + begin - 6, at + begin, at + middle),
        *work(numbers, at + begin - 2, at + middle, at + 995, name="aten::bmm"),
    ]


def in_good_order(at: float, numbers: Numbers) -> list[Event]:
    return [label(READING, at, 2), *two_kernels(at, numbers)]


def waits_for_data(at: float, numbers: Numbers) -> list[Event]:
    return [label(READING, at, 400), *two_kernels(at, numbers, begin=410)]


def copies_anew(at: float, numbers: Numbers) -> list[Event]:
    number = next(numbers)
    copy = kernel(number, at + 10, 300, cat="gpu_memcpy") | {"name": "Memcpy HtoD (Pageable -> Device)"}
    copy["args"] |= {"bytes": 3_000_000}
    call = launch(number, at + 5, 2, name="cudaMemcpyAsync")
    early = [
        event | {"ts": event["ts"] - 300} if event["cat"] != "kernel" else event
        for event in two_kernels(at, numbers, begin=311)
    ]
    return [operator("aten::copy_", at + 4, 5), call, copy, *early]


def small_kernels(at: float, numbers: Numbers) -> list[Event]:
    return [
        event for row in range(99) for event in work(numbers, at + 10 * row + 5, at + 10 * row + 8, at + 10 * row + 10)
    ]


def launches_late(at: float, numbers: Numbers) -> list[Event]:
    first, second = (
        work(numbers, at + 5, at + 10, at + 200),
        work(numbers, at + 700, at + 705, at + 995, name="aten::bmm"),
    )
    return [*first, *second]


def waits_for_the_device(at: float, numbers: Numbers) -> list[Event]:
    wait = complete("cuda_runtime", "cudaStreamSynchronize", at + 15, 390, correlation=next(numbers))
    item = operator("aten::item", at + 14, 395)
    first, second = (
        work(numbers, at + 5, at + 10, at + 400),
        work(numbers, at + 600, at + 605, at + 995, name="aten::bmm"),
    )
    return [item, wait, *first, *second]


def allocates_anew(at: float, numbers: Numbers) -> list[Event]:
    return [*two_kernels(at, numbers), complete("cuda_runtime", "cudaMalloc", at + 20, 200, correlation=next(numbers))]


def compiles(at: float, numbers: Numbers) -> list[Event]:
    return [*two_kernels(at, numbers), operator("_compile.compile_inner (dynamo_timed)", at + 20, 400)]


def launches_from_nowhere(at: float, numbers: Numbers) -> list[Event]:
    return [event for event in on_two_threads(at, numbers) if (event["cat"], event["tid"]) != ("cpu_op", 2)]


def on_two_threads(at: float, numbers: Numbers) -> list[Event]:
    return [*work(numbers, at + 5, at + 10, at + 502), *work(numbers, at + 6, at + 502, at + 994, name="x::y", tid=2)]


def exchange(at: float, numbers: Numbers, begin: float) -> list[Event]:
    events = work(numbers, at + 7, at + begin, at + 995, name="c10d::allreduce_", stream=20)
    return [
        event | {"name": "ncclDevKernel_AllReduce_Sum_f32"} if event["cat"] == "kernel" else event for event in events
    ]


def exchanges_alone(at: float, numbers: Numbers) -> list[Event]:
    own = [*work(numbers, at + 5, at + 10, at + 300), *work(numbers, at + 6, at + 300, at + 600, name="aten::bmm")]
    return [*own, *exchange(at, numbers, 600)]


def exchanges_beside_work(at: float, numbers: Numbers) -> list[Event]:
    return [*two_kernels(at, numbers), *exchange(at, numbers, 700)]


def one_operator(at: float, numbers: Numbers) -> list[Event]:
    return [
        event | {"name": "aten::bmm"} if event["name"] == "aten::mm" else event for event in two_kernels(at, numbers)
    ]


FAULTS: tuple[tuple[FindingCode, Step, Step, str], ...] = (
    ("input pipeline", waits_for_data, in_good_order, "device 0 is idle for 0.400 ms (40.0 %) meanwhile"),
    ("recurring copy", copies_anew, in_good_order, "1 x 2.861 MiB Memcpy HtoD (Pageable -> Device). Device work"),
    ("many small launches", small_kernels, in_good_order, "99 kernels per step, 99 of them shorter than 10.0 us"),
    ("host bound", launches_late, in_good_order, "device 0 is idle for 0.518 ms of 1.00 ms per profiled step (51.8 %)"),
    ("synchronization", waits_for_the_device, in_good_order, "cudaStreamSynchronize (1 call per step) 0.390 ms"),
    ("allocator not warm", allocates_anew, in_good_order, "cudaMalloc 3 times"),
    ("compilation in the window", compiles, in_good_order, "0.400 ms of 1.00 ms per profiled step (40.0 %), 1 timed"),
    ("unrecorded threads", launches_from_nowhere, on_two_threads, "1 of 2 launches per step"),
    ("communication wait", exchanges_alone, exchanges_beside_work, "run for 0.395 ms of 1.00 ms per profiled step"),
    ("dominant operator", one_operator, in_good_order, "aten::bmm (2 calls per step) launches 100.0 % of the device's"),
)


@pytest.mark.parametrize(("code", "fault", "cured", "text"), FAULTS, ids=[fault.__name__ for _, fault, _, _ in FAULTS])
def test_a_fault_is_found_and_its_cure_gives_nothing(code: FindingCode, fault: Step, cured: Step, text: str) -> None:
    window = window_of(fault)
    assert window.device.status == "observed"
    assert text in said(window)[code].observation
    assert window_of(cured).findings == ()


NOTICED: dict[FindingCode, NoticeCode] = {
    "allocator not warm": "unwarmed",
    "compilation in the window": "compilation in the window",
    "unrecorded threads": "unrecorded threads",
}


@pytest.mark.parametrize(("code", "fault", "cured", "text"), FAULTS, ids=[fault.__name__ for _, fault, _, _ in FAULTS])
def test_a_finding_never_stands_without_its_notice(code: FindingCode, fault: Step, cured: Step, text: str) -> None:
    """The notice comes for any of it, because it makes numbers invalid; the finding where there is much of it."""
    for build in (fault, cured):
        trace = steps_of(build)
        window = reduce_window(trace, device_expected=True)
        found = {NOTICED[finding.code] for finding in window.findings if finding.code in NOTICED}
        noticed = {notice.code for notice in validity_notices(trace, window)}
        assert found == noticed & {*NOTICED.values()}
        assert (code in NOTICED and build is fault) == bool(found)


def test_shares_of_a_fault_are_those_of_its_events() -> None:
    assert said(window_of(waits_for_data))["input pipeline"].share == pytest.approx(0.400)
    assert said(window_of(copies_anew))["recurring copy"].share == pytest.approx(0.300)
    assert said(window_of(exchanges_alone))["communication wait"].share == pytest.approx(0.395)
    assert said(window_of(waits_for_the_device))["synchronization"].share == pytest.approx(
        655 / 3000
    )  # as idle as that


def test_one_step_of_the_same_repeats_nothing() -> None:
    assert "recurring copy" not in said(window_of(copies_anew, steps=1))


# Real files


def real(name: str) -> Window:
    return reduce_window(any_trace(name), device_expected=True)


def test_the_pair_before_and_after_more_workers() -> None:
    before = said(real("nvidia_v100_train_resnet50_workers0.pt.trace.json.gz"))
    after = said(real("nvidia_v100_train_resnet50_workers4.pt.trace.json.gz"))
    assert next(iter(before)) == "input pipeline"
    assert before["input pipeline"].share == pytest.approx(355_571 / 1_048_974, rel=1e-3)
    assert before["input pipeline"].observation == (
        "Reading a batch takes 69.3 ms of 175 ms per profiled step (39.6 %); device 0 is idle for 59.3 ms (33.9 %) "
        "meanwhile."
    )
    assert "input pipeline" not in after


def test_launches_of_the_pair() -> None:
    window = real("nvidia_v100_train_resnet50_workers4.pt.trace.json.gz")
    launches = said(window)["many small launches"]
    assert "1478 kernels per step, 924 to 926 of them shorter than 10.0 us" in launches.observation
    assert "; single steps 15.2 % to 40.1 %)" in launches.observation  # two of its steps are slow for other reasons
    assert not {"recurring copy", "host bound", "synchronization", "time outside of operators"} & said(window).keys()


@pytest.mark.parametrize("name", ["nvidia_h100_infer_bert_small.json.gz", "rocm_mi300_infer_bert_small.json.gz"])
def test_many_small_launches_in_a_small_model(name: str) -> None:
    window = reduce_window(data_trace(name), device_expected=True)
    assert next(iter(said(window))) == "many small launches"
    assert said(window)["many small launches"].share == pytest.approx(0.9, abs=0.05)
    assert not {"input pipeline", "recurring copy", "synchronization", "host bound"} & said(window).keys()


def test_two_ranks_that_are_bound_by_their_hosts() -> None:
    found = said(real("nvidia_a100_train_ddp2_nccl.json.gz"))
    assert list(found) == ["host bound", "communication wait"]
    assert "13.1 ms of 222 ms per profiled step (5.9 %) with no other work beside them" in (
        found["communication wait"].observation
    )


def test_a_file_that_lacks_the_side_of_a_device_that_was_used_gets_no_advice_of_the_hosts() -> None:
    """It calls nccl: what its host's operators take says little about a step whose work was elsewhere."""
    window = reduce_window(data_trace("cpu_only_step_no_gpu.json.gz"), device_expected=True)
    assert (window.device.status, window.device.suspected) == ("not observed", True)
    assert window.findings == ()


def test_a_file_of_the_host_alone_has_findings_about_the_host() -> None:
    window = reduce_window(data_trace("torch213_labels_renamed.json"), device_expected=True)
    assert list(said(window)) == ["dominant operator"]
