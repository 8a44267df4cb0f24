"""Declared measures of quality: what is refused, what is stored, and when they run."""

import math
import random
from typing import Any

import numpy as np
import phase_bench
import pytest
import torch
from measuring import measured
from phase_bench import CPU, SETTINGS, Loader

from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.phases import check_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.quality import QualityValue

bench = phase_bench.bench


def accuracy(result: Any) -> float:
    return 0.75


def declared(**more: Any) -> StepRequest:
    return StepRequest(**{"step": lambda: 1, "quality": {"accuracy": accuracy}, "quality_margin": 0.01, **more})


def test_each_measure_is_stored_with_its_margin_and_its_direction() -> None:
    step = measured(
        lambda: {"logits": torch.tensor([1.0, 3.0])},
        quality={"mean": lambda result: result["logits"].mean(), "loss": lambda result: result["logits"].max().item()},
        quality_margin={"mean": 0.5, "loss": 0},
        quality_lower_is_better=("loss",),
    )
    assert step.quality == (
        QualityValue(name="mean", value=2.0, margin=0.5, better="higher"),
        QualityValue(name="loss", value=3.0, margin=0.0, better="lower"),
    )
    assert step.measurement.quality == step.quality


def test_one_margin_goes_for_all() -> None:
    request = {"quality": {"a": accuracy, "b": accuracy}, "quality_margin": 0.25}
    assert [one.margin for one in measured(lambda: 1.0, **request).quality] == [0.25, 0.25]


def test_nothing_declared_is_nothing_stored() -> None:
    step = measured(lambda: 1.0)
    assert step.quality == step.measurement.quality == ()


def test_checking_only_measures_quality_too(bench: Any) -> None:
    request = declared(step=bench.step, batches=Loader(bench))
    (value,) = check_step(request, SETTINGS, bench.instruments, under_test=CPU).quality
    assert (value.name, value.value) == ("accuracy", 0.75)


@pytest.mark.parametrize(
    "returned", [0.5, np.float32(0.5), np.array(0.5), np.array([[0.5]]), torch.tensor(0.5), torch.tensor([0.5])]
)
def test_a_number_may_be_of_python_numpy_or_torch(returned: Any) -> None:
    (value,) = measured(lambda: 1.0, quality={"q": lambda result: returned}, quality_margin=1).quality
    assert value.value == 0.5
    assert type(value.value) is float


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        ("0.5", "a str"),
        (None, "a NoneType"),
        (True, "a bool"),
        (torch.tensor(True), "a torch.Tensor of shape ()"),
        (1 + 0j, "a complex"),
        (torch.ones(2), r"a torch.Tensor of shape \(2,\)"),
        (np.ones((0,)), r"a numpy.ndarray of shape \(0,\)"),
        ([0.5], "a list"),
    ],
)
def test_anything_else_is_an_error_with_the_measures_name(returned: Any, found: str) -> None:
    with pytest.raises(UsageError, match=rf"quality\['q'\] returned {found}"):
        measured(lambda: 1.0, quality={"q": lambda result: returned}, quality_margin=1)


def test_a_number_that_no_float_holds_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"quality\['q'\] returned a int beyond 1.8e\+308; expected"):
        measured(lambda: 1.0, quality={"q": lambda result: 10**400}, quality_margin=1)


