"""Texts, threads and shapes are stored once and referred to by number: dictionaries that number what is new."""

from typing import Any

import msgspec
import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.events import Integers, Kind
from pytest_stepprof.analysis.traces.format import (
    KIND_OF_CATEGORY,
    NOT_GIVEN,
    OPERATORS_OF_2021,
    Arguments,
    Event,
    Scalar,
)

LEGACY_OPERATOR = 100
"""Stands for a kind until all names are known: an operator of 2021, or a label of torch's own among them."""

_KNOWN = {**KIND_OF_CATEGORY, OPERATORS_OF_2021: LEGACY_OPERATOR}
NO_CATEGORY = 0
"""The number of an event that counts for no category."""
LAST_KNOWN = len(_KNOWN)
"""Numbers from 1 to this are known categories."""
_HOST_KINDS = (Kind.OPERATOR, Kind.ANNOTATION, Kind.OVERHEAD, Kind.PYTHON, LEGACY_OPERATOR)
HOST_ONLY = frozenset(number for number, kind in enumerate(_KNOWN.values(), start=1) if kind in _HOST_KINDS)
"""Numbers of the categories whose arguments hold nothing about a device."""
_KINDS = np.array([Kind.MEMORY, *_KNOWN.values(), Kind.MEMORY], dtype=np.int64)


def kinds_of(categories: Integers) -> Integers:
    """Return kinds for category numbers. All that is read of unknown categories, and of none, is about memory."""
    return _KINDS[np.minimum(categories, LAST_KNOWN + 1)]


_LARGEST_SHAPES_BYTES = 256 * 1024
"""Optimizers over a thousand parameters stay far below."""


class Names(dict[str, int]):
    """Numbers texts in order of appearance."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number


class Categories(dict[str, int]):
    """Numbers categories: the known ones first, the others in order of appearance."""

    def __init__(self) -> None:
        super().__init__({category: number for number, category in enumerate(_KNOWN, start=1)})

    def __missing__(self, category: str) -> int:
        number = self[category] = len(self) + 1
        return number


class Threads(dict[tuple[Scalar, Scalar], int]):
    """Numbers pairs of process and thread as they are written; 1 and 1.0 are the same, 1 and "1" are not."""

    def __init__(self) -> None:
        super().__init__()
        self.identities: dict[tuple[int | str, int | str], int] = {}

    def __missing__(self, written: tuple[Scalar, Scalar]) -> int:
        identity = (_identity(written[0]), _identity(written[1]))
        number = self[written] = self.identities.setdefault(identity, len(self.identities))
        return number

    def numbers(self, events: list[Event]) -> Integers:
        """Return a number for each event; where all ran on one thread, as is common, without looking up each."""
        processes, threads = [event.pid for event in events], [event.tid for event in events]
        if events and threads.count(threads[0]) == processes.count(processes[0]) == len(events):
            return np.full(len(events), self[processes[0], threads[0]], dtype=np.int64)
        pairs = map(self.__getitem__, zip(processes, threads, strict=True))
        return np.fromiter(pairs, dtype=np.int64, count=len(events))


def _identity(value: Scalar) -> int | str:
    return value if isinstance(value, str) else int(value or 0)


class Shapes(dict[tuple[bytes, bytes], int]):
    """Numbers pairs of shapes and types as they are written; two spellings of the same get the same number."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[tuple[str, str], int] = {}

    def __missing__(self, written: tuple[bytes, bytes]) -> int:
        text = (_text(written[0]), _text(written[1]))
        number = self[written] = self.texts.setdefault(text, len(self.texts))
        return number

    def numbers(self, arguments: list[Arguments]) -> list[int] | None:
        """Return a number for each event, -1 for one without shapes; ``None`` when no event has any."""
        shapes = [given.input_dims for given in arguments]
        old = [given.input_dims_2020 for given in arguments]
        if old.count(NOT_GIVEN) < len(old):
            shapes = [new if other is NOT_GIVEN else other for new, other in zip(shapes, old, strict=True)]
        if shapes.count(NOT_GIVEN) == len(shapes):
            return None
        return [
            -1 if shape is NOT_GIVEN else self[bytes(shape), bytes(given.input_types)]
            for shape, given in zip(shapes, arguments, strict=True)
        ]


def _text(written: bytes) -> str:
    """Anything may stand where shapes should: what is too large or too deep to be read is shown as it is written."""
    if len(written) > _LARGEST_SHAPES_BYTES:
        return printable(f"{written[:200].decode(errors='replace')}... ({len(written)} bytes)")
    try:
        return printable(_compact(msgspec.json.decode(written or b"[]")))
    except (msgspec.DecodeError, RecursionError):
        return printable(written.decode(errors="replace"))


def _compact(value: Any) -> str:
    """``[[32, 128], [128]]``: as in Python, with texts without quotation marks."""
    if isinstance(value, list):
        return f"[{', '.join(map(_compact, value))}]"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
