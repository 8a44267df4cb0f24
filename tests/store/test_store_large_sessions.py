"""Sessions of very many tests, and the many results that belong to them."""

import errno
import gzip
import hashlib
import os
import time
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import Session
from pytest_stepprof.store import json_text
from pytest_stepprof.store.directory import Store


def with_outputs(payloads: dict[str, bytes]) -> Session:
    """A session with one test for each payload."""
    base = sample_measurement().outputs
    outputs = (
        msgspec.structs.replace(base, payload_sha256=sha256, payload_bytes=len(payload))
        for sha256, payload in payloads.items()
    )
    return sample_session(measurements=tuple(sample_measurement(outputs=some) for some in outputs))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "LARGE_BYTES", 1)


@pytest.mark.usefixtures("everything_is_large")
def test_a_large_session_is_packed_and_comes_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    session = sample_session()
    path = store.save_session(session, {})
    assert path == tmp_path / "sessions" / f"{session.session_id}.json.gz"
    assert gzip.decompress(path.read_bytes()) == json_text.encode(session)
    assert path.stat().st_size < len(json_text.encode(session)) / 2
    assert store.load_session(session.session_id) == session
    store.append_to_baseline("main", session)
    assert store.baseline("main") == (session,)


def test_large_and_small_sessions_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    for name, limit_bytes in (("b", 10**9), ("a", 1), ("c.json", 1), ("c", 10**9)):
        monkeypatch.setattr(json_text, "LARGE_BYTES", limit_bytes)
        store.save_session(sample_session(session_id=name), {})
    assert files(tmp_path) == [f"sessions/{name}" for name in ("a.json.gz", "b.json", "c.json", "c.json.json.gz")]
    assert [session.session_id for session in store.sessions()[0]] == list(store.session_ids())
    assert store.session_ids() == ("a", "b", "c", "c.json")


@pytest.mark.parametrize("limits_bytes", [(1, 10**9), (10**9, 1), (1, 1)])
def test_a_session_of_this_name_is_never_replaced_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits_bytes: tuple[int, int]
) -> None:
    store = Store(tmp_path)
    monkeypatch.setattr(json_text, "LARGE_BYTES", limits_bytes[0])
    path = store.save_session(sample_session(session_id="a"), {})
    monkeypatch.setattr(json_text, "LARGE_BYTES", limits_bytes[1])
    with pytest.raises(StoreError, match="never replaced") as caught:
        store.save_session(sample_session(session_id="a", status="failed"), {})
    assert str(path) in str(caught.value)
    assert files(tmp_path) == [f"sessions/{path.name}"]


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("damage", [slice(0, 0), slice(0, 5), slice(0, -1), slice(0, 700), slice(1, None)])
def test_a_damaged_packed_session_is_named_and_the_others_are_read(tmp_path: Path, damage: slice) -> None:
    store = Store(tmp_path)
    paths = [store.save_session(sample_session(session_id=name), {}) for name in ("a", "b")]
    paths[0].write_bytes(paths[0].read_bytes()[damage])
    sessions, (message,) = store.sessions()
    assert [session.session_id for session in sessions] == ["b"]
    assert str(paths[0]) in message
    assert "Delete this file" in message


@pytest.mark.usefixtures("everything_is_large")
def test_a_changed_byte_of_a_packed_session_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.save_session(sample_session(session_id="a"), {})
    data = bytearray(path.read_bytes())
    data[-6] ^= 1  # of the checksum: what was packed cannot be what is there
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged or cut off: CRC check failed"):
        store.load_session("a")


def many_payloads(count: int) -> dict[str, bytes]:
    payloads = (bytes([number]) * 99 for number in range(count))
    return {hashlib.sha256(payload).hexdigest(): payload for payload in payloads}


class OneReaderAtATime(dict[str, bytes]):
    """As payloads that wait in one file: reading two at once would mix them up."""

    def __init__(self, payloads: dict[str, bytes]) -> None:
        super().__init__(payloads)
        self.reading = False

    def __getitem__(self, sha256: str) -> bytes:
        assert not self.reading
        self.reading = True
        time.sleep(0.001)  # lets other threads come in
        self.reading = False
        return super().__getitem__(sha256)


def test_many_outputs_are_all_stored_before_their_session(tmp_path: Path) -> None:
    payloads = many_payloads(50)
    store = Store(tmp_path)
    store.save_session(with_outputs(payloads), OneReaderAtATime(payloads))
    assert {sha256: store.load_payload(sha256) for sha256 in payloads} == payloads


def test_of_many_outputs_one_that_cannot_be_stored_keeps_the_session_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = many_payloads(50)
    real_fsync = os.fsync
    left = iter(range(30))

    def full_after_some(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full_after_some)
    with pytest.raises(StoreError, match="No space left on device"):
        Store(tmp_path).save_session(with_outputs(payloads), payloads)
    assert Store(tmp_path).session_ids() == ()
    assert not any(name.endswith(".tmp") for name in files(tmp_path))
