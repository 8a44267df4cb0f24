"""``stepprof ab`` with its processes replaced: verdicts, exit codes, the report, and the files that it writes."""

import json
import os
import re
import sys
from pathlib import Path

import msgspec
import pytest
from ab_records import KEY, around, measured, rounds, session

from pytest_stepprof.ab.check import CheckPass
from pytest_stepprof.ab.rounds import RoundsRun
from pytest_stepprof.ab.side import SideRun
from pytest_stepprof.cli import ab_measured
from pytest_stepprof.cli.ab_judged import stored_record
from pytest_stepprof.cli.main import main
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
SLOWER = (1.07, 1.071, 1.069, 1.07, 1.0705)
SAME = (1.001, 0.999, 1.0, 1.0005, 0.9995)
NOISY = tuple(around(1.0, 0.2, 15))


@pytest.fixture
def called(repository, tmp_path, monkeypatch, capsys):
    """Call ``stepprof ab`` in the repository with sides and rounds made by hand."""
    repository.commit({"readme": "\n"})

    def call(*arguments, ratios=None, base=None, head=None, failed=None, skipped=None, because="all is decided"):
        asked = []

        def run_check(request, *, tell):
            tell("check of base: 1.0 s (1 measured)")
            request.folder.mkdir()
            return CheckPass(base=side(base or session(measured())), head=side(head or session(measured())))

        def side(of):
            at_head = of is head
            return SideRun(
                session=of if of.measurements else None,
                store=Store(Path("nowhere")),
                failed=(failed or {}) if at_head else {},
                skipped=(skipped or {}) if at_head else {},
                modules={},
                duration_s=1.0,
            )

        def run_rounds(request, *, tell, live, keep):
            asked.append(request)
            live("round 1: visiting")
            if because is KeyboardInterrupt:
                for done in rounds(ratios):
                    keep(done)
                raise KeyboardInterrupt
            return RoundsRun(rounds=rounds(ratios), stopped_because=because)

        monkeypatch.setattr(ab_measured, "run_check", run_check)
        monkeypatch.setattr(ab_measured, "run_rounds", run_rounds)
        monkeypatch.chdir(repository.folder)
        code = main(["ab", *arguments])
        captured = capsys.readouterr()
        assert list((tmp_path / "temporary").glob("stepprof*")) == []
        return code, " ".join(captured.out.split()), " ".join(captured.err.split()), asked

    return call


@pytest.mark.parametrize(
    ("ratios", "arguments", "code", "said"),
    [
        (SLOWER, (), 1, "t.py::a 1.000 ms 1.07 ms 1.07x slower 1.069x to 1.072x slower 5 equal regressed (time)"),
        (SLOWER, (), 1, "Slower by more than the tolerance of 1 %: 1.000 ms/step before, 1.07 ms/step now"),
        (SLOWER, (), 1, "stepprof ab: 1 of 1 test regressed: the working tree against HEAD"),
        (SAME, ("--strict",), 0, "not regressed: no slowdown above 5 %, at a level of 1 % for each test"),
        (SAME, (), 0, "stepprof ab: no test regressed (1 not regressed): the working tree against HEAD"),
        ([1 / ratio for ratio in SLOWER], (), 0, "1.07x faster"),
        (NOISY, (), 0, "Neither a slowdown above 1 % nor the absence of one above 5 % shows"),
        ([1.4, 0.8] * 7 + [1.4], (), 0, "Even 60 rounds might not decide it"),
        (NOISY, ("--strict",), 1, "inconclusive"),
        (SLOWER[:4], (), 0, "not enough rounds for a verdict (4 of at least 5)"),
        (SLOWER[:4], (), 0, "It takes 5 rounds to decide anything."),
    ],
)
def test_verdicts_become_exit_codes(called, ratios, arguments, code, said):
    found, out, err, asked = called("HEAD", *arguments, ratios={KEY: ratios})
    assert found == code, out + err
    assert said in out
    assert [request.keys for request in asked] == [(KEY,)]
    assert "rounds: 1 test, 300 s at most; seed" in err
    assert "visiting" not in err  # nobody looks at a line that moves


