"""The same random numbers in both sides' processes from their first line on, so that data made at import are the same.

It runs inside the user's test process and imports nothing but the standard library: torch and NumPy, which begin with
numbers of the system's when they are imported, are seeded right after that, whoever imports them and when.
"""

import contextlib
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_SEEDS = 2**32
_SEEDED: dict[str, Callable[[Any, int], object]] = {
    "torch": lambda torch, seed: torch.manual_seed(seed),
    "numpy.random": lambda numpy_random, seed: numpy_random.seed(seed),
}


class Seeding(MetaPathFinder):
    """Seeds what has been imported, and what will be as soon as it is there."""

    def __init__(self, seed: int) -> None:
        self._seed = self._now = seed % _SEEDS
        sys.meta_path.insert(0, self)
        self.begin("")

    def begin(self, name: str) -> None:
        """Begin a part of the session that has a name: what it draws must not depend on what was there before it."""
        self._now = (self._seed + zlib.crc32(name.encode(errors="surrogateescape"))) % _SEEDS
        random.seed(self._now)
        for module_name, seeded in _SEEDED.items():
            if module_name in sys.modules:
                self._seed_module(sys.modules[module_name], seeded)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules as the other finders do, and see to it that it is seeded when it has been run."""
        if fullname not in _SEEDED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            with contextlib.suppress(AttributeError):  # a loader that cannot be changed: then it stays unseeded
                loader.exec_module = self._then_seeded(loader.exec_module, fullname)
        return spec

    def _then_seeded(self, run: Callable[[ModuleType], None], name: str) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            run(module)
            self._seed_module(module, _SEEDED[name])

        return exec_module

    def _seed_module(self, module: ModuleType, seeded: Callable[[Any, int], object]) -> None:
        with contextlib.suppress(AttributeError):  # in the middle of its own import, after which it is seeded
            seeded(module, self._now)
