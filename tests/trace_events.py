"""Small traces, written by hand for tests: times in microseconds, as in the files."""

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_stepprof.analysis.traces.reader import Trace, read_trace

DATA = Path(__file__).parent / "data"
SHARED_TRACES = Path(__file__).parents[1].parent / "shared" / "traces"

Event = dict[str, Any]

HOST, GPU = 100, 0


def complete(cat: str, name: str, ts: float, dur: float, *, tid: int = 1, **args: object) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> Event:
    return complete("user_annotation", f"ProfilerStep#{number}", ts, dur)


def label(name: str, ts: float, dur: float, *, tid: int = 1) -> Event:
    return complete("user_annotation", name, ts, dur, tid=tid)


def operator(name: str, ts: float, dur: float, *, tid: int = 1) -> Event:
    return complete("cpu_op", name, ts, dur, tid=tid)


def launch(correlation: int, ts: float, dur: float = 1, *, name: str = "cudaLaunchKernel", tid: int = 1) -> Event:
    return complete("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation)


def kernel(correlation: int, ts: float, dur: float, *, device: int = 0, stream: int = 7, cat: str = "kernel") -> Event:
    args = {"correlation": correlation, "device": device, "stream": stream}
    return {"ph": "X", "cat": cat, "name": "k", "pid": device, "tid": stream, "ts": ts, "dur": dur, "args": args}


def memory(ts: float, size: int) -> Event:
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": HOST, "tid": 1, "ts": ts, "s": "t"} | {
        "args": {"Bytes": size, "Device Type": 0}
    }


def trace_bytes(*events: Event, **header: object) -> bytes:
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), **header}).encode()


def trace_of(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


def data_trace(name: str) -> Trace:
    return read_trace((DATA / name).read_bytes())


def any_trace(name: str) -> Trace:
    """A trace from the tests' own data, else from the shared traces; skips where neither has it."""
    for folder in (DATA, SHARED_TRACES):
        if (folder / name).exists():
            return read_trace((folder / name).read_bytes())
    pytest.skip(f"{name} lies in ../shared/traces only, which is not there")
