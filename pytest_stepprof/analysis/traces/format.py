"""What stands in a trace file: the fields that are read, and the category names of all years and vendors."""

import re
from typing import Any

import msgspec

from pytest_stepprof.analysis.traces.events import Kind

MEMORY_NAME = "[memory]"

KIND_OF_CATEGORY = {
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "Runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "Memset": Kind.FILL,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_WAIT,
    "xpu_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
}

OPERATORS_OF_2021 = "Operator"
# In 2021 labels were written among the operators; only torch's own can be told from them by name.
LABEL_AMONG_OPERATORS = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#")

Scalar = int | float | str | bool | None
"""A field that is read where it is an integer and ignored where it is not, without making the event unreadable."""

NOT_GIVEN = msgspec.Raw(b"")
ZERO = msgspec.Raw(b"0")
NO_TIME = -(2**63)
"""Stands where a time should be and is none."""


class Arguments(msgspec.Struct, frozen=True, gc=False):
    """The arguments of an event, as far as anything is made of them."""

    correlation: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    bytes: Scalar = None
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NOT_GIVEN)
    input_dims_2020: msgspec.Raw = msgspec.field(name="Input dims", default=NOT_GIVEN)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=NOT_GIVEN)
    memory_bytes: Scalar = msgspec.field(name="Bytes", default=None)
    total_allocated: Scalar = msgspec.field(name="Total Allocated", default=None)
    device_type: Scalar = msgspec.field(name="Device Type", default=None)
    device_index: Scalar = msgspec.field(name="Device Id", default=None)


NO_ARGUMENTS = Arguments()


class _TimelessEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Scalar = None
    tid: Scalar = None


class BareEvent(_TimelessEvent, gc=False):
    """An event whose fields have the types that they should have. ``ts`` and ``dur`` are microseconds."""

    ts: float = float("nan")
    dur: float = 0.0


class Event(BareEvent, gc=False):
    """The same, with its arguments."""

    args: Arguments = NO_ARGUMENTS


class WholeEvent(_TimelessEvent, gc=False):
    """The same, where microseconds are integers, however large: a double would round those above 2**53."""

    ts: int = NO_TIME
    dur: int = 0
    args: Arguments = NO_ARGUMENTS


class WrittenEvent(_TimelessEvent, gc=False):
    """The same, where microseconds are left as they are written, because doubles would round their fractions."""

    ts: msgspec.Raw = NOT_GIVEN
    dur: msgspec.Raw = ZERO
    args: Arguments = NO_ARGUMENTS


def _all_raw(name: str, model: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Make a struct of the same fields, in which every value is left as it is written."""
    fields = msgspec.structs.fields(model)
    return msgspec.defstruct(
        name, [(field.name, msgspec.Raw, msgspec.field(name=field.encode_name, default=NOT_GIVEN)) for field in fields]
    )


AnyEvent: Any = _all_raw("AnyEvent", Event)
AnyArguments: Any = _all_raw("AnyArguments", Arguments)


class File(msgspec.Struct):
    """The fields of the file itself, as they are written."""

    traceEvents: msgspec.Raw = NOT_GIVEN  # noqa: N815 - the name in the file
    baseTimeNanoseconds: msgspec.Raw = NOT_GIVEN  # noqa: N815
    record_shapes: msgspec.Raw = NOT_GIVEN
    with_stack: msgspec.Raw = NOT_GIVEN
    profile_memory: msgspec.Raw = NOT_GIVEN
    distributedInfo: msgspec.Raw = NOT_GIVEN  # noqa: N815
    deviceProperties: msgspec.Raw = NOT_GIVEN  # noqa: N815


class DistributedInfo(msgspec.Struct):
    """Which of several processes took the trace."""

    rank: msgspec.Raw = NOT_GIVEN
    world_size: msgspec.Raw = NOT_GIVEN
