import errno
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_measurement, sample_session

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store import journal as journal_room
from pytest_stepprof.store import json_text
from pytest_stepprof.store.directory import Store
from pytest_stepprof.store.journal import read_journal

ID = sample_session().session_id
PLACE = Path("unfinished") / "some.jsonl"


def measured(number: int, **changes: Any) -> Measurement:
    base = sample_measurement(**changes)
    key = f"test_training.py::test_step[size={number}]"
    return msgspec.structs.replace(base, test=msgspec.structs.replace(base.test, key=key))


def keys(session: Session) -> list[str]:
    return [measurement.test.key for measurement in session.measurements]


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_nothing_is_made_before_the_first_measurement_and_nothing_is_left_after_the_last(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.journal(sample_session()).finish()
    assert store.unfinished() == ()
    assert list(tmp_path.iterdir()) == []
    journal = store.journal(sample_session())
    journal.add(measured(1))
    assert names(tmp_path / "store") == [".gitignore", f"unfinished/{ID}.jsonl"]
    journal.finish()
    journal.finish()
    assert names(tmp_path / "store") == [".gitignore"]


def test_a_session_that_goes_on_is_not_a_leftover_and_can_be_looked_at(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.journal(sample_session())
    journal.add(measured(1))
    assert store.unfinished() == ()
    assert keys(store.load_session(ID)) == ["test_training.py::test_step[size=1]"]
    journal.add(measured(2))
    journal.close()
    assert store.unfinished() == (ID,)
    assert store.session_ids() == ()
    assert store.unfinished_file(ID) == journal.path


def test_what_was_measured_comes_back_as_an_interrupted_session(tmp_path: Path) -> None:
    store = Store(tmp_path)
    begun = sample_session(status="passed", measurements=(measured(9),))  # of the beginning, nothing of it counts
    journal = store.journal(begun)
    journal.add(measured(1))
    journal.add(measured(2))
    journal.add(measured(1, wall_clock_s=7.5))  # a rerun
    journal.close()
    assert store.load_session(ID) == msgspec.structs.replace(
        begun, status="interrupted", measurements=(measured(1, wall_clock_s=7.5), measured(2))
    )
    with pytest.raises(StoreError, match="interrupted: only one that passed"):
        store.append_to_baseline("main", store.load_session(ID))


def test_a_session_that_was_stored_before_its_process_was_killed_is_no_leftover(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.journal(sample_session())
    journal.add(measured(1))
    store.save_session(sample_session(), {})
    journal.close()
    assert store.unfinished() == ()
    assert store.load_session(ID) == sample_session()


def test_leftovers_come_oldest_first_and_other_files_are_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for session_id in ("b", "a", "c"):
        journal = store.journal(sample_session(session_id=session_id))
        journal.add(measured(1))
        journal.close()
    for name in (".0123.tmp", "notes.txt", "-x.jsonl", "d.json"):
        (tmp_path / "unfinished" / name).write_bytes(b"{")
    assert store.unfinished() == ("a", "b", "c")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill without notice")
def test_a_process_that_is_killed_in_the_second_test_keeps_the_first(tmp_path: Path) -> None:
    program = """
        import os, pathlib, signal, sys
        from sample_records import sample_measurement, sample_session
        from pytest_stepprof.store.directory import Store
        journal = Store(pathlib.Path(sys.argv[1])).journal(sample_session())
        journal.add(sample_measurement())
        print("added", flush=True)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    paths = os.pathsep.join(str(Path(__file__).parents[levels]) for levels in (1, 2))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"added"
        assert Store(tmp_path).unfinished() == ()  # somebody writes it
        process.communicate(b"\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    store = Store(tmp_path)
    assert store.unfinished() == (ID,)
    assert store.load_session(ID).measurements == (sample_measurement(),)


def written(*numbers: int) -> bytes:
    lines = (json_text.encode_line(measured(number)) for number in numbers)
    return json_text.encode_line(sample_session(measurements=())) + b"".join(lines)


WHOLE = written(1, 2)
HEAD_BYTES, FIRST_BYTES = len(written()), len(written(1))


@given(st.integers(0, len(WHOLE)))
def test_a_journal_that_is_cut_off_anywhere_holds_what_was_written_whole(length: int) -> None:
    if length < HEAD_BYTES:
        with pytest.raises(StoreError, match=r"some\.jsonl holds no whole line"):
            read_journal(WHOLE[:length], PLACE)
        return
    expected = 2 if length == len(WHOLE) else 1 if length >= FIRST_BYTES else 0
    assert len(read_journal(WHOLE[:length], PLACE).measurements) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (WHOLE.replace(b'"size=2"', b"", 1).replace(b"wall_clock_s", b"wall", 1), "damaged in line 2"),
        (written(1) + b"\x00\x00\n" + written(2)[HEAD_BYTES:], "damaged in line 3"),
        (b"{}\n" + WHOLE, "not a session"),
        (b'{"schema_version": %d}\n' % (SCHEMA_VERSION + 1), "update pytest-stepprof"),
    ],
)
def test_a_damaged_line_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as caught:
        read_journal(data, PLACE)
    assert str(PLACE) in str(caught.value)


def test_a_damaged_journal_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_session(sample_session(session_id="a"), {})
    journal = store.journal(sample_session(session_id="b"))
    journal.add(measured(1))
    journal.close()
    journal.path.write_bytes(b"\xff\n")
    assert store.unfinished() == ("b",)
    with pytest.raises(StoreError, match=r"unfinished.b\.jsonl"):
        store.load_session("b")
    assert [session.session_id for session in store.sessions()[0]] == ["a"]
    assert store.sessions()[1] == ()


def test_a_journal_under_the_name_of_another_session_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.journal(sample_session())
    journal.add(measured(1))
    journal.close()
    journal.path.rename(journal.path.with_name("b.jsonl"))
    with pytest.raises(StoreError, match=f"holds the session {ID}"):
        store.load_session("b")


def test_a_number_that_is_not_finite_is_refused_by_name_and_the_next_measurement_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = store.journal(sample_session())
    with pytest.raises(StoreError, match=r"Measurement\.wall_clock_s: it is nan"):
        journal.add(measured(1, wall_clock_s=float("nan")))
    journal.add(measured(2))
    assert keys(store.load_session(ID)) == ["test_training.py::test_step[size=2]"]


LIMITED = """
    import pathlib, resource, sys
    from sample_records import sample_measurement, sample_session
    from pytest_stepprof.errors import StoreError
    from pytest_stepprof.store.directory import Store
    store = Store(pathlib.Path(sys.argv[1]))
    journal = store.journal(sample_session())
    small = sample_measurement()
    journal.add(small)
    size = journal.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
    for save in (lambda: journal.add(small), lambda: store.save_session(sample_session(session_id="a"), {})):
        try:
            save()
        except StoreError as error:
            print(error)
    assert journal.path.stat().st_size == size
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.add(small)
    journal.close()
"""


def test_a_disk_that_takes_only_a_part_is_told_and_leaves_whole_lines_and_no_session(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="this system limits no files")
    paths = os.pathsep.join(str(Path(__file__).parents[levels]) for levels in (1, 2))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = done.stdout.splitlines()
    assert [line.count("File too large. Choose another place with --stepprof-dir") for line in told] == [1, 1]
    store = Store(tmp_path)
    assert store.session_ids() == ()
    assert names(tmp_path) == [f"unfinished/{ID}.jsonl"]
    assert (tmp_path / "unfinished" / f"{ID}.jsonl").read_bytes().count(b"\n") == 3  # the head, the first, the last
    assert store.load_session(ID).measurements == (sample_measurement(),)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_place_that_cannot_be_written_is_told_with_the_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(code, os.strerror(code), str(self))

    journal = Store(tmp_path / "store").journal(sample_session())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StoreError, match=r"cannot write .*--stepprof-dir"):
        journal.add(measured(1))
    monkeypatch.undo()
    journal.add(measured(2))
    assert keys(Store(tmp_path / "store").load_session(ID)) == ["test_training.py::test_step[size=2]"]


def test_where_no_lock_tells_silence_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_room, "fcntl", None)
    store = Store(tmp_path)
    journal = store.journal(sample_session())
    journal.add(measured(1))
    assert store.unfinished() == ()
    now = time.time()
    os.utime(journal.path, (now - 4000, now - 4000))
    assert store.unfinished() == (ID,)
    os.utime(journal.path, (now + 4000, now + 4000))  # the clock went back
    assert store.unfinished() == ()


def test_a_file_system_without_locks_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    store = Store(tmp_path)
    store.journal(sample_session()).add(measured(1))
    assert store.unfinished() == ()
    assert keys(store.load_session(ID)) == ["test_training.py::test_step[size=1]"]


def test_two_sessions_write_at_the_same_time(tmp_path: Path) -> None:
    journals = [Store(tmp_path).journal(sample_session(session_id=name)) for name in ("a", "b")]
    for number in range(3):
        for journal in journals:
            journal.add(measured(number))
    journals[0].finish()
    journals[1].close()
    assert Store(tmp_path).unfinished() == ("b",)
    assert len(Store(tmp_path).load_session("b").measurements) == 3


def test_a_second_session_of_the_same_name_does_not_write_into_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = store.journal(sample_session())
    first.add(measured(1))
    with pytest.raises(StoreError, match="File exists"):
        store.journal(sample_session()).add(measured(2))
    assert keys(store.load_session(ID)) == ["test_training.py::test_step[size=1]"]


@pytest.mark.parametrize("session_id", ["..", "../a", "a/b", ""])
def test_what_is_no_session_name_gets_no_journal(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(StoreError, match="is not a session's name"):
        Store(tmp_path / "store").journal(sample_session(session_id=session_id))
    assert list(tmp_path.iterdir()) == []
