import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_stepprof.store.files import write_if_absent, write_new


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def no_hard_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


def no_space(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(params=["hard links", "no hard links"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no hard links":
        monkeypatch.setattr(os, "link", no_hard_links)


@pytest.mark.usefixtures("file_system")
class TestWriteNew:
    @pytest.mark.parametrize("data", [b"", b"a\r\nb\n\x00", bytes(300_000)])
    def test_holds_exactly_these_bytes_and_leaves_nothing_else(self, tmp_path: Path, data: bytes) -> None:
        write_new(tmp_path / "a", data)
        assert (tmp_path / "a").read_bytes() == data
        assert names(tmp_path) == ["a"]

    def test_an_existing_file_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileExistsError):
            write_new(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert names(tmp_path) == ["a"]

    def test_a_full_disk_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "fsync", no_space)
        with pytest.raises(OSError, match="No space left"):
            write_new(tmp_path / "a", b"new")
        assert names(tmp_path) == []

    def test_of_many_writers_of_one_name_one_wins_whole(self, tmp_path: Path) -> None:
        contents = [bytes([number]) * 50_000 for number in range(16)]

        def write(content: bytes) -> bool:
            try:
                write_new(tmp_path / "a", content)
            except FileExistsError:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            wrote = list(pool.map(write, contents))
        assert wrote.count(True) == 1
        assert (tmp_path / "a").read_bytes() == contents[wrote.index(True)]
        assert names(tmp_path) == ["a"]


def test_a_disk_that_fills_up_while_a_file_is_created_in_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_disk_and_refuse(*_: object) -> None:
        monkeypatch.setattr(os, "fsync", no_space)
        no_hard_links()

    monkeypatch.setattr(os, "link", break_disk_and_refuse)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "a", b"new")
    assert names(tmp_path) == []


def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real_fsync, real_link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        calls.append("fsync")
        real_fsync(descriptor)

    def link(source: Path, name: Path) -> None:
        calls.append("link")
        real_link(source, name)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    write_new(tmp_path / "a", b"new")
    assert calls[:2] == ["fsync", "link"]


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_new(tmp_path / "missing" / "a", b"new")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill without notice")
def test_a_writer_that_is_killed_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from pytest_stepprof.store.files import write_new\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_new(pathlib.Path(sys.argv[1]), b'new')\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [name.endswith(".tmp") and name.startswith(".") for name in names(tmp_path)] == [True]
    write_new(tmp_path / "a", b"next")
    assert (tmp_path / "a").read_bytes() == b"next"


def test_write_if_absent_says_who_wrote(tmp_path: Path) -> None:
    assert write_if_absent(tmp_path / "a", b"one") is True
    assert write_if_absent(tmp_path / "a", b"two") is False
    assert (tmp_path / "a").read_bytes() == b"one"


def test_write_if_absent_yields_to_a_faster_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"one")
    monkeypatch.setattr(Path, "exists", lambda self: False)  # the moment before the other one's file appears
    assert write_if_absent(tmp_path / "a", b"two") is False
    assert (tmp_path / "a").read_bytes() == b"one"
