"""The arguments of ``stepprof ab``: what they mean, and what is refused before anything runs."""

import argparse
import io
import os

import pytest

from pytest_stepprof.cli import ab
from pytest_stepprof.cli.ab_arguments import check_arguments, check_self_check, cores, duration_s
from pytest_stepprof.cli.ab_live import LiveLine
from pytest_stepprof.cli.pytest_words import split_off
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


@pytest.mark.parametrize("text", ["8192", "0-99999999999", "0-8192", "1" * 5000, "99999999999-3"])
def test_numbers_that_no_core_has_are_refused_before_they_are_counted_out(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected numbers of cores below 8192"):
        cores(text)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process choose its cores")
@pytest.mark.parametrize("words", [["main"], ["--self-check"]])
def test_cores_that_are_not_there_are_refused(words, tmp_path):
    check = check_self_check if words == ["--self-check"] else lambda arguments: check_arguments(arguments, tmp_path)
    usable = os.sched_getaffinity(0)
    check(parsed(*words, "--cpus", ",".join(map(str, usable))))
    with pytest.raises(UsageError, match=rf"found --cpus with 8190, 8191, expected .* may run: {min(usable)}"):
        check(parsed(*words, f"--cpus={min(usable)},8190-8191"))
    assert os.sched_getaffinity(0) == usable


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process choose its cores")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="there is one core")
def test_cores_that_this_process_leaves_alone_may_be_named(tmp_path):
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        check_arguments(parsed("main", f"--cpus={max(usable)}"), tmp_path)
    finally:
        os.sched_setaffinity(0, usable)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rounds=5"], "--max-rounds N and --budget TIME end them earlier"),
        (["--max-rounds=0"], "found 0, expected 1 to 60 rounds"),
        (["--max-rounds=61"], "found 61, expected 1 to 60 rounds"),
        (["--cpus=0-99999999999"], "expected numbers of cores below 8192"),
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
    with pytest.raises(UsageError, match="found --from with BASE, --cpus, --save, expected none"):
        check_arguments(arguments, None)
    arguments = parsed("--from=kept", "-vv")
    arguments.pytest_arguments = ["-x"]
    with pytest.raises(UsageError, match="found --from with pytest arguments, expected none"):
        check_arguments(arguments, None)
    check_arguments(parsed("--from=kept", "--markdown", str(tmp_path / "page.md"), "--strict", "-v"), None)


@pytest.mark.parametrize(
    "option",
    ["--max-rounds=40", "--budget=10s", "--tests=own", "--whole-processes", "--timeout=1", "--head=x", "--install=x"],
)
def test_options_that_would_be_ignored_are_refused(option):
    name = option.partition("=")[0]
    with pytest.raises(UsageError, match=f"found --from with {name}, expected none of these"):
        check_arguments(parsed("--from=kept", option), None)
    if name not in ("--max-rounds", "--budget", "--head"):
        with pytest.raises(UsageError, match=f"found --self-check with {name}, expected none of these"):
            ab.run(parsed("--self-check", "--runs=0", option))


def test_options_of_the_self_check_alone_are_refused():
    with pytest.raises(UsageError, match="found --runs, --load without --self-check"):
        ab.run(parsed("main", "--runs=5", "--load=any"))


@pytest.mark.parametrize("pair", [("markdown", "json"), ("save", "json"), ("save", "markdown")])
def test_one_name_for_two_results_is_refused(pair, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    one, other = pair
    for same in ("new", "./new", "../here/new", str(tmp_path / "link" / "new")):
        with pytest.raises(UsageError, match=f"found new for --{one} and for --{other}, expected two names"):
            check_arguments(parsed("main", f"--{one}=new", f"--{other}={same}"), tmp_path)
    check_arguments(parsed("main", f"--{one}=new", f"--{other}=../new"), tmp_path)


@pytest.mark.parametrize("inside", ["", "test_a.py", "t/test_a.py::test_a"])
def test_absolute_paths_into_the_repository_are_refused(inside, tmp_path):
    arguments = parsed("main")
    arguments.pytest_arguments = [str(tmp_path / inside)]
    with pytest.raises(UsageError, match="expected a relative one"):
        check_arguments(arguments, tmp_path)
    arguments.pytest_arguments = ["t/test_a.py", "/elsewhere/test_a.py"]
    check_arguments(arguments, tmp_path)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["-n", "2"], "-n"),
        (["-n2"], "-n"),
        (["-n=2"], "-n"),
        (["-n", "auto"], "-n"),
        (["-vxn2"], "-n"),
        (["-qn", "2"], "-n"),
        (["--numprocesses", "2"], "--numprocesses"),
        (["--numprocesses=auto"], "--numprocesses"),
        (["--dist=load"], "--dist"),
        (["t", "--dist", "each"], "--dist"),
        (["--tx=2*popen"], "--tx"),
        (["-d"], "-d"),
        (["--looponfail"], "--looponfail"),
        (["-f"], "-f"),
    ],
)
def test_sharing_the_tests_among_processes_is_refused(words, option, tmp_path):
    arguments = parsed("main")
    arguments.pytest_arguments = words
    with pytest.raises(UsageError, match=rf"found {option} among pytest's arguments, .* \(pytest-xdist\)"):
        check_arguments(arguments, tmp_path)


