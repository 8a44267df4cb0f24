"""What a trace file says about itself, whatever shape it says it in."""

import msgspec

from pytest_stepprof.analysis.traces.events import TraceHeader
from pytest_stepprof.analysis.traces.format import DistributedInfo, File
from pytest_stepprof.analysis.traces.lenient import scalar, whole_number


def read_header(file: File) -> TraceHeader:
    """Return the header; what is missing, or is not what it should be, is taken for not said."""
    group = _group(file.distributedInfo)
    return TraceHeader(
        base_time_ns=whole_number(file.baseTimeNanoseconds, 0),
        record_shapes=bool(scalar(file.record_shapes)),
        with_stack=bool(scalar(file.with_stack)),
        profile_memory=bool(scalar(file.profile_memory)),
        rank=_not_negative(group.rank),
        world_size=_not_negative(group.world_size),
    )


def may_be_read_bare(file: File) -> bool:
    """Say whether the arguments of the events are likely to say nothing: no device, no shapes, no memory.

    A file without a base time is too old to say so.
    """
    header = read_header(file)
    no_device = bytes(file.deviceProperties)[:100].split() in ([b"[]"], [b"[", b"]"])
    return no_device and header.base_time_ns > 0 and not header.record_shapes and not header.profile_memory


def _group(written: msgspec.Raw) -> DistributedInfo:
    if not bytes(written).startswith(b"{"):
        return DistributedInfo()
    return msgspec.json.decode(written, type=DistributedInfo)


def _not_negative(written: msgspec.Raw) -> int | None:
    number = whole_number(written, -1)
    return number if number >= 0 else None
