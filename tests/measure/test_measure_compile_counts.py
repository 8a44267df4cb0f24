"""Graph breaks and graphs of a whole test: counted where nothing was compiled before, absent everywhere else."""

import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from measuring import SHORT_WINDOW, measured, measurement_of

from pytest_stepprof.measure.compile_counts import (
    COMPILATIONS,
    GRAPH_BREAKS,
    CompileCounts,
    compile_counters,
    compile_counts,
)
from pytest_stepprof.record.window import Counter


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    level = logging.getLogger("torch").level
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(level)


def counted(breaks: int, graphs: int) -> tuple[Counter, ...]:
    return (
        Counter(name=GRAPH_BREAKS, unit="breaks", per_step=(breaks,), exact=True, scope="measurement"),
        Counter(name=COMPILATIONS, unit="graphs", per_step=(graphs,), exact=True, scope="measurement"),
    )


@pytest.mark.parametrize(
    ("before", "after", "warmed_up", "expected"),
    [
        (CompileCounts(0, 0), CompileCounts(2, 3, compiled_code=True), True, counted(2, 3)),
        (CompileCounts(5, 7), CompileCounts(5, 8, compiled_code=True), True, counted(0, 1)),
        (CompileCounts(0, 0), CompileCounts(1, 0, compiled_code=True), True, counted(1, 0)),
        (CompileCounts(0, 0), CompileCounts(0, 0), True, ()),
        (CompileCounts(5, 7, compiled_code=True), CompileCounts(6, 8, compiled_code=True), True, ()),
        (CompileCounts(0, 0), CompileCounts(2, 3, compiled_code=True), False, ()),
    ],
    ids=["first", "after a reset", "breaks only", "nothing compiled", "compiled code before", "warm-up cut short"],
)
def test_when_there_are_counters(
    before: CompileCounts, after: CompileCounts, warmed_up: bool, expected: tuple[Counter, ...]
) -> None:
    assert compile_counters(before, after, warmed_up=warmed_up) == expected


def breaking(values: torch.Tensor) -> torch.Tensor:
    doubled = values * 2
    torch._dynamo.graph_break()
    return doubled + 1


def whole(values: torch.Tensor) -> torch.Tensor:
    return values * 2 + 1


def of_the_test(step: Callable[..., Any], **more: Any) -> tuple[Counter, ...]:
    counters = measurement_of(measured(step, **more)).window.counters
    return tuple(counter for counter in counters if counter.scope == "measurement")


def compiled_step(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(function, backend="eager", dynamic=False)
    return compiled


BATCHES = [torch.ones(2)] * 4


def test_breaks_and_graphs_from_the_first_step_on() -> None:
    assert of_the_test(compiled_step(breaking), batches=BATCHES) == counted(1, 2)


def test_a_step_in_one_graph() -> None:
    assert of_the_test(compiled_step(whole), batches=BATCHES) == counted(0, 1)


def test_another_shape_in_the_warm_up_counts() -> None:
    assert of_the_test(compiled_step(whole), batches=[torch.ones(2), torch.ones(3)]) == counted(0, 2)


def test_a_step_that_is_not_compiled_has_no_such_counter() -> None:
    assert of_the_test(whole, batches=BATCHES) == ()


def test_code_that_is_compiled_already_would_be_counted_in_part() -> None:
    step = compiled_step(breaking)
    alone = of_the_test(step, batches=BATCHES)
    assert of_the_test(step, batches=[torch.ones(5)] * 4) == ()
    assert of_the_test(compiled_step(whole), batches=BATCHES) == ()
    torch._dynamo.reset()
    assert of_the_test(step, batches=BATCHES) == alone


def test_a_warm_up_that_the_budget_cut_short_may_have_missed_a_shape() -> None:
    settings = msgspec.structs.replace(SHORT_WINDOW, warmup_steps=50, budget_s=1e-6)
    assert of_the_test(compiled_step(whole), settings=settings, batches=BATCHES) == ()


def test_a_torch_that_counts_elsewhere_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.ModuleType("torch._dynamo.utils"))
    assert compile_counts() == CompileCounts()
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert compile_counts() == CompileCounts()


def test_a_torch_that_does_not_say_what_is_compiled_gives_no_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._dynamo.convert_frame, "input_codes")
    assert compile_counts().compiled_code


def test_reading_the_counts_leaves_them_as_they_are() -> None:
    counters = torch._dynamo.utils.counters
    before = {name: dict(found) for name, found in counters.items()}
    compile_counts()
    assert {name: dict(found) for name, found in counters.items()} == before
