"""Every optimizer of torch, in every variant that runs here, trains twice from one snapshot to the same bits."""

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


RATE = {"lr": torch.tensor(0.02)}
EVERYWHERE: tuple[dict[str, Any], ...] = ({}, {"foreach": True}, {"foreach": False}, {"maximize": True}, RATE)
USUAL = (*EVERYWHERE, {"differentiable": True}, {"capturable": True}, {"capturable": True, "foreach": True})
BETAS = {"betas": (torch.tensor(0.9), torch.tensor(0.99)), "foreach": False}
ADAM = (*USUAL, {"fused": True}, {"fused": True, "amsgrad": True}, {"amsgrad": True, "foreach": True}, BETAS)

ROWS: dict[str, tuple[dict[str, Any], ...]] = {
    "ASGD": (*USUAL, {"t0": 1, "weight_decay": 0.1}),
    "Adadelta": (*USUAL, {"weight_decay": 0.1}),
    "Adafactor": (*EVERYWHERE, {"weight_decay": 0.1}),
    "Adagrad": (
        *EVERYWHERE,
        {"differentiable": True},
        {"fused": True},
        {"initial_accumulator_value": 0.5, "lr_decay": 0.1},
    ),
    "Adam": (*ADAM, {"decoupled_weight_decay": True, "weight_decay": 0.1}, {"weight_decay": 0.1}),
    "AdamW": (*ADAM, {"weight_decay": 0.1, "maximize": True, "fused": True}),
    "Adamax": USUAL,
    "LBFGS": (
        {"max_iter": 3, "history_size": 2},
        {"max_iter": 3, "lr": torch.tensor(0.5)},
        {"max_iter": 4, "line_search_fn": "strong_wolfe"},
    ),
    "Muon": ({}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"}),
    "NAdam": (*USUAL, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RAdam": (*USUAL, {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    "RMSprop": (*USUAL, {"momentum": 0.5}, {"centered": True}, {"momentum": 0.5, "centered": True, "foreach": True}),
    "Rprop": USUAL,
    "SGD": (
        *EVERYWHERE,
        {"differentiable": True, "momentum": 0.9},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "dampening": 0.5, "foreach": True},
        {"momentum": 0.9, "fused": True},
        {"weight_decay": torch.tensor(0.1)},
    ),
    "SparseAdam": ({}, {"maximize": True}, RATE),
}
"""The arguments of each variant. The tensors among them are copied before an optimizer gets them."""


def optimizers_of_torch() -> Iterator[str]:
    """Every optimizer that torch exports in this release."""
    for name, member in vars(torch.optim).items():
        if (
            inspect.isclass(member)
            and issubclass(member, torch.optim.Optimizer)
            and member is not torch.optim.Optimizer
        ):
            yield name


def test_every_optimizer_of_torch_has_a_row() -> None:
    assert set(optimizers_of_torch()) - set(ROWS) == set()


@pytest.mark.parametrize("name", sorted(optimizers_of_torch()))
def test_every_switch_and_every_argument_that_may_be_a_tensor_has_a_variant(name: str) -> None:
    parameters = list(inspect.signature(getattr(torch.optim, name)).parameters.values())[1:]
    switches = {parameter.name for parameter in parameters if "bool" in str(parameter.annotation)}
    may_be_tensors = {parameter.name for parameter in parameters if "Tensor" in str(parameter.annotation)}
    variants = ROWS[name]
    assert switches - {argument for variant in variants for argument in variant} == set()
    assert (
        may_be_tensors - {argument for variant in variants for argument in variant if _tensors_in(variant[argument])}
        == set()
    )


def _tensors_in(value: object) -> list[torch.Tensor]:
    return [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, torch.Tensor)]


