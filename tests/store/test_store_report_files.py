import errno
import os
from pathlib import Path

import pytest

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.report_files import (
    append_step_summary,
    check_report_paths,
    summary_room_bytes,
    write_report_file,
)

ODD_NAMES = ["a b.md", "基準線.html", "CON", "%s.json", "-", "a.md;rm", "é.md", "z" * 200]


def test_places_where_a_report_can_be_written_pass_and_nothing_is_made(tmp_path: Path) -> None:
    check_report_paths([])
    check_report_paths([tmp_path / name for name in ODD_NAMES])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_refused_and_a_link_that_leads_nowhere_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(UsageError, match=f"{name} exists already") as caught:
            check_report_paths([tmp_path / "free", tmp_path / name])
        assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("folder", ["missing", "file", "missing/deeper"])
def test_a_missing_folder_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="found no folder"):
        check_report_paths([tmp_path / folder / "report.md"])


@pytest.mark.parametrize("name", ["z" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a report's file"):
        check_report_paths([tmp_path / name])


def test_two_reports_in_one_place_are_refused_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    monkeypatch.chdir(tmp_path)
    for other in (Path("folder/a.md"), Path("folder/../folder/a.md"), Path("link/a.md"), tmp_path / "folder" / "a.md"):
        with pytest.raises(UsageError, match="two reports have one place"):
            check_report_paths([Path("folder/a.md"), Path("b.md"), other])
    check_report_paths([Path("folder/a.md"), Path("a.md"), Path("folder/A.md")] if os.name == "posix" else [])


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root could write everywhere
    with pytest.raises(UsageError, match="cannot be written"):
        check_report_paths([tmp_path / "a.md"])


def test_a_report_is_written_whole_and_never_over_a_file(tmp_path: Path) -> None:
    data = "µs — 基準線\r\n\0".encode()
    write_report_file(tmp_path / "a.md", data)
    with pytest.raises(StoreError, match=r"a\.md exists by now"):
        write_report_file(tmp_path / "a.md", b"other")
    assert (tmp_path / "a.md").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_a_report_that_the_disk_refuses_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match=r"cannot write the report .*a\.md: No space left on device"):
        write_report_file(tmp_path / "a.md", b"data")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="No such file"):
        write_report_file(tmp_path / "missing" / "a.md", b"data")


@pytest.mark.parametrize(
    ("before", "after"), [(None, "new\n"), ("", "new\n"), ("old\n", "old\nnew\n"), ("old", "old\nnew\n")]
)
def test_a_summary_begins_on_a_line_of_its_own(tmp_path: Path, before: str | None, after: str) -> None:
    path = tmp_path / "summary"
    if before is not None:
        path.write_text(before)
    assert append_step_summary(path, "new\n", 100) is True
    assert path.read_text() == after


def test_a_summary_without_room_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "summary"
    assert summary_room_bytes(path, 10) == 10
    path.write_text("ab\n")
    assert summary_room_bytes(path, 10) == 7
    assert summary_room_bytes(path, 2) == 0
    assert append_step_summary(path, "µµµµ", 10) is False  # four characters, eight bytes
    assert path.read_text() == "ab\n"
    assert append_step_summary(path, "µµµx", 10) is True
    assert path.stat().st_size == 10
    assert append_step_summary(path, "x", 10) is False
    assert summary_room_bytes(path, 12) == 1  # one for the line break that the last line lacks
    assert append_step_summary(path, "x", 12) is True
    assert path.stat().st_size == 12


def test_text_that_is_no_unicode_does_not_keep_a_summary_from_being_written(tmp_path: Path) -> None:
    assert append_step_summary(tmp_path / "summary", "a\udcff", 100) is True
    assert (tmp_path / "summary").read_text() == "a\\udcff"


def test_a_summary_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot add to the job's summary"):
        append_step_summary(tmp_path / "missing" / "summary", "new", 100)
    with pytest.raises(StoreError, match="cannot add to the job's summary"):
        append_step_summary(tmp_path, "new", 10**9)
