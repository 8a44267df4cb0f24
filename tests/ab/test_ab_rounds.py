"""Rounds: what is drawn, which tests are in the next one, and when there are no more."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.ab import rounds as rounds_module
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.rounds import RoundPlan, RoundsRequest, draw_rounds, run_rounds
from pytest_stepprof.record.lockstep import LockstepRound, TestRound, VisitPlan
from pytest_stepprof.record.settings import JudgeSettings

changed = msgspec.structs.replace


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_of_every_two_rounds_base_is_first_in_one(count, seed):
    plans = draw_rounds(count, seed, cpus=(0, 1, 4))
    assert [plan.number for plan in plans] == list(range(1, count + 1))
    firsts = [plan.base_first for plan in plans]
    assert all(first != second for first, second in zip(firsts[::2], firsts[1::2], strict=False))
    assert all(1 <= plan.hash_seed < 2**32 and 0 <= plan.seed < 2**32 for plan in plans)
    assert all(sorted(plan.cpus) == [0, 1, 4] for plan in plans)
    assert plans == draw_rounds(count, seed, cpus=(0, 1, 4)) == draw_rounds(count + 3, seed, cpus=(0, 1, 4))[:count]


def test_everything_is_drawn():
    plans = [draw_rounds(2, seed, cpus=(0, 1)) for seed in range(20)]
    assert {plan[0].base_first for plan in plans} == {True, False}
    assert {plan[0].cpus for plan in plans} == {(0, 1), (1, 0)}
    for seeds in ("seed", "hash_seed"):
        assert len({getattr(plan, seeds) for both in plans for plan in both}) == 40


@pytest.fixture
def request_for(tmp_path):
    sides = {name: Side(name=name, checkout=tmp_path / name, start=tmp_path / name) for name in ("base", "head")}
    checkouts = Checkouts(original=tmp_path / "original", laid_over=(), remarks=(), **sides)

    def make(keys=("a", "b"), **changes):
        given = {"budget_s": 1000.0, "most_rounds": 15, "seed": 3, "limit_s": 9.0} | changes
        return RoundsRequest(
            checkouts=checkouts,
            pytest_arguments=("-x",),
            folder=tmp_path / "rounds",
            keys=keys,
            judges=dict.fromkeys(keys, JudgeSettings()),
            **given,
        )

    return make


def value(key, log_ratio=0.0):
    return TestRound(key=key, node_id=f"node {key}", base_median_ns=1e6, head_median_ns=1e6 * math.exp(log_ratio))


def problem(key, why, side, outcome="failed"):
    return TestRound(key=key, node_id=f"node {key}", problem=why, problem_side=side, problem_outcome=outcome)


class Rounds:
    """Rounds that were not run: each takes ``duration_s`` of a clock of its own. ``said`` gives a test's record."""

    def __init__(self, said=lambda key, number: value(key), duration_s=10.0, remarks=()):
        self.said, self.duration_s, self.remarks = said, duration_s, remarks
        self.now_s = 100.0
        self.asked: list[tuple[str, ...]] = []
        self.plans: list[RoundPlan] = []
        self.requests: list[RoundsRequest] = []
        self.lines: list[str] = []
        self.lives: list[str] = []

    def __call__(self, request, plan, keys, live):
        live("something")
        self.requests.append(request)
        self.plans.append(plan)
        self.asked.append(tuple(keys))
        self.now_s += self.duration_s
        return LockstepRound(
            number=plan.number,
            hash_seed=plan.hash_seed,
            seed=plan.seed,
            base_first=plan.base_first,
            started_at_unix_ns=1,
            duration_s=self.duration_s,
            cpus=None,
            tests=tuple(self.said(key, plan.number) for key in keys),
            remarks=self.remarks,
        )

    def run(self, request):
        return run_rounds(
            request, tell=self.lines.append, live=self.lives.append, one_round=self, clock_s=lambda: self.now_s
        )


def noisy(key, number):
    """So much noise that nothing is decided."""
    return value(key, 0.3 * (-1) ** number)


