import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_session

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.baseline_names import folder_name
from pytest_stepprof.store.directory import Store

ODD_NAMES = [
    "main",
    "Main",
    "MAIN",
    "a/b",
    "a_b",
    "a b",
    "a::b",
    "../../up",
    " lead",
    "lead",
    "CON",
    "con",
    "nul.txt",
    ".",
    "..",
    "基準線",
    "é",
    "e\u0301",
    "z" * 300,
    "z" * 301,
    "[x]<td>`|",
    "%s",
    "-",
]


def saved(store: Store, number: int) -> Session:
    session = sample_session(session_id=f"2024022{number}T120000.000000Z-0123456789ab")
    store.save_session(session, {})
    return session


def judged(*failed_gates: str) -> Comparison:
    test = TestComparison(
        key="test_a.py::test_a",
        node_id="test_a.py::test_a",
        verdict="regressed" if failed_gates else "not regressed",
        reasons=(),
        outputs=None,
        counters=(),
        time=None,
        failed_gates=failed_gates,  # type: ignore[arg-type]
    )
    return Comparison(baseline="main", baseline_sessions=("a",), tests_sharing_level=1, tests=(test,), missing=())


def test_sessions_come_back_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    store = Store(tmp_path)
    later, earlier = saved(store, 2), saved(store, 1)
    store.append_to_baseline("main", later)
    store.append_to_baseline("main", earlier)  # the clock went back meanwhile: what was appended last is newest
    assert Store(tmp_path).baseline("main") == (later, earlier)


def test_a_session_counts_once_in_a_baseline(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = saved(store, 1), saved(store, 2)
    for session in (first, second, first):
        store.append_to_baseline("main", session)
    assert store.baseline("main") == (first, second)


def test_a_baseline_that_is_not_there_is_empty_and_makes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert store.baseline("main") == ()
    assert store.baseline_names() == ()
    assert list(tmp_path.iterdir()) == []


def test_odd_names_are_kept_apart_and_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    session = saved(store, 1)
    for name in ODD_NAMES:
        assert store.baseline(name) == ()
        store.append_to_baseline(name, session)
    assert store.baseline_names() == tuple(sorted(ODD_NAMES))
    assert all(store.baseline(name) == (session,) for name in ODD_NAMES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["baselines", "sessions"]


@pytest.mark.parametrize("name", ["", " ", "\t", "a\nb", "a\x1b[31m", "a\x00", "a\u2028b", "a\u2029b", "a\ud800"])
def test_names_that_break_a_line_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    session = sample_session()
    with pytest.raises(UsageError, match="name"):
        Store(tmp_path / "store").append_to_baseline(name, session)
    with pytest.raises(UsageError, match="name"):
        Store(tmp_path / "store").baseline(name)
    assert list(tmp_path.iterdir()) == []


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(str.strip))
def test_folder_names_are_safe_on_every_disk(name: str) -> None:
    folder = folder_name(name)
    assert re.fullmatch(r"(?:[a-z0-9]+(?:-[a-z0-9]+)*-)?[0-9a-f]{16}", folder)
    assert len(folder) <= 57
    assert folder_name(name) == folder


def test_the_folder_shows_the_readable_part_of_the_name() -> None:
    assert folder_name("Release 1.2/GPU").startswith("release-1-2-gpu-")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed"}, "failed: only one that passed"),
        ({"status": "interrupted"}, "interrupted: only one that passed"),
        ({"measurements": ()}, "measured nothing"),
        ({"comparison": judged("outputs", "time")}, r"gates failed: test_a\.py::test_a \(outputs, time\)"),
    ],
)
def test_a_session_that_proves_nothing_stays_out(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    store = Store(tmp_path)
    session = sample_session(**changes)
    store.save_session(session, {})
    with pytest.raises(StoreError, match=reason):
        store.append_to_baseline("main", session)
    assert store.baseline_names() == ()


def test_a_session_whose_gates_all_passed_is_taken(tmp_path: Path) -> None:
    store = Store(tmp_path)
    session = sample_session(comparison=judged())
    store.save_session(session, {})
    store.append_to_baseline("main", session)
    assert store.baseline("main") == (session,)


def test_a_session_that_is_not_stored_stays_out(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="save it before"):
        Store(tmp_path).append_to_baseline("main", sample_session())


def test_a_damaged_session_is_named_and_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sessions = [saved(store, number) for number in (1, 2, 3)]
    for session in sessions:
        store.append_to_baseline("main", session)
    damaged = tmp_path / "sessions" / f"{sessions[1].session_id}.json"
    damaged.write_bytes(b"")
    assert store.baseline("main") == (sessions[0], sessions[2])
    readable, (message,) = store.read_baseline("main")
    assert readable == (sessions[0], sessions[2])
    assert str(damaged) in message


def test_a_baseline_of_which_nothing_can_be_read_is_an_error_and_not_empty(tmp_path: Path) -> None:
    store = Store(tmp_path)
    session = saved(store, 1)
    store.append_to_baseline("main", session)
    (tmp_path / "sessions" / f"{session.session_id}.json").unlink()
    with pytest.raises(StoreError, match=f"no session of the baseline main can be read: .*{session.session_id}"):
        store.baseline("main")


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema_version": 1, "name": "other", "session_id": "a"}'])
def test_a_damaged_entry_is_named_and_keeps_nobody_from_the_others(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path)
    first, second = saved(store, 1), saved(store, 2)
    for session in (first, second):
        store.append_to_baseline("main", session)
    entry = next((tmp_path / "baselines").rglob(f"*{first.session_id}.json"))
    entry.write_bytes(damage)
    readable, (message,) = store.read_baseline("main")
    assert readable == (second,)
    assert str(entry) in message
    (entry.parent / ".abc.tmp").write_bytes(b"left by a killed writer")
    (entry.parent / "readme.txt").write_bytes(b"left by a person")
    assert store.read_baseline("main") == (readable, (message,))


def test_what_is_no_baseline_is_not_listed_and_hides_none(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append_to_baseline("main", saved(store, 1))
    (tmp_path / "baselines" / ".DS_Store").write_bytes(b"made by a file browser")
    (tmp_path / "baselines" / "empty").mkdir()
    assert store.baseline_names() == ("main",)


def test_many_writers_append_without_losing_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sessions = [saved(store, number) for number in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda session: store.append_to_baseline("main", session), sessions))
    assert {session.session_id for session in store.baseline("main")} == {session.session_id for session in sessions}
    assert len(store.baseline("main")) == 8


def test_two_processes_append_one_session_once(tmp_path: Path) -> None:
    session = saved(Store(tmp_path), 1)
    program = (
        "import pathlib, sys\n"
        "from pytest_stepprof.store.directory import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "sys.stdin.readline()\n"
        "store.append_to_baseline('main', store.load_session(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), session.session_id]
    writers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go" + os.linesep.encode())
        writer.stdin.close()
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert Store(tmp_path).baseline("main") == (session,)