def test_the_arguments_reach_the_rounds(called, monkeypatch):
    monkeypatch.setattr("pytest_stepprof.cli.ab_arguments.usable_cpus", lambda: None)  # so that cores are not tried
    words = ("--budget=2m", "--max-rounds=8", "--seed=5", "--cpus=0,2-3", "--whole-processes", "--timeout=30s")
    code, out, _, (asked,) = called("HEAD", *words, "--", "-k", "step", ratios={KEY: SAME})
    assert code == 0
    assert (asked.budget_s, asked.most_rounds, asked.seed, asked.limit_s) == (120.0, 8, 5, 30.0)
    assert (asked.cpus, asked.mode, asked.pytest_arguments) == ((0, 2, 3), "whole processes", ["-k", "step"])
    assert (asked.judges, asked.node_ids) == ({KEY: JudgeSettings()}, {KEY: KEY})
    assert "one whole process after the other" in out
    assert "pytest arguments: -k step" in out
    assert "ended because all is decided - seed 5" in out


def test_who_interrupts_the_rounds_gets_the_verdicts_of_those_that_are_done(called):
    code, out, err, _ = called("HEAD", ratios={KEY: SLOWER}, because=KeyboardInterrupt)
    assert (code, err.split()[-2:]) == (130, ["stepprof:", "interrupted"])
    assert "regressed (time)" in out
    assert "ended because it was interrupted" in out
    code, out, err, _ = called("HEAD", ratios={KEY: ()}, because=KeyboardInterrupt)
    assert (code, out, err.split()[-2:]) == (130, "", ["stepprof:", "interrupted"])


def test_tests_that_cannot_be_timed_cost_no_round(called):
    head = session(measured(start_state_digest="f" * 64))
    code, out, _, asked = called("HEAD", head=head)
    assert (code, asked) == (2, [])
    assert "started from other weights" in out
    assert "no test's times can be compared" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            {"failed": {"t.py": "ModuleNotFoundError: No module named 'x'"}},
            3,
            "head: t.py: ModuleNotFoundError: No",
        ),
        ({"skipped": {"t.py::a": "no GPU"}}, 2, "expected at least one test that uses the `stepprof` fixture"),
        ({"skipped": {"t.py::a": "no GPU"}}, 2, "Skipped: t.py::a (no GPU)."),
    ],
)
def test_a_head_that_measures_nothing_says_why(called, words, code, said):
    found, out, err, asked = called("HEAD", head=session(), **words)
    assert (found, out, asked) == (code, "", [])
    assert said in err


def test_failed_skipped_removed_renamed_and_new_tests_are_told(called):
    base = session(*(measured(f"t.py::{name}", step_source_digest=name * 64) for name in "abce"))
    head = session(
        *(measured(f"t.py::{name}", step_source_digest=name * 64) for name in "abd"),
        measured("u.py::c", step_source_digest="f" * 64),
    )
    code, out, _, (asked,) = called(
        "HEAD",
        base=base,
        head=head,
        failed={"t.py::b": "assert 1 == 2"},
        skipped={"t.py::e": "no GPU"},
        ratios={"t.py::a": SAME},
    )
    assert code == 3
    assert asked.keys == ("t.py::a",)
    assert "1 of 4 tests failed on head (1 not regressed, 2 no baseline)" in out
    assert "head: assert 1 == 2" in out
    assert "t.py::d: no baseline: new: only head has this test" in out
    assert "t.py::c: may be u.py::c now (the same name in another file)" in out
    assert "t.py::e: head skipped it (no GPU)" in out


def test_a_page_whose_rounds_could_call_no_slowdown_says_so_first(called):
    both = session(measured(KEY), measured("t.py::b"))
    ratios = {KEY: (1.2, 1.21, 1.19, 1.2, 1.205), "t.py::b": SAME}
    code, out, *_ = called("HEAD", "--budget=4s", base=both, head=both, ratios=ratios)
    assert code == 0
    lead = "HEAD 5 rounds were too few to call any slowdown: that takes 8, where 2 tests share a level of 1 %"
    assert f"{lead} (--budget 10s) test base head" in out
    assert "About 8 rounds would probably decide it, if they go on as these did (--budget 10s)." in out


