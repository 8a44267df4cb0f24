"""What is compared: one result, or those of several steps one after the other, and parameters after them."""

import weakref
from typing import Any

import phase_bench
import pytest
import torch
from measuring import codes, measured
from phase_bench import CPU, READ_NS, SETTINGS, STEP_NS, Loader

from pytest_stepprof.errors import BatchError, OutputError, UsageError
from pytest_stepprof.measure import checked_steps
from pytest_stepprof.measure.checked_steps import parameters_of
from pytest_stepprof.measure.outputs.taking import take_outputs
from pytest_stepprof.measure.phases import check_step
from pytest_stepprof.measure.request import StepRequest

bench = phase_bench.bench


class Training:
    """A linear layer that is trained: the loss falls from step to step."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @property
    def state(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        return self.model, self.optimizer

    def step(self) -> dict[str, torch.Tensor]:
        self.optimizer.zero_grad()
        loss = self.model(torch.ones(2, 3)).square().mean()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss}


def leaves(step: Any) -> dict[str, Any]:
    """Every stored leaf's value by its path, for results without containers of odd kinds."""
    return {node.path: node for node in step.outputs.stored.nodes if node.kind not in ("container", "none")}


def test_a_single_result_is_compared_as_it_is() -> None:
    training = Training()
    step = measured(training.step, state=training.state)
    assert list(leaves(step)) == ["['loss']"]
    assert step.scenario.check_steps == 1
    assert not step.scenario.check_parameters


def test_the_results_of_several_steps_are_compared_under_their_numbers() -> None:
    training, alone = Training(), Training()
    losses = [alone.step()["loss"].item() for _ in range(3)]
    step = measured(training.step, state=training.state, check_steps=3)
    assert list(leaves(step)) == ["['step 1']['loss']", "['step 2']['loss']", "['step 3']['loss']"]
    assert step.outputs == take_outputs({f"step {i}": {"loss": torch.tensor(loss)} for i, loss in enumerate(losses, 1)})
    assert step.output["loss"].item() == losses[0]
    assert step.measurement.repeated.status == "equal"
    assert step.measurement.repeated.leaves_compared == 3
    assert [run.same_result for run in step.measurement.runs] == [True, True]
    assert step.scenario.check_steps == 3
    assert codes(step) == []


def test_parameters_are_those_after_the_last_step_that_is_checked() -> None:
    training, alone = Training(), Training()
    losses = [alone.step()["loss"].detach() for _ in range(2)]
    step = measured(training.step, state=training.state, check_steps=2, check_parameters=True)
    expected = {
        "step 1": {"loss": losses[0]},
        "step 2": {"loss": losses[1]},
        "parameters": {"module 0.weight": alone.model.weight, "module 0.bias": alone.model.bias},
    }
    same = take_outputs(expected)
    assert step.outputs.payload == same.payload
    assert list(leaves(step))[-2:] == ["['parameters']['module 0.weight']", "['parameters']['module 0.bias']"]
    assert step.scenario.check_parameters


def test_parameters_can_be_compared_after_one_step_and_without_any_result() -> None:
    training = Training()

    def step() -> None:
        training.step()

    taken = measured(step, state=training.state, check_parameters=True)
    assert list(leaves(taken)) == ["['parameters']['module 0.weight']", "['parameters']['module 0.bias']"]
    assert taken.output is None
    assert [run.same_result for run in taken.measurement.runs] == [None, None]


def test_a_difference_that_shows_only_later_is_found_by_the_repetition() -> None:
    calls = iter(range(1000))

    def step() -> float:
        return 1.0 if next(calls) != 3 else 5.0  # the second step, the second time

    notices = measured(step, check_steps=2).measurement.notices
    (notice,) = [one for one in notices if one.code == "step does not repeat itself"]
    assert "['step 2']" in notice.message


def test_the_order_of_reads_and_the_times(bench: Any) -> None:
    measurement = bench.measure(check_steps=3).measurement
    log = [line for line in bench.big_log() if line.startswith(("read", "step", "restore", "iterator"))]
    three = ["read 0", "step", "read 1", "step", "read 2", "step"]
    assert log[:16] == ["iterator", *three, "restore", "iterator closed", "iterator", *three]
    assert measurement.cold_start.step_ns == STEP_NS
    assert measurement.cold_start.read_ns == READ_NS
    assert measurement.warm_up.steps_ns == (STEP_NS,) * 2


def test_checking_only_takes_all_of_them_too(bench: Any) -> None:
    request = StepRequest(step=bench.step, batches=Loader(bench), check_steps=4)
    checked = check_step(request, SETTINGS, bench.instruments, under_test=CPU)
    assert bench.steps == 4
    assert checked.outputs.stored.leaf_count == 4


