"""Sizes as people write them."""

import pytest

from pytest_stepprof.analysis.byte_sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1", 1), ("500kB", 500_000), ("2GiB", 2 * 2**30), (" 1.5 MiB ", 1_572_864), ("3MB", 3_000_000), ("7B", 7)],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "0", "-1", "1kb", "1TiB", "many", "1e3", "0.1B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size above 0"):
        parse_bytes(text)
