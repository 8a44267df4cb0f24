"""What was measured: raw values in integer nanoseconds, in the order in which they were taken."""

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.scenario import Scenario
from pytest_stepprof.record.settings import JudgeSettings, MeasureSettings
from pytest_stepprof.record.window import Window


class TestIdentity(Record, frozen=True, kw_only=True):
    """Who a test is, independent of verbosity, parameter order and object addresses.

    ``key`` is file, qualified name and the sorted parameters in one line; ``node_id`` is pytest's, for display.
    ``line`` is where the test begins in ``file``, from 1; it identifies nothing.
    """

    __test__ = False  # pytest collects classes by this name's prefix

    key: str
    file: str
    qualified_name: str
    parameters: tuple[tuple[str, str], ...]
    node_id: str
    line: int | None = None


class ColdStart(Record, frozen=True, kw_only=True):
    """The very first step. Each part is timed apart; ``None`` means that the part does not exist here.

    ``step_ns`` is the step as the scenario bounds it (with the read when ``includes_read``).
    """

    step_ns: int
    read_ns: int | None
    iterator_ns: int | None
    load_ns: int | None


class WarmUp(Record, frozen=True, kw_only=True):
    """The warm-up after the check that the step repeats: one value per step, none of them used for a verdict."""

    restore_ns: int
    iterator_ns: int | None
    steps_ns: tuple[int, ...]
    read_ns: tuple[int, ...]


class Restart(Record, frozen=True, kw_only=True):
    """The batches ran out inside a run: what it cost to begin again, outside of every sample.

    The first read after a restart may wait for workers to start, so it belongs to no sample. When reading belongs to
    the step, the step on that first batch is not a sample either (``step_ns``), and ``abandoned_steps`` of the
    sample in which the batches ran out were taken again; otherwise these are ``None`` and 0.
    """

    before_sample: int
    iterator_ns: int
    first_read_ns: int
    step_ns: int | None
    abandoned_steps: int


class Run(Record, frozen=True, kw_only=True):
    """Restored state, warm-up, then samples without the profiler.

    ``samples_ns[i]`` is the time of ``steps_per_sample`` consecutive steps; ``read_ns[i]`` the time of the reads
    that fed them (inside the sample when ``includes_read``, before it otherwise; empty without batches).
    ``waited_ns[i]`` is how long threads of this process waited for a core meanwhile, added up over threads, because
    other programs ran; empty where the operating system does not tell. ``same_result`` says whether the run's first
    step, in its warm-up, gave the result that the first step ever gave, within the tolerances; ``None`` where that was
    not looked at, or where the run began with another batch.
    """

    started_at_unix_ns: int
    restore_ns: int
    iterator_ns: int | None
    warmup_ns: tuple[int, ...]
    steps_per_sample: int
    samples_ns: tuple[int, ...]
    read_ns: tuple[int, ...]
    restarts: tuple[Restart, ...]
    waited_ns: tuple[int, ...] = ()
    same_result: bool | None = None


class Dispersion(Record, frozen=True, kw_only=True):
    """Summary of values in nanoseconds per step; ``None`` where a value does not exist for so few samples.

    ``mad_ns`` is the median absolute deviation, unscaled. The interval of the median is made of order statistics
    and covers it with at least ``median_interval_confidence`` if samples were independent, which steps of one
    process are not: it describes this process and decides nothing.
    """

    count: int
    median_ns: float
    mean_ns: float
    minimum_ns: float
    maximum_ns: float
    first_quartile_ns: float
    third_quartile_ns: float
    interquartile_range_ns: float | None
    mad_ns: float | None
    coefficient_of_variation: float | None
    median_interval_lower_ns: float | None
    median_interval_upper_ns: float | None
    median_interval_confidence: float | None


class RunPlan(Record, frozen=True, kw_only=True):
    """How many steps the unprofiled runs take, and whether the budget made them fewer than asked for.

    ``needed_s`` is what the settings asked for, ``planned_s`` what this plan takes, both with what was already
    spent; ``reduced`` says that the plan is smaller than the settings.
    """

    warmup_steps: int
    runs: int
    samples_per_run: int
    steps_per_sample: int
    needed_s: float
    planned_s: float
    budget_s: float
    reduced: bool


class Measurement(Record, frozen=True, kw_only=True):
    """Everything stepprof knows about one test in one session.

    ``median_without_waiting_ns`` is the median of samples less their ``waited_ns``, per step and never below 0: the
    least that a step can have taken had nothing else run on this machine. ``None`` where waiting is not known.
    ``quiet_ns`` is the first decile of samples per step, which is what sessions are compared by, and
    ``quiet_without_waiting_ns`` the same of samples less their waiting; ``None`` in records of before.
    ``start_state_digest`` covers the weights that the step started from, ``start_settings_digest`` everything else
    in ``state=`` (empty where it is not known). ``judge`` is how the test itself wants to be judged, ``None`` where
    that is not known. ``repeated`` is all that is compared (see ``Scenario.check_steps``) against the same once more
    from the same start, without any tolerance; ``None`` where the first batch was another one, which tells nothing
    about the step. ``random_draws`` names the sources of random numbers that the first step drew from. ``quality`` is
    what was declared to decide in place of equal outputs, measured on the first step's result alone.
    """

    test: TestIdentity
    scenario: Scenario
    settings: MeasureSettings
    judge: JudgeSettings | None = None
    start_state_digest: str
    start_settings_digest: str = ""
    first_batch_digest: str
    step_source_digest: str | None
    cold_start: ColdStart
    warm_up: WarmUp
    plan: RunPlan
    runs: tuple[Run, ...]
    dispersion: Dispersion
    run_medians_ns: tuple[float, ...]
    median_without_waiting_ns: float | None = None
    quiet_ns: float | None = None
    quiet_without_waiting_ns: float | None = None
    window: Window
    outputs: StoredOutputs
    repeated: OutputComparison | None = None
    random_draws: tuple[str, ...] = ()
    quality: tuple[QualityValue, ...] = ()
    notices: tuple[Notice, ...]
    clock_cost_ns: int
    wall_clock_s: float
