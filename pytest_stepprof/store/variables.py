"""Environment variables that change how fast a step runs, without paths and secrets in their values."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

_PREFIXES = (
    "ATEN_",
    "BLIS_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "GOMP_",
    "HIP_",
    "HSA_",
    "KMP_",
    "MALLOC_",
    "MIMALLOC_",
    "MIOPEN_",
    "MKL_",
    "NCCL_",
    "NVIDIA_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "ROCBLAS_",
    "TCMALLOC_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_",
    "TRITON_",
    "VECLIB_",
)
_NAMES = {
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONOPTIMIZE",
    "PYTHONTRACEMALLOC",
    "PYTHON_GIL",
    "PYTHON_JIT",
}
# PyTorch sets this one itself when a process first uses CUDA: with this value it says no more than its absence.
_SET_BY_TORCH = ("CUDA_MODULE_LOADING", "LAZY")
# What a process finds in a folder does not change with the folder's name, and PyTorch adds some of these on the way.
_PLACE_ENDINGS = ("_CACHE_DIR", "_CACHE_PATH", "_EXTENSIONS_DIR", "_HOME")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:;=+\-\[\]{}() ]{0,80}")
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH")
_SECRET_VALUE = re.compile(r"[A-Za-z0-9]{20,}|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-")


def relevant_variables(variables: Mapping[str, str], root: Path) -> dict[str, str]:
    """``{"variable OMP_NUM_THREADS": "4", ...}`` in alphabetical order.

    A value that may be a path or a secret is replaced by a short digest, which still tells equal from different. Paths
    below ``root`` count from there, so that two checkouts of one project agree.
    """
    return {
        f"variable {name}": shown_value(name, value, root)
        for name, value in sorted(variables.items())
        if _matters(name, value)
    }


def shown_value(name: str, value: str, root: Path) -> str:
    """``value`` if it is a plain setting, else ``digest:`` and eight hexadecimal digits."""
    plain = _PLAIN_VALUE.fullmatch(value) and not _SECRET_NAME.search(name) and not _SECRET_VALUE.search(value)
    if plain:
        return value
    placed = value.replace(str(root), "<root>").encode(errors="surrogateescape")
    return f"digest:{hashlib.sha256(placed).hexdigest()[:8]}"


def _matters(name: str, value: str) -> bool:
    if (name, value) == _SET_BY_TORCH or name.endswith(_PLACE_ENDINGS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)
