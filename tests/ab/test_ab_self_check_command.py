"""``stepprof ab --self-check`` as a command: what it prints, where it goes on, what it refuses."""

import argparse
from pathlib import Path

import pytest
from self_check_runs import Answering, a_run, check_run, judged, record_of

from pytest_stepprof.ab.self_check.kept import read_runs
from pytest_stepprof.cli import ab_self_check
from pytest_stepprof.cli import main as command
from pytest_stepprof.cli.ab_self_check_page import self_check_document
from pytest_stepprof.record.self_check import SelfCheckRun, SlowedStep
from pytest_stepprof.report.terminal import render_terminal

SLOWED = SlowedStep(name="mlp_training", kind="more compute", units_before=20, units_after=21)


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answering:
    return Answering(tmp_path, monkeypatch)


# --- what is printed -----------------------------------------------------------------------------------------------


def shown(*runs: SelfCheckRun) -> str:
    return render_terminal(self_check_document(runs), width=160, colour=False)


def row_of(text: str, beginning: str) -> list[str]:
    """The cells of the one row that begins so."""
    (row,) = [line for line in text.splitlines() if line.strip().startswith(beginning)]
    return [cell for cell in row.strip().split("  ") if cell]


def test_tables() -> None:
    slowed = record_of(
        [judged("mlp_training", "regressed", 1.052), judged("gather_inference", "inconclusive", 1.01)],
        {"mlp_training": [0.05, 0.052, 0.051], "gather_inference": [0.0, 0.06, -0.05]},
    )
    unchanged = record_of([judged("mlp_training", "not regressed")], {"mlp_training": [0.001, 0.0]})
    text = shown(check_run(slowed, [SLOWED]), check_run(unchanged, duration_s=60.0))
    assert "2 comparisons of suites of 10 tests; one took 90 s in the median" in text
    assert [cell.strip() for cell in row_of(text, "none  ")][1:] == [
        "1",
        "0 of 1 (at most 95.0 %)",
        "1 of 1 (100.0 %)",
        "0 of 1 (0.0 %)",
        "0",
        "1.0000",
        "2",
    ]
    assert [cell.strip() for cell in row_of(text, "none, beside slowed tests")][1:] == [
        "1",
        "0 of 1 (at most 95.0 %)",
        "0 of 1 (0.0 %)",
        "1 of 1 (100.0 %)",
        "0",
        "1.0100",
        "3",
    ]
    found = [cell.strip() for cell in row_of(text, "5% slower, more compute")]
    assert found[1:3] == ["1", "1 of 1 (at least 5.0 %)"]
    predicted = [cell.strip() for cell in row_of(text, "5% slower  ")]
    # The comparison ended after three rounds with another test undecided: so early nothing can be found.
    assert predicted[1:] == ["at most 2.1%", "1", "1 of 1 (at least 5.0 %)", "0.0 %"]
    for rule in ("stepprof ab  ", "pytest-benchmark median:5%"):
        calls = [cell.strip() for cell in row_of(text, rule)][1:]
        assert calls == ["0 of 2 (0.0 %)", "0 of 2 (0.0 %)", "1 of 1 (100.0 %)"], rule
    assert [cell.strip() for cell in row_of(text, "pyperf: pooled t test")][1:] == [
        "1 of 2 (50.0 %)",
        "0 of 2 (0.0 %)",
        "1 of 1 (100.0 %)",
    ]


def test_other_loads_are_shown_apart_and_a_failed_comparison_counts() -> None:
    text = shown(a_run(), a_run(load="other core"), check_run(None, problem="it broke", load="any core"))
    parts = ["Nothing started beside it", "A busy process on other core", "A busy process on any core"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


# --- the command ---------------------------------------------------------------------------------------------------


def words_of(save: Path, *more: str) -> list[str]:
    return ["ab", "--self-check", "--save", str(save), *more]


def test_the_command_goes_on_where_it_was(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(a_run(), 0)
    save = tmp_path / "kept"
    assert command.main(words_of(save, "--runs", "1", "--slower", "0,5", "--seed", "1")) == 0
    assert sorted(run.percent for run in read_runs(save)) == [0, 5]
    first = capsys.readouterr()
    assert "comparison 1 of 2: 10 tests, unchanged code" in first.err
    assert "comparison 2 of 2: 10 tests, half of the tests 5 % slower" in first.err
    assert command.main(words_of(save, "--runs", "2", "--slower", "0", "--seed", "1")) == 0
    assert [run.percent for run in read_runs(save)].count(0) == 2
    assert "comparison 1 of 1: 10 tests, unchanged code" in capsys.readouterr().err
    assert len({run.seed for run in read_runs(save)}) == 3
    assert command.main(words_of(save, "--runs", "0", "--markdown", str(tmp_path / "page.md"))) == 0
    assert "3 comparisons of suites of 10 tests" in capsys.readouterr().out
    assert "pytest-benchmark median:5%" in (tmp_path / "page.md").read_text()


def test_a_comparison_that_broke_is_kept_said_and_tried_again(
    tmp_path: Path, answering: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(None, 3)
    assert command.main(words_of(tmp_path / "kept", "--slower", "0")) == 3
    assert "a comparison ended without a result: a line of the report" in capsys.readouterr().err
    answering(a_run(), 0)
    assert command.main(words_of(tmp_path / "kept", "--slower", "0")) == 0
    assert "a comparison ended without a result" in capsys.readouterr().err
    assert [run.problem for run in read_runs(tmp_path / "kept")] == ["a line of the report", None]


def test_unchanged_code_that_is_called_regressed_is_exit_code_1(tmp_path: Path, answering: Answering) -> None:
    record = record_of([judged("mlp_training", "regressed", 1.05)], {"mlp_training": [0.05, 0.05]})
    answering(check_run(record), 1)
    assert command.main(words_of(tmp_path / "kept", "--slower", "0")) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["HEAD"], "expected neither BASE nor --head"),
        (["--head", "HEAD"], "expected neither BASE nor --head"),
        (["--runs", "0"], "found no comparison to show"),
        (["--load", "other", "--cpus", "0"], "expected no --cpus"),
    ],
)
def test_arguments_that_make_no_sense(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["ab", *words, "--self-check"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slower", "3"], "3 %, expected a multiple of 5 %"),
        (["--slower", "a"], "numbers with commas"),
        (["--runs", "-1"], "expected 0 or more"),
        (["--suite", "7"], "invalid choice"),
    ],
)
def test_words_that_are_none(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["ab", "--self-check", *words])
    assert message in capsys.readouterr().err


def test_the_rest_of_the_arguments_reach_the_comparison(tmp_path: Path, answering: Answering) -> None:
    seen = answering(a_run(), 0)
    words = ["--slower", "0", "--suite", "30", "--budget", "2m", "--max-rounds", "8", "--cpus", "1"]
    command.main([*words_of(tmp_path / "kept", *words), "--", "-k", "mlp"])
    passed_on, _ = eval(seen.read_text())
    expected = ["--budget", "360s", "--max-rounds", "8", "--cpus", "1", "--", "-k", "mlp"]
    assert passed_on[-len(expected) :] == expected


def test_the_parser_takes_all_words() -> None:
    parser = argparse.ArgumentParser()
    ab_self_check.configure(parser)
    parsed = parser.parse_args(["--self-check", "--slower", "0,10,10"])
    assert (parsed.self_check, parsed.slower, parsed.runs, parsed.suite, parsed.load) == (True, (0, 10), 1, 10, "none")