def test_a_test_that_lost_a_parameter_set_is_hinted_at_as_no_test_that_is_still_there(called):
    def sized(size):
        one = measured(f"t.py::a[n={size}]")
        test = changed(one.test, node_id=f"t.py::a[{size}]", qualified_name="a", parameters=(("n", size),))
        return changed(one, test=test)

    base, head = session(sized("64"), sized("128")), session(sized("128"))
    _, out, *_ = called("HEAD", base=base, head=head, ratios={"t.py::a[n=128]": SAME})
    assert "t.py::a[64]: removed: head has not measured this test" in out
    _, out, *_ = called("HEAD", base=base, head=session(sized("128"), sized("96")), ratios={"t.py::a[n=128]": SAME})
    assert "t.py::a[64]: may be t.py::a[96] now (the same function with other parameters)" in out


def test_that_memory_is_kept_is_a_fact_unless_somebody_chose_otherwise(called, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")
    _, out, *_ = called("HEAD", ratios={KEY: SAME})
    assert "keeps its memory on both sides (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_)" in out
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    _, out, *_ = called("HEAD", ratios={KEY: SAME})
    assert "keeps its memory" not in out


def test_a_slowdown_that_may_only_warn_is_shown_and_is_no_failure(called):
    head = session(measured(judge=JudgeSettings(time="warn")))
    code, out, *_ = called("HEAD", head=head, ratios={KEY: SLOWER})
    assert (code, "Regressed, but no gate fails" in out) == (0, True), out


def test_verbose_shows_every_round_and_what_has_to_be_zero(called):
    brief, verbose = (called("HEAD", *words, ratios={KEY: SAME})[1] for words in ((), ("-v",)))
    assert "--- Rounds" not in brief
    assert "--- Rounds" in verbose
    assert re.search(r"t.py::a [+-]0\.0000 0\.0008 \+0.0010 -0\.0010 \+0.0000 \+0.0005 -0.0005", verbose)
    assert "What has to be zero" in verbose


def test_where_a_slowdown_went_is_named(called):
    window = measured().window
    slow = changed(window.operators[0], name="aten::matmul", self_cpu_ns=3_000_000, total_cpu_ns=3_000_000)
    head = session(measured(window=changed(window, operators=(*window.operators, slow))))
    _, out, *_ = called("HEAD", head=head, ratios={KEY: SLOWER})
    assert "where it went (a hint, no measure): aten::matmul: 0 -> 2 calls/step" in out


def test_json_markdown_and_save_hold_what_was_found(called, tmp_path):
    page, answer, kept = tmp_path / "page.md", tmp_path / "ab.json", tmp_path / "kept"
    words = (f"--markdown={page}", f"--json={answer}", f"--save={kept}")
    code, _, err, _ = called("HEAD", *words, ratios={KEY: SLOWER})
    assert code == 1, err
    assert "| `t.py::a` | 1.000 ms | 1.07 ms | **1.07x slower** |" in page.read_text()
    record = json.loads(answer.read_text())
    assert record["comparison"]["tests"][0]["verdict"] == "regressed"
    assert record["comparison"]["tests"][0]["time"]["rounds"] == 5
    assert len(record["rounds"][0]["tests"][0]["visits"]) == 8
    assert (kept / "ab.json").read_bytes() == answer.read_bytes()
    assert (kept / "check").is_dir()


def test_reports_come_from_the_same_writers_as_those_of_sessions(called, tmp_path, monkeypatch):
    names = {"html": "r.html", "json": "r.json", "action-benchmark": "b.json", "markdown": "r.md", "terminal": "r.txt"}
    words = [f"--report={name}:{tmp_path / file}" for name, file in names.items()]
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err, _ = called(
        "HEAD", *words, "--report=github", f"--json={tmp_path / 'ab.json'}", ratios={KEY: SLOWER}
    )
    assert code == 1, err
    assert "stepprof ab: 1 of 1 test regressed" in out
    assert "::error file=t.py," in out
    assert summary.read_text().startswith("<!-- pytest-stepprof: ab -->\n")
    assert "1.07x slower" in (tmp_path / "r.md").read_text()
    assert "--- Rounds" in (tmp_path / "r.txt").read_text()
    assert "<html" in (tmp_path / "r.html").read_text()
    assert [entry["unit"] for entry in json.loads((tmp_path / "b.json").read_text())] != []
    assert stored_record(tmp_path / "r.json") == stored_record(tmp_path / "ab.json")


def test_one_report_may_stand_on_standard_output(called):
    code, out, *_ = called("HEAD", "--report=markdown", ratios={KEY: SLOWER})
    assert (code, out.startswith("<!-- pytest-stepprof: ab --> ## stepprof ab: 1 of 1 test regressed")) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--report=json", "--report=markdown"], "expected one"),
        (["--report=html"], "expected a file for it"),
        (["--report=json:r-{session}.json"], "two commits are compared here"),
        (["--report=json:same", "--markdown=same"], "found same for --markdown and for --report json:same"),
        (["--report=json:readme"], "readme exists already"),
        (["--report=json:none/r.json"], "found no folder none"),
    ],
)
def test_reports_that_cannot_be_are_refused_before_anything_is_measured(called, words, said):
    code, out, err, asked = called("HEAD", *words, ratios={KEY: SLOWER})
    assert (code, out, asked) == (2, "", [])
    assert said in err


