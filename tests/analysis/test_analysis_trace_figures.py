"""Figures of real traces against ones that were computed apart, with plain Python, for each file."""

import json
import re
from typing import Any

import numpy as np
import pytest
from trace_events import SHARED_TRACES, any_trace

from pytest_stepprof.analysis.device_side import (
    communication_kernels,
    device_work,
    kernel_launches,
    launches_without_kernel,
    work_ns,
)
from pytest_stepprof.analysis.steps import find_steps
from pytest_stepprof.analysis.timeline import Intervals, clip, intersection, length_ns, union
from pytest_stepprof.analysis.trace_reader import DEVICE_WORK_KINDS, Kind, Trace

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


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    path = SHARED_TRACES / "expected.json"
    if not path.exists():
        pytest.skip("../shared/traces/expected.json is not there")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.fixture(scope="module", params=FILES)
def case(request: pytest.FixtureRequest, figures: dict[str, Any]) -> tuple[Trace, dict[str, Any]]:
    return any_trace(request.param), figures[request.param]


def dataloader(trace: Trace) -> Intervals:
    labels = trace.of_kind(Kind.ANNOTATION)
    calls = labels.take(np.isin(labels.name, trace.name_indices(re.compile(r"^enumerate\(DataLoader\)#"))))
    return union(calls.start_ns, calls.end_ns)


def test_categories(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    assert trace.categories == expected["categories"]
    assert sum(trace.categories.values()) == expected["events_X"]


def test_device_work(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    busy = device_work(trace.of_kind(*DEVICE_WORK_KINDS))
    assert {str(device): length_ns(work) for device, work in busy.items()} == {
        device: figures["busy_ns"] for device, figures in expected["devices"].items()
    }
    for device, figures in expected["devices"].items():
        work = busy[int(device)]
        assert work.end_ns[-1] - work.start_ns[0] == figures["first_to_last_ns"]
        assert work_ns(trace.of_kind(Kind.KERNEL)) == figures["kernel_busy_ns"]
        assert work_ns(trace.of_kind(Kind.COPY)) == figures["copy_busy_ns"]
        assert work_ns(communication_kernels(trace)) == figures["comm_busy_ns"]
        assert len(trace.of_kind(Kind.KERNEL)) == figures["kernels"]


def test_copies(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    copies = trace.of_kind(Kind.COPY)
    for name, (count, size_bytes) in expected["copies"].items():
        same = copies.take(copies.name == trace.names.index(name))
        assert (len(same), same.size_bytes.sum()) == (count, size_bytes)
    assert len(copies) == sum(count for count, _ in expected["copies"].values())


def test_launches(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    assert len(kernel_launches(trace)) == expected["kernel_launch_calls"]
    assert launches_without_kernel(trace) == expected["launches_without_kernel"]


def test_operators(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    counts = np.bincount(trace.of_kind(Kind.OPERATOR).name, minlength=len(trace.names))
    for name, count in expected["top_ops_by_count"]:
        assert counts[trace.names.index(name)] == count


def test_dataloader(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    waiting = dataloader(trace)
    work = trace.of_kind(*DEVICE_WORK_KINDS)
    assert length_ns(waiting) == expected["dataloader_union_ns"]
    assert (
        sum(length_ns(intersection(busy, waiting)) for busy in device_work(work).values())
        == (expected["dataloader_with_gpu_busy_ns"])
    )


def test_steps(case: tuple[Trace, dict[str, Any]]) -> None:
    trace, expected = case
    if not expected["steps"]:
        return
    steps = find_steps(trace)
    busy = device_work(trace.of_kind(*DEVICE_WORK_KINDS))
    kernels = trace.of_kind(Kind.KERNEL)
    for row, figures in enumerate(expected["steps"]):
        start_ns, end_ns = int(steps.start_ns[row]), int(steps.end_ns[row])
        assert f"ProfilerStep#{steps.numbers[row]}" == figures["name"]
        assert end_ns - start_ns == figures["span_ns"]
        assert length_ns(clip(dataloader(trace), start_ns, end_ns)) == figures["dataloader_ns"]
        for device, busy_ns in figures["busy_ns"].items():
            assert length_ns(clip(busy[int(device)], start_ns, end_ns)) == busy_ns
        overlapping = (kernels.start_ns < end_ns) & (kernels.end_ns > start_ns) & (kernels.duration_ns > 0)
        assert int(overlapping.sum()) == sum(figures["kernels_overlapping"].values())
    assert len(steps) == len(expected["steps"])
