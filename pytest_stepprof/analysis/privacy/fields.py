"""What a trace of torch.profiler may hold, field by field: what is harmless, and what the rest would reveal.

Everything here is a list of what is known, so that what nobody has thought of is never taken for harmless.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from pytest_stepprof.record.inspection import RevealedKind

Fits = Callable[[bytes], bool]
"""Says whether a piece of JSON is what it should be, so that it reveals nothing."""

EVENT_FIELDS = frozenset({"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"})

CATEGORIES = frozenset(
    {"cpu_op", "user_annotation", "cpu_instant_event", "python_function", "overhead", "Trace", "collective_comm"}
    | {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "external_correlation", "hpu_op", "glow_runtime"}
    | {f"cuda_{kind}" for kind in ("runtime", "driver", "sync", "event", "profiler_range")}
    | {f"xpu_{kind}" for kind in ("runtime", "driver", "sync", "scope_profiler")}
    | {f"mtia_{kind}" for kind in ("runtime", "ccp_events", "insight", "counters", "workloadd")}
    | {"privateuse1_runtime", "privateuse1_driver", "hardware_counters"}
    | {"Operator", "Kernel", "Runtime", "Memcpy", "Memset"}
)
"""The categories of events from 2021 until today."""

FLOW_WORDS = frozenset({"ac2g", "fwdbwd", "async", "async_cpu_to_gpu", "async_gpu", "launch", "forward_backward"})
"""Categories and names of the arrows between events."""

TRACK_FACTS = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
"""What is said about processes and threads, and the argument that says it."""

_PYTHON = r"python(?:\d(?:\.\d{1,2})?)?"
_PROFILERS = r"(?:PyTorch Profiler|__cupti_profiler__)"
OWN_TEXT = re.compile(
    rf"(?:\[\d+\] ?)?{_PROFILERS}(?: \(\d+\))?|Iteration Start: {_PROFILERS}|Trace {_PROFILERS}|Record Window End"
    rf"|Spans|Traces|{_PYTHON}|CPU|GPU \d+|(?:CUPTI )?Overhead|stream \d+ ?|thread \d+(?: \({_PYTHON}\))?"
    r"|\d{1,20}|"
)
"""Names of tracks and marks that profilers write themselves. Matched as a whole; the empty text is one of them."""

PLACEHOLDER = re.compile(r"unnamed (?:process|thread|type|value) \d+")
"""What scrubbing writes in place of texts that nobody knows."""

_A_NUMBER = rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_NUMBER = re.compile(rb'(?:%b|"%b"|""|true|false|null)' % (_A_NUMBER, _A_NUMBER))
_NUMBERS = re.compile(rb'[][,\s"]*(?:%b(?:[][,\s"]+|\Z))*' % _A_NUMBER)


def is_number(raw: bytes) -> bool:
    """Whether the JSON is one number (some exporters put it in quotes), true, false or null."""
    return _NUMBER.fullmatch(raw) is not None


def is_numbers(raw: bytes) -> bool:
    """Whether the JSON is a list of numbers, however deep; some exporters put it in quotes."""
    return _NUMBERS.fullmatch(raw) is not None


@lru_cache(maxsize=1024)
def is_types(raw: bytes) -> bool:
    """Whether the JSON is a list of types as the profiler writes them, however deep."""
    return _all_types(msgspec.json.decode(raw))


def _all_types(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_all_types, value))
    return value in TYPE_NAMES if isinstance(value, str) else not isinstance(value, dict)


def words(*known: str) -> Fits:
    """Accept a number, or one of the known texts."""
    quoted = frozenset(f'"{word}"'.encode() for word in known)
    return lambda raw: raw in quoted or is_number(raw)


_FLOATS = (*(f"Float8_{kind}" for kind in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e8m0fnu")), "Float4_e2m1fn_x2")
_TORCH_TYPES = ("Half", "BFloat16", *_FLOATS, "qint8", "quint8", "qint32", "quint4x2", "quint2x4")
TYPE_NAMES = frozenset(
    {"", "float", "double", "int", "long int", "long", "short int", "short", "signed char", "unsigned char", "bool"}
    | {"unsigned int", "unsigned long", "unsigned short", "char", "long long", "short unsigned int"}
    | {"long unsigned int", "Byte", "Char", "Short", "Int", "Long", "Float", "Double", "Bool", "Half", "BFloat16"}
    | {"Scalar", "ScalarList", "TensorList", "Tensor", "GenericList", "String", "Device", "Generator", "None", "Tuple"}
    | {"GenericDict", "Object", "ComplexFloat", "ComplexDouble", "ComplexHalf", "UInt16", "UInt32", "UInt64"}
    | {*_TORCH_TYPES, *(f"c10::{name}" for name in _TORCH_TYPES)}
    | {f"c10::complex<{part}>" for part in ("float", "double", "c10::Half")}
)
"""How the profiler writes the types of an operator's inputs."""

LISTS_OF_INPUTS = frozenset({"Input Dims", "Input dims", "Input type", "Input Strides"})
"""Arguments whose lists stay, with a number in place of any text that is not known."""

_COLLECTIVES = (
    *("allreduce", "all_reduce", "broadcast", "allgather", "all_gather", "reduce_scatter", "reduce", "gather"),
    *("scatter", "alltoall", "all_to_all", "all_to_allv", "barrier", "send", "recv", "wait", "init"),
    *("_allgather_base", "_reduce_scatter_base", "allgather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"),
    *("allreduce_coalesced", "allgather_coalesced", "startCoalescing", "endCoalescing", "batch_isend_irecv"),
)
_COPY_WAYS = ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA")
_ROCM_COPIES = ("Host to Device", "Device to Host", "Device to Device", "CopyHostToDevice", "CopyDeviceToHost")
_WAITS = ("Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")