def test_a_page_that_cannot_be_written_in_the_end_does_not_lose_the_verdict(called, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    judged = ab_measured.judged_outcome

    def measured_outcome(arguments, found, record):
        page.write_text("somebody was faster")
        return judged(arguments, found, record)

    monkeypatch.setattr(ab_measured, "judged_outcome", measured_outcome)
    code, out, err, _ = called("HEAD", f"--markdown={page}", ratios={KEY: SAME})
    assert code == 2
    assert "not regressed" in out
    assert "page.md was not written" in err
    assert page.read_text() == "somebody was faster"


def test_a_fault_while_judging_does_not_lose_what_was_measured(called, tmp_path, monkeypatch):
    kept = tmp_path / "kept"

    def at_fault(*_):
        raise RuntimeError("a fault of ours")

    with monkeypatch.context() as broken:
        broken.setattr(ab_measured, "judged_outcome", at_fault)
        code, _, err, _ = called("HEAD", f"--save={kept}", ratios={KEY: SAME})
    assert code == 3
    assert "a fault of ours" in err
    assert f"judge it with --from {kept}" in err
    record = json.loads((kept / "ab.json").read_text())
    assert len(record["rounds"]) == len(SAME)
    assert (kept / "check").is_dir()


def test_one_commit_on_both_sides_is_said(called):
    _, out, *_ = called("HEAD", "--head=HEAD", ratios={KEY: SAME})
    assert "base and head are the same commit: unchanged code is compared with itself" in out
    assert "what differs between them was not run" not in out


def test_the_report_names_both_commits_and_what_base_has_moved_on_by(repository, called):
    fork = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "feature")
    head = repository.commit({"readme": "feature\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({"other": "main\n"})
    code, out, *_ = called("main", "--head=feature", ratios={KEY: SAME})
    assert code == 0
    assert f"base: main, commit {base} - head: feature, commit {head} - merge base: {fork}" in out
    assert f"`stepprof ab {fork[:12]}` leaves them out" in out
    assert "base and head imported the same Python files" in out


def test_without_a_base_the_merge_base_with_the_default_branch_is_taken(repository, called):
    fork = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "feature")
    repository.commit({"readme": "feature\n"})
    repository.write({"new": "not tracked\n"})
    code, out, *_ = called(ratios={KEY: SAME})
    assert code == 0
    assert f"base: {fork[:12]}, commit {fork}" in out
    assert "the working tree, on commit" in out
    assert "1 untracked file" in out
    assert f"base {fork[:12]}: " in out
