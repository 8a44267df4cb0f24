"""Which dense tensors a sparse tensor consists of, by the names of torch's own methods that give them."""

import torch

_BY_ROWS = ("crow_indices", "col_indices", "values")
_BY_COLUMNS = ("ccol_indices", "row_indices", "values")

COMPRESSED_PARTS: dict[torch.layout, tuple[str, str, str]] = {
    torch.sparse_csr: _BY_ROWS,
    torch.sparse_csc: _BY_COLUMNS,
    torch.sparse_bsr: _BY_ROWS,
    torch.sparse_bsc: _BY_COLUMNS,
}
"""Of each compressed layout: the pointers of the compressed dimension, the other dimension's indices, the values."""

COORDINATE_PARTS = ("indices", "values")
BLOCKED = frozenset({torch.sparse_bsr, torch.sparse_bsc})


def compressed_parts(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the indices and values of a compressed sparse tensor by their names; they are its memory, not copies.

    Raises KeyError for another layout.
    """
    return {name: getattr(tensor, name)() for name in COMPRESSED_PARTS[tensor.layout]}