@pytest.mark.parametrize("count", [1, 4])
def test_one_pass_has_to_hold_them(bench: Any, count: int) -> None:
    with pytest.raises(BatchError, match=rf"check_steps=5 needed 5 batches in one pass, got {count}. Hand in"):
        bench.measure(batches=Loader(bench, count=count), check_steps=5)


def test_a_list_goes_round() -> None:
    seen = []

    def step(batch: torch.Tensor) -> torch.Tensor:
        seen.append(batch.item())
        return batch

    measured(step, batches=[torch.tensor(1.0), torch.tensor(2.0)], check_steps=3)
    assert seen[:3] == [1, 2, 1]


def test_an_iterator_that_can_be_used_once_is_kept_long_enough() -> None:
    step = measured(lambda batch: batch, batches=iter([torch.tensor(float(i)) for i in range(20)]), check_steps=8)
    assert step.outputs == take_outputs({f"step {i + 1}": torch.tensor(float(i)) for i in range(8)})


def test_no_module_to_take_parameters_from_is_an_error_before_the_first_step() -> None:
    calls: list[int] = []
    with pytest.raises(UsageError, match="check_parameters=True, and there is no module with parameters"):
        measured(lambda: calls.append(1), state=torch.ones(1), check_parameters=True)
    assert calls == []


def test_nothing_in_any_of_the_results_is_an_error() -> None:
    with pytest.raises(OutputError, match="returned None"):
        measured(lambda: None, check_steps=3)


def test_parameters_of_what_setup_and_load_made() -> None:
    def step(model: torch.nn.Module) -> torch.Tensor:
        return model(torch.ones(2)).detach()

    for how in ("setup", "load"):
        taken = measured(step, check_parameters=True, **{how: lambda: torch.nn.Linear(2, 1)})
        assert "['parameters']['module 0.bias']" in leaves(taken)


def test_shared_parameters_are_named_once_and_compiling_changes_no_name() -> None:
    body = torch.nn.Linear(2, 2)
    tied = torch.nn.Linear(2, 2, bias=False)
    tied.weight = body.weight
    compiled = torch.compile(torch.nn.Linear(2, 2))
    names = list(parameters_of({"models": [body, tied, body], "compiled": compiled}))
    assert names == ["module 0.weight", "module 0.bias", "module 2.weight", "module 2.bias"]


def test_where_results_lay_is_kept_although_the_copies_lie_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec

    def on_device(result: Any, **more: Any) -> Any:
        taken = take_outputs(result, **more)
        if isinstance(result, dict):  # all of them together, after they were copied
            return taken
        nodes = tuple(msgspec.structs.replace(node, device_kind="cuda") for node in taken.stored.nodes)
        return type(taken)(stored=msgspec.structs.replace(taken.stored, nodes=nodes), payload=taken.payload)

    monkeypatch.setattr(checked_steps, "take_outputs", on_device)
    step = measured(lambda: torch.ones(2), check_steps=2)
    assert [node.device_kind for node in leaves(step).values()] == ["cuda", "cuda"]


@pytest.mark.parametrize("check_steps", [1, 3])
def test_a_result_is_let_go_of_before_the_next_step(check_steps: int) -> None:
    results: list[weakref.ref[torch.Tensor]] = []

    def step(batch: torch.Tensor) -> torch.Tensor:
        assert [one() for one in results] == [None] * len(results)
        result = batch * 2
        results.append(weakref.ref(result))
        return result

    taken = measured(step, batches=[torch.ones(2)], check_steps=check_steps)
    assert taken.output.tolist() == [2, 2]
    assert len(results) >= 2 * check_steps + 2 + 4 + 2 * 5


def test_a_result_is_copied_before_its_memory_is_used_again() -> None:
    buffer = torch.zeros(2)

    def step() -> torch.Tensor:
        return buffer.add_(1)

    taken = measured(step, state=buffer, check_steps=3)
    assert taken.outputs == take_outputs({f"step {i}": torch.full((2,), float(i)) for i in (1, 2, 3)})
    assert taken.output.tolist() == [1, 1]


def test_the_first_steps_result_is_the_first_calls() -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def increase(self) -> int:
            self.value += 1
            return self.value

    assert measured(Counter.increase, setup=Counter).output == 1


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"check_steps": 0}, "check_steps is 0; expected 1 or more"),
        ({"check_steps": True}, "check_steps is True, a bool; expected a whole number"),
        ({"check_steps": 2.0}, r"check_steps is 2\.0, a float; expected a whole number"),
        ({"check_steps": None}, "check_steps is None, a NoneType; expected a whole number"),
        ({"check_parameters": 1}, "check_parameters is 1, a int; expected True or False"),
    ],
)
def test_what_is_no_number_of_steps_is_refused(argument: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        StepRequest(step=lambda: 1, **argument)
