"""Labels around the forward pass of every module of a state, for as long as a window lasts.

Hooks of all modules together (``register_module_forward_hook``, which torch has for profilers) are what opens and
closes them: torch's own ``TransformerEncoderLayer`` looks at hooks of its own modules and then takes another way
through its forward pass, and a module that has none looks as it always did. Where ``torch.compile`` is at work it is
the other way round: older torch compiles anew because of the former and does not mind the latter.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.profiler import record_function

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX
from pytest_stepprof.measure.state.capture import modules_within
from pytest_stepprof.record.notice import Notice

_NAMED = 5
_BY_COMPILER = "torch.compile"
_BY_SCRIPT = "TorchScript"


@dataclass(frozen=True)
class FoundModule:
    """One module and its path. ``closed_by`` is what keeps its insides from being labelled, or itself, too."""

    path: str
    module: torch.nn.Module
    closed_by: str = ""

    @property
    def takes_label(self) -> bool:
        """Whether a call of the module from Python reaches its hooks: ``module.compile()`` takes them in."""
        return vars(self.module).get("_compiled_call_impl") is None

    @property
    def hides_modules(self) -> bool:
        """Whether there are modules inside that get no label."""
        inside = getattr(self.module, "_orig_mod", self.module)
        return bool(self.closed_by) and any(True for _ in inside.children())


def find_modules(name: str, state: object) -> tuple[FoundModule, ...]:
    """Find the modules in a state, each once, with the paths of ``named_modules()``.

    Where the state is one module, paths begin inside of it, and its own is its class's name. Where there are several,
    paths begin with ``name`` and go through the containers. Modules that ``torch.compile`` or TorchScript has taken in
    are left out: their calls are not made by Python.
    """
    roots: dict[int, tuple[str, torch.nn.Module]] = {}
    for module, path in modules_within(state, name, set()):
        roots.setdefault(id(module), (path, module))
    known = {id(inside) for _, root in roots.values() for inside in _taken_in(root)}
    if len(roots) == 1:
        (_, module), *_ = roots.values()
        return tuple(_walk(module, type(module).__name__, "", known))
    return tuple(found for path, module in roots.values() for found in _walk(module, path, f"{path}.", known))


def _walk(module: torch.nn.Module, path: str, prefix: str, known: set[int]) -> Iterator[FoundModule]:
    """Give a module and what lies in it, the outer ones first; ``known`` ones are left out and added to."""
    if id(module) in known:
        return
    known.add(id(module))
    closed_by = _closed_by(module)
    yield FoundModule(path, module, closed_by)
    if not closed_by:
        for name, child in module.named_children():
            yield from _walk(child, f"{prefix}{name}", f"{prefix}{name}.", known)


def _taken_in(root: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Give what lies inside of modules that are closed, by whatever other way it can be reached."""
    for module in root.modules():
        if _closed_by(module):
            yield from (inside for inside in module.modules() if inside is not module)


def _closed_by(module: torch.nn.Module) -> str:
    if hasattr(module, "_orig_mod") or vars(module).get("_compiled_call_impl") is not None:
        return _BY_COMPILER
    return _BY_SCRIPT if isinstance(module, torch.jit.ScriptModule) else ""


class ModuleLabels:
    """Opens a label when a module's forward pass begins, and closes it when it ends or raises."""

    def __init__(self, found: tuple[FoundModule, ...]) -> None:
        self.found = found
        self._labels = {id(one.module): MODULE_LABEL_PREFIX + one.path for one in found if one.takes_label}
        self._of_thread = threading.local()
        self._refused: list[str] = []

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all labels."""
        return tuple(self._labels.values())

    @contextmanager
    def attached(self, *, compiling: bool) -> Iterator[None]:
        """Label the modules until the block is left, and leave no hook behind.

        ``compiling`` says that ``torch.compile`` is at work in this test.
        """
        self._refused.clear()
        with ExitStack() as handles:
            if compiling:
                self._hook_each(handles)
            else:
                handles.callback(register_module_forward_pre_hook(self._begin).remove)
                handles.callback(register_module_forward_hook(self._end, always_call=True).remove)
            yield

    def closing(self, run_step: Callable[[], None]) -> Callable[[], None]:
        """Return a step that leaves no label open: torch calls no hook when Ctrl-C or a skip ends a forward pass."""

        def run() -> None:
            try:
                run_step()
            finally:
                self._close(down_to=0)

        return run

    def notices(self) -> tuple[Notice, ...]:
        """Say which modules have no label, and why."""
        hidden = [f"inside of {one.path} ({one.closed_by})" for one in self.found if one.hides_modules]
        without = [f"{one.path} ({one.closed_by})" for one in self.found if not one.takes_label]
        if self.found and not (hidden or without or self._refused):
            return ()
        if not self.found:
            return (no_labels("there is no module in what state= holds or setup= builds"),)
        return (no_labels(first_few([*without, *hidden, *self._refused], _NAMED)),)

    def _hook_each(self, handles: ExitStack) -> None:
        for one in self.found:
            if not one.takes_label:
                continue
            try:
                handles.callback(one.module.register_forward_pre_hook(self._begin).remove)
                handles.callback(one.module.register_forward_hook(self._end, always_call=True).remove)
            except RuntimeError:  # TorchScript has no hooks of its own
                self._refused.append(f"{one.path} ({one.closed_by or type(one.module).__name__})")

    def _open(self) -> list[tuple[int, record_function]]:
        opened: list[tuple[int, record_function]] | None = getattr(self._of_thread, "opened", None)
        if opened is None:
            opened = self._of_thread.opened = []
        return opened

    def _begin(self, module: torch.nn.Module, _arguments: Any) -> None:
        if torch.compiler.is_compiling():
            return  # what is compiled now stays when the labels are gone
        label = self._labels.get(id(module))
        if label is not None:
            record = record_function(label)
            record.__enter__()  # type: ignore[no-untyped-call] # torch's own
            self._open().append((id(module), record))

    def _end(self, module: torch.nn.Module, _arguments: Any, _result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        opened = self._open()
        rows = [row for row, (known, _) in enumerate(opened) if known == id(module)]
        if rows:
            self._close(down_to=rows[-1])

    def _close(self, down_to: int) -> None:
        opened = self._open()
        while len(opened) > down_to:
            _, record = opened.pop()
            record.__exit__(None, None, None)


def no_labels(which: str) -> Notice:
    """Say that modules have no label although labels were asked for."""
    return Notice(
        code="modules not labelled",
        message=f"not labelled as modules: {which}",
        remedy="hand the modules in by state= or setup=, and call them as they are: what torch.compile or TorchScript "
        "has taken in is not called by Python",
    )
