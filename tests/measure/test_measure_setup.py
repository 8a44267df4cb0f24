"""``setup=``: everything is built anew for each phase and run, from the same random numbers."""

import gc
import random
import tracemalloc
import weakref
from typing import Any

import measuring
import numpy as np
import phase_bench
import pytest
import torch
from measuring import codes, measured
from phase_bench import ITERATOR_NS, RESTORE_NS, Loader
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, TensorDataset

from pytest_stepprof.errors import StateError, UsageError
from pytest_stepprof.measure import beginnings
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.state import fingerprint, snapshot

bench = phase_bench.bench

BUILD_NS = 8_000_000
BUILDS = 1 + 1 + 1 + 1 + measuring.FEW_STEPS.runs
"""First step, its repetition, warm-up, window, and one for each run."""


class Trainer:
    """What a person's factory makes: an object of their own class, with a cycle in it."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.randn(8, 4)
        self.itself = self

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss


def pair() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def train(built: tuple[torch.nn.Module, torch.optim.Optimizer]) -> torch.Tensor:
    model, optimizer = built
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def test_every_phase_and_run_starts_from_an_object_of_its_own_built_from_the_same_random_numbers() -> None:
    drawn, used = [], []

    def setup() -> object:
        drawn.append((random.random(), float(np.random.random()), torch.rand(()).item()))
        return object()

    def step(built: object) -> int:
        if built not in used:
            used.append(built)
        return 1

    outside = random.getstate(), torch.get_rng_state().tolist()
    measured(step, setup=setup)
    assert len(drawn) == len(used) == BUILDS
    assert len(set(drawn)) == 1
    assert (random.getstate(), torch.get_rng_state().tolist()) == outside


def test_what_was_drawn_before_or_while_building_does_not_move_what_the_step_draws() -> None:
    def results(drawn: int) -> list[float]:
        torch.rand(drawn)
        fresh = measured(lambda built: torch.rand(3), setup=lambda: torch.rand(drawn))
        torch.rand(drawn)
        loaded = measured(lambda built: torch.rand(3), load=lambda: torch.rand(drawn), state=())
        return [*fresh.output.tolist(), *loaded.output.tolist()]

    assert results(0) == results(5)


def test_a_training_step_that_is_built_fresh_repeats_itself_in_every_run() -> None:
    step = measured(Trainer.step, setup=Trainer)
    measurement = step.measurement
    assert measurement.repeated.status == "equal"
    assert [run.same_result for run in measurement.runs] == [True, True]
    assert measurement.scenario.start == "built fresh"
    assert measurement.scenario.module_mode == "train"
    assert measurement.random_draws == ("torch cpu",)  # dropout


def test_only_one_build_is_alive_at_a_time_and_none_afterwards() -> None:
    built: list[weakref.ref[Trainer]] = []

    def setup() -> Trainer:
        assert [one() for one in built] == [None] * len(built)
        trainer = Trainer()
        built.append(weakref.ref(trainer))
        return trainer

    collecting = gc.isenabled()
    gc.disable()  # a factory's garbage must not wait for a moment that comes by chance
    try:
        step = measured(Trainer.step, setup=setup)
    finally:
        if collecting:
            gc.enable()
    assert len(built) == BUILDS
    assert [one() for one in built] == [None] * BUILDS
    assert step.output.item() > 0


def test_the_digests_are_those_of_the_same_state_given_as_state() -> None:
    fresh = measured(train, setup=pair)
    torch.manual_seed(measuring.FEW_STEPS.seed)
    built = pair()
    kept = measured(lambda: train(built), state=built)
    assert fresh.start_state_digest == kept.start_state_digest
    assert fresh.start_settings_digest == kept.start_settings_digest
    assert fresh.output.item() == kept.output.item()
    assert codes(fresh) == []


def test_a_factory_that_builds_another_start_each_time_is_an_error_that_says_what_to_do() -> None:
    generator = torch.Generator().manual_seed(1)  # none of the global sources

    def setup() -> torch.nn.Linear:
        model = torch.nn.Linear(4, 1)
        torch.nn.init.normal_(model.weight, generator=generator)
        return model

    with pytest.raises(StateError, match=r"setup= builds another start each time.*Seed what it draws from"):
        measured(lambda model: model(torch.ones(4)), setup=setup)


def test_another_optimizer_setting_is_another_start_too() -> None:
    rates = iter([0.1, 0.2])

    def setup() -> Any:
        model = torch.nn.Linear(4, 1)
        return model, torch.optim.SGD(model.parameters(), lr=next(rates))

    with pytest.raises(StateError, match="setup= builds another start"):
        measured(train, setup=setup)


class Odd:
    """Nothing in here can be captured."""

    __slots__ = ("value",)

    def __init__(self, value: float) -> None:
        self.value = value


def test_an_object_that_cannot_be_captured_is_a_notice_and_nothing_fails() -> None:
    step = measured(lambda odd: odd.value, setup=lambda: Odd(2.0))
    assert step.output == 2.0
    assert codes(step) == ["state not captured"]
    (notice,) = [one for one in step.measurement.notices if one.code == "state not captured"]
    assert f"setup= built {__name__}.Odd, which cannot be captured" in notice.message


def test_two_functions_that_setup_made_are_not_called_by_stepprof() -> None:
    def forward(batch: object) -> float:
        raise AssertionError("called without a batch")

    assert codes(measured(lambda built: 1, setup=lambda: (forward, forward))) == ["state not captured"]


def test_a_state_dict_that_fails_is_no_failure_of_the_test() -> None:
    class Broken:
        def state_dict(self) -> Any:
            raise KeyError("not ready")

        def load_state_dict(self, state: Any) -> None: ...

    assert codes(measured(lambda built: 1, setup=lambda: [torch.ones(1), Broken()])) == ["state not captured"]


@pytest.mark.parametrize("as_attributes", [False, True])
def test_what_can_be_captured_beside_it_is_digested_all_the_same(as_attributes: bool) -> None:
    class Bundle:
        def __init__(self, model: Any, odd: Any) -> None:
            self.model, self.odd = model, odd

    def built(scale: float) -> Any:
        model = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(model.weight, scale)
        return Bundle(model, Odd(1.0)) if as_attributes else (model, Odd(1.0))

    steps = [measured(lambda _built: 1, setup=lambda scale=scale: built(scale)) for scale in (1.0, 1.0, 2.0)]
    digests = [step.start_state_digest for step in steps]
    assert digests[0] == digests[1] != digests[2]
    assert codes(steps[0]) == ["state not captured"]
    assert steps[0].measurement.scenario.module_mode == "train"


def test_a_module_that_the_step_reaches_past_its_argument_is_named_with_what_to_do() -> None:
    model = torch.nn.Linear(4, 1)
    step = measured(lambda _built: model(torch.ones(4)), setup=lambda: torch.nn.Linear(2, 2))
    (notice,) = [one for one in step.measurement.notices if one.code == "state not captured"]
    assert "the step uses model, which setup= does not build" in notice.message
    assert notice.remedy == "build it in setup= and use the step's first argument"


def test_a_compiled_module_and_its_mode_are_seen_in_what_was_built() -> None:
    def setup() -> Any:
        model = torch.nn.Linear(2, 2).eval()
        model.compile()
        return {"model": model}

    scenario = measured(lambda built: 1, setup=setup).scenario
    assert scenario.compiled == ("Linear",)
    assert scenario.module_mode == "eval"


def test_batches_begin_anew_with_what_is_built() -> None:
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4, shuffle=True, generator=generator)
    before = generator.get_state().tolist()
    seen: list[list[float]] = []

    def setup() -> list[list[float]]:
        seen.append([])
        return seen[-1]

    def step(built: list[float], batch: Any) -> torch.Tensor:
        built.append(batch[0].tolist())
        return batch[0].sum()

    assert codes(measured(step, setup=setup, batches=loader)) == []
    assert len(seen) == BUILDS
    assert len({tuple(built[0]) for built in seen}) == 1
    assert generator.get_state().tolist() == before


def test_a_one_shot_iterator_that_draws_random_numbers_does_not_move_the_start() -> None:
    draws = []

    def setup() -> float:
        draws.append(torch.rand(()).item())
        return 1.0

    measured(lambda built, batch: batch, setup=setup, batches=(torch.rand(2) for _ in range(9)))
    assert len(set(draws)) == 1


@pytest.mark.parametrize("other", [{"state": ()}, {"load": lambda: 1}])
def test_setup_excludes_state_and_load_and_the_message_says_when_to_use_which(other: dict[str, Any]) -> None:
    (name,) = other
    with pytest.raises(UsageError, match=rf"setup= and {name}= are both given; expected one. .*for each run"):
        StepRequest(step=lambda: 1, setup=lambda: 1, **other)


def test_setup_has_to_be_callable() -> None:
    with pytest.raises(UsageError, match="setup is not callable; expected a function without arguments"):
        StepRequest(step=lambda: 1, setup=3)  # type: ignore[arg-type]


def test_what_a_factory_raises_goes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        measured(lambda built: 1, setup=lambda: 1 / 0)


class Building:
    """A factory on the fake clock that leaves a line in the bench's log."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench

    def __call__(self) -> object:
        self.bench.log.append("build")
        self.bench.clock.advance(BUILD_NS)
        self.bench.state = 0
        return "built"


