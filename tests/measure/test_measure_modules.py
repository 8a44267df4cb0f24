"""Labels around modules: which there are, when they open and close, and that nothing else changes because of them."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import labelled_modules
import pytest
import torch
import window_steps
from labelled_modules import WITH_MODULES, X, calls, every_hook, hooks_of_all_modules, inside, small_net, spans
from measuring import SHORT_WINDOW, codes, measured_with_window, measurement_of
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX
from pytest_stepprof.measure.module_labels import ModuleLabels, find_modules

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind
no_hooks_left = labelled_modules.no_hooks_left

# Which modules, and by which names


def test_nested_modules_have_the_paths_of_named_modules() -> None:
    net = small_net()
    found = spans(lambda: net(X), net)
    assert set(found) == {"Sequential", *(name for name, _ in net.named_modules() if name)}
    assert {len(of_path) for of_path in found.values()} == {1}
    assert inside(found["1.1"][0], found["1"][0])
    assert inside(found["1"][0], found["Sequential"][0])
    assert found["1.0"][0][1] <= found["1.1"][0][0]


@pytest.mark.parametrize("own_hooks", [False, True], ids=["hooks of all modules", "hooks of each module"])
def test_both_kinds_of_hooks_label_the_same(own_hooks: bool) -> None:
    net = small_net()
    assert calls(lambda: net(X), net, own_hooks=own_hooks) == dict.fromkeys(["Sequential", "0", "1", "1.0", "1.1"], 1)


class Twice(nn.Module):
    """Calls one module twice, and has it under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.again(self.first(values))
        return result


def test_a_shared_module_counts_under_its_first_path() -> None:
    net = Twice()
    assert calls(lambda: net(X), net) == {"Twice": 1, "first": 2}


class Recursive(nn.Module):
    def forward(self, depth: int) -> torch.Tensor:
        result: torch.Tensor = X + 1 if depth == 0 else self(depth - 1)
        with record_function(f"{MODULE_LABEL_PREFIX}after {depth}"):
            return result * 2


def test_a_module_that_calls_itself() -> None:
    net = Recursive()
    found = spans(lambda: net(2), net)
    calls_of_it = sorted(found["Recursive"])
    assert len(calls_of_it) == 3
    for depth, of_depth in zip((2, 1, 0), calls_of_it, strict=True):
        assert inside(found[f"after {depth}"][0], of_depth)
    assert inside(calls_of_it[2], calls_of_it[1])
    assert inside(calls_of_it[1], calls_of_it[0])


def test_several_modules_are_told_apart_by_where_they_lie_in_the_state() -> None:
    one, other = small_net(), nn.Linear(4, 4)
    state = (one, {"teacher": [other]}, torch.optim.SGD(one.parameters(), lr=0.1))
    assert calls(lambda: other(one(X)), state) == {
        **dict.fromkeys(["state[0]", "state[0].0", "state[0].1", "state[0].1.0", "state[0].1.1"], 1),
        "state[1]['teacher'][0]": 1,
    }


def test_a_module_that_is_handed_in_twice_is_one() -> None:
    net = small_net()
    assert set(calls(lambda: net(X), [net, net])) == {"Sequential", "0", "1", "1.0", "1.1"}
    assert set(calls(lambda: net(X), (net, net[1]))) == {
        *("state[0]", "state[0].0", "state[0].1", "state[0].1.0", "state[0].1.1")
    }


def test_only_what_is_called_has_a_label() -> None:
    net = small_net()
    assert calls(lambda: net[1](X), net) == {"1": 1, "1.0": 1, "1.1": 1}


def test_a_module_outside_of_the_state_has_none() -> None:
    net, other = small_net(), nn.Linear(4, 4)
    assert "Linear" not in calls(lambda: other(net(X)), net)


def test_checkpoints_run_the_forward_pass_again() -> None:
    net = small_net()

    def step() -> None:
        checkpoint(net, X, use_reentrant=False).sum().backward()

    assert calls(step, net) == dict.fromkeys(["Sequential", "0", "1", "1.0", "1.1"], 2)


# Forward passes that end otherwise


class Raising(nn.Module):
    error: BaseException = ValueError("no such shape")

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values + 1
        raise self.error


def test_a_label_closes_when_the_forward_pass_raises() -> None:
    net = nn.ModuleDict({"raising": nn.Sequential(Raising()), "after": nn.Linear(4, 4)})

    def step() -> None:
        with contextlib.suppress(ValueError):
            net["raising"](X)
        net["after"](X)

    found = spans(step, net)
    assert {path: len(of_path) for path, of_path in found.items()} == {"raising": 1, "raising.0": 1, "after": 1}
    assert found["raising"][0][1] <= found["after"][0][0]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, pytest.skip.Exception])
