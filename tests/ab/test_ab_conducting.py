"""Conducting one round: who works when, who hears what, and what is written down when a side cannot go on."""

from collections import Counter

import pytest
from lockstep_sides import (
    FakeSide,
    answers,
    dies_after,
    ends,
    fails_after,
    fails_late,
    measured,
    says_nothing_after,
)

from pytest_stepprof.ab.conducting import Terms, conduct
from pytest_stepprof.record.turns import Arrived, Begin, Begun, Finish, Prepare, Release, Visit, Visited

BOTH = ("base", "head")
OTHER = {"base": "head", "head": "base"}


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Conduct a round of two sides that are threads; returns the records by key, the sides and the common log."""

    def play(keys=("a", "b", "c"), terms=None, *, base=None, head=None, **more):
        log = []
        given = {"base": base or {}, "head": head or {}}
        sides = {
            name: FakeSide(name, **{"keys": keys, "tmp_path": tmp_path, "log": log} | given[name]).start(monkeypatch)
            for name in BOTH
        }
        try:
            terms = terms or Terms(seed="1/1", base_first=True)
            rounds = conduct(sides["base"].seat, sides["head"].seat, keys, terms, **more)
        finally:
            for side in sides.values():
                side.thread.join(timeout=10)
        assert not any(side.thread.is_alive() for side in sides.values())
        return {test.key: test for test in rounds}, sides, log

    return play


def orders_of(side, key, kind):
    return [order for at, order in side.orders if at == key and isinstance(order, kind)]


def test_both_sides_are_taken_through_all_tests_alike(played):
    tests, sides, _ = played(base={"step_ns": 200_000_000}, head={"step_ns": 300_000_000})
    assert list(tests) == ["a", "b", "c"]
    for test in tests.values():
        assert (test.problem, test.node_id) == (None, f"node of {test.key}")
        assert {(visit.side, visit.visited.samples_ns[0]) for visit in test.visits} == {
            ("base", 200_000_000),
            ("head", 300_000_000),
        }
        assert len(test.base.begun) == len(test.head.begun) == test.plan.sets
    for name in BOTH:
        kinds = Counter(type(order) for key, order in sides[name].orders if key == "b")
        assert (kinds[Prepare], kinds[Finish], kinds[Release]) == (1, 1, 0)
        assert kinds[Visit] == 2 * len(tests["b"].plan.blocks)
        assert kinds[Begin] == tests["b"].plan.sets
    assert orders_of(sides["base"], "a", Begin) == orders_of(sides["head"], "a", Begin)
    assert orders_of(sides["base"], "a", Visit) == orders_of(sides["head"], "a", Visit)


def test_only_one_side_works_at_a_time_and_the_other_is_stopped(played):
    _, _, log = played(keys=("a",), terms=Terms(seed="x", base_first=False, cpus=(0,)))
    stopped, working = set(), None
    for side, event in log:
        if event == "stop":
            stopped.add(side)
        elif event == "go on":
            stopped.discard(side)
        elif event in ("Prepare", "Begin", "Visit"):
            assert working is None
            assert OTHER[side] in stopped
            working = side
        elif event == "answer":
            working = None
    assert stopped == set()


@pytest.mark.parametrize("base_first", [True, False])
def test_blocks_are_taken_as_planned_and_who_begins_is_drawn(played, base_first):
    tests, _, log = played(keys=("a",), terms=Terms(seed="y", base_first=base_first))
    test = tests["a"]
    assert [visit.order for visit in test.visits] == list(range(4 * len(test.plan.blocks)))
    for number, order in enumerate(test.plan.blocks):
        block = [visit for visit in test.visits if visit.block == number]
        assert [visit.slot for visit in block] == [0, 1, 2, 3]
        assert "".join("A" if visit.side == "base" else "B" for visit in block) == order
        assert {visit.fresh_set for visit in block} == {number * test.plan.sets // len(test.plan.blocks)}
    first = [side for side, event in log if event == "Prepare"]
    assert first == list(BOTH if base_first else BOTH[::-1])
    begun = [side for side, event in log if event == "Begin"]
    assert begun[:4] == [*first, *first[::-1]]


def test_the_same_seed_and_answers_draw_the_same_and_another_seed_another(played):
    def drawn(seed):
        tests, sides, _ = played(keys=("a", "b"), terms=Terms(seed=seed, base_first=True))
        return tests["a"].plan.blocks, [order.pad_bytes for order in orders_of(sides["base"], "a", Begin)]

    assert drawn("7/1") == drawn("7/1")
    blocks, pads = drawn("7/2")
    assert (blocks, pads) != drawn("7/1")
    assert all(pad % 64 == 0 and 0 < pad <= 2**20 for pad in pads)
    assert len(set(pads)) == len(pads)


@pytest.mark.parametrize(
    ("threads", "all_cpus", "cpus"), [((1, 1), False, (5,)), ((1, 2), False, (2, 5)), ((1, 1), True, (2, 3, 5))]
)
def test_both_sides_are_pinned_after_they_are_prepared_and_read_back(played, threads, all_cpus, cpus):
    terms = Terms(seed="x", base_first=True, cpus=(5, 2, 3), all_cpus=all_cpus)
    tests, sides, log = played(("a",), terms, base={"threads": threads[0]}, head={"threads": threads[1]})
    events = [event for _, event in log]
    assert events.count(f"pin {cpus}") == 2
    last_prepared = max(place for place, event in enumerate(events) if event == "Prepare")
    assert events.index(f"pin {cpus}") > last_prepared
    assert {visit.cpus for visit in tests["a"].visits} == {cpus}
    assert all(side.living.pinned is None for side in sides.values())
    assert events.count("look") == 2 * tests["a"].plan.sets


def test_a_cold_start_is_pinned_first_and_nothing_else_is_taken(played):
    given = {"cold_start_only": True}
    tests, sides, log = played(("a",), Terms(seed="x", base_first=True, cpus=(1, 0)), base=given, head=given)
    events = [event for _, event in log]
    assert events.index("pin (1,)") < events.index("Prepare")
    assert (tests["a"].cold_start_only, tests["a"].plan, tests["a"].visits) == (True, None, ())
    assert tests["a"].head.prepared.cold_start.step_ns == 9
    assert [type(order) for _, order in sides["base"].orders] == [Prepare, Finish]


def test_sides_that_ask_for_different_things_are_not_measured(played):
    tests, sides, _ = played(("a", "b"), base={"cold_start_only": True})
    assert tests["a"].problem == "only one side asks for the cold start alone"
    assert (tests["a"].problem_side, tests["a"].problem_outcome) == (None, "both")
    assert sides["base"].skipped.keys() == sides["head"].skipped.keys() == {"a", "b"}


FAILURES = {
    "before it arrives": (ends("failed", "ImportError: x"), "failed it: ImportError: x", "failed"),
    "skipped": (ends("skipped", "no GPU"), "skipped it: no GPU", "skipped"),
    "never calls": (ends("passed"), "passed it without a call of stepprof(...)", "not measured"),
    "in the first step": (fails_after(0), "failed it: ValueError: no", "failed"),
    "in a set": (fails_after(1), "failed it: ValueError: no", "failed"),
    "in a visit": (fails_after(5), "failed it: ValueError: no", "failed"),
}


@pytest.mark.parametrize("side", BOTH)
@pytest.mark.parametrize("name", FAILURES)
def test_a_side_that_fails_frees_the_other_and_the_next_test_is_measured(played, side, name):
    behaviour, why, how = FAILURES[name]
    tests, sides, _ = played(**{side: {"behaviours": {"b": behaviour}}})
    assert (tests["b"].problem, tests["b"].problem_side, tests["b"].problem_outcome) == (f"{side} {why}", side, how)
    assert tests["a"].problem_outcome is None
    assert sides[OTHER[side]].skipped == {"b": f"{side} {why}"}
    assert tests["a"].problem is None
    assert tests["c"].problem is None
    assert len(tests["c"].visits) == 4 * len(tests["c"].plan.blocks)
    assert not any(one.living.stopped or one.living.killed or one.living.pinned for one in sides.values())


def test_what_fails_after_it_was_measured_gives_no_value(played):
    tests, sides, _ = played(head={"behaviours": {"a": fails_late, "c": fails_late}})
    for key in "ac":
        assert tests[key].problem == "head failed it after it was measured: AssertionError: late"
        assert (tests[key].problem_side, tests[key].problem_outcome) == ("head", "failed")
        assert tests[key].visits != ()
    assert tests["b"].problem is None
    assert sides["base"].skipped == {}


@pytest.mark.parametrize(("side", "orders"), [("base", 0), ("head", 2)])
def test_a_side_that_hangs_is_ended_and_the_other_goes_on_to_its_end(played, side, orders):
    given = {"behaviours": {"b": says_nothing_after(orders)}, "limit_s": 1.5}
    tests, sides, _ = played(**{side: given})
    why = f"{side}'s process was ended because it did nothing for 1.5 s (--timeout gives more)"
    assert {key: test.problem for key, test in tests.items()} == {"a": None, "b": why, "c": why}
    assert [tests[key].problem_side for key in "bc"] == [side, None]
    assert [tests[key].problem_outcome for key in "abc"] == [None, "process", "process"]
    assert sides[side].living.killed
    assert sides[side].seat.fault == why
    other = sides[OTHER[side]]
    assert other.skipped == {"b": why, "c": why}
    assert not other.living.killed


@pytest.mark.parametrize("side", BOTH)
def test_a_side_that_dies_is_told_with_its_last_lines(played, side, monkeypatch):
    def dies(one, key):
        one.living.pytest_log.write_text("Fatal Python error: Segmentation fault\n")
        dies_after(2)(one, key)

    tests, sides, _ = played(**{side: {"behaviours": {"b": dies}}})
    problem = tests["b"].problem
    assert problem == f"{side}'s process ended (signal 11; its last lines: Fatal Python error: Segmentation fault)"
    assert tests["b"].problem_outcome == "process"
    assert (tests["b"].problem_side, tests["c"].problem, tests["c"].problem_side) == (side, problem, None)
    assert tests["a"].problem is None
    assert sides[OTHER[side]].skipped.keys() == {"b", "c"}


def test_a_side_that_ends_as_pytest_does_is_to_blame_for_nothing(played):
    """As with ``-x``: the tests that are left were never tried."""

    def fails_and_stops(side, key):
        ends("failed", "no")(side, key)
        side.exit_status = 1
        raise SystemExit

    tests, sides, _ = played(head={"behaviours": {"a": fails_and_stops}})
    assert [tests[key].problem_side for key in "abc"] == ["head", None, None]
    assert tests["b"].problem == "head's process ended (exit status 1)"
    assert sides["head"].seat.fault is None


@pytest.mark.parametrize("exit_status", [0, 1, 5])
def test_a_step_that_ends_its_process_is_to_blame_whatever_status_it_asks_for(played, exit_status):
    tests, sides, _ = played(head={"behaviours": {"a": dies_after(1, exit_status=exit_status)}})
    assert [(tests[key].problem_side, tests[key].problem_outcome) for key in "ab"] == [
        ("head", "process"),
        (None, "process"),
    ]
    assert sides["head"].seat.fault == f"head's process ended (exit status {exit_status})"


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (answers(Begun(restore_ns=1, iterator_ns=None, warmup_ns=(), moved_bytes=0), 0), "answered Prepare with Begun"),
        (answers(Arrived(key="b", threads=1, cold_start_only=False), 1), "answered Begin with Arrived"),
        (answers(Begun(restore_ns=1, iterator_ns=None, warmup_ns=(), moved_bytes=0), 2), "answered Visit with Begun"),
    ],
)
def test_an_answer_to_another_order_ends_the_side(played, behaviour, said):
    tests, sides, _ = played(base={"behaviours": {"b": behaviour}})
    assert tests["b"].problem == f"base's process was ended because it {said}"
    assert sides["base"].living.killed
    assert sides["head"].skipped.keys() == {"b", "c"}


def test_too_few_samples_end_the_side(played):
    def one_sample(side, key):
        side.arrive(key)
        order = side.obey(key, most=0)
        while not isinstance(order, Visit):
            side.answer(order)
            order = side.obey(key, most=0)
        side.say(Visited(started_at_unix_ns=1, samples_ns=(), read_ns=()))
        side.player.hear()

    tests, _, _ = played(("a",), head={"behaviours": {"a": one_sample}})
    assert "because it answered with 0 samples where" in tests["a"].problem


def test_what_is_no_message_ends_the_side(played):
    def nonsense(side, key):
        side.player._connection.send_bytes(b'{"type":"Arrived","key":3}')
        side.player.hear()

    tests, sides, _ = played(head={"behaviours": {"b": nonsense}})
    assert "head's process was ended because it said something that is no message" in tests["b"].problem
    assert sides["base"].skipped.keys() == {"b", "c"}


def test_a_test_that_a_side_did_not_collect_is_selected_on_none(played):
    tests, sides, _ = played(base={"keys": ("c", "a")}, head={"keys": ("a", "b", "c", "d")})
    assert (tests["b"].problem, tests["b"].problem_side) == ("base did not collect it", "base")
    assert tests["b"].problem_outcome == "lacking"
    assert tests["b"].node_id == "node of b"
    assert {key for key, _ in sides["head"].orders} == {"a", "c"}
    assert tests["a"].problem is tests["c"].problem is None


def test_a_test_that_a_side_leaves_out_is_no_end(played):
    tests, sides, _ = played(base={"behaviours": {"b": lambda side, key: None}})
    assert (tests["b"].problem, tests["b"].problem_side) == ("base went on to c without it", "base")
    assert tests["b"].problem_outcome == "not measured"
    assert sides["head"].skipped == {"b": "base went on to c without it"}
    assert tests["c"].problem is None


def twice_in_one_test(side, key):
    side.arrive(key)
    side.obey(key)
    measured(side, key)


def again_after_its_end(side, key):
    measured(side, key)
    measured(side, key)


def tried_again_after_a_failure(side, key):
    ends("failed", "flaky")(side, key)
    measured(side, key)


@pytest.mark.parametrize("key", ["a", "c"])
@pytest.mark.parametrize("behaviour", [twice_in_one_test, again_after_its_end])
def test_a_second_measurement_is_let_go(played, key, behaviour):
    tests, sides, _ = played(head={"behaviours": {key: behaviour}})
    assert {test.problem for test in tests.values()} == {None}
    assert sides["head"].skipped == {key: "it was measured in this round already"}


@pytest.mark.parametrize("key", ["a", "c"])
def test_a_second_try_after_a_failure_is_not_measured(played, key):
    tests, sides, _ = played(head={"behaviours": {key: tried_again_after_a_failure}})
    assert tests[key].problem == "head failed it: flaky"
    assert sides["head"].skipped == sides["base"].skipped == {key: "head failed it: flaky"}


@pytest.mark.parametrize("why", ["torch.OutOfMemoryError: CUDA out of memory", "[enforce fail] can't allocate memory"])
def test_out_of_memory_names_the_way_out(played, why):
    tests, _, _ = played(("a",), head={"behaviours": {"a": fails_after(0, why)}})
    assert f"head failed it: {why}. Both sides are in memory together" in tests["a"].problem
    assert "--whole-processes" in tests["a"].problem
    assert (tests["a"].problem_side, tests["a"].problem_outcome) == ("head", "memory")


def test_a_process_that_the_system_killed_may_have_lacked_memory(played):
    tests, _, _ = played(("a",), head={"behaviours": {"a": dies_after(1, exit_status=-9)}})
    assert "signal 9" in tests["a"].problem
    assert tests["a"].problem_outcome == "memory"
    assert "--whole-processes" in tests["a"].problem


@pytest.mark.parametrize("exit_status", [4, 1])
def test_a_side_that_never_starts_leaves_all_tests_without_blame(tmp_path, exit_status):
    log = []
    sides = [FakeSide(name, ("a", "b"), tmp_path, log) for name in BOTH]
    sides[1].living.running, sides[1].living.exit_status = False, exit_status
    sides[0].limit_s = 0.3
    sides[0].seat._limit_s = 0.3
    tests = conduct(sides[0].seat, sides[1].seat, ("a", "b"), Terms(seed="x", base_first=True))
    assert [test.key for test in tests] == ["a", "b"]
    assert {test.problem for test in tests} == {
        "base's process was ended because it did nothing for 0.3 s (--timeout gives more)"
    }
    assert {test.problem_side for test in tests} == {None}


def test_an_interrupt_ends_both_sides(tmp_path, monkeypatch):
    log = []
    sides = [FakeSide(name, ("a",), tmp_path, log).start(monkeypatch) for name in BOTH]

    def interrupted(text):
        if text == "node of a":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conduct(sides[0].seat, sides[1].seat, ("a",), Terms(seed="x", base_first=True), interrupted)
    for side in sides:
        side.thread.join(timeout=10)
        assert not side.thread.is_alive()
        assert side.living.killed
    assert not (tmp_path / "base").exists()
    assert not (tmp_path / "head").exists()


def test_what_ends_late_is_noted_and_a_test_without_an_end_has_no_value(played):
    def never_ends(side, key):
        side.arrive(key)
        side.obey(key)
        side.exit_status = 3
        raise SystemExit

    tests, _, _ = played(("a",), base={"behaviours": {"a": never_ends}})
    assert tests["a"].problem == "base did not get to the end of it: base's process ended (exit status 3)"
    assert (tests["a"].problem_side, tests["a"].problem_outcome) == ("base", "process")


@pytest.mark.parametrize(
    ("seconds_a_visit", "visits"),
    [(0.025, 4 * 24), (0.3, 4 * 8), (1.1, 27), (250.0, 4)],
)
def test_visits_that_take_far_longer_than_planned_are_left_out(played, seconds_a_visit, visits):
    """Eight blocks have to do after 5 s, one after 30 s; a block that was begun is not finished."""
    times = iter(range(10_000))
    given = {"step_ns": 1_000_000}
    tests, sides, _ = played(("a", "b"), base=given, head=given, clock_s=lambda: next(times) * seconds_a_visit)
    assert len(tests["a"].plan.blocks) == 24
    assert tests["a"].plan.planned_s < 2
    for test in tests.values():
        assert (len(test.visits), test.problem) == (visits, None)
    assert sides["base"].skipped == {}


@pytest.mark.parametrize("side", BOTH)
def test_visits_are_planned_by_the_fastest_step_until_then(played, side):
    """A first warm-up that was disturbed all along says 200 ms for a step of 0.1 ms; the first set knows better."""
    quiet, _, _ = played(("a",), base={"step_ns": 100_000}, head={"step_ns": 100_000})
    given = {"base": {"step_ns": 100_000}, "head": {"step_ns": 100_000}}
    given[side] = {"step_ns": 200_000_000, "begun_ns": 100_000}
    tests, sides, _ = played(("a",), **given)
    assert getattr(tests["a"], side).prepared.step_ns == 200_000_000
    assert tests["a"].plan == quiet["a"].plan
    assert tests["a"].plan.samples_per_visit > 5
    for name in BOTH:
        assert {order.samples for order in orders_of(sides[name], "a", Visit)} == {tests["a"].plan.samples_per_visit}
        assert len(orders_of(sides[name], "a", Begin)) == tests["a"].plan.sets


def test_a_slower_first_set_changes_no_plan(played):
    quiet, _, _ = played(("a",))
    tests, _, _ = played(("a",), head={"begun_ns": 900_000_000})
    assert tests["a"].plan == quiet["a"].plan


def test_a_side_that_cannot_be_stopped_wholly_is_marked_where_it_was_seen(tmp_path, monkeypatch):
    log = []
    sides = [FakeSide(name, ("a", "b"), tmp_path, log).start(monkeypatch) for name in BOTH]

    def live(text):
        sides[1].living.all_stop = text != "node of b"

    tests = conduct(sides[0].seat, sides[1].seat, ("a", "b"), Terms(seed="x", base_first=True), live)
    assert [test.not_stopped for test in tests] == [(), ("head",)]
    assert [test.problem for test in tests] == [None, None]
