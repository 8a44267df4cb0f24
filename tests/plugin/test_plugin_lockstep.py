"""A session that is one side of a comparison, with a conductor that speaks the protocol from a thread."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from pytest_stepprof.ab import baton
from pytest_stepprof.ab.baton import BatonLostError, Line
from pytest_stepprof.plugin import hooks
from pytest_stepprof.record.turns import (
    Arrived,
    Begin,
    Begun,
    Collected,
    Ended,
    Finish,
    FromConductor,
    Hello,
    Order,
    Prepare,
    Prepared,
    Release,
    Said,
    Selected,
    Visit,
    Visited,
)

LIMIT_S = 60
WHOLE = (
    Prepare(),
    Begin(pad_bytes=640, warmup_steps=1),
    Visit(samples=3, steps_per_sample=2),
    Visit(samples=1, steps_per_sample=1),
    Begin(pad_bytes=64, warmup_steps=1),
    Visit(samples=2, steps_per_sample=1),
    Finish(),
)
LEAVE = "leave"


class Conductor:
    """Selects tests and gives each the orders of its name; ``said`` is all that the side said, in order.

    ``LEAVE`` in place of an order lets go of the side.
    """

    def __init__(self, folder: Path) -> None:
        self.line = Line("head", folder)
        self.select: Callable[[Sequence[str]], Sequence[str]] = lambda keys: keys
        self.orders: Mapping[str, Sequence[Order | str]] = {}
        self.said: list[Said] = []
        self.has_heard = threading.Event()
        self._left: list[Order | str] = []
        self._thread = threading.Thread(target=self._conduct, daemon=True)
        self._thread.start()

    def of(self, kind: type) -> list[Said]:
        """All that was said of one kind."""
        return [said for said in self.said if isinstance(said, kind)]

    def endings(self) -> dict[str, tuple[str, str | None]]:
        """How each test ended, by name."""
        ended = [said for said in self.said if isinstance(said, Ended)]
        assert len({one.key for one in ended}) == len(ended)
        return {name_of(one.key): (one.outcome, one.why) for one in ended}

    def hear_out(self) -> None:
        """Wait until the side has let go, and all that it said has been heard."""
        self._thread.join(timeout=LIMIT_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.line.close()
        self.hear_out()

    def _conduct(self) -> None:
        try:
            while True:
                self._answer(self.line.hear(LIMIT_S, alive=lambda: True))
        except BatonLostError:
            return

    def _answer(self, said: Said) -> None:
        self.said.append(said)
        self.has_heard.set()
        if isinstance(said, Collected):
            keys = self.select([test.key for test in said.tests])
            self._give(LEAVE if keys == [LEAVE] else Selected(keys=tuple(keys)))
        elif isinstance(said, Arrived):
            self._left = list(self.orders.get(name_of(said.key), WHOLE))
            self._give(self._left.pop(0))
        elif isinstance(said, Prepared | Begun | Visited):
            self._give(self._left.pop(0))

    def _give(self, order: FromConductor | str) -> None:
        if isinstance(order, str):
            self.line.close()
        else:
            self.line.say(order)


def name_of(key: str) -> str:
    return key.partition("::")[2]


@pytest.fixture
def conductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Conductor]:
    folder = tmp_path / "line"
    folder.mkdir()
    conductor = Conductor(folder)
    for name, value in conductor.line.variables().items():
        monkeypatch.setenv(name, value)
    yield conductor
    conductor.close()


def kinds(said: Sequence[Said]) -> list[str]:
    return [type(one).__name__ for one in said]


ONE_TEST = ["Arrived", "Prepared", "Begun", "Visited", "Visited", "Begun", "Visited", "Ended"]

SUITE = """
    import os, pytest, torch

    ORDER = []

    @pytest.fixture
    def torn_down(stepprof):
        yield
        ORDER.append("teardown")

    def test_one(stepprof, torn_down):
        assert "STEPPROF_AB_BATON" not in os.environ
        weight = torch.ones(3)
        taken = stepprof(lambda batch: batch * weight, batches=[torch.arange(3.0)], state=[weight])
        assert taken.output.tolist() == [0, 1, 2]
        assert taken.measurement is None
        ORDER.append("one")

    def test_two(stepprof):
        ORDER.append("two")
        stepprof(lambda: torch.zeros(1), question="cold start")

    @pytest.mark.parametrize("size", [2, 3])
    def test_sizes(stepprof, size):
        ORDER.append(size)
        stepprof(lambda: torch.zeros(size))

    def test_without_stepprof():
        ORDER.append("never")

    def test_last(stepprof):
        stepprof(lambda: torch.zeros(1))
        assert ORDER == [3, "two", "one", "teardown"]
