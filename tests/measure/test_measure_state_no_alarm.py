"""What torch and other libraries keep for themselves gives no alarm; what optimizers of one's own keep does."""

import logging
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from small_training import OPTIMIZERS, Trainer
from torch import nn
from torch.nn.utils import parametrizations, prune

from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    yield
    torch.compiler.reset()


class Opaque:
    """A step's way to things that must not be looked into: loggers count, and their caches fill."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("stepprof.test")
        self.lock = threading.Lock()
        self.stream = (number for number in range(3))
        self.event = torch.Event("cpu") if hasattr(torch, "Event") else None


def test_bookkeeping_of_libraries_gives_no_alarm() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    module[0].thing = Opaque()
    snapshot = capture_state(module)
    module[0].thing.logger.isEnabledFor(10)
    next(module[0].thing.stream)
    with module[0].thing.lock:
        snapshot.restore()
        assert snapshot.unrestored() == ()


def _trained(model: nn.Module, batch: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    result = model(batch)
    (result[0] if isinstance(result, tuple) else result).square().mean().backward()
    optimizer.step()


def _compiled() -> nn.Module:
    return torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")  # type: ignore[return-value]


def _compiled_in_place() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2))
    model.compile(backend="eager")
    return model


def _averaged() -> nn.Module:
    return torch.optim.swa_utils.AveragedModel(nn.Linear(4, 4), use_buffers=True)


def _pruned() -> nn.Module:
    model = nn.Linear(4, 4)
    prune.l1_unstructured(model, "weight", amount=0.5)
    return model


def _old_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning, match="weight_norm"):
        return torch.nn.utils.weight_norm(nn.Linear(4, 4))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "compiled": _compiled,
    "compiled in place": _compiled_in_place,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "old weight norm": _old_weight_norm,
    "old spectral norm": lambda: torch.nn.utils.spectral_norm(nn.Linear(4, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "pruned": _pruned,
    "lstm": lambda: nn.LSTM(4, 4, num_layers=2, batch_first=True),
    "gru": lambda: nn.GRU(4, 4, bidirectional=True),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "averaged": _averaged,
    "attention": lambda: nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_torchs_own_modules_train_twice_alike_and_give_no_alarm(name: str) -> None:
    torch.manual_seed(1)
    model, batch = MODELS[name](), torch.randn(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    averaged = isinstance(model, torch.optim.swa_utils.AveragedModel)
    source = nn.Linear(4, 4) if averaged else None
    if source is not None:
        optimizer.add_param_group({"params": source.parameters()})

    def run() -> list[bytes]:
        for _ in range(2):
            _trained(source or model, batch, optimizer)
            scheduler.step()
            if source is not None:
                model.update_parameters(source)  # type: ignore[operator]
        return [tensor.detach().numpy().tobytes() for tensor in model.state_dict().values()]

    snapshot = capture_state((model, optimizer, scheduler))
    first = run()
    assert snapshot.created() == ()
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert snapshot.unrestored() == ()
        assert run() == first


@pytest.mark.parametrize("name", [*OPTIMIZERS, "lbfgs"])
def test_no_optimizer_of_torch_gives_an_alarm(name: str) -> None:
    trainer = Trainer(OPTIMIZERS.get(name, lambda p: torch.optim.LBFGS(p, max_iter=2)))
    snapshot = capture_state((trainer.model, trainer.optimizer))
    torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1)  # made by the step, so it wraps step() now
    trainer.train(2)
    snapshot.restore()
    trainer.optimizer.param_groups[0].pop("initial_lr", None)
    assert snapshot.unrestored() == ()


class Lookahead(torch.optim.SGD):
    """Keeps slow weights and a counter outside ``state``, as many optimizers of one's own do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.slow = [parameter.detach().clone() for group in self.param_groups for parameter in group["params"]]
        self.calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        self.slow[0].mul_(0.5)
        return super().step(closure)


def test_what_an_optimizer_or_a_scheduler_keeps_for_itself_is_named() -> None:
    trainer = Trainer(Lookahead)
    scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 1)
    helper = types.SimpleNamespace(count=0)
    scheduler.state_dict = lambda: {"last_epoch": scheduler.last_epoch}  # type: ignore[method-assign]
    scheduler.helper = helper  # type: ignore[attr-defined]
    snapshot = capture_state((trainer.model, trainer.optimizer, scheduler))
    trainer.train(1)
    helper.count += 1
    trainer.optimizer.register_step_pre_hook(print)
    snapshot.restore()
    assert set(snapshot.unrestored()) == {
        "state[1].slow[0]",
        "state[1].calls",
        "state[1]._optimizer_step_pre_hooks",
        "state[2].helper.count",
    }
