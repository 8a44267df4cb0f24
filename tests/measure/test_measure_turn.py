"""Taking turns: what happens at which order, on a fake clock and device, and that all sets start equal."""

import copy
import gc
import subprocess
import sys
from itertools import pairwise

import phase_bench
import pytest
import torch
from measuring import bits
from phase_bench import COPY_NS, CPU, ITERATOR_NS, LOAD_NS, READ_NS, RESTORE_NS, STEP_NS, Loader, SizedLoader

from pytest_stepprof.errors import StateError, StepprofError
from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.turn import ReleasedError, measure_by_turns
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.record.turns import (
    Begin,
    Begun,
    Finish,
    Prepare,
    Prepared,
    Release,
    Selected,
    Visit,
    Visited,
)

bench = phase_bench.bench

SETTINGS = MeasureSettings(warmup_steps=2)
BACK_NS = RESTORE_NS + COPY_NS
RESTART = ["restore", "synchronize", "iterator closed", "iterator"]


class ScriptedTurns:
    """Orders from a list; ``heard`` has the answers, and the log gets a line for each order and answer."""

    def __init__(self, orders, log=None):
        self.orders = list(orders)
        self.log = [] if log is None else log
        self.heard = []

    def hear(self):
        order = self.orders.pop(0)
        self.log.append(f"order {type(order).__name__}")
        if callable(order):
            order = order()
        return order

    def say(self, answer):
        self.heard.append(answer)
        self.log.append(f"answer {type(answer).__name__}")


def timed(*reads):
    return [line for read in reads for line in (f"read {read}", "synchronize", "step", "synchronize")]


def by_turns(bench, *orders, settings=SETTINGS, **request):
    turns = ScriptedTurns(orders, bench.log)
    declared = StepRequest(**{"step": bench.step, "batches": Loader(bench), **request})
    step = measure_by_turns(declared, settings, bench.instruments, under_test=CPU, turns=turns)
    return step, turns.heard


def test_nothing_of_the_step_happens_before_its_order(bench):
    step, _ = by_turns(
        bench,
        Prepare(),
        Begin(pad_bytes=64, warmup_steps=1),
        Visit(samples=2, steps_per_sample=1),
        Visit(samples=1, steps_per_sample=2),
        Begin(pad_bytes=128, warmup_steps=0),
        Visit(samples=1, steps_per_sample=1),
        Finish(),
    )
    assert bench.big_log() == [
        *("order Prepare", "capture", "iterator", *timed(0), *RESTART, *timed(0, 1), "answer Prepared"),
        *("order Begin", *RESTART, *timed(0), "answer Begun"),
        *("order Visit", *timed(1, 2), "answer Visited"),
        *("order Visit", "read 3", "read 4", "synchronize", "step", "step", "synchronize", "answer Visited"),
        *("order Begin", *RESTART, *timed(0), "answer Begun"),
        *("order Visit", *timed(1), "answer Visited"),
        *("order Finish", "restore", "iterator closed"),
    ]
    assert step.measurement is None
    assert torch.equal(step.output, torch.tensor([1.0]))


def test_the_nanoseconds_of_all_answers(bench):
    bench.waited_per_reading_ns = 7
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=3), Visit(samples=3, steps_per_sample=2), Finish()
    _, (prepared, begun, visited) = by_turns(bench, *orders)
    assert isinstance(prepared, Prepared)
    assert isinstance(begun, Begun)
    assert isinstance(visited, Visited)
    assert prepared.cold_start.step_ns == STEP_NS
    assert prepared.cold_start.iterator_ns == ITERATOR_NS
    assert prepared.warmup_ns == (STEP_NS,) * 2
    assert prepared.step_ns == STEP_NS
    assert prepared.beside_ns == READ_NS
    assert prepared.restart_ns == BACK_NS + ITERATOR_NS
    assert prepared.clock_cost_ns == 0
    assert prepared.most_steps_per_sample is None
    assert prepared.threads == torch.get_num_threads()
    assert (begun.restore_ns, begun.iterator_ns, begun.warmup_ns) == (BACK_NS, ITERATOR_NS, (STEP_NS,) * 3)
    assert visited.started_at_unix_ns == 1_700_000_000_000_000_000
    assert visited.samples_ns == (2 * STEP_NS,) * 3
    assert visited.read_ns == (2 * READ_NS,) * 3
    assert visited.waited_ns == (7,) * 3
    assert visited.restarts == ()