@pytest.fixture
def on_fake_clock(bench: Any) -> Any:
    def step(built: object, batch: object) -> object:
        assert built == "built"
        return bench.step(batch)

    return bench.measure(setup=Building(bench), step=step)


def test_the_order_of_builds_and_steps(bench: Any, on_fake_clock: Any) -> None:
    log = [
        line
        for line in bench.big_log()
        if line in ("build", "capture", "digest", "iterator", "step", "restore", "verify")
    ]
    few = measuring.FEW_STEPS
    run = ["build", "iterator", *["step"] * (few.warmup_steps + few.steps_per_run)]
    assert log == [
        *["build", "digest", "iterator", "step"],
        *["build", "digest", "iterator", "step"],  # the repetition looks at the digests again
        *["build", "iterator", *["step"] * few.warmup_steps],
        *["build", "iterator", *["step"] * 4],
        *run * few.runs,
    ]


@pytest.mark.usefixtures("bench")
def test_a_builds_time_is_loading_at_first_and_then_that_of_a_restore(
    monkeypatch: pytest.MonkeyPatch, bench: Any
) -> None:
    monkeypatch.setattr(gc, "collect", lambda: bench.clock.advance(99_000_000))
    measurement = bench.measure(setup=Building(bench), step=lambda built, batch: bench.step(batch)).measurement
    assert measurement.cold_start.load_ns == BUILD_NS
    assert measurement.warm_up.restore_ns == BUILD_NS
    assert {run.restore_ns for run in measurement.runs} == {BUILD_NS}
    assert {run.iterator_ns for run in measurement.runs} == {ITERATOR_NS}
    assert RESTORE_NS != BUILD_NS


