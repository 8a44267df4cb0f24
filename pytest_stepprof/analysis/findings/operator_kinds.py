"""What kind of work an operator does, by its name, and what to try when there is much of it."""

import re
from typing import Literal

from pytest_stepprof.analysis.findings.device import UNPROFILED

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
    "compute": "This is arithmetic (matrix, convolution, attention or the like): its time may be what the model needs "
    "at these sizes, unless precision, sizes or algorithm leave room.",
    "movement": "This operator moves data instead of computing: a layout that does not fit, an index that could be a "
    "slice, or a copy that need not be there may be behind it.",
    "communication": "This operator exchanges data with other processes: most of its time may be waiting for the "
    "slowest of them.",
    "generated": "This is code that torch.compile has generated, of any number of operators: it may be limited by "
    "memory traffic, or hold what a library does better.",
    "other": "This is not matrix or convolution work: it may be limited by memory traffic or by how often it is called "
    "rather than by arithmetic.",
}
_CHECKS: dict[OperatorKind, str] = {
    "movement": "Find where it comes from (--stepprof-stacks, labels with record_function), then look at layout "
    f"(channels_last, contiguous), at indexing, and at what torch.compile can fuse. {UNPROFILED}",
    "communication": f"Take the same window on every rank and compare how long each of them waits. {UNPROFILED}",
    "generated": "TORCH_LOGS=output_code shows what it does, and a graph break may have cut it short; compare with the "
    f"step as it is without torch.compile, and with another mode. {UNPROFILED}",
    "other": "Find where it comes from (--stepprof-stacks, labels with record_function), then try a fused form of it, "
    f"in-place operators, or torch.compile. {UNPROFILED}",
}
_COMPUTE_CHECK = (
    "Try one at a time, and let the check of results say whether they still hold: {precision}sizes ({sizes}), "
    f"algorithm (channels_last, scaled_dot_product_attention, a smaller part of the model). {UNPROFILED}"
)
_ON_DEVICE = ("bf16 autocast, torch.set_float32_matmul_precision('high')", "multiples of 8 or 16, a larger batch")
_ON_HOST = ("bf16 autocast", "a larger or smaller batch, torch.set_num_threads")
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
    lower = "" if _REDUCED.search(types) else f"precision ({precision}), "
    return _HYPOTHESES[kind], _COMPUTE_CHECK.format(precision=lower, sizes=sizes)