"""


@pytest.mark.parametrize("flags", [[], ["-p", "no:benchmark"], ["--benchmark-disable"], ["--benchmark-only"]])
def test_the_selected_tests_run_in_the_conductors_order(conductor, project, flags):
    project.write(
        test_it=SUITE,
        conftest="""
            import os
            SEEN = "STEPPROF_AB_BATON" in os.environ
            def pytest_report_header():
                return f"the conftest has seen the baton: {SEEN}"
        """,
    )
    conductor.select = lambda keys: [keys[3], "no such test", keys[1], keys[0], keys[4]]
    conductor.orders = {"test_two": [Prepare(), Finish()]}
    result = project.run("-k", "not no_such", *flags)
    result.assert_outcomes(passed=4, deselected=2)
    text = project.text(result)
    assert "stepprof: taking turns with the other side of a comparison, as head; nothing is stored" in text
    assert "the conftest has seen the baton: False" in text
    assert "benchmark:" not in text.replace("benchmark: 5", "")  # no table
    assert "was not used" not in text
    assert not project.store.exists()
    conductor.hear_out()
    hello, collected, *rest = conductor.said
    assert hello == Hello(side="head", process_id=os.getpid())
    assert [name_of(test.key) for test in collected.tests] == [
        "test_one", "test_two", "test_sizes[size=2]", "test_sizes[size=3]", "test_last",
    ]  # fmt: skip
    assert collected.tests[2].node_id == "test_it.py::test_sizes[2]"
    assert kinds(rest) == [*ONE_TEST, "Arrived", "Prepared", "Ended", *ONE_TEST, *ONE_TEST]
    assert [(name_of(said.key), said.cold_start_only) for said in conductor.of(Arrived)] == [
        ("test_sizes[size=3]", False), ("test_two", True), ("test_one", False), ("test_last", False),
    ]  # fmt: skip
    assert all(said.threads >= 1 for said in conductor.of(Arrived))
    assert set(conductor.endings().values()) == {("passed", None)}
    of_one = rest[len(ONE_TEST) + 3 :][: len(ONE_TEST)]
    assert [len(said.samples_ns) for said in of_one if isinstance(said, Visited)] == [3, 1, 2]
    assert [said.moved_bytes >= 2 * 3 * 4 and said.not_moved is None for said in of_one if isinstance(said, Begun)] == [
        True, True,
    ]  # fmt: skip


ENDINGS = """
    import pytest, torch

    def step_that_breaks_at(number):
        calls = []
        def step():
            calls.append(1)
            if len(calls) == number:
                raise RuntimeError("the step broke\\nin two lines")
            return torch.zeros(1)
        return step

    @pytest.fixture
    def breaks_at_the_end():
        yield
        raise OSError("the disk is full")

    def test_breaks_first(stepprof):
        stepprof(step_that_breaks_at(1))

    def test_breaks_in_a_visit(stepprof):
        stepprof(step_that_breaks_at(9))

    def test_released_at_once(stepprof):
        stepprof(lambda: torch.zeros(1))

    def test_released_later(stepprof):
        with pytest.raises(BaseException) as raised:
            stepprof(lambda: torch.zeros(1))
        raise raised.value

    def test_asserts_later(stepprof):
        assert stepprof(lambda: torch.zeros(1)).output == 1

    def test_skips_itself(stepprof):
        pytest.skip("not on Mondays")

    @pytest.mark.skip(reason="never")
    def test_marked(stepprof):
        pass

    @pytest.mark.xfail(reason="known")
    def test_known(stepprof):
        stepprof(step_that_breaks_at(1))

    def test_without_a_call(stepprof):
        pass

    def test_teardown(stepprof, breaks_at_the_end):
        stepprof(lambda: torch.zeros(1))

    def test_calls_twice(stepprof):
        stepprof(lambda: torch.zeros(1))
        stepprof(lambda: torch.zeros(1))

    @pytest.mark.stepprof(runs="many")
    def test_wrong_marker(stepprof):
        stepprof(lambda: torch.zeros(1))

    def test_is_still_fine(stepprof):
        stepprof(lambda: torch.zeros(1))