def test_what_saw_the_start_for_the_digests_is_dropped_at_once(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []

    def see(state: object) -> Any:
        snapshot = phase_bench.FakeSnapshot(bench)
        alive.append(weakref.ref(snapshot))
        return snapshot

    def step(built: object, batch: object) -> object:
        assert [one() for one in alive] == [None] * len(alive)
        return bench.step(batch)

    monkeypatch.setattr("pytest_stepprof.measure.beginnings.see_state", see)
    bench.measure(setup=Building(bench), step=step, batches=Loader(bench))
    assert len(alive) == 2


class Large:
    """8 MB of state in parts of many kinds, and one that nobody can capture."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(1000, 500)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.model(torch.ones(1, 1000)).sum().backward()
        self.optimizer.step()
        self.array = np.zeros(250_000)
        self.sparse = torch.eye(2).to_sparse()
        self.odd = Odd(1.0)


class NoCopies(TorchDispatchMode):
    """Writes down how many bytes every operation of torch has made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        inputs = {item.untyped_storage().data_ptr() for item in args if is_plain(item)}
        if is_plain(result) and result.untyped_storage().data_ptr() not in inputs:
            self.made.append(result.nbytes)
        return result


def is_plain(item: object) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided


def test_digests_of_what_was_built_are_taken_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    beginning = beginnings.BuiltBeginning(Large)
    beginning.put_back()

    def no_watch(parts: object) -> Any:
        raise AssertionError("nobody asks for changed attributes here")

    monkeypatch.setattr(snapshot, "AttributeWatch", no_watch)
    tracemalloc.start()
    try:
        with NoCopies() as copies:
            not_covered = beginning.remember()
            beginning.check()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not_covered == (f"{__name__}.Odd",)
    assert max(copies.made, default=0) < 100_000
    assert peak_bytes < 3_000_000  # NumPy's and Python's memory; hashing an array makes its bytes once


def test_having_no_room_is_not_taken_for_something_that_cannot_be_captured() -> None:
    class Full:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def state_dict(self) -> Any:
            raise self.error

        def load_state_dict(self, state: Any) -> None: ...

    for error in (torch.OutOfMemoryError("CUDA out of memory"), MemoryError()):
        beginning = beginnings.BuiltBeginning(lambda error=error: [torch.ones(1), Full(error)])
        beginning.put_back()
        with pytest.raises(type(error)):
            beginning.remember()


def test_where_the_look_at_attributes_ends_is_a_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "MOST_BYTES", 100)
    model: Any = torch.nn.Linear(1, 1)
    model.cache = [torch.zeros(50)]

    def step() -> torch.Tensor:
        model.cache[0].add_(1)
        return torch.zeros(1)

    measured_step = measured(step, state=model)
    (notice,) = [one for one in measured_step.measurement.notices if one.code == "state not captured"]
    assert notice.message.startswith("of state.cache[0] only a part was looked at")
    assert "restore incomplete" not in codes(measured_step)
