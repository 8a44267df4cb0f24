"""A step that keeps a graph across a restore gets a message that says so; the first step's own errors are its own."""

from typing import Any

import phase_bench
import pytest
import torch
from measuring import measured

from pytest_stepprof.errors import StateError

bench = phase_bench.bench


def two_layers() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))


def test_a_graph_that_is_built_once_and_used_again_after_a_restore() -> None:
    model = two_layers()
    loss = model(torch.ones(3)).sum()

    def step() -> torch.Tensor:
        loss.backward(retain_graph=True)
        return loss

    with pytest.raises(StateError, match=r"keeps an autograd graph.*inside the step.*use setup=") as caught:
        measured(step, state=model)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "modified by an inplace operation" in str(caught.value.__cause__)
    assert "modified by an inplace operation" in str(caught.value)


def test_a_graph_that_is_freed_and_used_again() -> None:
    model = two_layers()
    carried: list[Any] = []

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).sum() + sum(carried)  # what is carried over was never detached
        loss.backward()
        carried[:] = [loss]
        return loss

    with pytest.raises(StateError, match=r"torch said: .*backward through the graph a second time"):
        measured(step, state=model, batches=[torch.ones(3)])


def test_a_steps_own_fault_in_a_later_call_is_named_as_a_possibility_with_its_line() -> None:
    model, calls = two_layers(), iter(range(1000))

    def step(batch: torch.Tensor) -> torch.Tensor:
        probability = model(batch).sigmoid()
        if next(calls) == 6:
            probability.add_(1)
        probability.sum().backward()  # breaks here
        return probability

    with pytest.raises(StateError) as caught:
        measured(step, state=model, batches=[torch.ones(3)])
    said = str(caught.value)
    assert "Either the step changes a tensor in place that its backward pass needs, or it keeps an autograd" in said
    assert "test_measure_retained_graph.py:" in said
    assert "(probability.sum().backward()  # breaks here)" in said


def test_built_anew_such_a_step_can_be_measured() -> None:
    def setup() -> tuple[torch.nn.Module, torch.Tensor]:
        model = two_layers()
        return model, model(torch.ones(3)).sum()

    def step(built: Any) -> torch.Tensor:
        _, loss = built
        loss.backward(retain_graph=True)
        return loss

    assert measured(step, setup=setup).measurement.repeated.status == "equal"


def test_an_error_of_the_first_step_is_the_steps_own() -> None:
    model = two_layers()

    def step() -> None:
        loss = model(torch.ones(3)).sum()
        loss.backward()
        loss.backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time") as caught:
        measured(step, state=model)
    assert not isinstance(caught.value, StateError)


GRAPH_ERROR = "Trying to backward through the graph a second time (or directly access saved tensors ...).\nMore."


@pytest.mark.parametrize("at", [2, 3, 5, 9, 12], ids=["repeat", "warm-up", "window", "run's first step", "sample"])
def test_in_every_phase_after_the_first_step_and_only_for_such_errors(bench: Any, at: int) -> None:
    bench.raise_at, bench.error = at, RuntimeError(GRAPH_ERROR)
    with pytest.raises(StateError, match=r"torch said: Trying to backward .*\)\.$") as caught:
        bench.measure()
    assert caught.value.__cause__ is bench.error
    assert bench.steps == at


def test_another_error_is_not_touched(bench: Any) -> None:
    bench.raise_at, bench.error = 5, RuntimeError("CUDA error: out of memory")
    with pytest.raises(RuntimeError) as caught:
        bench.measure()
    assert caught.value is bench.error


def test_in_the_first_step_the_same_text_goes_through(bench: Any) -> None:
    bench.raise_at, bench.error = 1, RuntimeError(GRAPH_ERROR)
    with pytest.raises(RuntimeError) as caught:
        bench.measure()
    assert caught.value is bench.error
