"""Whether two measurements answer the same question, and whether their times may stand side by side: by named facts."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.scenario import InputLeaf, Scenario

_FREE = ("question", "represents", "regions", "compiled")
"""Fields of the scenario that may change freely: words, labels inside the step, and ``torch.compile``, which is a
change to the step like any other and exactly what a person may want to compare."""

_RESULT = ("module_mode", "autocast", "gradients", "check_steps", "check_parameters")
"""Fields that change what a step computes, or what of it is compared, beside the batch and the kind of device."""

_UP_TO_QUALITY = ("autocast",)
"""Those of them that a declared measure of quality may judge, as it may judge other weights and another dtype."""

_TIME_ONLY = tuple(name for name in Scenario.__struct_fields__ if name not in (*_FREE, *_RESULT, "batch"))
"""All other fields change how long a step takes and what it calls, but not what it computes: among them which device
of its kind it runs on, threads, where batches come from, how runs begin, and the unit."""

_NAMED = 5  # a batch of a hundred tensors that all changed is one fact, not a hundred


OTHER_WEIGHTS = "started from other weights"
REMEDY_FOR_OTHER_WEIGHTS = (
    "If the model is meant to be the same: a fixture of a wider scope than one test draws other numbers when a test "
    "without stepprof made it first. Make it per test, or call torch.manual_seed in it."
)


class UnderConditions(Protocol):
    """What is needed to tell conditions apart: a measurement, or a step that only ran once."""

    @property
    def scenario(self) -> Scenario:
        """What is measured, and under which conditions."""

    @property
    def start_state_digest(self) -> str:
        """Digest of the state that the step started from."""

    @property
    def start_settings_digest(self) -> str:
        """Digest of the rest of ``state=``: optimizer and the like; empty where it is not known."""

    @property
    def first_batch_digest(self) -> str:
        """Digest of the first batch."""


class _Change(NamedTuple):
    """One change of what a step computes from, and whether a declared measure of quality may judge it."""

    text: str
    up_to_quality: bool = False


def other_conditions(before: UnderConditions, now: UnderConditions, *, quality_decides: bool) -> tuple[str, ...]:
    """Name what makes two measurements incomparable, outputs and all: the batch, the mode, the device, the start.

    An empty tuple says that the outputs may be compared. Where quality decides in place of equal outputs, what the
    declared measures may judge is not among them: ``changes_up_to_quality`` names that.
    """
    return tuple(change.text for change in _changes(before, now) if not (quality_decides and change.up_to_quality))


def changes_up_to_quality(before: UnderConditions, now: UnderConditions) -> tuple[str, ...]:
    """Name what would make two measurements incomparable, did not quality decide in place of equal outputs.

    A smaller model and mixed precision start from other weights, under another autocast, or from another dtype, and
    often with another learning rate or loss scale. All of these are named, each as a fact, and none is judged here:
    whether the result is still good enough is for the declared measures to say. Other settings of the optimizer are
    among them, so that a change of the learning rate alone is not refused either.
    """
    return tuple(change.text for change in _changes(before, now) if change.up_to_quality)


def other_conditions_of_time(before: Scenario, now: Scenario) -> tuple[str, ...]:
    """Name what forbids to compare times and counters, but not outputs: each such field, what it was and is."""
    return tuple(_field_change(name, before, now) for name in _TIME_ONLY if _differs(name, before, now))


def other_machine(before: Environment, now: Environment) -> tuple[str, ...]:
    """Name each fact of hardware and software that is not the same: ``cpu model: A -> B``, sorted by kind and name.

    A fact that only one record holds is none of them, unless its absence says something: a variable that was not set,
    a machine without a device. ``unknown_facts`` names the others.
    """
    return (*_changed_facts(before.hardware, now.hardware), *_changed_facts(before.software, now.software))


def unknown_facts(before: Environment, now: Environment) -> tuple[str, ...]:
    """Name each fact that only one record holds, so that nobody knows whether it changed; sorted by kind and name.

    Records of older versions of stepprof hold fewer facts.
    """
    kinds = ((before.hardware, now.hardware), (before.software, now.software))
    return tuple(name for then, here in kinds for name in sorted(then.keys() ^ here.keys()) if not _absence(name))


_VARIABLE = "variable "
_DEVICE = "device"


def _absence(name: str) -> str | None:
    """What it says that a record does not hold a fact; ``None``: nothing, it may not have been looked at."""
    if name.startswith(_VARIABLE):
        return "not set"
    return "none" if name == _DEVICE else None


def _changed_facts(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    names = () if before == now else sorted({*before, *now})
    facts = ((name, before.get(name, _absence(name)), now.get(name, _absence(name))) for name in names)
    return tuple(f"{name}: {then} -> {here}" for name, then, here in facts if None not in (then, here) and then != here)


def _settings_differ(before: str, now: str) -> bool:
    return "" not in (before, now) and before != now


def _changes(before: UnderConditions, now: UnderConditions) -> Iterator[_Change]:
    then, here = _by_kind_of_device(before.scenario.batch), _by_kind_of_device(now.scenario.batch)
    only_dtypes = then != here and _without_dtypes(then) == _without_dtypes(here)
    if then != here:
        yield _Change(_batch_change(then, here), up_to_quality=only_dtypes)
    yield from _field_changes(before.scenario, now.scenario)
    if before.start_state_digest != now.start_state_digest:
        yield _Change(OTHER_WEIGHTS, up_to_quality=True)
    if _settings_differ(before.start_settings_digest, now.start_settings_digest):
        yield _Change("started from other optimizer settings, or with other parts in state=", up_to_quality=True)
    if before.first_batch_digest != now.first_batch_digest:
        yield _Change(_OF_OTHER_DTYPES, up_to_quality=True) if only_dtypes else _Change("another first batch")


_OF_OTHER_DTYPES = "whether the first batch holds the same values is not known: digests of other dtypes do not compare"


def _field_changes(before: Scenario, now: Scenario) -> Iterator[_Change]:
    names = [name for name in _RESULT if _differs(name, before, now)]
    if _kind(before.device) != _kind(now.device):
        names.append("device")
    for name in names:
        yield _Change(_field_change(name, before, now), up_to_quality=name in _UP_TO_QUALITY)


def _without_dtypes(batch: tuple[InputLeaf, ...]) -> tuple[InputLeaf, ...]:
    return tuple(msgspec.structs.replace(leaf, dtype=None) for leaf in batch)


def _differs(name: str, before: Scenario, now: Scenario) -> bool:
    return bool(getattr(before, name) != getattr(now, name))


def _field_change(name: str, before: Scenario, now: Scenario) -> str:
    return f"{name.replace('_', ' ')}: {_text(getattr(before, name))} -> {_text(getattr(now, name))}"


def _kind(device: str) -> str:
    """Give the kind of a device: ``cuda`` for ``cuda:0 NVIDIA H200``."""
    return device.partition(":")[0]


def _by_kind_of_device(batch: tuple[InputLeaf, ...]) -> tuple[InputLeaf, ...]:
    """Forget on which device of its kind a leaf lies."""
    return tuple(
        leaf if leaf.device is None else msgspec.structs.replace(leaf, device=_kind(leaf.device)) for leaf in batch
    )


def _batch_change(before: tuple[InputLeaf, ...], now: tuple[InputLeaf, ...]) -> str:
    """Name the leaves that changed, up to five, each with what it was and is."""
    old, new = {leaf.path: leaf for leaf in before}, {leaf.path: leaf for leaf in now}
    paths = [path for path in {**old, **new} if old.get(path) != new.get(path)]
    if not paths:
        return "batch: the same leaves in another order"
    texts = [_leaf_change(path, old.get(path), new.get(path)) for path in paths]
    return f"batch: {first_few(texts, _NAMED, separator='; ')}"


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