@pytest.mark.parametrize("own_hooks", [False, True])
def test_an_exception_passes_through_and_leaves_neither_labels_nor_hooks(
    error: type[BaseException], own_hooks: bool
) -> None:
    net = nn.Sequential(Raising())
    before = every_hook(net)
    net[0].error = error("stop here")
    with pytest.raises(error, match="stop here"):
        spans(lambda: net(X), net, own_hooks=own_hooks)
    assert every_hook(net) == before
    net[0] = nn.Linear(4, 4)
    assert calls(lambda: net(X), net, own_hooks=own_hooks) == {"Sequential": 1, "0": 1}


def test_a_label_that_nobody_closed_ends_with_the_module_around_it() -> None:
    """torch calls no hook when Ctrl-C ends a forward pass, and a step may catch that."""
    net = nn.Sequential(small_net(), nn.Linear(4, 4))
    net[0][0] = Raising()
    net[0][0].error = KeyboardInterrupt()

    class Catching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        def forward(self, values: torch.Tensor) -> Any:
            with contextlib.suppress(KeyboardInterrupt):
                self.inner(values)
            return values * 2

    around = Catching()
    last = nn.Linear(4, 4)

    def step() -> None:
        around(X)
        last(X)

    found = spans(step, (around, last))
    assert set(found) == {"state[0]", "state[0].inner", "state[0].inner.0", "state[0].inner.0.0", "state[1]"}
    assert found["state[0]"][0][1] <= found["state[1]"][0][0]


def test_a_step_that_ends_by_ctrl_c_leaves_no_label_open() -> None:
    net = nn.Sequential(Raising())
    net[0].error = KeyboardInterrupt()
    labels = ModuleLabels(find_modules("state", net))
    with labels.attached(own_hooks=False), profile(activities=[ProfilerActivity.CPU]) as profiler:
        with contextlib.suppress(KeyboardInterrupt):
            labels.closing(lambda: net(X))()
        with record_function("later"):
            X + 1
    events = {event.name: event.time_range for event in profiler.events()}
    assert events["later"].start >= events[MODULE_LABEL_PREFIX + "Sequential"].end


def test_modules_in_another_thread_do_not_disturb() -> None:
    net, other = small_net(), nn.Linear(4, 4)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.other = net, other

        def forward(self, values: torch.Tensor) -> Any:
            thread = threading.Thread(target=self.other, args=(values,))
            thread.start()
            result = self.net(values)
            thread.join()
            return result

    outer = Outer()
    found = calls(lambda: outer(X), outer)
    assert {path: found[path] for path in ("Outer", "net", "net.1.1")} == {"Outer": 1, "net": 1, "net.1.1": 1}


# Nothing else changes


@pytest.mark.parametrize("own_hooks", [False, True])
def test_hooks_are_there_for_the_window_only(own_hooks: bool) -> None:
    net = small_net()
    mine = net[0].register_forward_hook(lambda module, arguments, result: None)
    before = every_hook(net)
    labels = ModuleLabels(find_modules("state", net))
    with labels.attached(own_hooks=own_hooks):
        assert (every_hook(net) != before) == own_hooks
        assert hooks_of_all_modules() != own_hooks
    assert every_hook(net) == before
    mine.remove()


def trained(net: nn.Module, **more: Any) -> dict[str, Any]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {"step": step, "batches": [X] * 4, "state": (net, optimizer), **more}


def test_counters_and_results_are_those_of_a_window_without_labels() -> None:
    torch.manual_seed(3)
    net = small_net()
    plain = measured_with_window(**trained(net))
    labelled = measured_with_window(settings=WITH_MODULES, **trained(net))
    counters, with_labels = (measurement_of(seen).window.counters for seen in (plain, labelled))
    assert with_labels == counters
    assert {counter.name for counter in counters} >= {"operator calls", "calls of aten::addmm"}
    assert labelled.output == plain.output
    assert labelled.start_state_digest == plain.start_state_digest
    assert labelled.start_settings_digest == plain.start_settings_digest
    assert codes(labelled) == codes(plain) == []


def test_the_window_says_that_modules_were_labelled() -> None:
    net = small_net()
    window = measurement_of(measured_with_window(settings=WITH_MODULES, **trained(net))).window
    assert window.options == ("record_modules",)
    assert {module.path: module.calls for module in window.modules} == dict.fromkeys(
        ["Sequential", "0", "1", "1.0", "1.1"], (1,)
    )
    assert not [region.name for region in window.regions if "module" in region.name]
    assert measurement_of(measured_with_window(**trained(net))).window.options == ()


