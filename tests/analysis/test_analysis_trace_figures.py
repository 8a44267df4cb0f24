"""Figures of real traces against ones that were computed apart, with plain Python, for each file."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from trace_events import DATA, SHARED_TRACES, any_trace

from pytest_stepprof.analysis.traces.reader import DEVICE_WORK_KINDS, Kind, Trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.completeness import launches_without_kernel
from pytest_stepprof.analysis.window.device_side import device_side
from pytest_stepprof.analysis.window.host_side import host_side, reading
from pytest_stepprof.analysis.window.steps import Steps, find_steps, whole_trace
from pytest_stepprof.analysis.window.timeline import intersection, length_ns, union
from pytest_stepprof.record.window import DeviceUse, Window

FILES = (
    "nvidia_a100_train_ddp2_nccl.json.gz",
    "nvidia_h100_infer_bert_small.json.gz",
    "nvidia_v100_train_resnet50_workers0.pt.trace.json.gz",
    "nvidia_v100_train_resnet50_workers4.pt.trace.json.gz",
    "rocm_mi300_infer_bert_small.json.gz",
    "launches_but_no_gpu_events.json.gz",
    "cpu_only_step_no_gpu.json.gz",
    "recurrent_small_h2d_gpu_annotations.json.gz",
    "integer_above_2_63.json.gz",
)


class Case(NamedTuple):
    """A trace reduced twice: as one step, and by its steps where it has any; and what has to come out."""

    trace: Trace
    whole: Window
    window: Window | None
    expected: dict[str, Any]


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """The figures of the tests' own traces, and those of the shared ones where these are there."""
    files = (folder / "expected.json" for folder in (DATA, SHARED_TRACES))
    return {name: row for file in files if file.exists() for name, row in json.loads(file.read_text()).items()}


@pytest.fixture(scope="module", params=FILES)
def case(request: pytest.FixtureRequest, figures: dict[str, Any]) -> Case:
    trace, expected = any_trace(request.param), figures[request.param]
    whole = reduced(trace, whole_trace(trace))
    return Case(trace, whole, reduced(trace, find_steps(trace)) if expected["steps"] else None, expected)


def test_the_traces_of_the_tests_have_their_figures_here() -> None:
    """A checkout without the shared traces tests these; where both are there, they say the same."""
    own = json.loads((DATA / "expected.json").read_text())
    assert set(own) == {name for name in FILES if (DATA / name).exists()}
    assert len(own) == 6
    shared = SHARED_TRACES / "expected.json"
    if shared.exists():
        assert own == {name: row for name, row in json.loads(shared.read_text()).items() if name in own}


def reduced(trace: Trace, steps: Steps) -> Window:
    return reduce_window(trace, device_expected=True, steps=steps)


def of_devices(devices: tuple[DeviceUse, ...], field: str) -> dict[str, int]:
    values = {str(device.device): getattr(device, field) for device in devices}
    return {device: value if isinstance(value, int) else sum(value) for device, value in values.items()}


def expected_of_devices(expected: dict[str, Any], field: str) -> dict[str, int]:
    return {device: values[field] for device, values in expected["devices"].items()}


def counted(window: Window, name: str) -> int:
    return next((sum(counter.per_step) for counter in window.counters if counter.name == name), 0)


def test_categories(case: Case) -> None:
    assert case.trace.categories == case.expected["categories"]
    assert sum(case.trace.categories.values()) == case.expected["events_X"]


@pytest.mark.parametrize(
    ("field", "figure"),
    [
        ("kernels", "kernels"),
        ("sum_ns", "sum_ns"),
        ("union_ns", "busy_ns"),
        ("busy_ns", "busy_ns"),
        ("work_ns", "busy_ns"),
        ("communication_ns", "comm_busy_ns"),
        ("copy_ns", "copy_busy_ns"),
        ("span_ns", "first_to_last_ns"),
    ],
)
def test_devices(case: Case, field: str, figure: str) -> None:
    assert of_devices(case.whole.devices, field) == expected_of_devices(case.expected, figure)


def test_all_device_work_belongs_to_a_step(case: Case) -> None:
    """In these traces it does, so that the sums over the steps are the figures of the file."""
    if case.window is not None:
        for field, figure in (("sum_ns", "sum_ns"), ("union_ns", "busy_ns"), ("kernels", "kernels")):
            assert of_devices(case.window.devices, field) == expected_of_devices(case.expected, figure)


