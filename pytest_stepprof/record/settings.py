"""The numbers that shape a measurement and its judgement, as resolved from options, marker and ini."""

from typing import Literal

from pytest_stepprof.record.base import Record

GateMode = Literal["fail", "warn", "off"]

OWN_HOOKS_OPTION = "record_modules_by_own_hooks"
"""Among the options of a window, beside ``record_modules``: labels were set by hooks that a module can look at."""


OUTPUTS_LIMIT_BYTES = 64 * 2**20


class MeasureSettings(Record, frozen=True, kw_only=True):
    """How a step is measured. ``steps_per_run=None`` means: as many as fill ``run_time_s``.

    ``outputs_limit_bytes`` is how much of one test's result is stored; of a larger one a sample stands for the rest.
    """

    device: str = "auto"
    warmup_steps: int = 5
    window_wait_steps: int = 1
    window_warmup_steps: int = 1
    window_active_steps: int = 2
    runs: int = 5
    steps_per_run: int | None = None
    run_time_s: float = 0.5
    budget_s: float = 10.0
    record_shapes: bool = False
    record_stacks: bool = False
    record_memory: bool = False
    record_modules: bool = False
    keep_trace: bool = False
    seed: int = 20_240_229
    outputs_limit_bytes: int = OUTPUTS_LIMIT_BYTES


class PathTolerance(Record, frozen=True, kw_only=True):
    """Tolerances for the leaves whose path matches ``pattern``, in which ``*`` stands for any text.

    ``None`` leaves that one as it is. Where several patterns match, the last one that gives an ``rtol`` counts for it,
    and the last one that gives an ``atol`` for that.
    """

    pattern: str
    rtol: float | None = None
    atol: float | None = None


class CounterRule(Record, frozen=True, kw_only=True):
    """What a change of the counters does whose name matches ``pattern``, in which ``*`` stands for any text.

    Where several rules match, the last one counts.
    """

    pattern: str
    mode: GateMode


class TimeRule(Record, frozen=True, kw_only=True):
    """A person's own rule for time: fail above before x (1 + ``relative``) + ``absolute_ns``. ``text`` is as written.

    It takes the place of the interval, and nobody knows its error rates.
    """

    text: str
    relative: float
    absolute_ns: float = 0.0


class JudgeSettings(Record, frozen=True, kw_only=True):
    """How a measurement is judged against a baseline.

    ``tolerance`` and ``limit`` are relative slowdowns (0.01 is 1 %). ``level`` is the probability, over all tests
    of the session together, that unchanged code is called ``regressed``. ``rtol`` and ``atol`` replace the
    tolerances by dtype for outputs when given, and ``tolerances`` both of these for the paths that they name.
    ``counter_rules`` replace the built-in rules for the counters that they name. A memory peak has grown when it is
    above before x (1 + ``memory_tolerance``) + ``memory_tolerance_bytes``. ``time_rule`` takes the place of time's
    interval; ``fixed_rules`` are all rules of ``--stepprof-fail-on`` in force, as they were written.
    """

    tolerance: float = 0.01
    limit: float = 0.05
    level: float = 0.01
    outputs: GateMode = "fail"
    counters: GateMode = "fail"
    time: GateMode = "fail"
    rtol: float | None = None
    atol: float | None = None
    tolerances: tuple[PathTolerance, ...] = ()
    counter_rules: tuple[CounterRule, ...] = ()
    memory: GateMode = "fail"
    memory_tolerance: float = 0.10
    memory_tolerance_bytes: int = 8 * 2**20
    time_rule: TimeRule | None = None
    fixed_rules: tuple[str, ...] = ()
