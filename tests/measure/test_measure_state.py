import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_training import OPTIMIZERS, Trainer
from torch import nn

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.snapshot import capture_state


def test_state_that_did_not_exist_is_gone_and_state_that_did_is_the_same_object() -> None:
    trainer = Trainer(OPTIMIZERS["adam"])
    empty = capture_state(trainer.optimizer)
    trainer.step()
    full = capture_state(trainer.optimizer)
    parameter = trainer.model[0].weight
    moments = trainer.optimizer.state[parameter]["exp_avg"]
    trainer.optimizer.load_state_dict(copy.deepcopy(trainer.optimizer.state_dict()))
    full.restore()
    assert trainer.optimizer.state[parameter]["exp_avg"] is moments
    empty.restore()
    assert len(trainer.optimizer.state) == 0
    assert empty.verify() == ()


def test_an_optimizer_alone_brings_its_parameters() -> None:
    trainer = Trainer(OPTIMIZERS["sgd"])
    weight = trainer.model[0].weight.detach().clone()
    snapshot = capture_state(trainer.optimizer)
    trainer.step()
    snapshot.restore()
    assert torch.equal(trainer.model[0].weight, weight)


class Odd(nn.Module):
    """What real modules do besides parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tied_one = nn.Linear(3, 3, bias=False)
        self.tied_two = nn.Linear(3, 3, bias=False)
        self.tied_two.weight = self.tied_one.weight
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("hidden_from_state_dict", torch.ones(2), persistent=False)
        self.register_buffer("repeated", torch.arange(3.0).expand(4, 3))
        self.register_buffer("not_yet", None)
        self.loose = torch.ones(2)
        self.calls = 0
        self.cache: object = None


def _change(module: Odd) -> None:
    with torch.no_grad():
        module.tied_one.weight.add_(1)
        module.hidden_from_state_dict.mul_(7)
        module.loose.fill_(9)
    module.average = module.average * 0.5 + 1  # assignment puts another tensor in the slot
    module.repeated = torch.zeros(4, 3)
    module.not_yet = torch.ones(1)
    module.register_buffer("late", torch.ones(1))
    module.add_module("late_child", nn.Linear(1, 1))
    module.loose = torch.zeros(5)
    module.tied_two.weight = nn.Parameter(torch.zeros(3, 3))
    module.tied_one.weight.requires_grad_(False)
    module.eval()


def test_slots_identities_ties_flags_and_hidden_buffers_come_back() -> None:
    module = Odd()
    module.tied_two.eval()
    weight, average, loose = module.tied_one.weight, module.average, module.loose
    values = weight.detach().clone()
    snapshot = capture_state(module)
    _change(module)
    assert set(snapshot.verify()) == {
        "state.average", "state.hidden_from_state_dict", "state.repeated", "state.not_yet", "state.late",
        "state.late_child", "state.loose", "state.tied_two.weight", "state.tied_one.weight",
        "state.tied_one.weight.requires_grad", "state.training", "state.tied_one.training",
    }  # fmt: skip
    snapshot.restore()
    assert snapshot.verify() == ()
    assert module.tied_one.weight is module.tied_two.weight is weight
    assert (module.average is average, module.loose is loose, module.not_yet) == (True, True, None)
    assert torch.equal(weight, values)
    assert weight.requires_grad
    assert module.loose.tolist() == [1, 1]
    assert module.hidden_from_state_dict.tolist() == [1, 1]
    assert module.repeated.tolist() == [[0, 1, 2]] * 4
    assert not hasattr(module, "late")
    assert [name for name, _ in module.named_children()] == ["tied_one", "tied_two"]
    assert (module.training, module.tied_one.training, module.tied_two.training) == (True, True, False)


def test_plain_attributes_are_named_and_left_alone() -> None:
    module = Odd()
    snapshot = capture_state({"net": module})
    assert snapshot.unrestored() == ()
    module.calls += 1
    module.cache = torch.ones(3)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert snapshot.unrestored() == ("state['net'].calls", "state['net'].cache")
    assert module.calls == 1


def test_gradients_come_back_as_value_or_none_in_the_same_tensor() -> None:
    module = nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    module.bias.grad = None
    gradient = module.weight.grad
    snapshot = capture_state(module)
    module(torch.ones(1, 2)).sum().backward()
    module.zero_grad()
    assert snapshot.verify() == ("state.weight.grad",)
    snapshot.restore()
    assert module.weight.grad is gradient
    assert gradient is not None
    assert gradient.tolist() == [[1, 1]]
    assert module.bias.grad is None


@pytest.mark.parametrize(
    "swap",
    [
        lambda p: setattr(p, "data", torch.zeros(2, 3)),
        lambda p: setattr(p, "data", p.data.half()),
        lambda p: setattr(p, "data", torch.zeros(5)),
        lambda p: setattr(p, "data", p.data.t().contiguous().t()),
    ],
    ids=["other memory", "other dtype", "other shape", "other strides"],
)
def test_a_parameter_whose_memory_was_exchanged_gets_its_own_back(swap: Callable[[nn.Parameter], None]) -> None:
    module = nn.Linear(3, 2)
    address, values, view = module.weight.data_ptr(), module.weight.detach().clone(), module.weight.detach()[0]
    snapshot = capture_state(module)
    swap(module.weight)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert (module.weight.data_ptr(), module.weight.dtype) == (address, torch.float32)
    assert torch.equal(module.weight, values)
    with torch.no_grad():
        module.weight.zero_()
    assert view.tolist() == [0, 0, 0]  # a view taken before is a view again


def test_a_buffer_that_became_part_of_a_graph_is_a_leaf_again() -> None:
    module = nn.BatchNorm1d(2)
    snapshot = capture_state(module)
    module.running_mean.add_(module.weight)  # type: ignore[union-attr, operator, arg-type]
    snapshot.restore()
    assert snapshot.verify() == ()
    assert module.running_mean is not None
    assert module.running_mean.is_leaf
    assert module.running_mean.tolist() == [0, 0]


def test_a_tensor_made_in_inference_mode_is_put_back() -> None:
    with torch.inference_mode():
        tensor = torch.ones(2)
    snapshot = capture_state([tensor])
    with torch.inference_mode():
        tensor.zero_()
    snapshot.restore()
    assert tensor.tolist() == [1, 1]
    assert snapshot.verify() == ()
    with torch.inference_mode():
        tensor.data = torch.zeros(3)
    snapshot.restore()
    assert tensor.tolist() == [1, 1]
    assert snapshot.verify() == ()


def test_batch_norm_statistics_survive_a_warm_up_on_garbage() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    batch = torch.randn(5, 3)
    expected = copy.deepcopy(model).eval()(batch)
    snapshot = capture_state(model)
    model(torch.full((5, 3), float("nan")))
    snapshot.restore()
    assert torch.equal(model.eval()(batch), expected)
    assert int(model[1].num_batches_tracked) == 0


def test_user_generators_and_the_global_state_repeat() -> None:
    generator = torch.Generator().manual_seed(5)
    snapshot = capture_state({"sampler": [generator]})
    first = torch.rand(3, generator=generator), torch.rand(3)
    snapshot.restore()
    assert torch.equal(torch.rand(3, generator=generator), first[0])
    assert torch.equal(torch.rand(3), first[1])


def test_no_state_means_the_random_state_only() -> None:
    snapshot = capture_state(None)
    first = torch.rand(3)
    snapshot.restore()
    assert torch.equal(torch.rand(3), first)
    assert snapshot.verify() == ()


class Loadable:
    """Keeps what it is given, as careless objects do."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {"tensor": torch.zeros(2), "seen": [1], "nested": ({"n": 1},)}

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state


