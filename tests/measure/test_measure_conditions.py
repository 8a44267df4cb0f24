"""What is seen of the conditions: compilation, flags of torch, undeclared state, words made safe to print."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_stepprof.measure.conditions import compiled, see_scenario, torch_facts, torch_flags, undeclared_state
from pytest_stepprof.measure.device import CpuDevice
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.scenario import Scenario


def seen(**more: Any) -> Scenario:
    request = StepRequest(**{"step": lambda: 1, **more})
    return see_scenario(request, batch=(), source="none", device=CpuDevice())


def compiled_in_place() -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    module[0].compile()
    return module


def test_a_module_compiled_in_place_is_seen() -> None:
    assert compiled(StepRequest(step=lambda: 1, state=(compiled_in_place(),))) == ("Linear",)


def test_a_wrapped_module_is_seen_by_the_name_of_its_own_class() -> None:
    assert compiled(StepRequest(step=lambda: 1, state=torch.compile(torch.nn.Linear(2, 2)))) == ("Linear",)


def test_a_compiled_module_that_is_step_and_state_is_named_once() -> None:
    module = torch.nn.Linear(2, 2)
    module.compile()
    assert compiled(StepRequest(step=module, state=module)) == ("Linear",)


def test_a_compiled_function_is_seen() -> None:
    assert compiled(StepRequest(step=torch.compile(lambda: 1))) == ("step",)


def test_what_is_not_compiled_has_no_name() -> None:
    assert compiled(StepRequest(step=lambda: 1, state=torch.nn.Linear(2, 2))) == ()


@pytest.fixture
def flags_put_back() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.benchmark = before[1]


def test_flags_are_seen_as_they_are_when_the_step_runs(flags_put_back: None) -> None:
    assert seen().torch_flags == (
        "float32 matrix products: highest",
        "deterministic algorithms: off",
        "cudnn.benchmark: off",
    )
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    assert seen().torch_flags == (
        "float32 matrix products: medium",
        "deterministic algorithms: on",
        "cudnn.benchmark: on",
    )


def test_a_precision_set_by_backend_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision="tf32"))
    assert torch_flags()[0] == "float32 matrix products: tf32 on CUDA"


def test_facts_of_a_session_do_not_follow_flags(flags_put_back: None) -> None:
    before = torch_facts()
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    assert torch_facts() == before
    assert (
        {"torch", "torch build", "blas"} <= set(before) <= {"torch", "torch build", "blas", "device", "device toolkit"}
    )


def test_words_of_a_person_are_stored_without_control_characters() -> None:
    scenario = seen(question="why\x1b[2J", represents="a\nb", regions=("for\tward",))
    assert scenario.question == "why\\x1b[2J"
    assert scenario.represents == "a\\x0ab"
    assert scenario.regions == ("for\\x09ward",)


def test_a_module_in_the_closure_that_state_does_not_hold_is_named() -> None:
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert undeclared_state(StepRequest(step=lambda: (model, other), state=model)) == ("other",)


def test_whatever_a_step_moves_on_is_missed_in_the_state() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")
    generator, of_batches = torch.Generator(), torch.Generator()
    loader = torch.utils.data.DataLoader([1, 2], generator=of_batches)

    def step(batch: object) -> object:
        return batch, model, optimizer, scheduler, scaler, generator, of_batches

    missing = undeclared_state(StepRequest(step=step, batches=loader, state=(model, optimizer)))
    assert missing == ("generator", "scaler", "scheduler")
    for brings_all in (
        [model, optimizer, scheduler, scaler, generator],
        [model, scheduler, scaler, generator],  # a scheduler brings its optimizer
        [model, scheduler, scaler, torch.utils.data.DataLoader([1], generator=generator)],
        [model, scheduler, scaler, (generator.get_state, generator.set_state)],
        [model, scheduler, scaler, (lambda: generator.get_state(), lambda state: generator.set_state(state))],
    ):
        assert undeclared_state(StepRequest(step=step, batches=loader, state=brings_all)) == ()


def test_a_closure_with_a_name_that_has_no_value_yet_says_nothing() -> None:
    def step() -> Any:
        return later(model)

    model = torch.nn.Linear(2, 2)
    assert undeclared_state(StepRequest(step=step)) == ()

    def later(value: Any) -> Any:
        return value

    assert undeclared_state(StepRequest(step=step)) == ("model",)
