"""Texts of a trace by what they reveal: counted, told apart by their shape, and shown without giving access."""

import re
from collections.abc import Iterator
from typing import get_args

import msgspec

from pytest_stepprof.analysis.privacy.names import LABEL_CATEGORIES, PYTHON_CATEGORY, TORCH_FILE
from pytest_stepprof.analysis.privacy.shapes import kinds_by_shape, masked
from pytest_stepprof.record.inspection import Revealed, RevealedKind

KEPT_BY_SCRUB: tuple[RevealedKind, ...] = (
    *("device names", "process ids", "labels", "kernel names", "operators outside of torch"),
    "source files and functions",
)
"""What a scrubbed trace still tells: names that are harmless by shape, cut to their last part where they are paths."""

_EXAMPLES = 3
_EXAMPLE_CHARACTERS = 72
_ORDER: tuple[RevealedKind, ...] = get_args(RevealedKind)

_CUT_WORD = re.compile(r"[\w.+=-]*\Z")  # half a secret is not known for one

_OWN_LABEL = re.compile(
    r"ProfilerStep#\d+|enumerate\(DataLoader\)#_\w+\.__next__|Optimizer\.(?:step|zero_grad)#\w+\.\w+"
    r"|stepprof: (?:read batch|synchronize)|Torch-Compiled Region: [\d/]+|nccl:\w+|\w+ \(dynamo_timed\)"
)
_TORCH_OPERATOR = re.compile(
    r"(?:aten|prims?|_?c10d(?:_functional)?|torch|autograd|quantized|mkldnn|onednn|cudnn|profiler|fbgemm)::.*"
    r"|autograd::engine::evaluate_function: .*|\w+Backward\d*|(?:nccl|gloo):\w+|record_param_comms|detach_?"
    r"|torch\.distributed\.\S+",
    re.DOTALL,
)
_LIBRARY_KERNEL = re.compile(
    r"cutlass|cudnn|cublas|nccl|rccl|miopen|pytorch_flash|^(?:void )?(?:at|c10|cub|thrust)::"
    r"|^(?:ampere|volta|turing|hopper|maxwell|sm\d+)_|^Cijk_A[a-z]{3}_B[a-z]{3}_|^Mem(?:cpy|set)|^std::enable_if"
    r"|^void (?:splitKreduce|gemv)"
)
_OWN_FUNCTION = re.compile(TORCH_FILE + r"\(\d+\): .*|<built-in .*", re.DOTALL)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_LONGEST_VALUE = 500


class FoundTexts:
    """What was found so far: by kind, how often, and in which different texts."""

    def __init__(self) -> None:
        self._counts: dict[RevealedKind, int] = {}
        self._texts: dict[RevealedKind, dict[str, None]] = {}

    def add(self, kind: RevealedKind, text: str) -> None:
        """Count a text as one of this kind."""
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._texts.setdefault(kind, {})[text] = None

    def by_shape(self, text: str, category: str = "") -> None:
        """Add what the text looks like, wherever it stands."""
        for kind, part in kinds_by_shape(text, category):
            self.add(kind, part)

    def all_texts(self, raw: bytes, category: str = "") -> None:
        """Look at every text in a piece of JSON, names of fields included."""
        for text in texts_in(raw):
            self.by_shape(text, category)

    def unknown(self, field: str, raw: bytes) -> None:
        """Add a field of an event that nobody knows, and whatever its value tells."""
        self.add("unknown fields of events", f"{field}: {text_of(raw)}")
        self.all_texts(raw)

    def name(self, category: str, name: str) -> None:
        """Add the name of an event, unless it is one of torch or of a library."""
        kind = _kind_of_name(category, name)
        if kind is not None:
            self.add(kind, name)

    def revealed(self) -> tuple[Revealed, ...]:
        """Return what was found, in the fixed order of kinds."""
        return tuple(
            Revealed(
                kind=kind,
                count=self._counts[kind],
                distinct=len(self._texts[kind]),
                kept_by_scrub=kind in KEPT_BY_SCRUB,
                examples=tuple(_example(text) for text in list(self._texts[kind])[:_EXAMPLES]),
            )
            for kind in _ORDER
            if kind in self._counts
        )


def texts_in(raw: bytes) -> Iterator[str]:
    """Yield every text in a piece of JSON, names of fields included, however deep they stand."""
    if b'"' in raw:
        for text in _TEXT.findall(raw):
            yield _unquoted(text)


def text_of(raw: bytes) -> str:
    """Return the text itself where the JSON is one, else the JSON, cut where it is long."""
    if is_text(raw):
        return _unquoted(raw)
    text = " ".join(raw[:_LONGEST_VALUE].decode(errors="replace").split())
    return text if len(raw) <= _LONGEST_VALUE else _CUT_WORD.sub("...", text)


def _unquoted(text: bytes) -> str:
    """A text that is not valid Unicode is looked at as it is written: it may be in a field that no reader reads."""
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return text[1:-1].decode(errors="replace")


def is_text(raw: bytes) -> bool:
    """Whether the JSON is a text."""
    return raw[:1] == b'"'


def _kind_of_name(category: str, name: str) -> RevealedKind | None:
    if category == PYTHON_CATEGORY:
        return None if _OWN_FUNCTION.fullmatch(name) else "source files and functions"
    if category in LABEL_CATEGORIES:
        return None if _OWN_LABEL.fullmatch(name) else "labels"
    if category in ("kernel", "Kernel"):
        return None if _LIBRARY_KERNEL.search(name) else "kernel names"
    if category in ("cpu_op", "Operator"):
        return None if _OWN_LABEL.fullmatch(name) or _TORCH_OPERATOR.fullmatch(name) else "operators outside of torch"
    return None


def _example(text: str) -> str:
    """Shorten a text, and hide in it what would give access."""
    text, half = masked(text), _EXAMPLE_CHARACTERS // 2
    return text if len(text) <= _EXAMPLE_CHARACTERS else f"{text[:half]}...{text[-half:]}"
