"""What stepprof sees by itself: the conditions under which a step runs."""

import hashlib
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.measure.batch_generators import generators_of
from pytest_stepprof.measure.device import Device
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.scenario import InputLeaf, Scenario

GARBAGE_COLLECTION = "collected before each run, off while samples are timed"

_CHANGED_BY_STEPS = (
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
    torch.Generator,
)

Kind = TypeVar("Kind")


def see_scenario(request: StepRequest, *, batch: tuple[InputLeaf, ...], source: str, device: Device) -> Scenario:
    """Put what the person declared and what is visible from outside of the step into one record."""
    return Scenario(
        question=_printable(request.question),
        unit=request.unit,
        samples_per_step=request.samples_per_step,
        includes_read=request.includes_read,
        represents=_printable(request.represents),
        regions=tuple(map(printable, request.regions)),
        batch=batch,
        batch_source=source,
        module_mode=module_mode(request.state),
        autocast=autocast(device.kind),
        gradients=gradients(),
        compiled=compiled(request),
        device=device.description,
        intra_op_threads=torch.get_num_threads(),
        inter_op_threads=torch.get_num_interop_threads(),
        garbage_collection=GARBAGE_COLLECTION,
        torch_flags=torch_flags(),
        check_steps=request.check_steps,
        check_parameters=request.check_parameters,
        start="state put back" if request.setup is None else "built fresh",
    )


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)


def module_mode(state: object) -> str:
    """Return ``train``, ``eval`` or ``mixed``, over all modules in ``state``."""
    modes = {module.training for root in instances(state, torch.nn.Module) for module in root.modules()}
    if not modes:
        return "no module in state"
    return "mixed" if len(modes) > 1 else ("train" if modes.pop() else "eval")


def autocast(device_kind: str) -> tuple[str, ...]:
    """Return the device types and dtypes for which autocast is on around the step."""
    kinds = dict.fromkeys(("cpu", device_kind))
    return tuple(f"{kind} {torch.get_autocast_dtype(kind)}" for kind in kinds if torch.is_autocast_enabled(kind))


def gradients() -> str:
    """Return the gradient mode around the step; the step may choose another one inside."""
    if torch.is_inference_mode_enabled():
        return "inference mode"
    return "enabled" if torch.is_grad_enabled() else "disabled"


def compiled(request: StepRequest) -> tuple[str, ...]:
    """Name what went through ``torch.compile``: the step itself and modules in the state."""
    names = ["step"] if hasattr(request.step, "_torchdynamo_orig_callable") else []
    roots = (*instances(request.state, torch.nn.Module), *instances(request.step, torch.nn.Module))
    modules = {id(module): module for root in roots for module in root.modules()}  # the step may be in the state, too
    return (*names, *filter(None, map(_compiled_name, modules.values())))


def _compiled_name(module: torch.nn.Module) -> str | None:
    """Name a module's own class when it went through ``torch.compile(module)`` or ``module.compile()``."""
    if hasattr(module, "_orig_mod"):
        return type(module._orig_mod).__name__
    return type(module).__name__ if module._compiled_call_impl is not None else None


def undeclared_state(request: StepRequest) -> tuple[str, ...]:
    """Name what the step reaches through its closure, and changes with every step, but ``state`` does not hold."""
    step = inspect.unwrap(request.step)
    if not inspect.isfunction(step):
        return ()
    declared = {id(value) for value in _put_back(request)}
    names = _reachable(step)
    return tuple(
        sorted(
            name for name, value in names.items() if isinstance(value, _CHANGED_BY_STEPS) and id(value) not in declared
        )
    )


def _put_back(request: StepRequest) -> Iterator[object]:
    """Yield what a restore reaches: what the state holds, what that brings along, and the batches' generators."""
    for kind in _CHANGED_BY_STEPS:
        yield from instances(request.state, kind)
    for root in instances(request.state, torch.nn.Module):
        yield from root.modules()
    for scheduler in instances(request.state, torch.optim.lr_scheduler.LRScheduler):
        yield scheduler.optimizer
    for loader in (request.batches, *instances(request.state, torch.utils.data.DataLoader)):
        yield from generators_of(loader)
    for function in instances(request.state, types.FunctionType):  # a person's own way to put back what it uses
        yield from _reachable(function).values()
    yield from (method.__self__ for method in instances(request.state, types.MethodType))
    yield from (method.__self__ for method in instances(request.state, types.BuiltinMethodType))


def _reachable(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the globals and the outer names that a function uses, by name."""
    try:
        found = inspect.getclosurevars(function)
    except ValueError:  # a name that it uses is given a value only later
        return {}
    return {**found.globals, **found.nonlocals}


def step_source_digest(step: Callable[..., Any]) -> str | None:
    """Return the sha256 of the step's source text, ``None`` when Python cannot find it."""
    try:
        source = inspect.getsource(step if inspect.isroutine(step) else type(step))
    except (OSError, TypeError):
        return None
    return hashlib.sha256(source.encode()).hexdigest()


def instances(value: object, kind: type[Kind]) -> Iterator[Kind]:
    """Yield every instance of ``kind`` in nested tuples, lists and dicts."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from instances(part, kind)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from instances(part, kind)


def tensors_of(state: object, batch: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in ``state`` (of its modules too) and in ``batch``, to see which devices they lie on."""
    for root in instances(state, torch.nn.Module):
        yield from root.parameters()
        yield from root.buffers()
    yield from instances(state, torch.Tensor)
    yield from instances(batch, torch.Tensor)


def shapes_of(batch: object) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    """Return shape and dtype of every tensor in a batch, in order."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in instances(batch, torch.Tensor))


def torch_flags() -> tuple[str, ...]:
    """Return the settings of torch that a test can change and that change a step's time or result."""
    return (
        f"float32 matrix products: {_matrix_product_precision()}",
        f"deterministic algorithms: {'on' if torch.are_deterministic_algorithms_enabled() else 'off'}",
        f"cudnn.benchmark: {'on' if torch.backends.cudnn.benchmark else 'off'}",
    )


def _matrix_product_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set by backend: torch then refuses to give one word for all of them
        return f"{torch.backends.cuda.matmul.fp32_precision} on CUDA"


def torch_facts() -> dict[str, str]:
    """Return the facts about torch, the same through a whole session, that have to agree before times are compared."""
    build = torch.__config__.show()
    facts = {
        "torch": str(torch.__version__),
        "torch build": hashlib.sha256(build.encode()).hexdigest()[:16],
        "blas": _blas(build),
    }
    if torch.cuda.is_available():
        facts["device"] = torch.cuda.get_device_name()
        facts["device toolkit"] = str(torch.version.cuda or torch.version.hip)
    return facts


def _blas(build: str) -> str:
    found = re.search(r"BLAS_INFO=([^,\s]+)", build)
    return found.group(1) if found else "unknown"
