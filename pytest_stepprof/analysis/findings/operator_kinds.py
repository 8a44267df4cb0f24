"""What kind of work an operator does, by its name, and what to try when there is much of it."""

import re
from typing import Literal

OperatorKind = Literal["compute", "movement", "communication", "generated", "other"]

# Parts of names, between underscores, colons or capitals: addmm, _scaled_mm, cudnn_convolution, _flash_attention, ...
_COMPUTE = re.compile(
    r"(^|[_:])(|add|b|baddb|addb|mat|sp|segment_|scaled_|grouped_|weight_int\w*)(mm|matmul|gemm)($|_|\b|backward)"
    r"|(^|[_:])(add|)mv($|_)|(^|[_:])v?dot($|_)|(^|[_:])linear($|_)|einsum|bilinear($|_backward)"
    r"|conv(olution|[123]d|_transpose|_depthwise)|attention|(^|[_:])(\w*_)?(lstm|gru|rnn)(_|$)|cdist|linalg_|cholesky"
    r"|(^|[_:])fft",
    re.IGNORECASE,
)
_GENERATED = re.compile(r"CompiledFxGraph|^triton_|^Torch-Compiled Region|^CompiledFunction")
_RESAMPLING = re.compile(r"upsample|interpolat|grid_sampl", re.IGNORECASE)
_COMMUNICATION = re.compile(
    r"^(c10d|_?nccl|gloo|mpi|ucc|rccl)\b|all_?reduce|all_?gather|reduce_?scatter|record_param_comms"
)
_MOVEMENT = re.compile(
    r"copy|clone|contiguous|(^|[_:])(cat|take|where|stack|flip|roll|repeat|narrow|pad|sort|topk|unique)($|_)|index|gather"
    r"|scatter|embedding|permute|transpose|masked_|nonzero",
    re.IGNORECASE,
)

_HYPOTHESES: dict[OperatorKind, str] = {
    "compute": "This is arithmetic: its time may be what the model needs, unless precision or sizes leave room.",
    "movement": "This operator moves data: a layout that does not fit, an index or a needless copy may be behind it.",
    "communication": "This operator exchanges data with other processes: it may be waiting for the slowest of them.",
    "generated": "This is code that torch.compile has generated: it may be limited by memory traffic.",
    "other": "This is not matrix or convolution work: memory traffic, or how often it is called, may limit it.",
}
STACKS = "the trace's stacks (--stepprof-stacks --stepprof-trace, with_stack=True)"
"""How to see, in a viewer of traces, which line of a program called an operator: the report names no lines."""

_CHECKS: dict[OperatorKind, str] = {
    "movement": f"Find its source by {STACKS}; look at layout and indexing.",
    "communication": "Take the same window on every rank and compare how long each of them waits.",
    "generated": "TORCH_LOGS=output_code shows what it does; compare with the step without torch.compile.",
    "other": f"Find its source by {STACKS}; try a fused form, or torch.compile.",
}
_COMPUTE_CHECK = "Try {precision}{sizes}, or another algorithm, one at a time, each with its results checked."
_ON_DEVICE = ("bf16 autocast", "sizes in multiples of 8")
_ON_HOST = ("bf16 autocast", "another batch size or torch.set_num_threads")
_REDUCED = re.compile(r"half|float16|float8|int8|\bqu?int", re.IGNORECASE)
"""Names of types with which precision has been lowered already."""


def operator_kind(name: str) -> OperatorKind:
    """Sort an operator by its name: arithmetic of much reuse, moving of data, exchange between processes, others."""
    if _GENERATED.search(name):
        return "generated"
    if _COMMUNICATION.search(name):
        return "communication"
    if _RESAMPLING.search(name):
        return "other"
    if _COMPUTE.search(name):
        return "compute"
    return "movement" if _MOVEMENT.search(name) else "other"


def advice(name: str, types: str, *, on_device: bool) -> tuple[str, str]:
    """Return a hypothesis on an operator that dominates, and the next check; ``types`` are its inputs', if known."""
    kind = operator_kind(name)
    if kind != "compute":
        return _HYPOTHESES[kind], _CHECKS[kind]
    precision, sizes = _ON_DEVICE if on_device else _ON_HOST
    lower = "" if _REDUCED.search(types) else f"{precision}, "
    return _HYPOTHESES[kind], _COMPUTE_CHECK.format(precision=lower, sizes=sizes)
