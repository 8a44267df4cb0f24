"""Names of events on their way into a file for other people: kept where they are harmless, else replaced."""

import re

from pytest_stepprof.analysis.privacy.shapes import kinds_by_shape

LABEL_CATEGORIES = frozenset({"user_annotation", "gpu_user_annotation"})
PYTHON_CATEGORY = "python_function"
TORCH_FILE = r"torch/(?:[\w-]+/)*[\w-]+(?:\.\w+)*"

_NOUNS = {
    **dict.fromkeys(LABEL_CATEGORIES, "label"),
    PYTHON_CATEGORY: "function",
    **dict.fromkeys(("cpu_op", "Operator"), "operator"),
    **dict.fromkeys(("kernel", "Kernel"), "kernel"),
}

# What a name is taken for depends on these parts of it, so that its replacement has them, too. The patterns are those
# of analysis/window, and a test asks them all. Of the beginnings the first that fits counts, of the others all.
_Part = tuple[re.Pattern[str], str]
_BEGINNINGS: tuple[_Part, ...] = (
    (re.compile(r"^enumerate\(DataLoader\)#"), "enumerate(DataLoader)#"),
    (re.compile(r"^Optimizer\.step#"), "Optimizer.step#"),
    (re.compile(r"^Optimizer\.zero_grad#"), "Optimizer.zero_grad#"),
    (re.compile(r"^stepprof: module "), "stepprof: module "),
    (re.compile(r"^stepprof: "), "stepprof: "),
    (re.compile(r"^Torch-Compiled Region"), "Torch-Compiled Region "),
    (re.compile(r"^## Call CompiledFxGraph "), "## Call CompiledFxGraph "),
    (re.compile(r"^(?:nccl|rccl|msccl|oneccl)\w*Kernel|^rccl", re.IGNORECASE), "ncclKernel "),
    (re.compile(r"^nccl:"), "nccl: "),
    (re.compile(r"^aten::_?(?:cudnn|miopen)_(?!is_acceptable)"), "aten::cudnn_ "),
    (re.compile(r"^(?:cuda|hip|cu)(?:Device|Thread|Stream|Event|Ctx)Synchronize"), "cudaStreamSynchronize "),
    (re.compile(r"^(?:ze|ur)\w*(?:Synchronize|Finish|EventWait)"), "urSynchronize "),
    (re.compile(r"^(?:cuda|cu|hip)Memcpy"), "cudaMemcpy "),
)
_MIDDLES: tuple[_Part, ...] = (
    (re.compile(r"_data: \w+="), "note_data: note= "),
    (re.compile(r"Launch(?:Cooperative)?Kernel|KernelLaunch"), "LaunchKernel "),
    (re.compile(r"GraphLaunch"), "GraphLaunch "),
    (re.compile(r"Enqueue\w*(?:Memcpy|BufferCopy)|AppendMemoryCopy"), "AppendMemoryCopy "),
    (re.compile(r"(?:Device|Ctx|Thread)Synchronize|Get|Query|Occupancy"), "Query "),
    (re.compile(r"\b(?:HtoD|H2D|M2D)\b|HostToDevice"), "HtoD "),
    (re.compile(r"\b(?:DtoH|D2H|D2M)\b|DeviceToHost"), "DtoH "),
    (re.compile(r"\b(?:PtoP|P2P)\b|PeerToPeer"), "PtoP "),
    (re.compile(r"\b(?:DtoD|D2D)\b|DeviceToDevice"), "DtoD "),
)
_ENDINGS: tuple[_Part, ...] = (
    (re.compile(r"^enumerate\(DataLoader\)#.*__next__"), ".__next__"),
    (re.compile(r"compile_inner \(dynamo_timed\)$"), " compile_inner (dynamo_timed)"),
    (re.compile(r"(?<!compile_inner )\(dynamo_timed\)$"), " (dynamo_timed)"),
)

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_FRAME = re.compile(r"(?P<path>.*)(?P<place>\(\d+\): .*)", re.DOTALL)
_TORCH_FILE = re.compile(TORCH_FILE)


class SafeNames:
    """The names of one trace without what tells of people and places.

    The same name gets the same replacement everywhere, and two names never become one, so that what is grouped by
    name stays grouped as it was. With ``keep_labels`` the labels that people have set stay as they are.
    """

    def __init__(self, *, keep_labels: bool = False) -> None:
        self._keep_labels = keep_labels
        self._safe: dict[tuple[bool, str], str] = {}
        self._given: dict[tuple[bool, str], int] = {}
        self._numbers: dict[str, int] = {}

    def of(self, category: str, name: str) -> str:
        """Return what stands for the name of an event of this category."""
        key = (category == PYTHON_CATEGORY, name)
        safe = self._safe.get(key)
        if safe is None:
            kept = self._keep_labels and category in LABEL_CATEGORIES
            safe = self._safe[key] = self._unused(key[0], name if kept else self._harmless(category, name))
        return safe

    def text(self, noun: str, text: str) -> str:
        """Return a placeholder for any other text, the same one each time: ``thread 2``."""
        key = (False, f"\0{noun}\0{text}")
        if key not in self._safe:
            self._safe[key] = self._numbered(noun)
        return self._safe[key]

    def _harmless(self, category: str, name: str) -> str:
        shown = shortened_function(name) if category == PYTHON_CATEGORY else name
        if not kinds_by_shape(shown, category):
            return shown
        first = [part for pattern, part in _BEGINNINGS if pattern.search(name)][:1]
        middle = [part for pattern, part in _MIDDLES if pattern.search(name)]
        last = [part for pattern, part in _ENDINGS if pattern.search(name)]
        return "".join((*first, *middle, self._numbered(_NOUNS.get(category, "event")), *last))

    def _numbered(self, noun: str) -> str:
        self._numbers[noun] = self._numbers.get(noun, 0) + 1
        return f"{noun} {self._numbers[noun]}"

    def _unused(self, is_function: bool, wanted: str) -> str:
        """Number a name that another one has become already: ``a/run.py(3): go`` and ``b/run.py(3): go``."""
        name = wanted
        while (is_function, name) in self._given:
            self._given[is_function, wanted] += 1
            name = f"{wanted} ({self._given[is_function, wanted]})"
        self._given[is_function, name] = 1
        return name


def shortened_function(name: str) -> str:
    """Cut the path of a Python function's file to its last part, and leave out addresses of objects.

    Files of torch itself keep their path inside it: ``torch/nn/modules/linear.py(134): forward``.
    """
    without_address = _ADDRESS.sub("", name)
    frame = _FRAME.fullmatch(without_address)
    if frame is None or _TORCH_FILE.fullmatch(frame["path"]):
        return without_address
    return re.split(r"[\\/]", frame["path"])[-1] + frame["place"]
