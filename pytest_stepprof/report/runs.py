"""The unprofiled runs as blocks: a line per run, and the raw values in the order in which they were taken."""

from statistics import median

from pytest_stepprof.record.measurement import Measurement, Run
from pytest_stepprof.report.document import Alignment, Block, Lines, Table, Text
from pytest_stepprof.report.quantities import milliseconds

_VALUES_SHOWN = 10


def run_blocks(measurement: Measurement, *, every_value: bool) -> tuple[Block, ...]:
    """Summarise each run and list its values in ms/step, the first ten of them unless ``every_value``."""
    rows = tuple(_summary(number, run) for number, run in enumerate(measurement.runs, start=1))
    headers = ("run", "samples", "median ms/step", "min ms/step", "max ms/step", "MAD ms/step")
    values = tuple(_values(number, run, every_value) for number, run in enumerate(measurement.runs, start=1))
    alignments: tuple[Alignment, ...] = ("right", "right", "right", "right", "right", "right")
    return Table(headers=headers, rows=rows, alignments=alignments, drop_order=(1,)), Lines(values)


def _per_step_ns(run: Run) -> list[float]:
    return [sample_ns / run.steps_per_sample for sample_ns in run.samples_ns]


def _number(ns: float) -> str:
    return milliseconds(ns).removesuffix(" ms")


def _raw(ns: float) -> str:
    """Four decimals of a millisecond, or down to the nanosecond where that is too few."""
    return f"{ns / 1e6:.4f}" if ns >= 1e6 else f"{ns / 1e6:.6f}"


def _summary(number: int, run: Run) -> tuple[Text, ...]:
    values = _per_step_ns(run)
    if not values:
        return Text(str(number)), Text("0"), *(Text("none"),) * 4
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    samples = str(len(values)) + (f" (k={run.steps_per_sample})" if run.steps_per_sample > 1 else "")
    return (
        Text(str(number)),
        Text(samples),
        *(Text(_number(value)) for value in (middle, min(values), max(values), deviation)),
    )


def _values(number: int, run: Run, every_value: bool) -> str:
    values = _per_step_ns(run)
    shown = values if every_value else values[:_VALUES_SHOWN]
    left_out = len(values) - len(shown)
    more = f" (and {left_out} more)" if left_out else ""
    return f"run {number}, ms/step in order: {' '.join(map(_raw, shown))}{more}"
