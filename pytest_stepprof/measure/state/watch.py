"""What a restore leaves alone: which attributes of the live objects are looked at, and by which path."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.state.fingerprint import Look, Node, differing, ends_of, hook_steps, module_steps
from pytest_stepprof.measure.state.modules import ModulePart
from pytest_stepprof.measure.state.objects import GeneratorPart, OptimizerPart, SamplerPart
from pytest_stepprof.measure.state.parts import LoadedPart, Part
from pytest_stepprof.measure.state.tensors import AnyTensorPart
from pytest_stepprof.measure.state.values import attributes_of

# torch's own bookkeeping: which warnings were given, what a scheduler wraps, lengths that are counted once
_OPTIMIZER_OWN = frozenset(
    {"state", "param_groups", "step", "_opt_called", "_step_count", "_zero_grad_profile_name", "_numel_cache"}
    | {"_warned_capturable_if_run_uncaptured"}
)
_SCHEDULER_OWN = frozenset({"optimizer", "_scale_fn_ref", "_get_lr_called_within_step"})
_HOOKS_OF_OPTIMIZER = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_HOOKS_OF_TENSOR = ("_backward_hooks", "_post_accumulate_grad_hooks")


class AttributeWatch:
    """Fingerprints of everything in a state that is not put back, taken at the capture."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._then = self._nodes()

    def changed(self) -> Iterator[str]:
        """Give the paths of what does not look as it did; to be asked for after a restore."""
        for (path, now), (_, then) in zip(self._nodes(), self._then, strict=True):
            yield from differing(now, then, path)

    def not_looked_at(self) -> Iterator[str]:
        """Give the paths below which there was more than a look takes in, so that a change is not found."""
        for path, then in self._then:
            yield from ends_of(then, path)

    def _nodes(self) -> list[tuple[str, Node]]:
        look = Look(frozenset(id(part.live) for part in self._parts))
        nodes = [(part.path, look.at(_watched(part))) for part in self._parts]
        kinds = {type(part.live): part.path for part in reversed(self._parts) if isinstance(part, ModulePart)}
        return nodes + [(f"type({path})", look.at(_of_class(kind))) for kind, path in kinds.items()]


def _watched(part: Part) -> dict[str, Any]:
    """Give what to look at in one live object, by the step that leads there."""
    live = part.live
    if isinstance(part, ModulePart):
        return module_steps(live)
    if isinstance(part, AnyTensorPart):
        own = getattr(live, "__dict__", {}).items()
        public = {f".{name}": item for name, item in own if not name.startswith("_")}
        return public | hook_steps(live, _HOOKS_OF_TENSOR)
    if isinstance(part, OptimizerPart):
        hooks = frozenset(name for name in vars(live) if name.startswith("_optimizer_"))
        return _all_but(live, _OPTIMIZER_OWN | hooks) | hook_steps(live, _HOOKS_OF_OPTIMIZER)
    if isinstance(part, LoadedPart) and isinstance(live, torch.optim.lr_scheduler.LRScheduler):
        return _all_but(live, _SCHEDULER_OWN | frozenset(part.copy))
    if isinstance(part, SamplerPart):
        return _all_but(live, part.restored())
    if isinstance(part, GeneratorPart):
        return _spawned(live)
    return {}


def _spawned(generator: Any) -> dict[str, Any]:
    """Give how many generators were split off from one of NumPy's, which decides what the next will draw."""
    step = ".bit_generator" if isinstance(generator, np.random.Generator) else ""
    seeds = getattr(getattr(generator, "bit_generator", generator), "seed_seq", None)
    spawned = getattr(seeds, "n_children_spawned", None)
    return {} if spawned is None else {f"{step}.seed_seq.n_children_spawned": spawned}


def _all_but(live: object, left_out: frozenset[str]) -> dict[str, Any]:
    return {f".{name}": item for name, item in attributes_of(live).items() if name not in left_out}


def _of_class(kind: type) -> dict[str, Any]:
    """Give the values that a person's own class keeps for all of its modules: counters, tables, tensors."""
    if kind.__module__.partition(".")[0] == "torch":
        return {}
    kept = (bool, int, float, complex, str, list, dict, set, torch.Tensor)
    return {
        f".{name}": item
        for name, item in vars(kind).items()
        if isinstance(item, kept) and not name.startswith(("__", "_abc_"))
    }