@pytest.mark.parametrize("value", ["--stepprof-{}=x", "--stepprof-{} x"])
@pytest.mark.parametrize("name", ["dir", "seed", "baseline", "save", "update-outputs"])
def test_what_every_side_has_for_itself_is_refused(name, value, tmp_path):
    for command, check in (("main", lambda it: check_arguments(it, tmp_path)), ("--self-check", check_self_check)):
        arguments = parsed(command)
        arguments.pytest_arguments = ["-x", *value.format(name).split()]
        with pytest.raises(UsageError, match=f"found --stepprof-{name} among pytest's arguments, expected no such"):
            check(arguments)


def test_other_arguments_of_pytest_pass(tmp_path):
    words = ["-n0", "-n", "0", "--numprocesses=0", "--dist=no", "--maxprocesses=2", "--no-header", "--noconftest"]
    words += [
        "-m",
        "stepprof and not slow",
        "-k",
        "n2",
        "-knot_n2",
        "-rf",
        "-rn",
        "-ra",
        "-p",
        "no:x",
        "-xvs",
        "-c",
        "d",
    ]
    words += ["--stepprof-runs=3", "--stepprof-outputs=off", "-oaddopts=", "--durations=3", "n", "d", "--ff", "-"]
    arguments = parsed("main")
    arguments.pytest_arguments = [*words, "--", "-n", "--stepprof-dir"]
    check_arguments(arguments, tmp_path)


@pytest.mark.parametrize(
    ("words", "own", "for_pytest"),
    [
        (["ab", "main", "--seed", "7", "--", "-k", "x", "--", "y"], None, ["-k", "x", "--", "y"]),
        (["ab", "--", "-x"], None, ["-x"]),
        (["--debug", "ab", "main"], None, []),
        (["compare", "--", "ab"], ["compare", "--", "ab"], []),
        (["baseline", "record", "main", "--", "t.py"], None, ["t.py"]),
        (["baseline", "show", "--", "record"], ["baseline", "show", "--", "record"], []),
        ([], [], []),
    ],
)
def test_what_stands_behind_the_dashes_is_pytests(words, own, for_pytest):
    expected = words[: words.index("--")] if "--" in words else words
    assert split_off(words) == (expected if own is None else own, for_pytest)


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


class Gone(Terminal):
    """A terminal that was closed meanwhile."""

    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Gone()], ids=["closed", "gone"])
def test_where_nobody_listens_it_goes_on(stream, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    live = LiveLine()
    live.stay("round 1: 4.0 s")
    live.move("round 2")
    live.clear()
