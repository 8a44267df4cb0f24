"""Labels around the forward pass of every module of a state, for as long as a window lasts.

Which hooks open and close them: see ``module_hooks``.
"""

import inspect
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import record_function

from pytest_stepprof.analysis.labels import printable, refused_label
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX
from pytest_stepprof.measure.module_hooks import hooks_of_all, hooks_of_each, looks_at_hooks
from pytest_stepprof.measure.state.capture import modules_within
from pytest_stepprof.record.notice import Notice

_NAMED = 5
_BY_COMPILER = "torch.compile"
_BY_SCRIPT = "TorchScript"


@dataclass(frozen=True)
class FoundModule:
    """One module and the names that lead to it, none for the only root.

    ``closed_by`` is what keeps its insides from being labelled, or itself, too.
    """

    names: tuple[str, ...]
    module: torch.nn.Module
    closed_by: str = ""

    @property
    def path(self) -> str:
        """The names with dots between them; the only root's is its class's name."""
        return ".".join(self.names) or type(self.module).__name__

    @property
    def refused(self) -> str | None:
        """Why a name on the path must not be stored. The dots are no part of a name: ``0.0.0.0`` is no address."""
        return next(filter(None, map(refused_label, self.names or (self.path,))), None)

    @property
    def shown(self) -> str:
        """What a notice may call it."""
        return self.path if self.refused is None else f"a {printable(type(self.module).__name__)}"

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
        return tuple(_walk(module, (), known))
    return tuple(found for path, module in roots.values() for found in _walk(module, (path,), known))


def _walk(module: torch.nn.Module, names: tuple[str, ...], known: set[int]) -> Iterator[FoundModule]:
    """Give a module and what lies in it, the outer ones first; ``known`` ones are left out and added to."""
    if id(module) in known:
        return
    known.add(id(module))
    closed_by = _closed_by(module)
    yield FoundModule(names, module, closed_by)
    if not closed_by:
        for name, child in module.named_children():
            yield from _walk(child, (*names, name), known)


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
        taking = (one for one in found if one.takes_label and one.refused is None)
        self._labels = {id(one.module): MODULE_LABEL_PREFIX + one.path for one in taking}
        self._of_thread = threading.local()
        self._without_hooks: dict[int, str] = {}
        self._called: set[int] = set()
        self._come_later: set[int] = set()

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all labels."""
        return tuple(self._labels.values())

    @contextmanager
    def attached(self, *, own_hooks: bool) -> Iterator[None]:
        """Label the modules until the block is left, and leave no hook behind.

        With ``own_hooks`` each module gets hooks of its own, but those that would take another way because of them.
        """
        for seen in (self._without_hooks, self._called, self._come_later):
            seen.clear()
        if not own_hooks:
            with hooks_of_all(self._begin, self._end):
                yield
            return
        modules = [one.module for one in self.found if id(one.module) in self._labels]
        spared = {id(inside) for module in modules if looks_at_hooks(module) for inside in module.modules()}
        self._without_hooks.update(dict.fromkeys(spared, "looks at its hooks"))
        hooked = (module for module in modules if id(module) not in spared)
        with hooks_of_each(hooked, self._begin, self._end) as refusing:
            self._without_hooks.update((id(module), _closed_by(module) or _BY_SCRIPT) for module in refusing)
            yield

    def closing(self, run_step: Callable[[], None]) -> Callable[[], None]:
        """Return a step that leaves no label open: torch calls no hook when Ctrl-C or a skip ends a forward pass."""

        def run() -> None:
            try:
                run_step()
            finally:
                self._close(down_to=0)

        return run

    def notices(self, labelled: Collection[str] | None = None) -> tuple[Notice, ...]:
        """Say which modules have no label, or none around all of their work, and why.

        ``labelled`` are the paths of those that have one in the active steps, where that is known.
        """
        if not self.found:
            return (no_labels("there is no module in what state= holds or setup= builds"),)
        said = [text for one in self.found for text in self._why_not(one, labelled)]
        if self._labels and labelled is not None and not labelled:
            number = counted(len(self._labels), "module")
            said.insert(0, f"of {number} with a label no call was recorded in the active steps")
        return (no_labels(first_few(said, _NAMED)),) if said else ()

    def _why_not(self, one: FoundModule, labelled: Collection[str] | None) -> Iterator[str]:
        known = id(one.module)
        if not one.takes_label:
            yield f"{one.shown} ({one.closed_by})"
        if one.hides_modules:
            yield f"inside of {one.shown} ({one.closed_by})"
        if one.refused is not None:
            yield f"{one.shown} (a name on its path is refused: {one.refused})"
        elif known in self._without_hooks:
            yield f"{one.shown} ({self._without_hooks[known]})"
        elif known in self._called and labelled is not None and one.path not in labelled:
            yield f"{one.shown} (called, but no call was recorded in the active steps)"
        elif known in self._come_later:
            yield f"{one.shown} in part (what it returns does its work later)"

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
            self._called.add(id(module))
            record = record_function(label)
            record.__enter__()  # type: ignore[no-untyped-call] # torch's own
            self._open().append((id(module), record))

    def _end(self, module: torch.nn.Module, _arguments: Any, result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if id(module) in self._labels and (inspect.isgenerator(result) or inspect.isawaitable(result)):
            self._come_later.add(id(module))
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
        remedy="hand the modules in by state= or setup=, and call them as they are, in the step's own thread: no label "
        "is recorded of copies, of what torch.compile or TorchScript has taken in, and of threads that the profiler "
        "does not see",
    )