class Training:
    """A network that is trained with one variant of one optimizer, on the data that this optimizer can use."""

    def __init__(self, name: str, arguments: dict[str, Any], device: str) -> None:
        torch.manual_seed(3)
        self.by_hand = bool(arguments.get("differentiable"))
        self.takes_closure = name == "LBFGS"
        self.model, self.batch = _network(name)
        self.model.to(device).requires_grad_(not self.by_hand)
        self.batch = self.batch.to(device)
        self.optimizer = getattr(torch.optim, name)(self.model.parameters(), **copy.deepcopy(arguments))

    def step(self) -> float:
        if self.by_hand:
            return self._step_by_hand()
        if self.takes_closure:
            return float(self.optimizer.step(self._loss))
        loss = self._loss()
        self.optimizer.step()
        return float(loss)

    def train(self, steps: int) -> list[float]:
        return [self.step() for _ in range(steps)]

    def bits(self) -> object:
        """Every bit of parameters, buffers, gradients and the optimizer's state and groups."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        return frozen([self.model.state_dict(), gradients, self.optimizer.state_dict()])

    def addresses(self) -> list[tuple[int, int]]:
        """Which tensors there are, and where they lie."""
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return [(id(tensor), tensor.data_ptr()) for tensor in tensors]

    def _loss(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(self.batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _step_by_hand(self) -> float:
        """With ``differentiable`` torch wants no leaf that needs gradients, so that the step can be differentiated."""
        for parameter in self.model.parameters():
            parameter.grad = torch.randn_like(parameter)
        self.optimizer.step()
        return float(self.model(self.batch).square().mean())


def _network(name: str) -> tuple[nn.Module, torch.Tensor]:
    if name == "SparseAdam":  # takes sparse gradients only
        return nn.Embedding(10, 4, sparse=True), torch.tensor([[1, 2, 2], [5, 1, 9]])
    if name == "Muon":  # takes matrices only
        return nn.Sequential(nn.Linear(4, 6, bias=False), nn.Dropout(0.3), nn.Linear(6, 2, bias=False)), torch.randn(
            8, 4
        )
    layers = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2)
    return nn.Sequential(*layers), torch.randn(8, 4)


def frozen(value: Any) -> object:
    """Nested values as something that no later step changes, tensors by all their bits."""
    if isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo:
        together = value.detach().coalesce()
        return "sparse", frozen(together.indices()), frozen(together.values())
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, tuple(value.shape), value.detach().cpu().numpy().tobytes()
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return [frozen(item) for item in value] if isinstance(value, list | tuple) else value


CASES = [
    pytest.param(name, arguments, id=f"{name}({', '.join(f'{key}={value}' for key, value in arguments.items())})")
    for name, variants in ROWS.items()
    for arguments in variants
]


def training(name: str, arguments: dict[str, Any], device: str) -> Training:
    """Make a training, or skip the test where this torch or this device has no such optimizer."""
    if not hasattr(torch.optim, name):
        pytest.skip(f"torch {torch.__version__} has no {name}")
    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    if unknown := arguments.keys() - parameters.keys():
        pytest.skip(f"{name} of torch {torch.__version__} does not take {', '.join(sorted(unknown))}")
    if arguments.get("capturable") and device == "cpu":
        pytest.skip("torch allows capturable=True on accelerators only")
    return Training(name, arguments, device)


NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ON_EACH_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])


@ON_EACH_DEVICE
@pytest.mark.parametrize("steps_before", [0, 2], ids=["from nothing", "in the middle"])
@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_three_trainings_from_one_snapshot_are_one_training(
    name: str, arguments: dict[str, Any], steps_before: int, device: str
) -> None:
    under_test = training(name, arguments, device)
    under_test.train(steps_before)
    start, addresses = under_test.bits(), under_test.addresses()

    snapshot = capture_state((under_test.model, under_test.optimizer))
    digests = snapshot.digest(), snapshot.settings_digest()
    losses = under_test.train(4)
    end = under_test.bits()

    assert end != start
    for _ in range(3):
        assert (snapshot.digest(), snapshot.settings_digest()) == digests, "the run wrote into the snapshot"
        snapshot.restore()
        assert snapshot.verify() == ()
        assert under_test.bits() == start
        assert under_test.addresses() == addresses
        assert under_test.train(4) == losses
        assert under_test.bits() == end


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_a_run_of_another_length_in_between_leaves_no_trace(name: str, arguments: dict[str, Any]) -> None:
    under_test = training(name, arguments, "cpu")
    state_at_first = len(under_test.optimizer.state)
    assert state_at_first == (2 + 4 if name == "Adagrad" else 0), "only Adagrad makes its state at once"
    snapshot = capture_state([under_test.optimizer, under_test.model])
    losses = under_test.train(2)
    snapshot.restore()
    under_test.train(5)
    snapshot.restore()
    assert len(under_test.optimizer.state) == state_at_first
    assert all(parameter.grad is None for parameter in under_test.model.parameters())
    assert under_test.train(2) == losses


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_step_that_can_be_differentiated_repeats(name: str) -> None:
    """The gradient depends on a rate that is learned, so the step hangs parameters and moments into a graph."""
    parameter, scale = nn.Parameter(torch.ones(3), requires_grad=False), nn.Parameter(torch.tensor(2.0))
    make: Callable[..., torch.optim.Optimizer] = getattr(torch.optim, name)
    optimizer = make([parameter], lr=0.1, differentiable=True)
    snapshot = capture_state({"parameter": parameter, "optimizer": optimizer, "scale": scale})
    found = []
    for _ in range(3):
        parameter.grad = torch.tensor([1.0, -2.0, 3.0]) * scale
        optimizer.step()
        parameter.sum().backward()  # type: ignore[no-untyped-call]
        found.append(frozen([parameter, scale.grad]))
        snapshot.restore()
        assert snapshot.verify() == ()
        assert (parameter.is_leaf, parameter.requires_grad, parameter.grad, scale.grad) == (True, False, None, None)
        assert parameter.tolist() == [1, 1, 1]
    assert found == [found[0]] * 3


def test_parameter_groups_keep_their_own_rates_and_whether_each_parameter_learns() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    groups = [{"params": list(model[0].parameters()), "lr": 0.5}, {"params": list(model[1].parameters()), "lr": 0.25}]
    optimizer = torch.optim.SGD(groups, momentum=0.5)
    model[0].weight.requires_grad_(False)
    snapshot = capture_state((model, optimizer))

    model[0].weight.requires_grad_(True)
    optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["momentum"] = 0.125, 0.0
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    snapshot.restore()

    assert [(group["lr"], group["momentum"]) for group in optimizer.param_groups] == [(0.5, 0.5), (0.25, 0.5)]
    assert [parameter.requires_grad for parameter in model.parameters()] == [False, True, True, True]
    assert snapshot.verify() == ()
