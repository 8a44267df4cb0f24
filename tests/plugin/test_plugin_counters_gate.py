"""The counters gate: more work fails a test, whatever the noise."""

import json

import pytest

import pytest_stepprof.plugin.verdicts
from pytest_stepprof.cli.main import main

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        weight = torch.ones(4, 4)
        place = torch.zeros(4, 4)

        def step():
            place.copy_(weight)
            result = place + weight
            {more}
            return result

        stepprof(step)
"""


def step(more: str = "pass", mark: str = "") -> str:
    return STEP.format(more=more, mark=mark)


@pytest.fixture
def saved(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    return project


def test_twice_the_operators_fail_the_test(saved):
    saved.write(test_it=step("place + weight; place + weight; place + weight"))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["stepprof: regressed (counters) against baseline 'main'", "counters:", "  operator calls 2 -> 5 per step"]
    )
    assert "save a new baseline with --stepprof-save=NAME" in saved.text(result)
    assert "outputs differ" not in saved.text(result)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("torch.empty(4, 4).copy_(weight)", "aten::copy_ 1 -> 2 calls per step"),
        ("result = result.clone()", "aten::clone 0 -> 1 calls per step"),
        ("result = result.clone()", "aten::copy_ 1 -> 2 calls per step"),
    ],
    ids=["copy", "clone", "the copy inside a clone"],
)
def test_one_more_copy_per_step_is_named(saved, more, told):
    saved.write(test_it=step(more))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"  {told}"])


def test_fewer_operators_pass(project):
    project.write(test_it=step("place + weight"))
    project.measure("--stepprof-save=main")
    project.write(test_it=step())

    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(("mode", "told"), [("warn", True), ("off", False)], ids=["warn tells", "off does not compare"])
def test_counters_may_warn_or_be_off(saved, mode, told):
    saved.write(test_it=step("result = result.clone()"))

    result = saved.measure("--stepprof-baseline=main", f"--stepprof-counters={mode}")

    assert result.ret == pytest.ExitCode.OK
    assert ("aten::copy_ 1 -> 2 calls per step" in saved.text(result)) == told


def test_the_fail_rule_of_the_marker_wins_over_the_command_line(saved):
    saved.write(test_it=step("result = result.clone()", mark='@pytest.mark.stepprof(counters="off")'))
    assert saved.measure("--stepprof-baseline=main", "--stepprof-counters=fail").ret == pytest.ExitCode.OK

    saved.write(test_it=step("result = result.clone()", mark='@pytest.mark.stepprof(counters="fail")'))
    assert saved.measure("--stepprof-baseline=main", "--stepprof-counters=off").ret == pytest.ExitCode.TESTS_FAILED


def test_the_fail_rule_of_the_command_line_wins_over_ini(saved):
    saved.write(test_it=step("result = result.clone()"))

    assert saved.measure("--stepprof-baseline=main", ini="stepprof_counters = off\n").ret == pytest.ExitCode.OK
    result = saved.measure("--stepprof-baseline=main", "--stepprof-counters=fail", ini="stepprof_counters = off\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


COPIES_ALLOWED = "*copy*=off, copies=off, aten::clone=off, aten::empty*=off, operator calls=off"


@pytest.mark.parametrize(
    ("rules", "code", "told", "not_told"),
    [
        ("copies=warn", 1, ["Changed, which only warns: copies 1 -> 3 per step"], []),
        (COPIES_ALLOWED, 0, [], ["copies 1 -> 3", "aten::copy_ 1 -> 2", "operator calls 2 ->"]),
        (f"{COPIES_ALLOWED}, aten::copy_=fail", 1, ["aten::copy_ 1 -> 2 calls per step"], ["copies 1 -> 3"]),
        ("*=off", 0, [], ["per step"]),
        ("*=warn", 0, ["Changed, which only warns: ", "copies 1 -> 3 per step"], ["The mix of work changed"]),
        ("*=off, *=fail", 1, ["aten::clone 0 -> 1 calls per step"], []),
        ("atten::copy_=off", 1, ["The counter rule 'atten::copy_' names no counter of either side"], []),
    ],
)
def test_rules_say_what_growth_of_a_counter_does(saved, rules, code, told, not_told):
    saved.write(test_it=step("result = result.clone()"))

    result = saved.measure("--stepprof-baseline=main", f"--stepprof-counter-rules={rules}")

    assert result.ret == code
    text = saved.text(result).partition("profiled: shares")[0]
    assert not [words for words in told if words not in text]
    assert not [words for words in not_told if words in text]


def test_what_a_rule_leaves_out_stays_in_the_record(saved):
    saved.write(test_it=step("result = result.clone()"))
    saved.measure("--stepprof-baseline=main", "--stepprof-counter-rules=*=off")

    [test] = saved.sessions[-1]["comparison"]["tests"]
    changes = {change["name"]: (change["before"], change["after"], change["gated"]) for change in test["counters"]}
    assert changes["copies"] == (1, 3, False)
    assert [reason["gate"] for reason in test["reasons"]] == ["time"]


def test_a_rule_of_the_marker_gates_what_is_not_gated_by_itself(saved):
    more = "torch.mul(weight, weight)"
    fewer = "--stepprof-counter-rules=operator calls=off"
    saved.write(test_it=step(more))
    result = saved.measure("--stepprof-baseline=main", fewer)
    assert result.ret == pytest.ExitCode.OK
    assert "The mix of work changed, which fails nothing: aten::mul 0 -> 1 calls per step" in saved.text(result)

    saved.write(test_it=step(more, mark='@pytest.mark.stepprof(counter_rules={"aten::mul": "fail"})'))
    result = saved.measure("--stepprof-baseline=main", fewer)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  aten::mul 0 -> 1 calls per step"])


def test_the_gates_mode_stands_above_the_rules(saved):
    saved.write(test_it=step("result = result.clone()"))
    result = saved.measure(
        "--stepprof-baseline=main", "--stepprof-counters=warn", "--stepprof-counter-rules=copies=fail"
    )
    assert result.ret == pytest.ExitCode.OK
    assert "copies 1 -> 3 per step" in saved.text(result)


def test_stepprof_compare_judges_by_the_rules_of_the_test(saved):
    saved.write(test_it=step("result = result.clone()", mark='@pytest.mark.stepprof(counter_rules={"*": "off"})'))
    saved.measure("--stepprof-save=other")
    assert main(["compare", "main", "--dir", str(saved.store)]) == 0


def without_time_in_operators(project):
    """Rewrite the stored sessions as if no operator had taken any time, so that each has become slower since."""
    for path in project.session_files:
        record = json.loads(path.read_text(encoding="utf-8"))
        for measurement in record["measurements"]:
            for operator in measurement["window"]["operators"]:
                operator["self_cpu_ns"] = 0
        path.write_text(json.dumps(record), encoding="utf-8")


def test_a_test_that_fails_by_its_counters_says_where_it_went(saved):
    without_time_in_operators(saved)
    saved.write(test_it=step("result = result.clone()"))

    result = saved.measure("--stepprof-baseline=main")

    assert saved.in_order(result, "counters:", "where it went (a hint, no measure):", " calls/step, self CPU 0.000 -> ")


def test_stepprof_compare_says_where_it_went(saved, capsys):
    without_time_in_operators(saved)
    saved.write(test_it=step("result = result.clone()"))
    saved.measure("--stepprof-baseline=main")
    capsys.readouterr()

    assert main(["compare", "main", "--dir", str(saved.store)]) == 1
    assert "where it went (a hint, no measure):" in capsys.readouterr().out


def test_the_window_of_the_newest_session_is_what_it_is_compared_with(saved, monkeypatch):
    """The oldest session of the baseline had no clone, the newest has two, and this one has three."""
    for clones in (2, 3):
        saved.write(test_it=step(f"result = result{'.clone()' * clones}"))
        if clones == 2:
            saved.measure("--stepprof-save=main")

    def clones_of(window):
        return next(operator.calls for operator in window.operators if operator.name == "aten::clone")

    compared = []
    monkeypatch.setattr(
        pytest_stepprof.plugin.verdicts,
        "where_lines",
        lambda comparison, before, after: compared.append((clones_of(before), clones_of(after))) or (),
    )
    saved.measure("--stepprof-baseline=main")
    assert compared == [((2,), (3,))]


def test_a_changed_result_alone_does_not_ask_where_anything_went(saved):
    saved.write(test_it=step().replace("place + weight", "place - weight"))

    result = saved.measure("--stepprof-baseline=main", "--stepprof-counters=off")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "where it went" not in saved.text(result)


READING = """
    import torch

    class Batches:
        def __len__(self):
            return 8

        def __getitem__(self, number):
            {read}
            return torch.ones(4) * number

    def test_step(stepprof):
        loader = torch.utils.data.DataLoader(Batches(), batch_size=2)
        stepprof(lambda batch: batch + 1, batches=loader, includes_read={includes_read})
"""


@pytest.mark.parametrize("includes_read", [False, True])
def test_reading_is_counted_only_where_it_belongs_to_the_step(project, includes_read):
    project.write(test_it=READING.format(read="pass", includes_read=includes_read))
    project.measure("--stepprof-save=main")
    project.write(test_it=READING.format(read="torch.ones(4).clone()", includes_read=includes_read))

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == (pytest.ExitCode.TESTS_FAILED if includes_read else pytest.ExitCode.OK)
    assert ("aten::clone 0 -> 2 calls per step" in project.text(result)) is includes_read
