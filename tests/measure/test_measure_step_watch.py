"""What is said about the first steps: random draws, skipped optimizer steps, values that are not finite, new things."""

import random
from typing import Any

import numpy as np
import phase_bench
import pytest
import torch
from measuring import codes, measured

from pytest_stepprof.measure.step_watch import of_not_finite

bench = phase_bench.bench


def said(step: Any, code: str) -> str:
    (notice,) = [notice for notice in step.measurement.notices if notice.code == code]
    return notice.message


def test_dropout_that_stays_on_in_eval_is_seen_by_its_draws() -> None:
    heads = torch.ones(1, 1, 4, 4)
    step = measured(lambda: torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.1))
    assert step.measurement.random_draws == ("torch cpu",)
    assert codes(step) == []


def test_a_step_that_draws_nothing_names_no_source() -> None:
    assert measured(lambda: 1.0).measurement.random_draws == ()


def test_draws_of_a_loader_are_not_those_of_the_step() -> None:
    loader = torch.utils.data.DataLoader(torch.arange(40.0), batch_size=2, shuffle=True)
    assert measured(lambda batch: batch.sum(), batches=loader).measurement.random_draws == ()


def test_every_source_that_was_drawn_from_is_named() -> None:
    def step() -> float:
        return random.random() + float(np.random.random())

    assert measured(step).measurement.random_draws == ("python", "numpy")


class Scaled:
    """Training with a gradient scaler whose first scale may be too large."""

    def __init__(self, factor: float, at: int = 1) -> None:
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.1)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        self.factor, self.at = factor, at
        self.steps = torch.zeros(())

    @property
    def state(self) -> Any:
        return self.weight, self.optimizer, {"scalers": [self.scaler]}, self.steps

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        self.steps += 1
        loss = (self.weight * (self.factor if self.steps == self.at else 1.0)).sum()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def test_a_skipped_optimizer_step_is_said_with_both_scales() -> None:
    training = Scaled(1e38)
    message = said(measured(training.step, state=training.state), "optimizer step skipped")
    assert "skipped the optimizer's step in step 1" in message
    assert "its scale went from 1024 to 512" in message


def test_a_skipped_step_among_those_that_are_checked_is_said_with_its_number() -> None:
    training = Scaled(1e38, at=2)
    assert "in step 2" in said(measured(training.step, state=training.state, check_steps=2), "optimizer step skipped")


def test_a_whole_step_with_a_scaler_says_nothing() -> None:
    training = Scaled(1.0)
    assert codes(measured(training.step, state=training.state)) == []


def test_a_scaler_that_setup_built_is_looked_at_too() -> None:
    assert codes(measured(Scaled.step, setup=lambda: Scaled(1e38))) == ["optimizer step skipped"]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("result", "places"),
    [
        (torch.tensor(NAN), "the result (1 of 1 elements)"),
        ({"loss": torch.tensor([1.0, INF, -INF])}, "['loss'] (2 of 3 elements)"),
        ([1.0, NAN], "[1] (1 of 1 elements)"),
        (complex(1, INF), "the result (1 of 1 elements)"),
        (np.array([NAN, 1.0]), "the result (1 of 2 elements)"),
        (np.float32(INF), "the result (1 of 1 elements)"),
        (torch.tensor([NAN, 1.0], dtype=torch.bfloat16), "the result (1 of 2 elements)"),
        (torch.tensor([NAN, 1.0]).to(torch.float8_e4m3fn), "the result (1 of 2 elements)"),
        (torch.complex(torch.tensor([NAN]), torch.ones(1)), "the result (1 of 1 elements)"),
        (torch.sparse_coo_tensor([[0, 0]], [1.0, NAN], (3,)), "the result (1 of 3 elements)"),
        (torch.tensor([[0.0, NAN]]).to_sparse_csr(), "the result (1 of 2 elements)"),
        (torch.nested.nested_tensor([torch.ones(2), torch.tensor([NAN])]), "the result (1 of 3 elements)"),
        (
            torch.nested.nested_tensor([torch.ones(2), torch.tensor([NAN])], layout=torch.jagged),
            "the result (1 of 3 elements)",
        ),
    ],
)
def test_what_is_not_finite_is_said_with_place_and_count(result: Any, places: str) -> None:
    (notice,) = of_not_finite(result)
    assert notice.message == f"the result that is compared is not finite: {places}"


@pytest.mark.parametrize(
    "result",
    [
        *[None, 1, "nan", b"nan", True, 1.5, np.arange(3), np.array(["nan"]), [], {"a": ()}],
        *[torch.ones(3), torch.arange(3), torch.empty(0), torch.tensor([True])],
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    ],
    ids=lambda result: str(type(result).__name__),
)
def test_what_is_finite_says_nothing(result: Any) -> None:
    assert of_not_finite(result) == []


def test_many_places_are_cut() -> None:
    (notice,) = of_not_finite([NAN] * 9)
    assert notice.message.endswith("[2] (1 of 1 elements) and 6 more")


def test_a_loss_that_is_not_finite_is_said_once_for_the_measurement() -> None:
    step = measured(lambda: {"loss": torch.tensor(NAN)}, check_steps=2)
    assert codes(step) == ["result is not finite"]
    assert "['step 1']['loss'] (1 of 1 elements), ['step 2']['loss']" in said(step, "result is not finite")
    assert [run.same_result for run in step.measurement.runs] == [True, True]


def test_what_the_step_created_is_said_before_it_is_taken_away(bench: Any) -> None:
    bench.snapshot.new_paths = ("state.cache", "state.head.weight")
    message = said(bench.measure(), "created during the step")
    assert message.startswith("the first step created state.cache, state.head.weight: taken away before each run")
    log = bench.big_log()
    assert log.index("look for what is new") < log.index("restore")
    assert log.count("look for what is new") == 1


def test_a_module_that_is_made_in_the_step_is_found_by_its_path() -> None:
    class Growing(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "head"):
                self.head = torch.nn.Linear(2, 2)
            return self.head(batch).sum()

    model = Growing()
    message = said(measured(model, batches=[torch.ones(2)]), "created during the step")
    assert "head" in message
    assert not hasattr(model, "head")


def test_an_input_that_the_step_writes_into_and_returns_is_noticed_and_the_result_kept() -> None:
    def step(batch: torch.Tensor) -> torch.Tensor:
        return batch.add_(1)[:1]

    taken = measured(step, batches=[torch.zeros(2)])
    assert taken.output.tolist() == [1]
    assert "input changed" in codes(taken)


def test_the_steps_own_spread_is_stored() -> None:
    calls = iter(range(1000))

    def step() -> torch.Tensor:
        return torch.tensor([1.0, 1.0 + 2.0**-20 * (next(calls) % 2)])

    repeated = measured(step).measurement.repeated
    assert repeated.status == "differ"
    assert [one.largest_absolute for one in repeated.mismatches] == [2.0**-20]
