"""``stepprof compare``: verdicts become exit codes."""

import json

import msgspec
import pytest
import torch
from sample_records import sample_measurement, sample_session

from pytest_stepprof.cli.compare import exit_code
from pytest_stepprof.cli.main import main
from pytest_stepprof.measure.outputs.taking import take_outputs
from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.settings import JudgeSettings, PathTolerance
from pytest_stepprof.record.window import Counter
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
BASE, HEAD = "20240229T120000.000000Z-000000000001", "20240301T120000.000000Z-000000000002"


def measured(median_ns=2_000_000.0, copies=3, output=1.0, key="test_training.py::test_step[size=4]", **changes):
    """One measurement, with the payload of its outputs."""
    base = sample_measurement()
    taken = take_outputs({"logits": torch.full((2, 3), output)})
    counters = (Counter(name="calls of aten::copy_", unit="calls", per_step=(copies, copies), exact=True),)
    measurement = changed(
        base,
        test=changed(base.test, key=key, node_id=key),
        dispersion=changed(base.dispersion, median_ns=median_ns),
        window=changed(base.window, counters=counters),
        outputs=taken.stored,
        **changes,
    )
    return measurement, {taken.stored.payload_sha256: taken.payload}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def saved(store, session_id, *pairs, baseline=None, revision="a" * 40, **changes):
    session = sample_session(session_id=session_id, measurements=tuple(measurement for measurement, _ in pairs))
    session = changed(session, commit=changed(session.commit, revision=revision), **changes)
    store.save_session(session, {sha256: payload for _, payloads in pairs for sha256, payload in payloads.items()})
    if baseline is not None:
        store.append_to_baseline(baseline, session)


def compared(store, capsys, *arguments):
    code = main(["compare", *arguments, "--dir", str(store.directory)])
    return code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("head", "code", "said", "complaint"),
    [
        ({}, 0, " equal ", ""),
        ({"median_ns": 1_000_000.0 / 4}, 0, "improved", ""),
        ({"median_ns": 8_000_000.0}, 1, "2.00 ms/step before, 8.00 ms/step now, 4.00x slower", ""),
        ({"copies": 4}, 1, "aten::copy_ 3 -> 4 calls per step", ""),
        ({"output": 1.5}, 1, "6 of 6 elements differ", ""),
        ({"start_state_digest": "f" * 64}, 2, "started from other weights", "nothing was compared: no test could"),
        ({"key": "t.py::new"}, 2, "new test", "nothing was compared: no test could"),
    ],
    ids=["unchanged", "faster", "slower", "another copy", "another result", "other weights", "another test"],
)
def test_exit_code_and_reason(store, capsys, head, code, said, complaint):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(**head))
    found, out, err = compared(store, capsys, "main")
    assert (found, bool(err)) == (code, bool(complaint))
    assert complaint in err
    assert said in " ".join(out.split())


def test_the_newest_baseline_session_with_the_test_counts(store, capsys):
    saved(store, BASE, measured(output=1.0), measured(output=1.0, key="t.py::old"), baseline="main")
    saved(store, "20240229T130000.000000Z-000000000003", measured(output=1.5), baseline="main")
    saved(store, HEAD, measured(output=1.5), measured(output=1.0, key="t.py::old"))
    code, out, _ = compared(store, capsys, "main")
    assert code == 0
    assert out.count(" equal ") == 2


def test_a_session_by_name(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(copies=9))
    saved(store, "20240302T120000.000000Z-000000000003", measured())
    assert compared(store, capsys, "main", HEAD)[0] == 1
    assert compared(store, capsys, "main")[0] == 0


def test_a_session_is_not_compared_with_itself(store, capsys):
    saved(store, BASE, measured(copies=9), baseline="main")
    saved(store, HEAD, measured(copies=10), baseline="main")
    code, out, _ = compared(store, capsys, "main")
    assert (code, "aten::copy_ 9 -> 10 calls per step" in out) == (1, True)
    assert compared(store, capsys, "main", BASE)[0] == 0


