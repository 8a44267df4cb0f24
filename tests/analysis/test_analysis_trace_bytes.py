import gzip
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import operator, trace_bytes

from pytest_stepprof.analysis.traces.packing import unpack
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.errors import TraceError

MIB = 1024**2


def noise(size_bytes: int) -> bytes:
    return random.Random(0).randbytes(size_bytes)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(0, 30))
def test_members_are_joined_and_padding_ignored(members: list[bytes], padding: int) -> None:
    packed = b"".join(map(gzip.compress, members)) + b"\0" * padding
    plain = b"".join(members)
    if plain.strip() and not plain.startswith((b"\xef\xbb\xbf", b"\x1f\x8b")):
        assert unpack(packed) == plain


@pytest.mark.parametrize("plain", [noise(3 * MIB), b"a" * (40 * MIB), noise(70_000) * 300])
def test_large_members_survive(plain: bytes) -> None:
    assert unpack(gzip.compress(plain, 1)) == plain


def test_gzip_trace_of_two_members() -> None:
    plain = trace_bytes(operator("a", 1, 2))
    assert len(read_trace(gzip.compress(plain[:10]) + gzip.compress(plain[10:]) + b"\0\0").events) == 1


def test_byte_order_mark_is_taken_off() -> None:
    assert unpack(b"\xef\xbb\xbf{}") == b"{}"
    assert len(read_trace(b"\xef\xbb\xbf" + trace_bytes(operator("a", 1, 2))).events) == 1


@pytest.mark.parametrize("members", [1, 200])
def test_a_bomb_stops_at_the_limit(members: int) -> None:
    bomb = b"".join([gzip.compress(b" " * (400 * MIB // members))] * members)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"more than 33554432 bytes.*fewer active steps"):
            unpack(bomb, limit_bytes=32 * MIB)
        assert tracemalloc.get_traced_memory()[1] < (32 + 32) * MIB
    finally:
        tracemalloc.stop()


def test_unpacking_needs_little_more_than_what_it_returns() -> None:
    packed = gzip.compress(noise(MIB) * 40, 1)
    tracemalloc.start()
    try:
        assert len(unpack(packed)) == 40 * MIB
        assert tracemalloc.get_traced_memory()[1] < 70 * MIB
    finally:
        tracemalloc.stop()


def test_the_limit_is_the_largest_size_that_is_allowed() -> None:
    plain = trace_bytes(operator("a", 1, 2))
    for data in (plain, gzip.compress(plain)):
        assert unpack(data, limit_bytes=len(plain)) == plain
        with pytest.raises(TraceError, match=f"more than {len(plain) - 1} bytes"):
            unpack(data, limit_bytes=len(plain) - 1)


PACKED = gzip.compress(trace_bytes(*(operator(f"op {number}", number, 1) for number in range(2000))))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", r"empty \(0 bytes"),
        (b" \n\t", "empty"),
        (gzip.compress(b""), "empty"),
        (PACKED[:9], "ends early"),
        (PACKED[:3000], r"ends early: .* after [1-9]\d+ bytes"),
        (PACKED[:-4], "ends early"),
        (PACKED + PACKED[:50], "ends early"),
        (PACKED + b"more", r"damaged near byte \d+"),
        (PACKED[:-8] + b"\xff" * 8, "damaged near byte"),
        (b"\x1f\x8bnothing", "damaged near byte 0"),
    ],
)
def test_damaged_streams_say_where(data: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=f"(?s){says}"):
        unpack(data)
