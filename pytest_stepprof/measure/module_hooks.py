"""Two ways to be called around the forward passes of modules, for as long as a block lasts.

Hooks of all modules together (``register_module_forward_hook``, which torch has for profilers) leave every module as it
always was. Beside ``torch.compile`` older torch compiles anew because of them; there each module gets hooks of its own,
which a copy of the module takes along, which TorchScript wants to compile, and at which a module may look: torch's own
``TransformerEncoderLayer`` does, and then takes another way.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from pytest_stepprof.record.notice import Notice

Begin = Callable[[torch.nn.Module, Any], None]
End = Callable[[torch.nn.Module, Any, Any], None]

_COMPILES_NOT_ANEW = (2, 13)
"""Measured: torch 2.6 compiles anew because of hooks of all modules, torch 2.13 does not."""


def compiles_anew_for_hooks_of_all() -> bool:
    """Whether code that this torch has compiled is compiled once more when there are hooks of all modules."""
    major, minor, *_ = torch.__version__.split(".")
    return (int(major), int(minor)) < _COMPILES_NOT_ANEW


@contextmanager
def hooks_of_all(begin: Begin, end: End) -> Iterator[None]:
    """Have ``begin`` and ``end`` called around every module's forward pass until the block is left."""
    with ExitStack() as handles:
        # What it warns of, a second call for the module inside, does not concern labels: that one has none.
        handles.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Using `torch.compile\\(module\\)` when there are global hooks")
        handles.callback(register_module_forward_pre_hook(begin).remove)
        handles.callback(register_module_forward_hook(end, always_call=True).remove)
        yield


@contextmanager
def hooks_of_each(modules: Iterable[torch.nn.Module], begin: Begin, end: End) -> Iterator[tuple[torch.nn.Module, ...]]:
    """Give these modules hooks of their own until the block is left; yield those that take none: TorchScript's."""
    refused = []
    with ExitStack() as handles:
        for module in modules:
            try:
                handles.callback(module.register_forward_pre_hook(_OwnHook(begin)).remove)
                handles.callback(module.register_forward_hook(_OwnHook(end), always_call=True).remove)
            except RuntimeError:
                refused.append(module)
        yield tuple(refused)


def looks_at_hooks(module: torch.nn.Module) -> bool:
    """Whether the module takes another way where it or what lies in it has hooks of its own."""
    return isinstance(module, torch.nn.TransformerEncoderLayer) and not module.training


def own_hooks_notice() -> Notice:
    """Say that modules had hooks of their own."""
    return Notice(
        code="profiler options",
        message=f"beside torch.compile, torch {torch.__version__} lets modules be labelled only by hooks of their own: "
        "a module that looks at its hooks may do other work than without labels",
        remedy="compare counters only with those of a measurement with --stepprof-modules, or leave it away",
    )


class _OwnHook:
    """A hook of one module. A copy of the module, or one that is loaded again, has one in its place that does nothing.

    TorchScript asks for a hook's name before it compiles it; nobody else needs one.
    """

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> None:
        self._call(*arguments)

    def __deepcopy__(self, _known: dict[int, Any]) -> Callable[..., None]:
        return no_hook

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _give_no_hook, ()

    @property
    def __name__(self) -> NoReturn:
        raise AttributeError(
            "TorchScript cannot take in a module while stepprof labels it: beside torch.compile this torch needs hooks "
            "of the module itself for that. Take --stepprof-modules away for this test."
        )


def no_hook(*_arguments: Any) -> None:
    """Stand for a hook in a copy of its module."""


def _give_no_hook() -> Callable[..., None]:
    return no_hook
