"""What a long measurement is doing: on a terminal only."""

import os
import subprocess
import sys

import pytest

STEP = """
    import torch

    def test_step(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""
SAVE_CURSOR = "\x1b7"


def on_a_terminal(project, *arguments: str) -> str:
    """Run pytest with a terminal as its standard output; return all that was written to it."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    project.run("--version")  # writes the ini file
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--stepprof", *arguments]
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, cwd=project.pytester.path) as process:
        os.close(terminal)
        written = b"".join(iter(lambda: _read(reader), b""))
    os.close(reader)
    assert process.returncode == pytest.ExitCode.OK
    return written.decode()


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_terminal_shows_phase_and_run_and_the_line_is_gone_in_the_end(project):
    project.write(test_it=STEP)

    written = on_a_terminal(project, "--stepprof-runs=3")

    shown = [part.split("\x1b[K")[0].split("  ", 1)[1] for part in written.split(SAVE_CURSOR)[1:]]
    assert shown[0] == "test_step: first step"
    assert shown[-3:] == ["test_step: run 1/3", "test_step: run 2/3", "test_step: run 3/3"]
    after = written.rsplit("test_step: run 3/3", 1)[1]
    assert after.startswith("\x1b[K\x1b8\x1b[?7h\x1b[K"), "back at the cursor, and the rest of the row erased"


@pytest.mark.parametrize("arguments", [(), ("-s",), ("--color=yes",)], ids=["captured", "not captured", "in colour"])
def test_output_that_is_not_a_terminal_has_no_such_line(project, arguments):
    project.write(test_it=STEP)

    result = project.measure(*arguments)

    assert SAVE_CURSOR not in str(result.stdout)
    assert "run 1/1" not in str(result.stdout)
