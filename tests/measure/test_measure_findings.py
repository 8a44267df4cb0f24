"""Small real steps with a fault that a CPU can show, and the same steps cured.

The faults are so gross and the cures so complete that no load of the machine can change the answer: what a cure has
taken away is not in the trace at all.
"""

import logging
import time
from collections.abc import Callable, Iterator

import pytest
import torch
import window_steps
from torch.profiler import record_function
from window_steps import Step, request_of, taken

from pytest_stepprof.measure.window import READ_LABEL
from pytest_stepprof.record.finding import Finding, FindingCode

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind


def said(step: Step, **more: int) -> dict[FindingCode, Finding]:
    return {finding.code: finding for finding in taken(step, **more).window.findings}


def test_a_step_that_waits_for_its_data() -> None:
    batch = torch.ones(100)

    def waiting() -> None:
        with record_function(READ_LABEL):
            time.sleep(0.05)
        batch.sum()

    def cured() -> None:
        batch.sum()

    finding = said(waiting)["input pipeline"]
    assert finding.observation.startswith("Reading a batch takes ")
    assert finding.share is not None
    assert finding.share > 0.3
    assert "input pipeline" not in said(cured)


def test_a_step_that_converts_the_same_tensor_every_time() -> None:
    numbers = torch.ones(2_000_000, dtype=torch.float64)
    ready = numbers.float()

    def converting() -> None:
        numbers.float().relu_()

    def cured() -> None:
        ready.relu_()

    finding = said(converting)["recurring copy"]
    assert "aten::copy_ (1 call per step)" in finding.observation
    assert "recurring copy" not in said(cured)
    assert "recurring copy" not in said(converting, active=1)


def test_a_step_of_thousands_of_operators() -> None:
    total, one = torch.zeros(1), torch.ones(1)

    def loop() -> None:
        for _ in range(5000):
            total.add_(one)

    def cured() -> None:
        total.add_(one, alpha=5000)

    finding = said(loop)["many small operators"]
    assert "5000 calls per step" in finding.observation
    assert "aten::add_ (5000 calls per step)" in finding.observation
    assert "many small operators" not in said(cured)


def test_a_step_of_one_operator() -> None:
    table, rows = torch.ones(20_000, 256), torch.randint(20_000, (20_000,))

    def gathering() -> None:
        table[rows].view(-1)

    def cured() -> None:
        table[5:15_000].view(-1)

    finding = said(gathering)["dominant operator"]
    assert finding.observation.startswith("aten::index (1 call per step) takes ")
    assert finding.hypothesis.startswith("This operator moves data")
    assert "aten::index " not in " ".join(found.observation for found in said(cured).values())


def test_a_step_of_arithmetic_says_so() -> None:
    matrix = torch.ones(400, 400)

    def multiplying() -> None:
        matrix @ matrix

    assert said(multiplying)["dominant operator"].hypothesis.startswith("This is arithmetic")


def test_a_step_that_does_something_else() -> None:
    matrix = torch.ones(1000, 1000)

    def sleeping() -> None:
        matrix[0].sum()
        with record_function("write a log"):
            time.sleep(0.05)

    def cured() -> None:
        """One long operator: what is outside of it is a few microseconds in each of two steps."""
        matrix @ matrix

    finding = said(sleeping)["time outside of operators"]
    assert "Of the labels, write a log has most time of its own" in finding.observation
    assert "wait (files, locks, sleep)" in finding.hypothesis
    assert "time outside of operators" not in said(cured)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    level = logging.getLogger("torch").level
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(level)


def compiled_step(sizes: Iterator[int]) -> Step:
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(
        lambda values: values * 2, backend="eager", dynamic=False
    )
    return lambda: (compiled(torch.ones(next(sizes))), None)[1]


@pytest.mark.usefixtures("fresh_compiler")
def test_a_step_that_compiles_again() -> None:
    finding = said(compiled_step(iter((2, 3, 4, 5))))["compilation in the window"]
    assert "The compiler is at work for" in finding.observation
    assert "compilation in the window" not in said(compiled_step(iter((6, 6, 6, 6))))


def test_a_step_with_a_peak_of_memory() -> None:
    numbers = torch.ones(100)

    def large() -> None:
        with record_function("attention"):
            torch.ones(8 * 2**20).relu_()

    def cured() -> None:
        with record_function("attention"):
            numbers.relu_()

    def found(step: Step) -> list[Finding]:
        request = request_of("attention", record_memory=True)
        window = window_steps.take_window(step, request, window_steps.nothing).window
        return [finding for finding in window.findings if finding.code == "memory peak"]

    (finding,) = found(large)
    assert finding.observation.startswith("On cpu, memory rises to 32 MiB above the start of a step")
    assert "at the peak, attention is at work" in finding.observation
    assert found(cured) == []
