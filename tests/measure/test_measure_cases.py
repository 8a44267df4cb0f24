"""What went wrong for others when they put a training step's state back: one small example of each, the whole way."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from measuring import SHORT_WINDOW, bits, codes, compared, measurement_of, places
from measuring import measured_with_window as measured
from small_training import OPTIMIZERS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.phases import MeasuredStep

pytestmark = pytest.mark.usefixtures("one_thread")

CARELESS = ("adam", "adam foreach amsgrad", "adamw fused", "sgd momentum", "rmsprop", "adagrad")
"""Optimizers whose ``load_state_dict`` goes on working in the tensors that it was given."""


class Regression:
    """A small network with dropout and BatchNorm, its optimizer, and the step that trains it."""

    def __init__(self, optimizer: str = "adam", *, clears_gradients: bool = True) -> None:
        torch.manual_seed(11)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.4), nn.Linear(5, 1))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.batches = list(torch.randn(12, 6, 3))
        self.clears_gradients = clears_gradients

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        if self.clears_gradients:
            self.optimizer.zero_grad()
        loss: torch.Tensor = (self.model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss

    @property
    def state(self) -> tuple[Any, ...]:
        return self.model, self.optimizer

    def measure(self, **request: Any) -> MeasuredStep:
        return measured(self.step, **{"batches": self.batches, "state": self.state, **request})


def runs_start_equal(seen: MeasuredStep) -> bool:
    """Whether the step repeated itself, and every run began with the first result."""
    measurement = measurement_of(seen)
    assert measurement.repeated is not None
    assert measurement.runs
    return measurement.repeated.status == "equal" and all(run.same_result is True for run in measurement.runs)


# --- snapshots that follow the live objects ------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", CARELESS)
@pytest.mark.parametrize("steps_before", [0, 2], ids=["no optimizer state yet", "in the middle"])
def test_no_run_writes_into_what_the_next_run_starts_from(optimizer: str, steps_before: int) -> None:
    training = Regression(optimizer)
    for batch in training.batches[:steps_before]:
        training.step(batch)
    before = bits(training.state)
    seen = training.measure(check_steps=2, check_parameters=True)
    assert runs_start_equal(seen)
    assert bits(training.state) == before
    again = training.measure(check_steps=2, check_parameters=True)
    assert compared(seen, again).status == "equal"
    assert codes(seen) == codes(again) == []


def test_weights_are_what_they_were_and_not_what_the_run_left() -> None:
    training = Regression("sgd")
    weight = training.model[0].weight
    values, gradient = weight.tolist(), weight.grad
    seen = training.measure(check_parameters=True)
    assert training.model[0].weight is weight
    assert (weight.tolist(), weight.grad) == (values, gradient)
    assert seen.outputs.stored.leaf_count == 1 + len(list(training.model.parameters()))
    untrained = compared(seen, measured(lambda batch: batch.sum(), batches=training.batches, state=training.state))
    assert untrained.status == "differ"


# --- a warm-up that changes what comes after it --------------------------------------------------------------------


@pytest.mark.parametrize("clears_gradients", [True, False], ids=["clears gradients", "accumulates gradients"])
def test_the_loss_curve_does_not_depend_on_the_warm_up(clears_gradients: bool) -> None:
    curves = []
    for warmup_steps in (1, 3):
        training = Regression(clears_gradients=clears_gradients)
        settings = msgspec.structs.replace(SHORT_WINDOW, warmup_steps=warmup_steps)
        seen = training.measure(settings=settings, check_steps=5)
        assert runs_start_equal(seen)
        curves.append(seen)
    paths = [node.path for node in curves[0].outputs.stored.nodes if node.kind == "tensor"]
    assert paths == [f"['step {number}']" for number in range(1, 6)]
    comparison = compared(*curves)
    assert (comparison.status, comparison.leaves_compared) == ("equal", 5)


def test_a_curve_of_another_learning_rate_is_found_at_the_step_from_which_it_differs() -> None:
    before, after = Regression("sgd"), Regression("sgd")
    after.optimizer.param_groups[0]["lr"] *= 2
    comparison = compared(before.measure(check_steps=3), after.measure(check_steps=3))
    assert places(comparison) == [("['step 2']", "value"), ("['step 3']", "value")]


def test_warming_up_leaves_batch_norm_counters_and_averages_alone() -> None:
    training = Regression()
    norm, batch = training.model[1], training.batches[0]
    expected = training.model.eval()(batch).tolist()
    training.model.train()
    seen = training.measure()
    assert runs_start_equal(seen)
    assert (int(norm.num_batches_tracked), norm.running_mean.tolist()) == (0, [0] * 5)
    assert training.model.eval()(batch).tolist() == expected


def test_a_step_that_switches_to_evaluation_starts_every_run_in_training() -> None:
    training = Regression()

    def step(batch: torch.Tensor) -> bool:
        was_training = training.model.training
        training.model.eval()
        return was_training

    seen = measured(step, batches=training.batches, state=training.state)
    assert runs_start_equal(seen)
    assert training.model.training


def test_step_counters_of_a_fused_optimizer_stay_the_same_tensors_of_the_same_type() -> None:
    training = Regression("adamw fused")
    training.step(training.batches[0])
    counters = [entry["step"] for entry in training.optimizer.state.values()]
    facts = [(counter.data_ptr(), counter.dtype, counter.device) for counter in counters]
    assert runs_start_equal(training.measure())
    now = [entry["step"] for entry in training.optimizer.state.values()]
    assert all(one is other for one, other in zip(now, counters, strict=True))
    assert [(counter.data_ptr(), counter.dtype, counter.device) for counter in now] == facts
    assert [float(counter) for counter in now] == [1.0] * len(now)


# --- random numbers ------------------------------------------------------------------------------------------------


def test_every_source_of_random_numbers_begins_each_run_at_the_same_place() -> None:
    own, own_numpy = torch.Generator().manual_seed(5), np.random.default_rng(6)
    dropout = nn.Dropout(0.5)

    def step() -> dict[str, Any]:
        return {
            "dropout": dropout(torch.ones(16)),
            "python": random.random(),
            "numpy": np.random.rand(),
            "own": torch.rand(2, generator=own),
            "own numpy": own_numpy.random(),
        }

    first_of_own = torch.rand(2, generator=torch.Generator().manual_seed(5))
    seen = measured(step, state=(dropout, own, own_numpy))
    assert runs_start_equal(seen)
    assert measurement_of(seen).random_draws == ("python", "numpy", "torch cpu")
    assert torch.equal(seen.output["own"], first_of_own)
    assert own_numpy.random() == np.random.default_rng(6).random()


def test_numbers_drawn_after_the_test_are_those_that_would_have_been_drawn_without_it() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    def step() -> torch.Tensor:
        draw()
        return torch.rand(2)

    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = draw()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    measured(step)
    assert draw() == expected


def loader(*, own_generator: bool) -> DataLoader[Any]:
    numbers = torch.arange(40.0).reshape(20, 2)
    if own_generator:
        return DataLoader(TensorDataset(numbers), 2, shuffle=True, generator=torch.Generator().manual_seed(8))
    return DataLoader(TensorDataset(numbers), 2, num_workers=0)


@pytest.mark.parametrize("own_generator", [False, True], ids=["unshuffled", "shuffled by its own generator"])
def test_a_loader_that_draws_random_numbers_does_not_move_the_dropout(own_generator: bool) -> None:
    dropout, found = nn.Dropout(0.5), []
    for _ in range(2):
        torch.manual_seed(4)
        seen = measured(lambda batch: dropout(batch[0]), batches=loader(own_generator=own_generator), state=dropout)
        assert runs_start_equal(seen)
        found.append(seen)
    assert compared(*found).status == "equal"
    assert found[0].first_batch_digest == found[1].first_batch_digest
    assert measurement_of(found[0]).random_draws == ("torch cpu",)


def test_random_numbers_that_only_the_loader_draws_are_not_the_steps() -> None:
    seen = measured(lambda batch: batch[0] * 2, batches=loader(own_generator=False))
    assert measurement_of(seen).random_draws == ()


# --- gradient scalers ----------------------------------------------------------------------------------------------


class Scaled(Regression):
    """The same training with a gradient scaler, which makes its scale when it is first used."""

    def __init__(self, **options: Any) -> None:
        super().__init__("sgd")
        self.scaler = torch.amp.GradScaler("cpu", **{"init_scale": 4.0, "growth_interval": 2, **options})

    def step(self, batch: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(batch).square().mean()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    @property
    def state(self) -> tuple[Any, ...]:
        return self.model, self.scaler, self.optimizer


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_scale_and_growth_of_a_gradient_scaler_begin_each_run_alike(steps_before: int) -> None:
    training = Scaled()
    for batch in training.batches[:steps_before]:
        training.step(batch)
    before = training.scaler.state_dict()
    seen = training.measure(check_steps=3, check_parameters=True)
    assert runs_start_equal(seen)
    assert training.scaler.state_dict() == before
    assert training.scaler.get_scale() == {0: 4.0, 1: 4.0, 3: 8.0}[steps_before]
    assert codes(seen) == []


def test_a_disabled_scaler_has_nothing_to_put_back_and_is_no_error() -> None:
    training = Scaled(enabled=False)
    assert training.scaler.state_dict() == {}
    seen = training.measure(check_parameters=True)
    assert runs_start_equal(seen)
    assert codes(seen) == []


def test_an_update_that_the_scaler_skipped_is_seen_in_the_parameters() -> None:
    applied = Scaled(init_scale=4.0).measure(check_parameters=True)
    skipped = Scaled(init_scale=3e38).measure(check_parameters=True)
    comparison = compared(applied, skipped)
    assert comparison.status == "differ"
    assert {path.partition(".")[0] for path, _ in places(comparison)} == {"['parameters']['module 0"}
    assert torch.equal(applied.output, skipped.output), "the loss alone does not show it"


# --- learning rates ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["model optimizer scheduler", "scheduler optimizer model", "optimizer scheduler"])
@pytest.mark.parametrize("optimizer", ["sgd momentum", "adam tensor lr"])
def test_every_run_begins_with_the_same_learning_rate(order: str, optimizer: str) -> None:
    training = Regression(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, 0.5)
    named = {"model": training.model, "optimizer": training.optimizer, "scheduler": scheduler}
    rate = training.optimizer.param_groups[0]["lr"]

    def step(batch: torch.Tensor) -> float:
        training.step(batch)
        scheduler.step()
        return float(training.optimizer.param_groups[0]["lr"])

    state = [named[name] for name in order.split()]
    seen = measured(step, batches=training.batches, state=state, check_steps=3)
    assert runs_start_equal(seen)
    values = [float(node.value or "nan") for node in seen.outputs.stored.nodes if node.kind == "number"]
    assert values == pytest.approx([float(rate) / 2, float(rate) / 4, float(rate) / 8])
    assert training.optimizer.param_groups[0]["lr"] is rate or training.optimizer.param_groups[0]["lr"] == rate
    assert scheduler.get_last_lr() == [pytest.approx(float(rate))]


# --- steps that remember -------------------------------------------------------------------------------------------


class Counting:
    """Counts its calls in a plain attribute."""

    def __init__(self) -> None:
        self.value = 0

    def increase(self) -> int:
        self.value += 1
        return self.value


def test_the_result_is_the_first_calls_however_often_the_step_is_called() -> None:
    counting = Counting()
    seen = measured(counting.increase)
    assert counting.value > 1
    assert seen.output == 1
    assert "step does not repeat itself" in codes(seen)


def test_a_step_may_use_up_what_setup_builds() -> None:
    seen = measured(lambda counting: counting.increase(), setup=Counting)
    assert seen.output == 1
    assert runs_start_equal(seen)


class Retained:
    """Two layers and a graph that is built once."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        self.loss = self.model(torch.ones(1, 2)).sum()

    def step(self) -> torch.Tensor:
        self.loss.backward(retain_graph=True)
        gradient = self.model[0].weight.grad
        assert gradient is not None
        return gradient


def test_putting_the_state_back_under_a_retained_graph_is_a_clear_error() -> None:
    retained = Retained()
    with pytest.raises(StateError, match=r"(?s)graph.*setup="):
        measured(retained.step, state=retained.model)


def test_a_graph_that_setup_builds_with_the_model_may_be_retained() -> None:
    build: Callable[[], Retained] = Retained
    torch.manual_seed(2)
    seen = measured(lambda built: built.step(), setup=build)
    assert runs_start_equal(seen)
