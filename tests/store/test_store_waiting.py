"""Results that wait for the end of a session outside of memory."""

from collections.abc import Iterator

import pytest

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.waiting import WaitingPayloads


@pytest.fixture
def waiting() -> Iterator[WaitingPayloads]:
    payloads = WaitingPayloads()
    yield payloads
    payloads.close()


def test_payloads_come_back_as_they_were_each_stored_once(waiting: WaitingPayloads) -> None:
    for digest, payload in (("a", b"first"), ("b", b""), ("c", b"third"), ("a", b"first")):
        waiting.add(digest, payload)
    assert dict(waiting) == {"a": b"first", "b": b"", "c": b"third"}
    waiting.add("d", b"after reading")
    assert (waiting["a"], waiting["d"]) == (b"first", b"after reading")
    assert waiting._file is not None
    assert waiting._file.seek(0, 2) == len(b"firstthirdafter reading")


def test_nothing_is_opened_before_there_is_something_to_keep(waiting: WaitingPayloads) -> None:
    assert waiting._file is None
    assert dict(waiting) == {}


def test_closing_twice_is_fine_and_leaves_nothing(waiting: WaitingPayloads) -> None:
    waiting.add("a", b"abc")
    file = waiting._file
    waiting.close()
    waiting.close()
    assert file is not None
    assert file.closed
    assert dict(waiting) == {}


def test_others_are_forgotten(waiting: WaitingPayloads) -> None:
    for digest in "abc":
        waiting.add(digest, digest.encode())
    waiting.keep_only(["c", "a"])
    assert dict(waiting) == {"c": b"c", "a": b"a"}
    with pytest.raises(KeyError):
        waiting["b"]


def test_a_full_disk_is_an_error_that_says_what_to_do(waiting: WaitingPayloads) -> None:
    class Full:
        def seek(self, *_: int) -> int:
            return 0

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    waiting._file = Full()  # type: ignore[assignment]
    with pytest.raises(StoreError, match=r"a result of 3 bytes cannot wait .*No space left.*TMPDIR"):
        waiting.add("a", b"abc")
    assert len(waiting) == 0