def test_with_the_read_in_the_step_a_sample_has_it_and_workers_count_to_the_restart(bench):
    loader = SizedLoader(bench, count=9, prefetch_ns=0, late_ns=5_000_000)
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=1), Visit(samples=1, steps_per_sample=4), Finish()
    _, (prepared, _, visited) = by_turns(
        bench, *orders, settings=MeasureSettings(warmup_steps=3), batches=loader, includes_read=True
    )
    assert prepared.most_steps_per_sample == 4
    assert prepared.step_ns == READ_NS + STEP_NS
    late_ns = 5_000_000
    assert prepared.restart_ns == BACK_NS + ITERATOR_NS + late_ns
    assert prepared.beside_ns == round((ITERATOR_NS + late_ns) / 9)
    assert visited.samples_ns == (4 * (READ_NS + STEP_NS),)


def test_batches_that_run_out_within_a_visit_begin_again(bench):
    loader = SizedLoader(bench, count=3, prefetch_ns=0)
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=1), Visit(samples=4, steps_per_sample=1), Finish()
    _, (_, _, visited) = by_turns(bench, *orders, batches=loader)
    assert len(visited.samples_ns) == 4
    assert [restart.before_sample for restart in visited.restarts] == [2]


def test_what_workers_need_to_start_is_never_in_a_sample(bench):
    """A set that was ordered without a warm-up has one step of it all the same."""
    loader = SizedLoader(bench, count=9, prefetch_ns=0, late_ns=5_000_000)
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=0), Visit(samples=2, steps_per_sample=1), Finish()
    _, (_, begun, visited) = by_turns(bench, *orders, batches=loader, includes_read=True)
    assert begun.warmup_ns == (READ_NS + STEP_NS + 5_000_000,)
    assert visited.samples_ns == (READ_NS + STEP_NS,) * 2


def test_a_cold_start_is_the_first_step_and_nothing_else(bench):
    _, [prepared] = by_turns(bench, Prepare(), Finish(), load=bench.load, question="cold start")
    assert bench.steps == 1
    assert (prepared.cold_start.step_ns, prepared.cold_start.load_ns) == (STEP_NS, LOAD_NS + 1_000_000)
    assert (prepared.step_ns, prepared.warmup_ns) == (STEP_NS, ())
    assert bench.big_log().index("order Prepare") < bench.big_log().index("load")


@pytest.mark.parametrize(("budget_s", "steps"), [(1.0, 5), (0.011, 2), (0.000001, 1)])
def test_the_budget_ends_the_warm_up_but_for_one_step(bench, budget_s, steps):
    """Spent before are the first step (3.37 ms) and the restart (0.61 ms); each step with its read takes 3.3 ms."""
    loader = Loader(bench, prefetch_ns=0)
    settings = MeasureSettings(warmup_steps=5, budget_s=budget_s)
    _, [prepared] = by_turns(bench, Prepare(), Finish(), settings=settings, batches=loader)
    assert len(prepared.warmup_ns) == steps


def test_without_warm_up_one_step_says_how_long_it_takes(bench):
    _, [prepared] = by_turns(bench, Prepare(), Finish(), settings=MeasureSettings(warmup_steps=0))
    assert prepared.warmup_ns == (STEP_NS,)


def test_a_release_before_anything_runs(bench):
    with pytest.raises(ReleasedError, match=r"^head failed it: boom$"):
        by_turns(bench, Release(why="head failed it: boom"))
    assert bench.big_log() == ["order Release"]


def test_a_release_in_between_puts_everything_back(bench):
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=1), Release(why="base is gone")
    with pytest.raises(ReleasedError, match="base is gone"):
        by_turns(bench, *orders)
    assert bench.big_log()[-3:] == ["order Release", "restore", "iterator closed"]
    assert gc.isenabled()


@pytest.mark.parametrize("orders", [[Finish()], [Visit(samples=1, steps_per_sample=1)], [Prepare(), Prepare()]])
def test_an_order_at_the_wrong_place_is_an_error(bench, orders):
    with pytest.raises(StepprofError, match=f"{type(orders[-1]).__name__} came at a place"):
        by_turns(bench, *orders)


def test_what_selects_tests_is_no_order(bench):
    with pytest.raises(StepprofError, match="Selected"):
        by_turns(bench, Prepare(), Selected(keys=()))


@pytest.mark.parametrize("raise_at", [1, 2, 4, 5])
def test_an_error_of_the_step_goes_through_and_nothing_is_left_changed(bench, raise_at):
    bench.raise_at = raise_at
    orders = Prepare(), Begin(pad_bytes=1, warmup_steps=1), Visit(samples=2, steps_per_sample=1), Finish()
    with pytest.raises(RuntimeError) as raised:
        by_turns(bench, *orders)
    assert raised.value is bench.error
    assert gc.isenabled()