def test_objects_that_load_themselves_never_get_hold_of_the_snapshot() -> None:
    loadable = Loadable()
    snapshot = capture_state(loadable)
    for _ in range(3):
        loadable.kept["tensor"].add_(1)
        loadable.kept["seen"].append(2)
        loadable.kept["nested"][0]["n"] = 5
        loadable.kept["new"] = 1
        assert snapshot.verify() == tuple(
            f"state.state_dict(){path}" for path in ("['tensor']", "['seen'][1]", "['nested'][0]['n']", "['new']")
        )
        snapshot.restore()
        assert snapshot.verify() == ()
        assert loadable.kept["tensor"].tolist() == [0, 0]


class WithExtraState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.history = [1]

    def get_extra_state(self) -> dict[str, list[int]]:
        return {"history": self.history}

    def set_extra_state(self, state: dict[str, list[int]]) -> None:
        self.history = state["history"]


def test_a_modules_extra_state_comes_back_each_time() -> None:
    module = nn.Sequential(WithExtraState())
    snapshot = capture_state(module)
    for _ in range(2):
        module[0].history.append(2)
        assert snapshot.verify() == ("state.0.extra_state['history'][1]",)
        snapshot.restore()
        assert module[0].history == [1]


def test_lists_and_dicts_hold_again_what_they_held() -> None:
    one, two = torch.zeros(1), torch.ones(1)
    bank, table = [one], {"a": two, "n": 1}
    snapshot = capture_state((bank, table))
    bank.append(two)
    table["a"], table["b"] = one, one
    one.add_(4)
    snapshot.restore()
    assert bank == [one]
    assert table == {"a": two, "n": 1}
    assert one.tolist() == [0]


@pytest.mark.parametrize(
    ("then", "now"),
    [(0.0, -0.0), (1.0, 1.0000001), (float("nan"), 1.0), (float("inf"), float("-inf"))],
)
def test_verify_sees_a_single_bit(then: float, now: float) -> None:
    tensor = torch.full((3, 2), then)
    snapshot = capture_state({"t": tensor})
    assert snapshot.verify() == ()
    tensor[2, 1] = now
    assert snapshot.verify() == ("state['t']",)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (object(), r"state is of type object.*state= takes torch modules"),
        (3, r"state is of type int"),
        ((nn.Linear(1, 1), {1}), r"state\[1\] is of type set.*as a list"),
        ({"p": nn.Linear(1, 1).parameters()}, r"state\['p'\] is of type generator.*hand in the module itself"),
        ([lambda: None], r"state\[0\] is of type function.*two by two, as a tuple"),
        ([print, len], r"state\[0\] is of type builtin_function_or_method.*two by two"),
        ((print, nn.Identity()), r"state\[0\] is of type builtin_function_or_method.*two by two"),
        ((print, len, repr), r"state\[0\] is of type builtin_function_or_method.*two by two"),
        ((dict, list), r"state\[0\] is of type type"),
        (nn.LazyLinear(2), r"state.weight is not initialized yet"),
        (nn.Linear(2, 2, device="meta"), r"state.weight is a tensor without memory.*meta"),
    ],
)
def test_what_cannot_be_captured_is_refused_by_name(state: object, message: str) -> None:
    with pytest.raises(StateError, match=message):
        capture_state(state)


def test_a_second_backward_across_a_restore_is_torchs_own_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    snapshot = capture_state(model)
    loss = model(torch.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    snapshot.restore()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
