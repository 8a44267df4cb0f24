"""Labels around modules where TorchScript or ``torch.compile`` is at work: on the outside only, and out of its way."""

import copy
import io
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterator

import labelled_modules
import pytest
import torch
import window_steps
from labelled_modules import WITH_MODULES, X, calls, every_hook, small_net
from measuring import SHORT_WINDOW, codes, measured_with_window, measurement_of
from torch import nn

from pytest_stepprof.measure import windows
from pytest_stepprof.measure.module_hooks import compiles_anew_for_hooks_of_all, hooks_of_all, no_hook
from pytest_stepprof.measure.module_labels import ModuleLabels, find_modules
from pytest_stepprof.record.settings import OWN_HOOKS_OPTION

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind
no_hooks_left = labelled_modules.no_hooks_left


own_or_all = pytest.mark.parametrize("own_hooks", [True, False], ids=["own hooks", "hooks of all"])


def beside_compiled_code() -> pytest.MarkDecorator:
    """Both kinds of hooks where this torch has a choice."""
    kinds = [True] if compiles_anew_for_hooks_of_all() else [True, False]
    return pytest.mark.parametrize("own_hooks", kinds)


@pytest.fixture
def fresh_compiler() -> Iterator[Counter[str]]:
    level = logging.getLogger("torch").level
    torch._dynamo.reset()
    yield torch._dynamo.utils.counters["stats"]
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(level)


def notices_of(state: object) -> list[str]:
    return [notice.message for notice in ModuleLabels(find_modules("state", state)).notices()]


@beside_compiled_code()
def test_a_compiled_module_has_one_label_around_all_of_it(own_hooks: bool, fresh_compiler: Counter[str]) -> None:
    net = small_net()
    net[1] = torch.compile(net[1], backend="eager")
    for _ in range(3):
        net(X)
    graphs = fresh_compiler["unique_graphs"]
    assert graphs > 0

    assert calls(lambda: net(X), net, own_hooks=own_hooks) == {"Sequential": 1, "0": 1, "1": 1}

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


@beside_compiled_code()
def test_a_module_that_compiles_itself_has_no_label(own_hooks: bool, fresh_compiler: Counter[str]) -> None:
    net = nn.Sequential(Own(), nn.Linear(4, 4))
    net[0].compile(backend="eager")
    for _ in range(2):
        net(X)
    graphs = fresh_compiler["unique_graphs"]
    assert graphs > 0
    assert calls(lambda: net(X), net, own_hooks=own_hooks) == {"Sequential": 1, "1": 1}
    net(X)
    assert fresh_compiler["unique_graphs"] == graphs
    assert notices_of(net) == ["not labelled as modules: 0 (torch.compile), inside of 0 (torch.compile)"]


@beside_compiled_code()
def test_what_is_compiled_meanwhile_knows_nothing_of_labels(own_hooks: bool, fresh_compiler: Counter[str]) -> None:
    net = Own()

    @torch.compile(backend="eager", dynamic=False)
    def step(values: torch.Tensor) -> torch.Tensor:
        return net(values).sum()

    step(X)
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    sizes = iter((3, 4, 5))
    assert calls(lambda: step(torch.ones(next(sizes), 4)), net, own_hooks=own_hooks) == {}
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
    own_hooks = ["profiler options"] if compiles_anew_for_hooks_of_all() else []
    assert codes(seen) == ["modules not labelled", *own_hooks]
    assert fresh_compiler["unique_graphs"] > 0


