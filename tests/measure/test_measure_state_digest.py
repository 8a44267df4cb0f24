import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from small_training import OPTIMIZERS, Trainer
from torch import nn

from pytest_stepprof.measure.state import capture_state


def _digest(make: Callable[[], object]) -> str:
    torch.manual_seed(3)
    return capture_state(make()).digest()


def _trained(name: str, **changes: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    trainer = Trainer(OPTIMIZERS[name])
    trainer.train(2)
    trainer.optimizer.param_groups[0].update(changes)
    return trainer.model, trainer.optimizer


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from pytest_stepprof.measure.state import capture_state; torch.manual_seed(3); "
        "m = torch.nn.Linear(3, 2); o = torch.optim.Adam(m.parameters()); m(torch.ones(1, 3)).sum().backward(); "
        "o.step(); print(capture_state((m, o)).digest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    torch.manual_seed(3)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert other.stdout.strip() == capture_state((model, optimizer)).digest()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 2).eval(),
        lambda: (torch.rand(7), torch.manual_seed(3), nn.Linear(3, 2))[2],
        lambda: torch.compile(nn.Linear(3, 2)),
        lambda: nn.Linear(3, 2).to(memory_format=torch.preserve_format),
    ],
    ids=["eval", "random state", "compiled", "same"],
)
def test_digest_knows_the_same_weights_again(make: Callable[[], object]) -> None:
    assert _digest(make) == _digest(lambda: nn.Linear(3, 2))


def test_digest_does_not_see_which_implementation_of_an_optimizer_runs() -> None:
    plain = capture_state(_trained("adam")).digest()
    assert capture_state(_trained("adam", foreach=False)).digest() == plain
    assert capture_state(_trained("adam", lr=0.5)).digest() != plain


def _nudged() -> nn.Module:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight[1, 2] += 1e-6
    return module


@pytest.mark.parametrize(
    "make",
    [
        _nudged,
        lambda: nn.Linear(3, 2).double(),
        lambda: nn.Sequential(nn.Linear(3, 2)),
        lambda: (nn.Linear(3, 2), torch.zeros(1)),
        lambda: nn.Linear(3, 2, bias=False),
    ],
    ids=["one element", "dtype", "name", "one more", "one less"],
)
def test_digest_tells_other_weights(make: Callable[[], object]) -> None:
    assert _digest(make) != _digest(lambda: nn.Linear(3, 2))


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(3), persistent=False)
        self.loose = torch.ones(2)


def test_digest_is_that_of_the_captured_moment_and_hides_loose_tensors() -> None:
    module = Hidden()
    snapshot = capture_state(module)
    before = snapshot.digest()
    module.loose.fill_(3)
    assert capture_state(module).digest() == before
    module.average.fill_(3)
    assert snapshot.digest() == before
    assert capture_state(module).digest() != before