def test_classes_and_idle_time_fill_the_step(case: Case) -> None:
    """``kernel_busy_ns`` of the file: computing and communicating kernels together, which the window keeps apart."""
    work = case.trace.of_kind(*DEVICE_WORK_KINDS)
    assert len(work) == sum(values["events"] for values in case.expected["devices"].values())
    kernels = case.trace.of_kind(Kind.KERNEL)
    for device in case.whole.devices:
        mine = kernels.take(kernels.device == device.device)
        expected = case.expected["devices"][str(device.device)]
        assert length_ns(union(mine.start_ns, mine.end_ns)) == expected["kernel_busy_ns"]
        assert device.busy_ns[0] + device.idle_ns[0] == case.whole.elapsed_ns[0]
        assert device.span_ns - device.union_ns == expected["idle_first_to_last_ns"]


def test_copies(case: Case) -> None:
    copied: dict[str, list[int]] = {}
    for group in case.whole.copies:
        total = copied.setdefault(group.kind, [0, 0])
        total[0] += sum(group.calls)
        total[1] += sum(group.calls) * group.size_bytes
    assert copied == case.expected["copies"]
    if case.whole.device.status == "observed":
        assert counted(case.whole, "device copies") == sum(count for count, _ in copied.values())
        assert counted(case.whole, "device copied bytes") == sum(size for _, size in copied.values())


def test_launches(case: Case) -> None:
    side = device_side(case.trace, whole_trace(case.trace))
    assert counted(case.whole, "kernel launches") == case.expected["kernel_launch_calls"]
    assert len(launches_without_kernel(side)) == case.expected["launches_without_kernel"]
    if case.whole.launches is not None:
        assert sum(case.whole.launches.calls) == case.expected["kernel_launch_calls"]


def test_operators(case: Case) -> None:
    calls = {cost.name: sum(cost.calls) for cost in case.whole.operators}
    for name, count in case.expected["top_ops_by_count"]:
        assert calls[name] == count
        assert counted(case.whole, f"calls of {name}") == count


def test_dataloader(case: Case) -> None:
    """``dataloader_with_gpu_busy_ns`` of the file is the reading during which a device was busy."""
    loaders = [cost for cost in case.whole.regions if cost.name.startswith("enumerate(DataLoader)#")]
    assert sum(sum(cost.calls) for cost in loaders) == case.expected["dataloader_calls"]
    assert case.whole.read_cpu_ns == (case.expected["dataloader_union_ns"],)
    waiting = reading(case.trace, host_side(case.trace, whole_trace(case.trace)))
    work = case.trace.of_kind(*DEVICE_WORK_KINDS)
    busy_ns = 0
    for device in np.unique(work.device):
        mine = work.take(work.device == device)
        busy_ns += length_ns(intersection(union(mine.start_ns, mine.end_ns), waiting))
    assert busy_ns == case.expected["dataloader_with_gpu_busy_ns"]
    idle_ns = sum(device.idle_while_reading_ns[0] for device in case.whole.devices)
    assert idle_ns == len(case.whole.devices) * case.expected["dataloader_union_ns"] - busy_ns


def test_steps(case: Case) -> None:
    if case.window is None:
        return
    rows = case.expected["steps"]
    assert [f"ProfilerStep#{number}" for number in case.window.steps] == [row["name"] for row in rows]
    assert list(case.window.elapsed_ns) == [row["span_ns"] for row in rows]
    assert list(case.window.read_cpu_ns) == [row["dataloader_ns"] for row in rows]
    for device in case.window.devices:
        assert list(device.busy_ns) == [row["busy_ns"][str(device.device)] for row in rows]
    assert len(case.window.devices) == len(rows[0]["busy_ns"])


def test_kernels_that_overlap_a_step(case: Case) -> None:
    """The window counts kernels by the step that launched them; the file's figure is about time."""
    kernels = case.trace.of_kind(Kind.KERNEL)
    for row in case.expected["steps"]:
        steps = find_steps(case.trace)
        place = steps.numbers.index(int(row["name"].removeprefix("ProfilerStep#")))
        start_ns, end_ns = steps.start_ns[place], steps.end_ns[place]
        overlapping = (kernels.start_ns < end_ns) & (kernels.end_ns > start_ns) & (kernels.duration_ns > 0)
        assert int(overlapping.sum()) == sum(row["kernels_overlapping"].values())


def test_nothing_is_said_of_a_device_that_was_not_seen(case: Case) -> None:
    if case.expected["devices"]:
        assert case.whole.device.status == "observed"
        return
    assert case.whole.device.status == "not observed"
    assert (case.whole.devices, case.whole.launches, case.whole.copies) == ((), None, ())
    assert case.whole.transfer_cpu_ns is None
