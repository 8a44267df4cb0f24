"""What is seen beside the numbers: each with its size and with what to do about it."""

from collections.abc import Sequence

import torch

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.measure.batches import BatchFeed
from pytest_stepprof.measure.conditions import shapes_of, undeclared_state
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch

_NAMED = 5
"""Names of types, paths and attributes in one notice."""

_MISMATCHES_NAMED = 3
"""Places where two results differ, each with its size, in one notice."""

Shapes = tuple[tuple[tuple[int, ...], torch.dtype], ...]


class ShapeWatch:
    """Learns the shapes of batches until the runs begin, then counts the batches that have others."""

    def __init__(self) -> None:
        self._known: set[Shapes] = set()
        self._learning = True
        self.new: dict[Shapes, int] = {}

    def see(self, batch: object) -> None:
        """Look at one batch, outside of all timing."""
        shapes = shapes_of(batch)
        if self._learning:
            self._known.add(shapes)
        elif shapes not in self._known:
            self.new[shapes] = self.new.get(shapes, 0) + 1

    def stop_learning(self) -> None:
        """From here on, a shape that has not been seen is news."""
        self._learning = False


def of_request(request: StepRequest, feed: BatchFeed) -> list[Notice]:
    """Say what the request leaves open."""
    notices = []
    undeclared = undeclared_state(request)
    if undeclared:
        holder = "state= does not hold" if request.setup is None else "setup= does not build"
        as_state = f"pass state=({', '.join(undeclared)}{',' if len(undeclared) == 1 else ''})"
        notices.append(
            Notice(
                code="state not captured",
                message=f"the step uses {', '.join(undeclared)}, which {holder}: runs do not start equal",
                remedy=as_state if request.setup is None else "build it in setup= and use the step's first argument",
            )
        )
    if "replayed from memory" in feed.description:
        notices.append(
            Notice(
                code="one-shot input",
                message=f"batches: {feed.description}; reading them is not what reading costs in real use",
                remedy="hand in a loader that can be iterated again to time its reads",
            )
        )
    return notices


def input_changed() -> Notice:
    """Say that the step writes into its batch."""
    return Notice(
        code="input changed",
        message="the step changes its input batch: a batch that is used again is not the same batch",
        remedy="copy the batch inside the step, or hand in a loader that makes fresh batches",
    )


def of_not_covered(types: Sequence[str]) -> list[Notice]:
    """Say what of the things that ``setup=`` built has no part in the digest of the start."""
    if not types:
        return []
    return [
        Notice(
            code="state not captured",
            message=f"setup= built {first_few(types, _NAMED)}, which cannot be captured: whether it starts equal each "
            "time was not checked",
            remedy="return modules, optimizers, tensors and objects with state_dict and load_state_dict from setup=, "
            "in a tuple, a dict or as attributes of one object",
        )
    ]


def of_created(paths: Sequence[str]) -> list[Notice]:
    """Say what the first step made that was not there when the state was captured."""
    if not paths:
        return []
    return [
        Notice(
            code="created during the step",
            message=f"the first step created {first_few(paths, _NAMED)}: taken away before each run, so that each "
            "run's first step creates it again, at the cost of a cold start",
            remedy="create it before the call of stepprof, for instance by a step of its own, or use setup=",
        )
    ]


def of_unrestored(paths: Sequence[str]) -> list[Notice]:
    """Say what the first step changed beside parameters, buffers and optimizer state."""
    if not paths:
        return []
    return [
        Notice(
            code="restore incomplete",
            message=f"the step changes what is not put back: {first_few(paths, _NAMED)}",
            remedy="if they matter to the result or the time of a step: keep numbers and tensors in buffers, hand an "
            "inner optimizer in as well, add a pair (capture, restore) to state=, or use setup=",
        )
    ]


def of_repeat(comparison: OutputComparison) -> list[Notice]:
    """Say by how much the step differs from itself."""
    if comparison.status != "differ":
        return []
    return [
        Notice(
            code="step does not repeat itself",
            message="from the same state and the same batch the first step gave another result: "
            + differences(comparison),
            remedy="put every source of change into state= (modules, optimizers, schedulers, generators, and a pair of "
            "functions for what else the step changes) or use setup=",
        )
    ]


def of_another_batch(who: str, comparison: OutputComparison) -> Notice:
    """Say that a pass began with another batch, so that the step cannot have given the same result."""
    return Notice(
        code="another first batch",
        message=f"{who} began with another batch than the first step had, and so with another result: "
        + differences(comparison),
        remedy="let the loader give the same first batch on every pass: workers kept by persistent_workers=True go on "
        "drawing where the last pass ended, so turn that off, draw by the sample's index, or hand in a list",
    )


def of_another_result(who: str, comparison: OutputComparison) -> Notice:
    """Say that a run did not begin as the first step did, although that had repeated itself."""
    return Notice(
        code="result changed in a run",
        message=f"{who} began with another result than the first step gave, which had repeated itself: "
        + differences(comparison),
        remedy="put what changes between the runs into state=, or build everything anew with setup=",
    )


def differences(comparison: OutputComparison) -> str:
    """Say where two results differ and by how much, in one line."""
    return first_few([_spread(mismatch) for mismatch in comparison.mismatches], _MISMATCHES_NAMED, separator="; ")


def _spread(mismatch: OutputMismatch) -> str:
    where = mismatch.path or "the result"
    if mismatch.largest_absolute is None:
        return f"{where}: {mismatch.message}"
    relative = "" if mismatch.largest_relative is None else f", relative {mismatch.largest_relative:.3g}"
    return f"{where}: largest absolute difference {mismatch.largest_absolute:.3g}{relative}"


def of_compilation(graphs: int) -> list[Notice]:
    """Say that ``torch.compile`` worked inside the measured part."""
    if graphs <= 0:
        return []
    return [
        Notice(
            code="recompiled",
            message=f"torch.compile made {graphs} more graph{'s' if graphs > 1 else ''} during the measured runs",
            remedy="take more warm-up steps, or keep shapes and flags the same from step to step",
        )
    ]
