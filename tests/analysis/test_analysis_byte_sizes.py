"""Sizes as people write them."""

import pytest

from pytest_stepprof.analysis.byte_sizes import parse_bytes, parse_memory_tolerance


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


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "GiB", "1" + "0" * 19, "99999999999999GiB"])
def test_more_bytes_than_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="expected at most 4611686018427387904 bytes"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="expected"):
        parse_memory_tolerance(f"10%+{text}")


@pytest.mark.parametrize("text", ["9" * 400 + "%", "9" * 400 + "%+8MiB", "8MiB+1000001%"])
def test_more_growth_than_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="no more than 1000000 %"):
        parse_memory_tolerance(text)


def test_growth_in_any_order() -> None:
    assert parse_memory_tolerance("8MiB+10%") == parse_memory_tolerance("10% + 8 MiB") == (0.1, 8 * 2**20)
