"""Who a test is: the same under another verbosity, parameter order or memory address."""

import enum
import hashlib
from typing import Any

import pytest

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.measurement import TestIdentity

LONGEST_VALUE = 80


def identify(item: pytest.Item) -> TestIdentity:
    """Return the identity of a test from its file, its qualified name and its sorted parameters."""
    parameters = _parameters(item)
    file = file_of(item)
    qualified_name = printable(_qualified_name(item))
    inside = ", ".join(f"{name}={text}" for name, text in parameters)
    return TestIdentity(
        key=f"{file}::{qualified_name}" + (f"[{inside}]" if inside else ""),
        file=file,
        qualified_name=qualified_name,
        parameters=parameters,
        node_id=printable(item.nodeid),
        line=_line(item),
    )


def file_of(node: pytest.Item | pytest.Collector) -> str:
    """Return the file of a test, module or class as identities name it: from the root folder where it lies in it."""
    inside = node.path.is_relative_to(node.config.rootpath)
    return printable((node.path.relative_to(node.config.rootpath) if inside else node.path).as_posix())


def class_path(node: pytest.Item | pytest.Collector) -> str:
    """Return the names of the classes around a node, itself among them, joined by dots; empty without any."""
    return printable(".".join(one.name for one in node.listchain() if isinstance(one, pytest.Class)))


def _line(item: pytest.Item) -> int | None:
    """Return the line that the test begins in, from 1."""
    line = item.location[1]
    return None if line is None else line + 1


def _parameters(item: pytest.Item) -> tuple[tuple[str, str], ...]:
    callspec: Any = getattr(item, "callspec", None)
    if callspec is None:
        return ()
    texts = {name: _text(value) for name, value in callspec.params.items()}
    known = {name: text for name, text in texts.items() if text is not None}
    if len(known) < len(texts):  # pytest's own id is the only stable name that such a value has
        known["id"] = str(callspec.id)
    return tuple(sorted((printable(name), _short(printable(text))) for name, text in known.items()))


def _qualified_name(item: pytest.Item) -> str:
    name = getattr(item, "originalname", None) or item.name
    return ".".join(filter(None, (class_path(item), name)))


def _text(value: Any) -> str | None:
    """Return a text that is the same in every process, ``None`` for objects that have none."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, enum.Enum)):
        return str(value) if isinstance(value, enum.Enum) else repr(value)  # "1" and 1 are two parameters
    if isinstance(value, (tuple, list)):
        parts = [_text(part) for part in value]
        return None if None in parts else f"({', '.join(str(part) for part in parts)})"
    if hasattr(value, "__qualname__") and hasattr(value, "__module__"):
        name = f"{value.__module__}.{value.__qualname__}"
        return None if "<" in name else name  # <lambda> and <locals>: several may have this name
    if type(value).__module__ == "torch":  # dtypes, devices, layouts: their text is their name
        return str(value) if type(value).__name__ in ("dtype", "device", "layout", "memory_format") else None
    return None


def _short(text: str) -> str:
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{text[: LONGEST_VALUE - 20]}...{hashlib.sha256(text.encode()).hexdigest()[:12]}"
