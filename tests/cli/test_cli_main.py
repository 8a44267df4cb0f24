"""The command itself: its options, its errors, its exit codes, and where its text goes."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.cli import show
from pytest_stepprof.cli.main import main
from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.directory import Store


@pytest.fixture
def folder(tmp_path):
    store = Store(tmp_path / "kept")
    session = sample_session(session_id=store.new_session_id(datetime(2024, 2, 29, tzinfo=UTC)))
    store.save_session(session, {})
    return str(store.directory)


def raising(error):
    def run(arguments):
        raise error

    return run


@pytest.mark.parametrize("arguments", [[], ["dance"], ["compare"], ["show", "--nonsense"], ["baseline"], ["trace"]])
def test_wrong_arguments_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage: stepprof" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"]])
def test_help_names_the_exit_codes(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 0
    assert "3 a test or stepprof itself failed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arrange",
    [lambda folder: ["--dir", folder, "show"], lambda folder: ["show", "--dir", folder]],
    ids=["before", "after"],
)
def test_the_folder_may_be_named_on_both_sides_of_the_subcommand(folder, arrange, capsys):
    assert main(arrange(folder)) == 0
    assert "stepprof: 1 test measured" in capsys.readouterr().out


def test_the_folder_is_dot_stepprof_by_default(folder, tmp_path, monkeypatch, capsys):
    Path(folder).rename(tmp_path / ".stepprof")
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 0
    assert "1 test measured" in capsys.readouterr().out


def test_the_folder_may_lie_above_and_the_nearest_one_counts(folder, tmp_path, monkeypatch, capsys):
    below = tmp_path / "src" / "deep"
    below.mkdir(parents=True)
    Path(folder).rename(tmp_path / ".stepprof")
    monkeypatch.chdir(below)
    assert main(["show"]) == 0
    assert f"record stored at {tmp_path / '.stepprof'}" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "src" / ".stepprof").mkdir()
    assert main(["show"]) == 2
    assert f"found no session to read in {tmp_path / 'src' / '.stepprof'}" in capsys.readouterr().err


def test_no_folder_here_or_above_says_where_was_looked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["show"]) == 2
    assert f"found no folder .stepprof in {tmp_path} or above it" in capsys.readouterr().err


def test_a_missing_folder_says_what_to_do(tmp_path, capsys):
    assert main(["show", "--dir", str(tmp_path / "none")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "found no folder" in err
    assert "--dir" in err


def test_an_own_error_is_one_message_and_exit_2(folder, monkeypatch, capsys):
    monkeypatch.setattr(show, "chosen_session", lambda store, name: raising(StoreError("found\x1b this"))(None))
    assert main(["show", "--dir", folder]) == 2
    assert capsys.readouterr().err == "stepprof: found\\x1b this\n"


def test_an_unexpected_error_is_one_line_and_exit_3(folder, monkeypatch, capsys):
    monkeypatch.setattr(show, "chosen_session", lambda store, name: raising(ZeroDivisionError("oops"))(None))
    assert main(["show", "--dir", folder]) == 3
    assert capsys.readouterr().err == "stepprof: stepprof itself failed: ZeroDivisionError: oops; --debug shows where\n"


def test_an_unexpected_error_in_the_arguments_is_exit_3_as_well(monkeypatch, capsys):
    monkeypatch.setattr("pytest_stepprof.cli.ab_arguments.cores", raising(MemoryError("too many")))
    assert main(["ab", "--cpus=0"]) == 3
    assert capsys.readouterr().err.startswith("stepprof: stepprof itself failed: MemoryError: too many")


@pytest.mark.parametrize(("error", "code"), [(ZeroDivisionError("oops"), 3), (StoreError("found"), 2)])
def test_debug_shows_the_traceback(folder, monkeypatch, capsys, error, code):
    monkeypatch.setattr(show, "chosen_session", lambda store, name: raising(error)(None))
    assert main(["show", "--dir", folder, "--debug"]) == code
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last)")
    assert "--debug" not in err


def test_an_interrupt_exits_with_130(folder, monkeypatch, capsys):
    monkeypatch.setattr(show, "chosen_session", lambda store, name: raising(KeyboardInterrupt())(None))
    assert main(["show", "--dir", folder]) == 130
    assert capsys.readouterr().err == "stepprof: interrupted\n"


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())", *arguments],
        check=False,
        capture_output=True,
        **options,
    )


def test_a_reader_that_leaves_early_is_no_error(folder):
    script = (
        "import os, subprocess, sys\n"
        "read, write = os.pipe()\n"
        "os.close(read)\n"
        "code = 'import sys; from pytest_stepprof.cli.main import main; sys.exit(main())'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', code, *sys.argv[1:]], stdout=write).returncode)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "show", "--dir", folder], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("closed", "name", "code"),
    [
        ("2>&-", "none", 2),
        (">&-", "{folder}", 0),
        ("<&- >&- 2>&-", "{folder}", 0),
        ("2>/dev/full", "none", 2),
        (">/dev/full", "{folder}", 3),
        (">/dev/full 2>/dev/full", "{folder}", 3),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_closed_and_full_outputs_change_no_exit_code_to_regressed(folder, closed, name, code):
    call = "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())"
    script = f'"$@" {closed}'
    words = [sys.executable, "-c", call, "show", "--dir", name.format(folder=folder)]
    done = subprocess.run(["/bin/sh", "-c", script, "sh", *words], check=False, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if closed == ">/dev/full":
        assert done.stderr.startswith("stepprof: cannot write to standard output: ")


def test_nothing_that_is_opened_later_takes_the_place_of_a_closed_stream(tmp_path):
    code = (
        "import os, sys\n"
        "from pytest_stepprof.cli.streams import prepare_streams\n"
        "prepare_streams()\n"
        "with open(sys.argv[1], 'w') as kept:\n"
        "    assert kept.fileno() > 2, kept.fileno()\n"
        "    os.write(2, b'from a library')\n"
        "    print('told', file=sys.stderr)\n"
        "    kept.write('kept')\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(["/bin/sh", "-c", '"$@" 2>&- <&-', "sh", *words], check=False, capture_output=True)
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "kept"


def test_after_an_interrupt_another_one_does_not_change_the_exit_code():
    code = (
        "import atexit, os, signal, sys\n"
        "from pytest_stepprof.cli import main as command\n"
        "def interrupted(arguments):\n"
        "    raise KeyboardInterrupt\n"
        "command._GROUPS[''] = {'show': command._Subcommand('', lambda parser: parser.set_defaults(run=interrupted))}\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.exit(command.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "show"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "stepprof: interrupted\n")


def test_a_terminal_that_is_not_utf_8_gets_escapes(tmp_path):
    store = Store(tmp_path)
    measurement = sample_measurement()
    scenario = msgspec.structs.replace(measurement.scenario, question="wie schnell? 漢")
    store.save_session(sample_session(measurements=(msgspec.structs.replace(measurement, scenario=scenario),)), {})
    done = command("show", "--dir", str(tmp_path), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"question: wie schnell? \\u6f22" in done.stdout


@pytest.mark.parametrize(
    ("subcommand", "light"), [(("show",), True), (("baseline", "list"), True), (("baseline", "show", "main"), False)]
)
def test_looking_needs_no_torch_and_scipy_only_for_statistics(tmp_path, subcommand, light):
    store = Store(tmp_path)
    session = sample_session()
    store.save_session(session, {})
    store.append_to_baseline("main", session)
    code = (
        "import sys\n"
        "from pytest_stepprof.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        f"assert not {{'torch', {light!r} and 'scipy'}} & set(sys.modules), 'something heavy was imported'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *subcommand, "--dir", str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("on_terminal", "no_colour", "coloured"), [(True, None, True), (True, "1", False), (False, None, False)]
)
def test_colour_only_on_a_terminal_that_wants_it(folder, monkeypatch, capsys, on_terminal, no_colour, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: on_terminal)
    assert main(["show", "--dir", folder]) == 0
    assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_the_help_names_all_that_can_fail(capsys):
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "1 regressed: outputs differ, a quality fell, or counters, memory or time grew;" in said