@pytest.mark.parametrize("anew", [True, False], ids=["older torch", "newer torch"])
@pytest.mark.parametrize("compiled", ["nothing", "a module", "the step", "inside"])
def test_modules_get_hooks_of_their_own_where_torch_compile_would_mind_others(
    compiled: str, anew: bool, fresh_compiler: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    head = torch.compile(nn.Linear(4, 2), backend="eager") if compiled == "a module" else nn.Linear(4, 2)
    double = torch.compile(lambda values: values * 2, backend="eager") if compiled == "inside" else torch.relu

    def step(batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = double(head(net(batch)))
        return result.detach()

    monkeypatch.setattr(windows, "compiles_anew_for_hooks_of_all", lambda: anew)
    own_hooks = anew and compiled != "nothing"
    step = torch.compile(step, backend="eager") if compiled == "the step" else step
    for _ in range(1 if compiled == "inside" else 2):  # of what is compiled already nobody sees that, but from outside
        seen = measured_with_window(step, state=(net, head), batches=[X] * 4, settings=WITH_MODULES)
        unlabelled = ["modules not labelled"] if compiled == "the step" else []
        assert codes(seen) == [*unlabelled, *(["profiler options"] if own_hooks else [])]
        options = measurement_of(seen).window.options
        assert options == ("record_modules", *((OWN_HOOKS_OPTION,) if own_hooks else ()))


@pytest.mark.parametrize("where", ["a module", "a function", "inside"])
def test_this_torch_does_or_does_not_compile_anew_for_hooks_of_all_modules(
    where: str, fresh_compiler: Counter[str]
) -> None:
    net = small_net()
    step: Callable[[torch.Tensor], object] = torch.compile(net, backend="eager")
    if where == "a function":
        step = torch.compile(lambda values: net(values).sum(), backend="eager")
    if where == "inside":
        net[1] = torch.compile(net[1], backend="eager")
        step = net
    step(X)
    graphs = fresh_compiler["unique_graphs"]
    with hooks_of_all(lambda module, arguments: None, lambda module, arguments, result: None):
        step(X)
    assert (fresh_compiler["unique_graphs"] > graphs) == compiles_anew_for_hooks_of_all()


@pytest.mark.filterwarnings("error")
def test_hooks_of_all_modules_beside_a_compiled_one_warn_of_nothing(fresh_compiler: Counter[str]) -> None:
    net = torch.compile(nn.Linear(4, 4), backend="eager")
    net(X)
    with hooks_of_all(lambda module, arguments: None, lambda module, arguments, result: None):
        net(X)


# Hooks of modules' own, and who else sees them


def copied(net: nn.Module) -> nn.Module:
    return copy.deepcopy(net)


def pickled(net: nn.Module) -> nn.Module:
    loaded: nn.Module = pickle.loads(pickle.dumps(net))
    return loaded


def saved(net: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    loaded: nn.Module = torch.load(buffer, weights_only=False)
    return loaded


@own_or_all
@pytest.mark.parametrize("another", [copied, pickled, saved])
def test_a_copy_that_a_step_makes_of_a_module_works_and_has_no_label(
    another: Callable[[nn.Module], nn.Module], own_hooks: bool
) -> None:
    net = small_net()
    kept: list[nn.Module] = []

    def step() -> None:
        kept.append(another(net))
        assert torch.equal(kept[-1](X), net(X))

    assert calls(step, net, own_hooks=own_hooks) == dict.fromkeys(["Sequential", "0", "1", "1.0", "1.1"], 1)
    other = kept[-1]
    torch.testing.assert_close(other(X), net(X))
    assert set(hooks_within(other)) <= {no_hook}
    assert not hooks_within(net)


def hooks_within(net: nn.Module) -> list[object]:
    hooks = (every for module in net.modules() for every in (module._forward_hooks, module._forward_pre_hooks))
    return [hook for every in hooks for hook in every.values()]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_script_that_a_step_makes_of_a_module() -> None:
    net = nn.Sequential(nn.Linear(4, 4))
    assert calls(lambda: torch.jit.script(net)(X), net) == {}
    with pytest.raises(AttributeError, match="TorchScript cannot take in a module while stepprof labels it"):
        calls(lambda: torch.jit.script(net)(X), net, own_hooks=True)


@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
@beside_compiled_code()
def test_a_transformer_goes_its_fast_way_beside_a_compiled_head(
    own_hooks: bool, fresh_compiler: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "compiles_anew_for_hooks_of_all", lambda: own_hooks)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1).eval()
    head = torch.compile(nn.Linear(16, 4), backend="eager")

    def step(batch: torch.Tensor) -> object:
        with torch.inference_mode():
            return head(encoder(batch)).clone()

    plain, labelled = (
        measurement_of(
            measured_with_window(step, state=(encoder, head), batches=[torch.ones(2, 3, 16)], settings=settings)
        )
        for settings in (SHORT_WINDOW, WITH_MODULES)
    )
    calls_of = {counter.name: counter for counter in labelled.window.counters}
    assert calls_of["calls of aten::_transformer_encoder_layer_fwd"].per_step == (1,)
    assert [one for one in labelled.window.counters if one.scope == "step"] == [
        one for one in plain.window.counters if one.scope == "step"
    ]
    told = [notice.message for notice in labelled.notices if notice.code == "modules not labelled"]
    assert told == (
        [
            "not labelled as modules: state[0].layers.0 (looks at its hooks), "
            "state[0].layers.0.self_attn (looks at its hooks), "
            "state[0].layers.0.self_attn.out_proj (looks at its hooks), "
            "state[0].layers.0.linear1 (looks at its hooks), state[0].layers.0.dropout (looks at its hooks) and 5 more"
        ]
        if own_hooks
        else []
    )


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
    with labels.attached(own_hooks=True):
        net(X)
    (notice,) = labels.notices()
    assert notice.message == "not labelled as modules: 0 (TorchScript)"
    assert every_hook(net[1]) == before