@pytest.mark.parametrize(("number", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_what_is_not_finite_is_stored_as_text(number: float, text: str) -> None:
    (value,) = measured(lambda: 1.0, quality={"q": lambda result: torch.tensor(number)}, quality_margin=1).quality
    assert (value.value, value.not_finite) == (None, text)


def test_what_a_measure_raises_is_the_persons_own(bench: Any) -> None:
    def broken(result: Any) -> float:
        raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        bench.measure(quality={"q": broken}, quality_margin=1)
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_a_measure_runs_once_outside_of_all_timing_and_moves_no_random_numbers(bench: Any) -> None:
    calls = []

    def measure(result: Any) -> float:
        calls.append(bench.steps)
        bench.clock.advance(10**9)
        torch.rand(3)
        random.random()
        np.random.random()
        return 1.0

    def state() -> Any:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    seen: list[Any] = []

    def step(batch: Any) -> Any:
        seen.append(state())
        return bench.step(batch)

    measurement = bench.measure(step=step, quality={"q": measure}, quality_margin=1).measurement
    assert calls == [1]
    assert measurement.cold_start.step_ns == phase_bench.STEP_NS
    assert seen[0] == seen[1]  # the fake snapshot puts no random numbers back


def test_a_measure_gets_the_first_steps_result_apart_from_its_memory() -> None:
    buffer = torch.zeros(2)
    seen = []

    def measure(result: torch.Tensor) -> float:
        seen.append(result.tolist())
        return float(result.add_(100).sum())

    step = measured(lambda: buffer.add_(1), state=buffer, check_steps=3, quality={"q": measure}, quality_margin=1)
    assert seen == [[1, 1]]
    assert step.measurement.repeated.status == "equal"
    assert buffer.tolist() == [0, 0]


def test_measures_that_work_in_place_change_neither_the_output_nor_what_the_next_one_gets() -> None:
    def spoil(result: dict[str, torch.Tensor]) -> float:
        return float(result.pop("loss").mul_(10))

    quality = {"first": spoil, "second": lambda result: result["loss"].add_(1), "third": spoil}
    step = measured(lambda: {"loss": torch.tensor(2.0)}, quality=quality, quality_margin=1)
    assert [value.value for value in step.quality] == [20, 3, 20]
    assert step.output == {"loss": torch.tensor(2.0)}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"quality_margin": None}, "quality is given and quality_margin is not; expected by how much"),
        ({"quality_margin": -0.1}, r"quality_margin is -0\.1; expected a finite number, 0 or more"),
        ({"quality_margin": math.inf}, "quality_margin is inf; expected a finite number"),
        ({"quality_margin": math.nan}, "quality_margin is nan; expected a finite number"),
        ({"quality_margin": 10**400}, "quality_margin is 10+; expected a finite number"),
        ({"quality": {" ": accuracy}}, "quality has a name of 1 characters; expected 1 to 100"),
        ({"quality": {"x" * 101: accuracy}}, "quality has a name of 101 characters; expected 1 to 100"),
        ({"quality": {"acc of /home/me/data": accuracy}}, "begins with 'acc '… is refused: it looks like an absolute"),
        ({"quality_margin": True}, "quality_margin is True; expected a finite number"),
        ({"quality_margin": "1%"}, "quality_margin is '1%'; expected a finite number"),
        ({"quality_margin": {"accuracy": "x"}}, "quality_margin is 'x'; expected a finite number"),
        ({"quality_margin": {}}, "quality_margin has margins for nothing; expected the names of quality: 'accuracy'"),
        ({"quality_margin": {"acc": 1}}, "quality_margin has margins for 'acc'; expected the names of quality"),
        ({"quality_lower_is_better": ("loss",)}, "quality_lower_is_better names 'loss'; expected names of quality"),
        ({"quality_lower_is_better": "accuracy"}, "quality_lower_is_better is 'accuracy', a str; expected a tuple"),
        ({"quality": None}, "quality_margin is given and quality is not"),
        ({"quality": accuracy}, "quality is <function accuracy.*; expected a dict of names and functions"),
        ({"quality": {}}, "quality is {}; expected a dict of names and functions"),
        ({"quality": {1: accuracy}}, "expected a dict of names and functions"),
        ({"quality": {"accuracy": 0.5}}, r"quality\['accuracy'\] is a float; expected a function"),
    ],
)
def test_a_declaration_that_cannot_decide_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declared(**more)


def test_directions_without_a_measure_are_refused() -> None:
    with pytest.raises(UsageError, match="quality_lower_is_better is given and quality is not"):
        StepRequest(step=lambda: 1, quality_lower_is_better=("a",))