def test_a_baseline_that_holds_only_the_session_itself_says_so(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    code, out, err = compared(store, capsys, "main")
    assert (code, out) == (2, "")
    assert f"found only session {BASE} itself in the baseline 'main'" in err


@pytest.mark.parametrize(
    ("head", "judge", "arguments", "code"),
    [
        ({"median_ns": 8_000_000.0}, {"tolerance": 5.0, "limit": 9.0}, (), 0),
        ({"median_ns": 8_000_000.0}, {"tolerance": 5.0, "limit": 9.0}, ("--tolerance", "0.01"), 1),
        ({"output": 1.5}, {"atol": 0.6}, (), 0),
        ({"output": 1.5}, {"atol": 0.6}, ("--atol", "0.4"), 1),
        ({"output": 1.5}, {"tolerances": (PathTolerance(pattern="['logits']", rtol=0.6),)}, (), 0),
        ({"output": 1.5}, {"tolerances": (PathTolerance(pattern="['loss']", rtol=0.6),)}, (), 1),
        ({"output": 1.5}, {"tolerances": (PathTolerance(pattern="*", atol=0.6),)}, ("--atol", "0.4"), 0),
        ({"output": 1.5}, {"outputs": "warn"}, (), 0),
        ({"copies": 4}, {"counters": "warn"}, (), 0),
        ({"median_ns": 8_000_000.0}, {"time": "warn"}, (), 0),
        ({"median_ns": 8_000_000.0}, {"counters": "off"}, (), 1),
    ],
)
def test_a_test_is_judged_as_it_was_measured_unless_an_option_is_given(store, capsys, head, judge, arguments, code):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(judge=JudgeSettings(**judge), **head))
    found, out, _ = compared(store, capsys, "main", *arguments)
    assert found == code, out


def test_the_stored_tolerance_for_a_path_is_said(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    judge = JudgeSettings(tolerances=(PathTolerance(pattern="['log*']", rtol=0.6),))
    saved(store, HEAD, measured(output=1.5, judge=judge))
    out = " ".join(compared(store, capsys, "main")[1].split())
    assert "outputs: 1 leaf equal: 1 within rtol 0.6, atol 1e-05 (" in out
    assert "['log*']" in out


@pytest.mark.parametrize(("value", "code", "word"), [(0.895, 0, "quality kept"), (0.5, 1, "quality lost")])
def test_quality_decides_in_place_of_equal_outputs(store, capsys, value, code, word):
    before, now = (QualityValue(name="accuracy", value=one, margin=0.01, better="higher") for one in (0.9, value))
    saved(store, BASE, measured(quality=(before,)), baseline="main")
    saved(store, HEAD, measured(output=1.5, quality=(now,)))
    found, out, _ = compared(store, capsys, "main")
    assert (found, word in out) == (code, True)
    assert f"quality: accuracy: 0.9 before, {value} now" in out


def test_two_tests_share_the_level(store, capsys):
    saved(store, BASE, measured(), measured(key="t.py::b"), baseline="main")
    saved(store, HEAD, measured(), measured(key="t.py::b"), measured(key="t.py::c"))
    assert "2 tests share the error level" in " ".join(compared(store, capsys, "main")[1].split())


def test_an_unknown_baseline_is_reported_and_the_closest_names_are_told_first(store, capsys):
    saved(store, BASE, measured(), baseline="release")
    saved(store, "20240229T130000.000000Z-000000000003", measured(), baseline="a")
    saved(store, HEAD, measured())
    for strict in ((), ("--strict",)):
        code, out, err = compared(store, capsys, "relaese", *strict)
        assert code == 2
        assert "Nothing was compared: there is no baseline 'relaese'" in out
        assert "found no baseline 'relaese'" in err
        assert "there are: release, a." in err


def test_a_baseline_of_which_nothing_can_be_read_is_an_error(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured())
    (store.directory / "sessions" / f"{BASE}.json").write_text("{")
    code, out, err = compared(store, capsys, "main")
    assert (code, out) == (2, "")
    assert "no session of the baseline 'main' can be read" in err
    assert f"{BASE}.json" in err


SHARD = "20240301T130000.000000Z-000000000004"


def test_sessions_of_one_commit_with_different_tests_are_compared_as_one(store, capsys):
    saved(store, BASE, measured(), measured(key="t.py::b"), measured(key="t.py::c"), baseline="main")
    saved(store, HEAD, measured())
    saved(store, SHARD, measured(key="t.py::b", copies=4))
    code, out, err = compared(store, capsys, "main", HEAD, SHARD, HEAD)
    assert (code, err) == (1, "")
    said = " ".join(out.split())
    assert "aten::copy_ 3 -> 4 calls per step" in said
    assert "2 tests share the error level" in said
    assert "t.py::c" in said
    assert compared(store, capsys, "main", SHARD)[0] == 1
    assert compared(store, capsys, "main", HEAD)[0] == 0
    code, _, err = compared(store, capsys, "main", HEAD, "--strict")
    assert code == 1  # t.py::b and t.py::c are missing
    assert "strict: no gate failed, but a test is not judged, new or missing" in err


@pytest.mark.parametrize(
    ("key", "revision", "said"),
    [
        ("test_training.py::test_step[size=4]", "a" * 40, "both hold test_training.py::test_step[size=4]"),
        ("t.py::b", "b" * 40, "expected sessions of one commit"),
    ],
)
def test_sessions_that_are_no_parts_of_one_are_refused(store, capsys, key, revision, said):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured())
    saved(store, SHARD, measured(key=key), revision=revision)
    code, out, err = compared(store, capsys, "main", HEAD, SHARD)
    assert (code, out) == (2, "")
    assert said in err


