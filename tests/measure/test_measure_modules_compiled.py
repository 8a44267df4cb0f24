"""Labels around modules where TorchScript or ``torch.compile`` is at work: on the outside only, and out of its way."""

import logging
from collections import Counter
from collections.abc import Iterator

import labelled_modules
import pytest
import torch
import window_steps
from labelled_modules import WITH_MODULES, X, calls, every_hook, small_net
from measuring import codes, measured_with_window
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from pytest_stepprof.measure import module_labels
from pytest_stepprof.measure.module_labels import ModuleLabels, find_modules

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind
no_hooks_left = labelled_modules.no_hooks_left


@pytest.fixture
def fresh_compiler() -> Iterator[Counter[str]]:
    level = logging.getLogger("torch").level
    torch._dynamo.reset()
    yield torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(level)


def notices_of(state: object) -> list[str]:
    return [notice.message for notice in ModuleLabels(find_modules("state", state)).notices()]


def test_a_compiled_module_has_one_label_around_all_of_it(fresh_compiler: Counter[str]) -> None:
    net = small_net()
    net[1] = torch.compile(net[1], backend="eager")
    for _ in range(3):
        net(X)
    graphs = fresh_compiler["unique_graphs"]
    assert graphs > 0

    assert calls(lambda: net(X), net, compiling=True) == {"Sequential": 1, "0": 1, "1": 1}

    net(X)
    assert fresh_compiler["unique_graphs"] == graphs, "the labels made torch.compile work again"
    assert notices_of(net) == ["not labelled as modules: inside of 1 (torch.compile)"]


def test_what_is_compiled_is_not_labelled_by_another_way_either(fresh_compiler: Counter[str]) -> None:
    net = small_net()
    compiled = torch.compile(net, backend="eager")
    assert [found.path for found in find_modules("state", (net, compiled))] == ["state[1]"]
    assert [found.path for found in find_modules("state", compiled)] == [type(compiled).__name__]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.inner(values).relu()
        return result


def test_a_module_that_compiles_itself_has_no_label(fresh_compiler: Counter[str]) -> None:
    net = nn.Sequential(Own(), nn.Linear(4, 4))
    net[0].compile(backend="eager")
    for _ in range(2):
        net(X)
    graphs = fresh_compiler["unique_graphs"]
    assert graphs > 0
    assert calls(lambda: net(X), net, compiling=True) == {"Sequential": 1, "1": 1}
    net(X)
    assert fresh_compiler["unique_graphs"] == graphs
    assert notices_of(net) == ["not labelled as modules: 0 (torch.compile), inside of 0 (torch.compile)"]


def test_what_is_compiled_meanwhile_knows_nothing_of_labels(fresh_compiler: Counter[str]) -> None:
    net = Own()

    @torch.compile(backend="eager", dynamic=False)
    def step(values: torch.Tensor) -> torch.Tensor:
        return net(values).sum()

    step(X)
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    sizes = iter((3, 4, 5))
    assert calls(lambda: step(torch.ones(next(sizes), 4)), net, compiling=True) == {}
    step(torch.ones(4, 4))  # compiled anew at most once: what was compiled with hooks in place is not used without
    graphs = fresh_compiler["unique_graphs"]
    step(torch.ones(4, 4))
    assert fresh_compiler["unique_graphs"] == graphs
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) == breaks


def test_a_measurement_of_a_compiled_step_is_not_compiled_again_by_labels(fresh_compiler: Counter[str]) -> None:
    net = Own()
    compiled = torch.compile(lambda batch: net(batch).sum(), backend="eager")
    seen = measured_with_window(
        lambda batch: compiled(batch).detach(), state=net, batches=[X] * 4, settings=WITH_MODULES
    )
    assert codes(seen) == ["modules not labelled"]
    assert fresh_compiler["unique_graphs"] > 0


@pytest.mark.parametrize(
    ("compiled", "hooks_of_all"), [("nothing", True), ("a module", False), ("the step", False), ("inside", False)]
)
def test_hooks_of_all_modules_are_kept_away_from_torch_compile(
    compiled: str, hooks_of_all: bool, fresh_compiler: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older torch compiles anew because of them, newer torch warns."""
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    head = torch.compile(nn.Linear(4, 2), backend="eager") if compiled == "a module" else nn.Linear(4, 2)
    double = torch.compile(lambda values: values * 2, backend="eager") if compiled == "inside" else torch.relu

    def step(batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = double(head(net(batch)))
        return result.detach()

    used: list[bool] = []
    monkeypatch.setattr(
        module_labels,
        "register_module_forward_hook",
        lambda *arguments, **more: used.append(True) or register_module_forward_hook(*arguments, **more),
    )
    step = torch.compile(step, backend="eager") if compiled == "the step" else step
    for _ in range(1 if compiled == "inside" else 2):  # of what is compiled already nobody sees that, but from outside
        used.clear()
        seen = measured_with_window(step, state=(net, head), batches=[X] * 4, settings=WITH_MODULES)
        assert bool(used) == hooks_of_all
        assert codes(seen) == (["modules not labelled"] if compiled == "the step" else [])


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_script_has_one_label_around_all_of_it() -> None:
    net = nn.Sequential(torch.jit.script(small_net()), nn.Linear(4, 4))
    assert calls(lambda: net(X), net) == {"Sequential": 1, "0": 1, "1": 1}
    assert notices_of(net) == ["not labelled as modules: inside of 0 (TorchScript)"]
    assert notices_of(torch.jit.script(nn.Linear(4, 4))) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_script_refuses_hooks_of_its_own_and_the_others_have_labels() -> None:
    net = nn.Sequential(torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 4))
    labels = ModuleLabels(find_modules("state", net))
    before = every_hook(net[1])
    with labels.attached(compiling=True):
        net(X)
    (notice,) = labels.notices()
    assert notice.message == "not labelled as modules: 0 (TorchScript)"
    assert every_hook(net[1]) == before