def test_the_collector_is_off_from_the_first_answer_to_the_end_and_garbage_of_a_set_goes_with_the_next(bench):
    collecting = []
    found_garbage = []

    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            found_garbage.append(bench.steps)

    def step(batch):
        bench.step(batch)
        collecting.append(gc.isenabled())
        if bench.steps == 4:
            Cycle()
        return batch

    begin, visit = Begin(pad_bytes=1, warmup_steps=1), Visit(samples=2, steps_per_sample=1)
    by_turns(bench, Prepare(), begin, visit, begin, visit, Finish(), step=step)
    assert collecting == [True] + [False] * 8  # the first step is as in any program
    assert found_garbage == [6]
    assert gc.isenabled()


class Training:
    """Momentum, tied weights, a buffer, and batches in memory; ``seen`` has each step's loss."""

    def __init__(self):
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64))
        self.model[2].weight = self.model[0].weight
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.batches = [torch.randn(8, 64) for _ in range(3)]
        self.seen = []

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.seen.append(loss.item())
        return loss


def really_by_turns(*orders, **request):
    turns = ScriptedTurns(orders)
    instruments = Instruments(wall_clock, wall_clock)
    measure_by_turns(StepRequest(**request), SETTINGS, instruments, under_test="cpu", turns=turns)
    return turns.heard


def test_each_set_of_a_training_starts_equal_at_other_addresses(one_thread):
    training = Training()
    before = bits(copy.deepcopy([training.model, training.batches]))  # what NumPy looks at stays
    places = []
    tensors = [training.model[0].weight, training.model[1].running_mean, training.batches[1]]

    def look():
        places.append([tensor.data_ptr() for tensor in tensors])
        training.seen.append("set")
        return Begin(pad_bytes=4096, warmup_steps=2)

    visit = Visit(samples=3, steps_per_sample=1)
    answers = really_by_turns(
        Prepare(), look, visit, look, visit, look, visit, Finish(),
        step=training.step, batches=training.batches, state=(training.model, training.optimizer),
    )  # fmt: skip
    assert bits([training.model, training.batches]) == before
    assert training.model[2].weight.data_ptr() == training.model[0].weight.data_ptr()
    sets = " ".join(map(str, training.seen)).split(" set ")
    assert len(sets) == 4
    assert sets[1] == sets[2] == sets[3]
    assert sets[1].startswith(sets[0].split()[0])  # the very first step of all
    begun = [answer for answer in answers if isinstance(answer, Begun)]
    own_bytes = sum(tensor.nbytes for tensor in [*training.model.parameters(), *training.batches])
    assert all(one.moved_bytes > own_bytes and one.not_moved is None for one in begun)
    for earlier, later in pairwise(places):
        assert all(one != other for one, other in zip(earlier, later, strict=True))


@pytest.mark.parametrize("place", ["batches", "state", "load", "closure"])
def test_tensors_move_wherever_they_come_from(one_thread, place):
    tensor, seen = torch.ones(3000), []
    given = {
        "batches": {"batches": [[tensor]], "step": lambda batch: batch[0] + 1},
        "state": {"state": {"a": tensor}, "step": lambda: torch.ones(1)},
        "load": {"load": lambda: [tensor], "state": (), "step": lambda loaded: loaded[0] + 1},
        "closure": {"step": lambda: tensor + 1},
    }
    visit = Visit(samples=1, steps_per_sample=1)

    def look():
        seen.append(tensor.data_ptr())
        return visit

    begin = Begin(pad_bytes=64, warmup_steps=0)
    answers = really_by_turns(Prepare(), look, begin, look, begin, look, Finish(), **given[place])
    assert all(one != other for one, other in pairwise(seen))
    assert len(seen) == 3
    assert [answer.moved_bytes for answer in answers if isinstance(answer, Begun)] == [tensor.nbytes] * 2


def test_what_setup_builds_is_moved_too_and_what_stays_is_named(one_thread):
    shared = torch.ones(100).share_memory_()
    built = []

    def setup():
        built.append(torch.ones(3000))
        return built[-1], shared

    answers = really_by_turns(
        Prepare(), Begin(pad_bytes=64, warmup_steps=1), Finish(), step=lambda made: made[0] + 1, setup=setup
    )
    assert len(built) == 3
    assert answers[1].moved_bytes >= built[-1].nbytes
    assert answers[1].not_moved == "shared with other processes: 1 tensor of 400 bytes (float32 [100])"


def test_a_graph_that_outlives_a_set_is_explained(one_thread):
    weight = torch.ones(3, requires_grad=True)
    graph = (weight * weight).sum()
    with pytest.raises(StateError, match="keeps an autograd graph"):
        really_by_turns(
            Prepare(), Begin(pad_bytes=1, warmup_steps=1), Finish(),
            step=lambda: graph.backward(retain_graph=True) or weight.grad.sum(), state=weight,
        )  # fmt: skip


def test_taking_turns_imports_no_scipy():
    """Each round starts two processes, and scipy.stats alone takes more than half a second."""
    code = "import sys, pytest_stepprof.plugin.lockstep; print('torch' in sys.modules, 'scipy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["True", "False"]
