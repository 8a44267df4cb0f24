"""Whether two measurements answer the same question, and whether their times may stand side by side: by named facts."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.scenario import InputLeaf, Scenario

_NAMED = 5  # a batch of a hundred tensors that all changed is one fact, not a hundred


class UnderConditions(Protocol):
    """What is needed to tell conditions apart: a measurement, or a step that only ran once."""

    @property
    def scenario(self) -> Scenario:
        """What is measured, and under which conditions."""

    @property
    def start_state_digest(self) -> str:
        """Digest of the state that the step started from."""

    @property
    def first_batch_digest(self) -> str:
        """Digest of the first batch."""


def other_conditions(before: UnderConditions, now: UnderConditions) -> tuple[str, ...]:
    """Name what makes two measurements incomparable: each field of the scenario, the start state, the first batch.

    ``question`` is prose and may change. An empty tuple says that everything may be compared.
    """
    found = list(_scenario_changes(before.scenario, now.scenario))
    if before.start_state_digest != now.start_state_digest:
        found.append("started from other weights")
    if before.first_batch_digest != now.first_batch_digest:
        found.append("another first batch")
    return tuple(found)


def other_machine(before: Environment, now: Environment) -> tuple[str, ...]:
    """Name each fact of hardware and software that is not the same: ``cpu model: A -> B``, sorted by kind and name."""
    return (*_changed_facts(before.hardware, now.hardware), *_changed_facts(before.software, now.software))


def _changed_facts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    names = sorted(before.keys() | now.keys())
    facts = ((name, before.get(name, "not known"), now.get(name, "not known")) for name in names)
    return tuple(f"{name}: {then} -> {here}" for name, then, here in facts if then != here)


def _scenario_changes(before: Scenario, now: Scenario) -> tuple[str, ...]:
    old, new = msgspec.structs.asdict(before), msgspec.structs.asdict(now)
    fields = [name for name in old if name != "question" and old[name] != new[name]]
    return tuple(
        _batch_change(before.batch, now.batch)
        if name == "batch"
        else f"{name.replace('_', ' ')}: {_text(old[name])} -> {_text(new[name])}"
        for name in fields
    )


def _batch_change(before: tuple[InputLeaf, ...], now: tuple[InputLeaf, ...]) -> str:
    """Name the leaves that changed, up to five, each with what it was and is."""
    old, new = {leaf.path: leaf for leaf in before}, {leaf.path: leaf for leaf in now}
    paths = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    if not paths:
        return "batch: the same leaves in another order"
    texts = [_leaf_change(path, old.get(path), new.get(path)) for path in paths[:_NAMED]]
    more = f"; {len(paths) - _NAMED} more leaves" if len(paths) > _NAMED else ""
    return f"batch: {'; '.join(texts)}{more}"


def _leaf_change(path: str, before: InputLeaf | None, now: InputLeaf | None) -> str:
    return f"{path} {_leaf_text(before)} -> {_leaf_text(now)}".lstrip()


def _leaf_text(leaf: InputLeaf | None) -> str:
    if leaf is None:
        return "nothing"
    shape = None if leaf.shape is None else f"({', '.join(map(str, leaf.shape))})"
    parts = (leaf.type_name, leaf.dtype, shape, leaf.device, "requires grad" if leaf.requires_grad else None)
    return " ".join(part for part in parts if part is not None)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