def test_what_pytest_did_not_select_is_not_missing_as_long_as_the_baseline_is_the_same(store, capsys):
    saved(store, BASE, measured(), measured(key="t.py::b"), measured(key="t.py::c"), baseline="main")
    then = Comparison(
        baseline="main",
        baseline_sessions=(BASE,),
        tests_sharing_level=1,
        tests=(),
        missing=("t.py::c",),
        not_selected=1,
    )
    saved(store, HEAD, measured(), comparison=then)
    out = " ".join(compared(store, capsys, "main")[1].split())
    assert "t.py::c" in out
    assert "t.py::b" not in out
    assert "in the baseline and not selected here: 1 test" in out
    saved(store, SHARD, measured(key="t.py::d"), baseline="main")
    assert "t.py::b" in compared(store, capsys, "main", HEAD)[1]


def test_a_session_that_was_never_stored_is_not_compared(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    one, _ = measured()
    journal = store.journal(sample_session(session_id=HEAD, measurements=()))
    journal.add(one)
    journal.close()
    code, out, err = compared(store, capsys, "main", HEAD)
    assert (code, out) == (2, "")
    assert f"session {HEAD} was never stored" in err


@pytest.mark.parametrize(
    ("head", "rules", "code", "said"),
    [
        ({"median_ns": 2_400_000.0}, ("time:25%",), 0, "fixed rule time:25%"),
        ({"median_ns": 2_600_000.0}, ("time:25%",), 1, "fixed rule time:25%"),
        ({"median_ns": 2_600_000.0}, ("time:25%", "time:10%+0.5ms"), 0, "fixed rule time:10%+0.5ms"),
        ({"copies": 4}, ("time:25%",), 0, "aten::copy_ 3 -> 4 calls per step"),
        ({"copies": 4}, ("counters",), 1, "aten::copy_ 3 -> 4 calls per step"),
    ],
)
def test_a_rule_of_ones_own_decides_its_gate_and_leaves_the_others(store, capsys, head, rules, code, said):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(judge=JudgeSettings(counters="warn"), quiet_ns=None, **head))
    found, out, _ = compared(store, capsys, "main", *(f"--fail-on={rule}" for rule in rules))
    assert found == code, out
    assert said in " ".join(out.split())


def test_what_is_no_rule_leaves_with_2(store, capsys):
    with pytest.raises(SystemExit) as left:
        compared(store, capsys, "main", "--fail-on=time:soon")
    assert left.value.code == 2
    assert "found 'time:soon', expected time:25%" in capsys.readouterr().err


def test_all_sessions_of_a_baseline_are_behind_the_verdict_of_time(store, capsys):
    for number, median_ns in enumerate((1_900_000.0, 2_000_000.0, 2_100_000.0)):
        saved(store, f"20240229T1{number}0000.000000Z-00000000000{number}", measured(median_ns), baseline="main")
    saved(store, HEAD, measured())
    report = store.directory / "report.json"
    code, *_ = compared(store, capsys, "main", f"--report=json:{report}")
    (test,) = json.loads(report.read_text())["comparison"]["tests"]
    assert (code, test["time"]["baseline_medians_ns"]) == (0, [1_900_000.0, 2_000_000.0, 2_100_000.0])


def test_a_missing_payload_is_an_error_of_its_test_and_the_others_are_judged(store, capsys):
    both = measured(key="a"), measured(output=2.0, key="b")
    saved(store, BASE, *both, baseline="main")
    saved(store, HEAD, *both)
    (sha256,) = both[1][1]
    next((store.directory / "payloads").glob(f"{sha256}*")).unlink()
    code, out, _ = compared(store, capsys, "main")
    assert code == 3
    assert "the stored outputs" in out
    assert "2 tests: 1 error" in out or "1 of 2 tests failed" in out
    assert " inconclusive " in out


def judged_then(baseline="main", tests=(), sharing=1):
    """What a session stored about the comparison that was made when it was measured."""
    return Comparison(
        baseline=baseline, baseline_sessions=(BASE,), tests_sharing_level=sharing, tests=tests, missing=()
    )


def broke(key):
    reasons = (Reason(gate="conditions", weight="decides", text="The test failed after its step was measured."),)
    return TestComparison(
        key=key, node_id=key, verdict="error", reasons=reasons, outputs=None, counters=(), time=None, failed_gates=()
    )


@pytest.mark.parametrize("was_measured", [True, False], ids=["after", "before"])
def test_a_test_that_broke_when_it_was_measured_is_no_pass_later(store, capsys, was_measured):
    saved(store, BASE, measured(key="a"), measured(key="b"), baseline="main")
    there = (measured(key="a"), measured(key="b")) if was_measured else (measured(key="b"),)
    saved(store, HEAD, *there, comparison=judged_then(tests=(broke("a"),)), status="failed")
    code, out, _ = compared(store, capsys, "main")
    assert code == 3
    assert "The test failed after its step was measured." in out
    assert "missing" not in out