def test_modules_that_setup_builds() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.head = small_net(), nn.Linear(4, 1)

    def step(built: tuple[Trainer, nn.Module], batch: torch.Tensor) -> torch.Tensor:
        trainer, norm = built
        return trainer.head(norm(trainer.model(batch))).sum().detach()

    def paths(setup: Callable[[], Any], step: Callable[..., Any]) -> set[str]:
        seen = measured_with_window(step, settings=WITH_MODULES, setup=setup, batches=[X] * 4)
        return {module.path for module in measurement_of(seen).window.modules}

    one = paths(small_net, lambda net, batch: net(batch).sum().detach())
    assert one == {"Sequential", "0", "1", "1.0", "1.1"}
    several = paths(lambda: (small_net(), nn.LayerNorm(4)), lambda built, batch: built[1](built[0](batch)).detach())
    assert several >= {"setup()[0]", "setup()[0].1.1", "setup()[1]"}
    of_an_object = paths(Trainer, lambda trainer, batch: trainer.head(trainer.model(batch)).detach())
    assert of_an_object >= {"setup()['model']", "setup()['model'].0", "setup()['head']"}


def test_a_step_that_is_a_module() -> None:
    seen = measured_with_window(nn.Linear(4, 4), settings=WITH_MODULES, batches=[X] * 4)
    assert [(module.path, module.calls) for module in measurement_of(seen).window.modules] == [("Linear", (1,))]


@pytest.mark.filterwarnings("ignore:.*nested tensors.*")
def test_a_transformer_goes_its_fast_way_all_the_same() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerEncoder(layer, 1).eval()
    batch = torch.ones(2, 3, 16)

    def step() -> torch.Tensor:
        with torch.inference_mode():
            return net(batch).clone()

    plain, labelled = (
        measurement_of(measured_with_window(step, state=net, settings=settings)).window
        for settings in (SHORT_WINDOW, WITH_MODULES)
    )
    assert "aten::_transformer_encoder_layer_fwd" in {operator.name for operator in plain.operators}
    assert labelled.counters == plain.counters
    assert {module.path for module in labelled.modules} == {"TransformerEncoder", "layers.0"}


def test_without_a_module_there_is_a_notice() -> None:
    seen = measured_with_window(lambda: X + 1, settings=WITH_MODULES)
    (notice,) = [notice for notice in measurement_of(seen).notices if notice.code == "modules not labelled"]
    assert notice.message == "not labelled as modules: there is no module in what state= holds or setup= builds"


def notice_of(step: Callable[..., Any], state: object) -> str:
    """What the one notice of a measurement says about modules without a label."""
    seen = measured_with_window(step, state=state, settings=WITH_MODULES)
    (notice,) = [notice for notice in measurement_of(seen).notices if notice.code == "modules not labelled"]
    return notice.message


def test_modules_that_nothing_calls_are_a_notice() -> None:
    net = small_net()
    message = notice_of(lambda: nn.functional.linear(X, net[0].weight).detach(), net)
    assert message == "not labelled as modules: of 5 modules with a label no call was recorded in the active steps"


class Lazy(nn.Module):
    """Does its work when its result is read."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        yield self.inner(values)


def test_a_forward_pass_that_works_later_is_a_notice() -> None:
    net = nn.ModuleDict({"lazy": Lazy(), "plain": nn.Linear(4, 4)})
    message = notice_of(lambda: next(net["lazy"](net["plain"](X))).detach(), net)
    assert message == "not labelled as modules: lazy in part (what it returns does its work later)"


def test_a_module_that_only_another_thread_calls_is_a_notice() -> None:
    net = nn.ModuleDict({"here": nn.Linear(4, 4), "there": nn.Linear(4, 4)})

    def step() -> torch.Tensor:
        thread = threading.Thread(target=net["there"], args=(X,))
        thread.start()
        thread.join()
        result: torch.Tensor = net["here"](X).detach()
        return result

    message = notice_of(step, net)
    assert message == "not labelled as modules: there (called, but no call was recorded in the active steps)"


def test_dots_and_numbers_of_containers_are_no_address() -> None:
    net: nn.Module = nn.Linear(4, 4)
    for _ in range(5):
        net = nn.Sequential(net)
    seen = measured_with_window(lambda: net(X).detach(), state=net, settings=WITH_MODULES)
    assert codes(seen) == []
    paths = [module.path for module in measurement_of(seen).window.modules]
    assert sorted(paths) == ["0", "0.0", "0.0.0", "0.0.0.0", "0.0.0.0.0", "Sequential"]


@pytest.mark.parametrize("name", ["host 10.20.30.40", "0x7f0011223344"])
def test_a_module_whose_name_gives_something_away_has_no_label(name: str) -> None:
    net = small_net()
    state = {name: net, "other": nn.ReLU()}
    seen = measured_with_window(lambda: state["other"](net(X)).detach(), state=state, settings=WITH_MODULES)
    measurement = measurement_of(seen)
    assert [module.path for module in measurement.window.modules] == ["state['other']"]
    (notice,) = measurement.notices
    assert notice.code == "modules not labelled"
    assert "a Sequential (a name on its path is refused: it looks like a" in notice.message
    assert name not in str(measurement)
