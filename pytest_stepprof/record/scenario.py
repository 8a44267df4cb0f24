"""What is measured, and under which conditions: the declared part and the seen part."""

from typing import Literal

from pytest_stepprof.record.base import Record

Unit = Literal["ms/step", "samples/s"]
StartedFrom = Literal["state put back", "built fresh"]


class InputLeaf(Record, frozen=True, kw_only=True):
    """One leaf of the first batch. ``shape`` is ``None`` for what has no shape; ``type_name`` is its Python type."""

    path: str
    type_name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    requires_grad: bool = False


class Scenario(Record, frozen=True, kw_only=True):
    """The question, the boundaries of a step, and the conditions it ran under.

    Declared by the person: ``question``, ``unit``, ``samples_per_step``, ``includes_read``, ``represents``,
    ``regions``, ``check_steps``, ``check_parameters``, ``start``. Seen by stepprof: everything else. ``torch_flags``
    are the settings of torch that change how fast or how exactly operators work, each as ``name: value``, as they were
    when the step ran for the first time.

    What is compared is the result of the first step, or of the first ``check_steps`` steps one after the other, and
    with ``check_parameters`` the parameters after them. ``start`` says how every run gets to where the first began.
    """

    question: str | None
    unit: Unit
    samples_per_step: int | None
    includes_read: bool
    represents: str | None
    regions: tuple[str, ...]
    batch: tuple[InputLeaf, ...]
    batch_source: str
    module_mode: str
    autocast: tuple[str, ...]
    gradients: str
    compiled: tuple[str, ...]
    device: str
    intra_op_threads: int
    inter_op_threads: int
    garbage_collection: str
    torch_flags: tuple[str, ...] = ()
    check_steps: int = 1
    check_parameters: bool = False
    start: StartedFrom = "state put back"
