"""Where a step's batches come from: batch 0 first after every start, whatever the user handed in."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Protocol

import torch

from pytest_stepprof.errors import BatchError, UsageError
from pytest_stepprof.measure.clock import Clock


class Exhausted(Exception):  # noqa: N818 - it says what happened, and it is no failure
    """One pass over the batches is over; ``start`` begins the next."""


class BatchFeed(Protocol):
    """Hands out batches in order. Reads and starts are timed apart, in nanoseconds."""

    @property
    def description(self) -> str:
        """Where the batches come from, for the scenario."""

    @property
    def batches_per_pass(self) -> int | None:
        """After how many batches ``Exhausted`` comes; ``None`` when it never does, or when nobody can tell."""

    def start(self) -> int | None:
        """Begin again with batch 0; return what making the iterator took, ``None`` when there is none to make."""

    def read(self) -> Any:
        """Return the next batch, or raise ``Exhausted``."""

    def close(self) -> None:
        """Let go of the iterator and so of its workers."""


class NoBatches:
    """For a step that takes no batch."""

    description = "none"
    batches_per_pass = None

    def start(self) -> None:
        """Nothing to begin."""

    def read(self) -> None:
        """There is no batch."""

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryFeed:
    """Batches that lie in memory are handed out in a circle: going round costs nothing that could be timed."""

    batches_per_pass = None

    def __init__(self, batches: Sequence[Any], description: str) -> None:
        if not batches:
            raise BatchError(f"batches ({description}) is empty; expected at least one batch.")
        self.batches = batches
        self.description = description
        self.start()

    def start(self) -> None:
        """Go back to batch 0."""
        self.read: Callable[[], Any] = cycle(self.batches).__next__  # a call of Python's would cost a short step 1 %
        """Return the next batch; the first one follows the last."""

    def close(self) -> None:
        """Nothing to let go of."""


class LoaderFeed:
    """A loader that can be iterated again and again: every start makes a new iterator."""

    def __init__(self, loader: Iterable[Any], clock: Clock) -> None:
        self._loader = loader
        self._clock = clock
        self._iterator: Iterator[Any] | None = None
        self._found_workers = _persistent_iterator(loader) is not None
        self.description = _describe_loader(loader)
        self.batches_per_pass = _length(loader)

    def start(self) -> int:
        """Make a new iterator, after letting go of the old one and its workers; return the making's nanoseconds."""
        self._iterator = None
        begin = self._clock()
        self._iterator = iter(self._loader)
        return self._clock() - begin

    def read(self) -> Any:
        """Return the next batch.

        Raises:
            Exhausted: this pass is over.
        """
        if self._iterator is None:
            raise Exhausted
        try:
            return next(self._iterator)
        except StopIteration:
            raise Exhausted from None

    def close(self) -> None:
        """Drop the iterator, and workers that a loader keeps from pass to pass unless they were there before."""
        self._iterator = None
        if not self._found_workers and _persistent_iterator(self._loader) is not None:
            vars(self._loader)["_iterator"] = None


def read_first(feed: BatchFeed) -> Any:
    """Return the first batch of a pass that has just been started, when earlier passes had one.

    Raises:
        BatchError: this pass has none.
    """
    try:
        return feed.read()
    except Exhausted:
        raise BatchError(
            f"batches ({feed.description}) gave no batch on a new pass; expected the same batches each time. "
            "Hand in a list, or a loader that can be iterated again."
        ) from None


def _persistent_iterator(loader: object) -> object:
    """Return where a ``DataLoader`` with ``persistent_workers=True`` keeps its workers, once it has been iterated."""
    return vars(loader).get("_iterator") if isinstance(loader, torch.utils.data.DataLoader) else None


def _length(loader: object) -> int | None:
    try:
        return len(loader)  # type: ignore[arg-type]  # whether it has a length is the question
    except (TypeError, NotImplementedError):
        return None


def _describe_loader(loader: object) -> str:
    name = f"{type(loader).__module__}.{type(loader).__qualname__}"
    if isinstance(loader, torch.utils.data.DataLoader):
        dataset = type(loader.dataset).__qualname__
        return f"{name} of {dataset}, batch_size={loader.batch_size}, num_workers={loader.num_workers}"
    return name


def feed_of(batches: object, clock: Clock, replayed: int) -> BatchFeed:
    """Make the feed for whatever was given as ``batches=``.

    ``None`` gives no batches; a list or tuple lies in memory; an iterator that can be used once is replayed from
    its first ``replayed`` batches; any other iterable is started anew.

    Raises:
        UsageError: ``batches`` is one batch rather than an iterable of batches, or no iterable at all.
        BatchError: there are no batches, or fewer than ``replayed`` in an iterator that can be used once.
    """
    if batches is None:
        return NoBatches()
    if isinstance(batches, (torch.Tensor, Mapping, str, bytes)):
        raise UsageError(
            f"batches is a {type(batches).__name__}, which looks like one batch; expected an iterable of batches. "
            "Write batches=[batch]."
        )
    if not isinstance(batches, Iterable) and not hasattr(batches, "__getitem__"):
        raise UsageError(f"batches is a {type(batches).__name__}; expected an iterable of batches, or nothing.")
    if isinstance(batches, (list, tuple)):
        return MemoryFeed(batches, f"{type(batches).__name__} of {len(batches)} in memory")
    if isinstance(batches, Iterator):
        return _replay(batches, replayed)
    return LoaderFeed(batches, clock)  # type: ignore[arg-type]  # an old-style sequence is iterable too


def _replay(batches: Iterator[Any], needed: int) -> MemoryFeed:
    kept = list(islice(batches, needed))
    if len(kept) < needed:
        raise BatchError(
            f"batches is an iterator that can be used once ({type(batches).__name__}): needed {needed} batches, "
            f"got {len(kept)}. Hand in more batches, a loader that can be iterated again, or a list."
        )
    return MemoryFeed(kept, f"first {needed} batches of a {type(batches).__qualname__}, replayed from memory")