"""


def test_however_a_test_ends_the_conductor_is_told_and_the_next_one_comes(conductor, project):
    project.write(test_it=ENDINGS)
    conductor.orders = {
        "test_released_at_once": [Release(why="base failed it: boom")],
        "test_released_later": [Prepare(), Begin(pad_bytes=1, warmup_steps=0), Release(why="base was ended")],
    }
    result = project.run("-rs")
    result.assert_outcomes(passed=3, failed=4, skipped=4, xfailed=1, errors=2)
    assert "stepprof ab: base failed it: boom" in project.text(result)
    conductor.hear_out()
    endings = conductor.endings()
    wrong_marker = endings.pop("test_wrong_marker")
    assert wrong_marker[0] == "failed"
    assert wrong_marker[1].startswith("setup: ")
    calls_twice = endings.pop("test_calls_twice")
    assert calls_twice[0] == "failed"
    assert "called twice in one test" in calls_twice[1]
    asserts_later = endings.pop("test_asserts_later")
    assert asserts_later[0] == "failed"
    assert asserts_later[1].startswith("AssertionError: assert ")
    broke = "RuntimeError: the step broke"
    assert endings == {
        "test_breaks_first": ("failed", broke),
        "test_breaks_in_a_visit": ("failed", broke),
        "test_released_at_once": ("skipped", "stepprof ab: base failed it: boom"),
        "test_released_later": ("skipped", "stepprof ab: base was ended"),
        "test_skips_itself": ("skipped", "not on Mondays"),
        "test_marked": ("skipped", "setup: never"),
        "test_known": ("skipped", f"xfail known: {broke}"),
        "test_without_a_call": ("passed", None),
        "test_teardown": ("failed", "teardown: OSError: the disk is full"),
        "test_is_still_fine": ("passed", None),
    }
    in_a_visit = [said for said in conductor.said if getattr(said, "key", "").endswith("test_breaks_in_a_visit")]
    assert kinds(in_a_visit) == ["Arrived", "Ended"]
    assert kinds(conductor.said[-8:]) == ONE_TEST


def test_a_test_that_is_tried_again_is_measured_once(conductor, project):
    """By pytest-rerunfailures: whatever fails before it arrives may come again; what was measured is not repeated."""
    project.write(
        test_it="""
            import torch

            TRIES = {"before": 0, "broken": 0, "after": 0, "released": 0}

            def test_before(stepprof):
                TRIES["before"] += 1
                assert TRIES["before"] > 1
                stepprof(lambda: torch.zeros(1))

            def test_broken(stepprof):
                TRIES["broken"] += 1
                def step():
                    raise RuntimeError(f"try {TRIES['broken']}")
                stepprof(step)

            def test_after(stepprof):
                TRIES["after"] += 1
                taken = stepprof(lambda: torch.full((1,), TRIES["after"]))
                assert taken.output == 2

            def test_released(stepprof):
                TRIES["released"] += 1
                stepprof(lambda: torch.zeros(1))

            def test_tries():
                pass
        """
    )
    conductor.orders = {"test_released": [Release(why="base is gone")]}
    project.run("--reruns", "2")
    conductor.hear_out()
    why = "a comparison tries no test twice in a round. The first time: RuntimeError: try 1"
    endings = conductor.endings()
    outcome, told = endings.pop("test_broken")
    assert outcome == "failed"
    assert told.endswith(why)
    assert endings == {
        "test_before": ("passed", None),
        "test_after": ("passed", None),
        "test_released": ("skipped", "stepprof ab: base is gone"),
    }
    assert [name_of(said.key) for said in conductor.of(Arrived)] == [
        "test_before", "test_broken", "test_after", "test_released",
    ]  # fmt: skip


@pytest.mark.parametrize("at", [0, 1, 2])
def test_without_a_conductor_the_side_ends_at_its_next_word(conductor, project, at):
    project.write(
        test_it="""
            import pytest, torch

            @pytest.fixture
            def cleans_up():
                yield
                print("cleaned up")

            def test_one(stepprof, cleans_up):
                stepprof(lambda: torch.zeros(1))

            def test_two(stepprof):
                stepprof(lambda: torch.zeros(1))
        """
    )
    conductor.orders = {"test_one": [*WHOLE[:at], LEAVE]}
    result = project.run("-s")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = project.text(result)
    assert "`stepprof ab` is gone" in text
    assert "cleaned up" in text
    assert [name_of(said.key) for said in conductor.of(Arrived)] == ["test_one"]
    assert conductor.of(Ended) == []


def test_without_a_conductor_at_the_selection_no_test_runs(conductor, project):
    project.write(test_it="def test_one(stepprof):\n    print('it was run')")
    conductor.select = lambda keys: [LEAVE]
    result = project.run("-s")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "it was run" not in project.text(result)


def test_nobody_at_the_address_is_an_error_of_usage(project, tmp_path, monkeypatch):
    gone = {"address": str(tmp_path / "nobody"), "key": "00", "side": "base"}
    monkeypatch.setenv(baton.VARIABLE, json.dumps(gone))
    project.write(test_it="def test_one(stepprof):\n    pass")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "does not listen to this process" in project.text(result)


def test_xdist_is_refused(conductor, project):
    project.write(test_it="def test_one(stepprof):\n    pass")
    result = project.run("-n1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "stepprof ab measures one test at a time; pytest-xdist shares the machine: use -n0" in project.text(result)
    assert conductor.has_heard.wait(LIMIT_S)
    assert kinds(conductor.said) == ["Hello"]


def test_the_hooks_know_the_variables_name():
    assert hooks.BATON_VARIABLE == baton.VARIABLE