def test_a_session_that_failed_without_a_baseline_is_no_pass_because_nobody_knows_what_broke(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(), status="failed")
    code, _, err = compared(store, capsys, "main")
    assert code == 3
    assert "failed when it was measured, and which test failed is not stored" in err


def test_an_interrupted_session_is_no_pass(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(), status="interrupted")
    code, _, err = compared(store, capsys, "main")
    assert code == 3
    assert "was interrupted: what it did not reach is not compared" in err


@pytest.mark.parametrize(("baseline", "sharing"), [("main", 7), ("other", 1)])
def test_the_level_is_shared_as_it_was_when_the_tests_were_selected(store, capsys, baseline, sharing):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(), comparison=judged_then(baseline=baseline, sharing=7))
    _, out, _ = compared(store, capsys, "main", "--report", "json")
    assert json.loads(out)["comparison"]["tests_sharing_level"] == sharing


def test_an_older_session_does_not_stand_in_for_a_newest_one_that_cannot_be_read(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured())
    newest = HEAD.replace("20240301", "20240302")
    (store.directory / "sessions" / f"{newest}.json").write_text("", encoding="utf-8")
    code, _, err = compared(store, capsys, "main")
    assert code == 2
    assert "Or name the session to compare" in err
    assert compared(store, capsys, "main", HEAD)[0] == 0


def test_a_tolerance_accepts_another_result(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(output=1.5))
    assert compared(store, capsys, "main", "--rtol", "0", "--atol", "0.6")[0] == 0
    assert compared(store, capsys, "main", "--rtol", "0", "--atol", "0.4")[0] == 1


@pytest.mark.parametrize(("option", "enough", "too_little"), [("--rtol", "0.5", "0.4"), ("--atol", "0.5", "0.4")])
def test_one_tolerance_alone_leaves_the_other_to_the_dtype(store, capsys, option, enough, too_little):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(output=1.5))
    assert compared(store, capsys, "main", option, enough)[0] == 0
    code, out, _ = compared(store, capsys, "main", option, too_little)
    other = "atol 1e-05" if option == "--rtol" else "rtol 1.3e-06"
    assert (code, other in " ".join(out.split())) == (1, True)


@pytest.mark.parametrize("arguments", [("--level", "0.5"), ("--level", "x"), ("--tolerance", "-1"), ("--limit", "inf")])
def test_numbers_that_make_no_sense(store, capsys, arguments):
    with pytest.raises(SystemExit) as left:
        compared(store, capsys, "main", *arguments)
    assert left.value.code == 2


def test_a_larger_tolerance_forgives(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(median_ns=8_000_000.0))
    assert compared(store, capsys, "main", "--tolerance", "5", "--limit", "9")[0] == 0


def test_markdown(store, capsys):
    saved(store, BASE, measured(), baseline="main")
    saved(store, HEAD, measured(copies=4))
    code, out, _ = compared(store, capsys, "main", "--markdown")
    assert code == 1
    assert out.startswith("<!-- pytest-stepprof: main -->\n")
    assert "| `test_training.py::test_step[size=4]` | **regressed** |" in out


def judged(*tests, missing=()):
    comparisons = tuple(
        TestComparison(
            key=str(number),
            node_id=str(number),
            verdict=verdict,
            reasons=(),
            outputs=None,
            counters=(),
            time=None,
            failed_gates=failed,
        )
        for number, (verdict, failed) in enumerate(tests)
    )
    return Comparison(baseline="b", baseline_sessions=(), tests_sharing_level=1, tests=comparisons, missing=missing)


@pytest.mark.parametrize(
    ("comparison", "code", "strict_code"),
    [
        (judged(("not regressed", ())), 0, 0),
        (judged(("improved", ()), ("no baseline", ())), 0, 1),
        (judged(("improved", ()), ("inconclusive", ())), 0, 1),
        (judged(("improved", ()), ("not comparable", ())), 0, 1),
        (judged(("improved", ()), missing=("gone",)), 0, 1),
        (judged(("not regressed", ()), ("regressed", ("time",))), 1, 1),
        (judged(("regressed", ())), 0, 0),
        (judged(("not comparable", ("counters",))), 1, 1),
        (judged(("error", ()), ("not regressed", ())), 3, 3),
        (judged(("error", ()), ("regressed", ("time",))), 1, 1),
        (judged(("no baseline", ()), ("not comparable", ())), 2, 2),
        (judged(), 2, 2),
        (judged(missing=("gone",)), 2, 2),
    ],
)
def test_exit_codes(comparison, code, strict_code):
    assert exit_code(comparison, strict=False) == code
    assert exit_code(comparison, strict=True) == strict_code
