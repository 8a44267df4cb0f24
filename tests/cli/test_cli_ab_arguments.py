"""The arguments of ``stepprof ab``: what they mean, and what is refused before anything runs."""

import argparse
import io

import pytest

from pytest_stepprof.cli import ab
from pytest_stepprof.cli.ab_arguments import check_arguments, cores, duration_s
from pytest_stepprof.cli.ab_live import LiveLine
from pytest_stepprof.errors import UsageError


def parsed(*words):
    parser = argparse.ArgumentParser()
    ab.configure(parser)
    return parser.parse_args(words, argparse.Namespace(pytest_arguments=[]))


def test_what_nobody_asks_for():
    arguments = parsed()
    assert (arguments.base, arguments.head, arguments.tests, arguments.install) == (None, None, "head", None)
    assert (arguments.budget, arguments.max_rounds, arguments.timeout) == (300.0, 15, 600.0)
    assert (arguments.saved, arguments.save, arguments.markdown, arguments.json) == (None, None, None, None)
    assert not arguments.self_check


@pytest.mark.parametrize(
    ("text", "value"), [("300s", 300), ("300", 300), ("1.5m", 90), ("2min", 120), ("1h", 3600), ("0.5s", 0.5)]
)
def test_times(text, value):
    assert duration_s(text) == value


@pytest.mark.parametrize("text", ["", "s", "0s", "-1s", "1d", "inf", "nan", "1e3s", "1 s 2 s", "٣s"])
def test_what_is_no_time(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a time above 0"):
        duration_s(text)


@pytest.mark.parametrize(("text", "value"), [("0", (0,)), ("0,1", (0, 1)), ("2-4,0,3", (2, 3, 4, 0)), ("1, 3", (1, 3))])
def test_cores(text, value):
    assert cores(text) == value


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "0,,1", "²"])
def test_what_names_no_core(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        cores(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds=5"], "--max-rounds N and --budget TIME end them earlier"),
        (["--max-rounds=0"], "expected 1 or more"),
        (["--tests=mine"], "invalid choice"),
        (["--budget=never"], "expected a time above 0"),
    ],
)
def test_wrong_words_leave_with_2(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        parsed(*words)
    assert left.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("option", ["save", "markdown", "json"])
def test_nothing_that_exists_is_written_over_and_no_folder_is_made(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("there", "link"):
        with pytest.raises(UsageError, match=f"found {name}, expected a name that does not exist yet.* --{option}"):
            check_arguments(parsed(f"--{option}={name}"), tmp_path)
    with pytest.raises(UsageError, match="found no folder no/such to write file to"):
        check_arguments(parsed(f"--{option}=no/such/file"), tmp_path)
    check_arguments(parsed(f"--{option}=new"), tmp_path)


def test_what_was_measured_is_not_measured_again(tmp_path):
    arguments = parsed("main", "--from=kept", "--cpus=0", "--save=new")
    arguments.pytest_arguments = ["-x"]
    with pytest.raises(UsageError, match="found --from with base, cpus, save, pytest arguments, expected none"):
        check_arguments(arguments, None)
    check_arguments(parsed("--from=kept", "--markdown", str(tmp_path / "page.md"), "--strict"), None)


@pytest.mark.parametrize("inside", ["", "test_a.py", "t/test_a.py::test_a"])
def test_absolute_paths_into_the_repository_are_refused(inside, tmp_path):
    arguments = parsed("main")
    arguments.pytest_arguments = [str(tmp_path / inside)]
    with pytest.raises(UsageError, match="expected a relative one"):
        check_arguments(arguments, tmp_path)
    arguments.pytest_arguments = ["t/test_a.py", "/elsewhere/test_a.py"]
    check_arguments(arguments, tmp_path)


@pytest.mark.parametrize(
    ("words", "own", "for_pytest"),
    [
        (["ab", "main", "--seed", "7", "--", "-k", "x", "--", "y"], None, ["-k", "x", "--", "y"]),
        (["ab", "--", "-x"], None, ["-x"]),
        (["--debug", "ab", "main"], None, []),
        (["compare", "--", "ab"], ["compare", "--", "ab"], []),
        ([], [], []),
    ],
)
def test_what_stands_behind_the_dashes_is_pytests(words, own, for_pytest):
    expected = words[: words.index("--")] if "--" in words else words
    assert ab.split_off(words) == (expected if own is None else own, for_pytest)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def screen(text):
    """What a person sees in the end: a carriage return goes back to the line's beginning."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


def test_on_a_terminal_one_line_moves_and_others_stay(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    live = LiveLine(stream)
    live.move("round 1 of at most 15: waiting for both sides to start")
    assert screen(stream.getvalue()) == ["stepprof: round 1 of at most 15: waitin"]
    live.move("round 1: \x1b[31mt.py")
    assert screen(stream.getvalue()) == [r"stepprof: round 1: \x1b[31mt.py"]
    live.stay("round 1: 4.0 s")
    live.move("round 2")
    live.clear()
    live.clear()
    assert screen(stream.getvalue()) == ["stepprof: round 1: 4.0 s", ""]
    assert "\x1b" not in stream.getvalue()


def test_where_nobody_looks_only_lines_that_stay_are_written():
    stream = io.StringIO()
    live = LiveLine(stream)
    live.move("round 1")
    live.stay("round 1: 4.0 s")
    live.clear()
    assert stream.getvalue() == "stepprof: round 1: 4.0 s\n"
