import errno
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store.directory import Store

PAYLOAD = b"eight bytes of header and then tensors"
SHA256 = hashlib.sha256(PAYLOAD).hexdigest()


def session_with_outputs(sha256: str = SHA256) -> Session:
    outputs = msgspec.structs.replace(sample_measurement().outputs, payload_sha256=sha256, payload_bytes=len(PAYLOAD))
    return sample_session(measurements=(sample_measurement(outputs=outputs),))


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_new_store_touches_nothing_until_something_is_stored(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert store.session_ids() == ()
    assert store.sessions() == ((), ())
    with pytest.raises(StoreError, match="no session"):
        store.load_session("a")
    with pytest.raises(StoreError, match="missing"):
        store.load_payload(SHA256)
    assert list(tmp_path.iterdir()) == []


def test_a_session_and_its_outputs_come_back(tmp_path: Path) -> None:
    session = session_with_outputs()
    path = Store(tmp_path / "store").save_session(session, {SHA256: PAYLOAD})
    store = Store(tmp_path / "store")
    assert store.load_session(session.session_id) == session
    assert store.sessions() == ((session,), ())
    assert store.load_payload(SHA256) == PAYLOAD
    assert path == tmp_path / "store" / "sessions" / f"{session.session_id}.json"
    assert files(tmp_path / "store") == [
        ".gitignore",
        f"payloads/{SHA256}.safetensors",
        f"sessions/{session.session_id}.json",
    ]
    assert (tmp_path / "store" / ".gitignore").read_text() == "*\n"


def test_a_gitignore_that_the_user_changed_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("traces/\n")
    Store(tmp_path).save_session(sample_session(), {})
    assert (tmp_path / ".gitignore").read_text() == "traces/\n"


def test_a_change_of_the_working_directory_does_not_move_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = Store(Path("store"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.save_session(sample_session(), {})
    assert (tmp_path / "store" / "sessions").is_dir()


def test_a_session_is_never_replaced(tmp_path: Path) -> None:
    store = Store(tmp_path)
    session = sample_session()
    store.save_session(session, {})
    with pytest.raises(StoreError, match="never replaced"):
        store.save_session(msgspec.structs.replace(session, status="failed"), {})
    assert store.load_session(session.session_id) == session


def test_equal_outputs_of_two_sessions_are_stored_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for session_id in ("a", "b"):
        store.save_session(msgspec.structs.replace(session_with_outputs(), session_id=session_id), {SHA256: PAYLOAD})
    store.save_session(msgspec.structs.replace(session_with_outputs(), session_id="c"), {})  # stored before
    assert len(list((tmp_path / "payloads").iterdir())) == 1
    assert store.session_ids() == ("a", "b", "c")


def test_outputs_under_another_digest_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=SHA256):
        Store(tmp_path / "store").save_session(session_with_outputs(), {SHA256: PAYLOAD, "0" * 64: PAYLOAD})
    assert list(tmp_path.iterdir()) == []


def test_a_session_whose_outputs_are_nowhere_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"test_training\.py::test_step\[size=4\] are neither given nor stored"):
        Store(tmp_path / "store").save_session(session_with_outputs(), {})
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_not_finite_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    session = sample_session(measurements=(sample_measurement(wall_clock_s=float("nan")),))
    with pytest.raises(StoreError, match=r"measurements\[0\]\.wall_clock_s: it is nan"):
        Store(tmp_path / "store").save_session(session, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [b"", PAYLOAD[:-1], PAYLOAD + b"x"])
def test_damaged_outputs_are_told_when_read_and_when_stored_again(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path)
    store.save_session(session_with_outputs(), {SHA256: PAYLOAD})
    (tmp_path / "payloads" / f"{SHA256}.safetensors").write_bytes(damage)
    with pytest.raises(StoreError, match="is damaged"):
        store.load_payload(SHA256)
    with pytest.raises(StoreError, match="is damaged"):
        store.save_session(msgspec.structs.replace(session_with_outputs(), session_id="b"), {SHA256: PAYLOAD})
    assert store.session_ids() == (sample_session().session_id,)


@pytest.mark.parametrize("sha256", ["", "../sessions/a", SHA256.upper(), SHA256[:-1], SHA256 + "\n"])
def test_what_is_no_digest_is_refused(tmp_path: Path, sha256: str) -> None:
    with pytest.raises(StoreError, match="is not a SHA-256"):
        Store(tmp_path).load_payload(sha256)


@pytest.mark.parametrize("session_id", ["", "..", "../a", "a/b", "a\\b", ".hidden", "a\n", "a:b", "z" * 300])
def test_what_is_no_session_name_is_refused(tmp_path: Path, session_id: str) -> None:
    store = Store(tmp_path / "store")
    refused: list[Callable[[], object]] = [
        lambda: store.load_session(session_id),
        lambda: store.save_session(sample_session(session_id=session_id), {}),
        lambda: store.trace_directory(session_id),
    ]
    for call in refused:
        with pytest.raises(StoreError, match="is not a session's name"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_session_names_sort_by_time_and_never_repeat(tmp_path: Path) -> None:
    store = Store(tmp_path)
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    moments = [noon - timedelta(seconds=1), noon, noon + timedelta(microseconds=1), noon + timedelta(days=400)]
    names = [store.new_session_id(moment) for moment in moments]
    assert names == sorted(names)
    assert names[1].startswith("20240229T120000.000000Z-")
    assert len({store.new_session_id(noon) for _ in range(100)}) == 100


def test_session_names_are_in_utc(tmp_path: Path) -> None:
    evening_in_the_east = datetime(2024, 3, 1, 1, tzinfo=timezone(timedelta(hours=9)))
    assert Store(tmp_path).new_session_id(evening_in_the_east).startswith("20240229T160000.000000Z-")
    assert Store(tmp_path).new_session_id(datetime(2024, 3, 1, 1)).startswith("20240301T010000.000000Z-")


def test_sessions_come_oldest_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    noon = datetime(2024, 2, 29, 12, tzinfo=UTC)
    names = [store.new_session_id(noon + timedelta(minutes=minutes)) for minutes in (5, 1, 3)]
    for name in names:
        store.save_session(sample_session(session_id=name), {})
    assert store.session_ids() == (names[1], names[2], names[0])
    assert [session.session_id for session in store.sessions()[0]] == [names[1], names[2], names[0]]


NEWER = b'{"schema_version": %d}' % (SCHEMA_VERSION + 1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(b"", "0 bytes"), (b'{"schema_version": 1, "ses', "cut off"), (b'{"a": 1}', "not a session"), (NEWER, "update")],
)
def test_one_damaged_session_is_named_and_the_others_are_read(tmp_path: Path, damage: bytes, reason: str) -> None:
    store = Store(tmp_path)
    for session_id in ("a", "c"):
        store.save_session(sample_session(session_id=session_id), {})
    (tmp_path / "sessions" / "b.json").write_bytes(damage)
    sessions, (message,) = store.sessions()
    assert [session.session_id for session in sessions] == ["a", "c"]
    assert str(tmp_path / "sessions" / "b.json") in message
    assert reason in message
    with pytest.raises(StoreError, match=reason):
        store.load_session("b")


def test_a_session_under_the_name_of_another_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.save_session(sample_session(session_id="a"), {})
    path.rename(path.with_name("b.json"))
    with pytest.raises(StoreError, match="holds the session a"):
        store.load_session("b")


def test_what_other_programs_and_killed_writers_leave_is_not_a_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_session(sample_session(session_id="a"), {})
    for name in (".0123456789abcdef.tmp", ".DS_Store", "a.json.orig", "notes.txt", "._a.json"):
        (tmp_path / "sessions" / name).write_bytes(b"{")
    assert store.session_ids() == ("a",)
    assert store.sessions()[1] == ()


def test_many_writers_store_their_sessions_and_common_outputs(tmp_path: Path) -> None:
    sessions = [msgspec.structs.replace(session_with_outputs(), session_id=f"s{number}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda session: Store(tmp_path).save_session(session, {SHA256: PAYLOAD}), sessions))
    stored, messages = Store(tmp_path).sessions()
    assert {session.session_id for session in stored} == {session.session_id for session in sessions}
    assert messages == ()
    assert [path.name for path in (tmp_path / "payloads").iterdir()] == [f"{SHA256}.safetensors"]


def test_traces_have_a_folder_for_each_session(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    folder = store.trace_directory("a")
    assert folder == tmp_path / "store" / "traces" / "a"
    assert folder.is_dir()
    assert store.trace_directory("a") == folder
    assert (tmp_path / "store" / ".gitignore").exists()


def using(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "save_session": lambda: store.save_session(session_with_outputs(), {SHA256: PAYLOAD}),
        "trace_directory": lambda: store.trace_directory("a"),
        "session_ids": store.session_ids,
        "load_session": lambda: store.load_session("a"),
        "load_payload": lambda: store.load_payload(SHA256),
        "baseline": lambda: store.baseline("main"),
        "baseline_names": store.baseline_names,
        "unfinished": store.unfinished,
        "journal": lambda: store.journal(sample_session()).add(sample_measurement()),
        "rename_test": lambda: store.rename_test("main", "a.py::a", "a.py::b"),
        "drop_baseline": lambda: store.drop_baseline("main"),
        "drop_from_baseline": lambda: store.drop_from_baseline("main", "a"),
        "append_to_baseline": lambda: store.append_to_baseline("main", sample_session()),
    }


@pytest.mark.parametrize("method", sorted(using(Store(Path()))))
def test_a_place_that_is_a_file_is_told_with_the_option(tmp_path: Path, method: str) -> None:
    (tmp_path / "file").write_text("mine")
    store = Store(tmp_path / "file" / "store")
    with pytest.raises(StoreError) as caught:
        using(store)[method]()
    assert str(tmp_path / "file") in str(caught.value)
    if method != "append_to_baseline":  # which finds first that its session is not stored
        assert "--stepprof-dir" in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_read_only_place_is_told_with_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StoreError, match=r"cannot write .*--stepprof-dir"):
        Store(tmp_path / "store").save_session(sample_session(), {})


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_without_write_permission_is_told_with_the_option(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match=r"Permission denied.*--stepprof-dir"):
            Store(tmp_path / "store").save_session(sample_session(), {})
    finally:
        tmp_path.chmod(0o700)


def test_a_full_disk_is_told_and_leaves_no_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.save_session(sample_session(session_id="a"), {})

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(StoreError, match="No space left on device"):
            store.save_session(msgspec.structs.replace(session_with_outputs(), session_id="b"), {SHA256: PAYLOAD})
    assert files(tmp_path) == ["sessions/a.json"]


@pytest.mark.parametrize("median_ns", [0.0, -1.0, 1e308])
def test_a_time_that_no_step_can_take_is_refused(tmp_path: Path, median_ns: float) -> None:
    store = Store(tmp_path)
    measurement = sample_measurement()
    dispersion = msgspec.structs.replace(measurement.dispersion, median_ns=median_ns)
    store.save_session(sample_session(session_id="a", measurements=(sample_measurement(dispersion=dispersion),)), {})
    with pytest.raises(StoreError, match=r"cannot be right: test_training\.py::test_step"):
        store.load_session("a")