_NUMBER_ARGUMENTS = (
    *("correlation", "External id", "external id", "device", "stream", "context", "queued", "bytes", "Bytes"),
    *("Total Allocated", "Total Reserved", "Device Type", "Device Id", "cbid", "cid", "external ts", "finished"),
    *("registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %"),
    *("memory bandwidth (GB/s)", "graph id", "graph node id", "priority", "Ev Idx", "Profiler Event Index"),
    *("Record function id", "Sequence number", "Fwd thread id", "Python id", "Python parent id", "Python module id"),
    *("Trace iteration", "Op count", "In msg nelems", "Out msg nelems", "sycl_invocation_id"),
    *("wait_on_stream", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "event_id"),
)

KEPT_ARGUMENTS: dict[str, Fits] = {
    **dict.fromkeys(_NUMBER_ARGUMENTS, is_number),
    **dict.fromkeys(("grid", "block"), is_numbers),
    **dict.fromkeys(("Input Dims", "Input dims", "Input Strides", "In split size", "Out split size"), is_numbers),
    "Input type": is_types,
    "kind": words(*_COPY_WAYS, *_ROCM_COPIES, "Dispatch Kernel", "Fill Buffer"),
    "cuda_sync_kind": words(*_WAITS),
    "dtype": words(*TYPE_NAMES),
    "Collective name": words(*_COLLECTIVES),
    "Trace name": words("PyTorch Profiler"),
    "Module Hierarchy": words(""),
    "Call stack": words(""),
}
"""Arguments of events that say what happened, not where or to whom: each with what its value has to be."""

REVEALING_ARGUMENTS: dict[str, RevealedKind] = {
    "Concrete Inputs": "argument values",
    "Kwinputs": "argument values",
    "Call stack": "call stacks",
    "Module Hierarchy": "call stacks",
    "Addr": "addresses",
    "src": "addresses",
    "dst": "addresses",
    "stream pointer": "addresses",
    "sycl queue": "addresses",
    "Input Tensors start": "addresses",
    "Output Tensors start": "addresses",
    "kernel": "kernel names",
    "Device": "process ids",
    "Process Group Name": "ranks and process groups",
    "Process Group Description": "ranks and process groups",
    "Process Group Ranks": "ranks and process groups",
    "Group size": "ranks and process groups",
    "Global rank start": "ranks and process groups",
    "Global rank stride": "ranks and process groups",
    "Comms Id": "ranks and process groups",
    "Rank": "ranks and process groups",
    "Src Rank": "ranks and process groups",
    "Dst Rank": "ranks and process groups",
    "Seq": "ranks and process groups",
}
"""Known arguments that are never kept, unless they are empty."""

KEPT_HEADER: dict[str, Fits] = {
    "schemaVersion": is_number,
    "displayTimeUnit": words("ms", "ns"),
    **dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"), is_number),
    **dict.fromkeys(("cuda_runtime_version", "cuda_driver_version", "cupti_version"), is_number),
    **dict.fromkeys(("hip_runtime_version", "hip_driver_version", "roctracer_version"), is_number),
}
"""Fields of the file that stay as they are."""

REVEALING_HEADER: dict[str, RevealedKind] = {
    "host_name": "host name",
    "traceName": "output path",
    "trace_id": "trace id",
    "baseTimeNanoseconds": "date",
    "distributedInfo": "ranks and process groups",
    **dict.fromkeys(("INFO", "WARNING", "ERROR", "VERBOSE", "STAGE"), "profiler messages"),
}

JOB_METADATA_PREFIX = "PT_PROFILER_JOB_"

DEVICE_NUMBERS = frozenset(
    {"id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor"}
    | {"regsPerBlock", "regsPerMultiprocessor", "warpSize", "sharedMemPerBlock", "sharedMemPerMultiprocessor"}
    | {"numSms", "sharedMemPerBlockOptin", "maxSharedMemoryPerMultiProcessor"}
)
_MARKS = r"(?:\((?:R|TM)\))?"
_DEVICE_WORDS = (
    r"GeForce|Tesla|Quadro|TITAN|RTX|GTX|GT|RX|Instinct|Radeon|Pro|PRO|Graphics|Device|Data|Center|GPU|Max|Arc|Flex|Iris"
    r"|UHD|HD|Xe|Vega|Frontier|Edition|Blackwell|Ada|Generation|Series|Server|Workstation|Laptop|Mobile|with|Design"
    r"|Max-Q|Ti|SUPER|Super|XT|XTX|Xp|XP|Black|PCIe|NVL|VF|V|Z|D|MIG|Orin|Thor|Jetson|DGX|Display|Spark|HBM\de?"
)
# A100-SXM4-40GB, 80GB, MI250X/MI250, V100-DGXS-32GB; a part of one, 1g.5gb; an architecture.
_DEVICE_CODE = (
    r"[A-Z]{0,4}\d{1,5}[A-Z]{0,3}(?:[-/][A-Z]{0,4}\d{0,4}[A-Z]{0,3}){0,3}|\dg\.\d{1,3}gb|gfx[0-9a-f]{3,4}"
    r"|\[0x[0-9a-f]{4}\]"
)
DEVICE_NAME = re.compile(
    rf"(?:NVIDIA|Tesla|Quadro|GeForce|TITAN|AMD|Radeon|Intel){_MARKS}"
    rf"(?: (?:(?:{_DEVICE_WORDS}){_MARKS}|{_DEVICE_CODE})){{1,8}}"
)
"""A device's product name as its driver gives it: facts of the hardware, kept. Other names are not known, and go."""