def test_a_test_that_is_decided_leaves_and_when_all_are_the_rounds_end(request_for):
    rounds = Rounds(lambda key, number: value(key, 0.001 * number) if key == "a" else noisy(key, number))
    found = rounds.run(request_for())
    assert rounds.asked == [("a", "b")] * 5 + [("b",)] * 10
    assert found.stopped_because == "15 rounds are done (--max-rounds)"
    assert [done.number for done in found.rounds] == list(range(1, 16))

    rounds = Rounds()
    assert rounds.run(request_for()).stopped_because == "every test is decided"
    assert len(rounds.asked) == 5


def test_the_first_rounds_alone_decide_nothing(request_for):
    rounds = Rounds()
    found = rounds.run(request_for(most_rounds=4))
    assert (len(found.rounds), found.stopped_because) == (4, "4 rounds are done (--max-rounds)")


def test_the_plans_are_those_that_the_seed_draws(request_for, monkeypatch):
    monkeypatch.setattr(rounds_module, "usable_cpus", lambda: (0, 7))
    rounds = Rounds()
    rounds.run(request_for(seed=11))
    assert rounds.plans == list(draw_rounds(15, 11, (0, 7))[:5])
    rounds = Rounds()
    rounds.run(request_for(seed=11, cpus=(2, 3)))
    assert rounds.plans == list(draw_rounds(15, 11, (2, 3))[:5])
    monkeypatch.setattr(rounds_module, "usable_cpus", lambda: None)
    rounds = Rounds()
    rounds.run(request_for(seed=11))
    assert {plan.cpus for plan in rounds.plans} == {()}


@pytest.mark.parametrize(
    ("budget_s", "rounds_done", "left"),
    [(1.0, 1, "0 s were left"), (10.0, 1, "0 s were left"), (29.9, 2, "10 s were left"), (30.0, 3, "0 s were left")],
)
def test_a_round_that_would_not_fit_into_the_budget_is_not_begun(request_for, budget_s, rounds_done, left):
    found = Rounds(noisy).run(request_for(budget_s=budget_s))
    assert len(found.rounds) == rounds_done
    assert f"the budget of {budget_s:g} s is spent: another round takes about 10 s, {left}" in found.stopped_because
    assert "--budget" in found.stopped_because


def test_a_round_with_fewer_tests_is_expected_to_be_shorter(request_for):
    """Whole processes: 10 s for two tests, so 7.5 s for one, if half of it was for starting."""
    rounds = Rounds(lambda key, number: value(key) if key == "a" else noisy(key, number))
    assert len(rounds.run(request_for(budget_s=57.0)).rounds) == 5
    rounds = Rounds(lambda key, number: value(key) if key == "a" else noisy(key, number))
    found = rounds.run(request_for(budget_s=58.0))
    assert rounds.asked[5:] == [("b",)]
    assert len(found.rounds) == 6


def test_what_fails_on_head_leaves_and_what_fails_on_base_has_a_second_try(request_for):
    def said(key, number):
        failing = {"a": "head", "b": "base"}
        if key in failing and number >= 2:
            return problem(key, f"{failing[key]} failed it: no", failing[key])
        return noisy(key, number)

    rounds = Rounds(said)
    rounds.run(request_for(keys=("a", "b", "c"), most_rounds=4))
    assert rounds.asked == [("a", "b", "c"), ("a", "b", "c"), ("b", "c"), ("c",)]
    assert rounds.lines == [
        "round 1 of at most 4: 10.0 s, 3 of 3 tests measured",
        "round 2 of at most 4: 10.0 s, 1 of 3 tests measured",
        "node a: head failed it: no",
        "node b: base failed it: no",
        "round 3 of at most 4: 10.0 s, 1 of 2 tests measured",
        "node b: base failed it: no",
        "round 4 of at most 4: 10.0 s, 1 of 1 tests measured",
    ]


def test_a_test_that_fails_once_on_base_may_stay(request_for):
    rounds = Rounds(lambda key, number: problem(key, "flaky", "base") if number == 2 else value(key))
    found = rounds.run(request_for(keys=("a",)))
    assert len(found.rounds) == 6, "five rounds have a value"


def test_a_test_that_takes_a_process_with_it_leaves_at_once_and_the_others_stay(request_for):
    why = "base's process was ended because it did nothing for 9 s (--timeout gives more)"

    def said(key, number):
        if number == 1:
            return problem(key, why, "base" if key == "a" else None, "process")
        return value(key)

    rounds = Rounds(said)
    rounds.remarks = (why,)
    found = rounds.run(request_for())
    assert rounds.asked == [("a", "b")] + [("b",)] * 5
    assert found.stopped_because == "every test is decided, or failed (1 of 2)"
    assert rounds.lines.count(why) == 1


def test_nothing_goes_on_when_two_rounds_in_a_row_fail_as_a_whole(request_for):
    rounds = Rounds(lambda key, number: problem(key, "head's process ended (exit status 3)", None))
    rounds.remarks = ("head's process ended (exit status 3)",)
    found = rounds.run(request_for())
    assert rounds.asked == [("a", "b")] * 2
    assert found.stopped_because == "2 rounds in a row failed as a whole: head's process ended (exit status 3)"
    assert rounds.lines.count("head's process ended (exit status 3)") == 1


def test_one_round_that_fails_as_a_whole_is_tried_again(request_for):
    rounds = Rounds(lambda key, number: problem(key, "died", None) if number == 1 else value(key))
    assert len(rounds.run(request_for()).rounds) == 6


def test_when_every_test_fails_there_is_no_further_round(request_for):
    found = Rounds(lambda key, number: problem(key, "no", "head")).run(request_for())
    assert (len(found.rounds), found.stopped_because) == (1, "every test is decided, or failed (2 of 2)")


def test_the_level_is_shared_by_all_tests_that_began(request_for, monkeypatch):
    asked = []

    def decide(tests, *, shared_by, ended, looks):
        asked.append((sorted(tests), shared_by, ended, looks))
        return {}

    monkeypatch.setattr("pytest_stepprof.analysis.round_times.decide", decide)
    rounds = Rounds(lambda key, number: problem(key, "no", "head") if key == "a" else value(key))
    rounds.run(request_for(most_rounds=3))
    assert asked[0] == (["b"], 2, False, (5,))


def test_rounds_know_node_ids_and_have_a_guardian_and_live_lines_say_which_round(request_for):
    rounds = Rounds()
    rounds.run(request_for(node_ids={"a": "given"}))
    assert [request.node_ids for request in rounds.requests[:2]] == [
        {"a": "given"},
        {"a": "given", "b": "node b"},
    ]
    assert all(request.guardian is not None for request in rounds.requests)
    assert rounds.lives[:2] == ["round 1 of at most 15: something", "round 2 of at most 15: something"]


@pytest.mark.parametrize(("outcome", "tries"), [("process", 1), ("memory", 1), ("failed", 2), ("skipped", 2)])
def test_how_it_broke_says_whether_base_has_a_second_try(request_for, outcome, tries):
    rounds = Rounds(lambda key, number: problem(key, "some words", "base", outcome))
    assert len(rounds.run(request_for(keys=("a",))).rounds) == tries


def test_visits_that_took_less_than_planned_leave_no_round_without_time(request_for):
    """The plans of what left are longer than the round was: the next one takes some time all the same."""

    def said(key, number):
        plan = VisitPlan(
            steps_per_sample=1,
            samples_per_visit=1,
            rewarming_samples=0,
            warmup_steps=1,
            sets=1,
            blocks=(),
            planned_s=50.0,
        )
        return changed(problem(key, "no", "head"), plan=plan) if key == "a" else noisy(key, number)

    assert len(Rounds(said).run(request_for(budget_s=11.9)).rounds) == 1
    assert len(Rounds(said).run(request_for(budget_s=12.0)).rounds) == 2


def test_each_round_is_kept_before_the_next_one_begins(request_for):
    kept = []
    rounds = Rounds()

    def one_round(*arguments):
        assert len(kept) == len(rounds.asked)
        return rounds(*arguments)

    found = run_rounds(request_for(), tell=lambda _: None, live=lambda _: None, keep=kept.append, one_round=one_round)
    assert tuple(kept) == found.rounds


def test_an_interrupt_goes_through(request_for):
    class Interrupted(Rounds):
        def __call__(self, *arguments):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted().run(request_for())
