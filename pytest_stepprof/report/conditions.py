"""What a step is and ran under, in sentences: the declared part, the seen part, and the times kept apart from it."""

from statistics import median

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import InputLeaf, Scenario
from pytest_stepprof.report.document import Text
from pytest_stepprof.report.quantities import counted, milliseconds

_LEAVES_SHOWN = 4


def declared_texts(scenario: Scenario) -> tuple[Text, ...]:
    """The question, and what the input stands for, where a person has declared them."""
    texts = [Text(f"question: {scenario.question}")] if scenario.question else []
    texts += [Text(f"represents: {scenario.represents}", tone="attention")] if scenario.represents else []
    return tuple(texts)


def condition_texts(measurement: Measurement) -> tuple[Text, ...]:
    """The conditions of the step, then what was timed apart from it: loading and reading."""
    texts = [f"conditions: {', '.join(_conditions(measurement.scenario))}", f"batch: {_batch(measurement.scenario)}"]
    load_ns = measurement.cold_start.load_ns
    if load_ns is not None:
        texts.append(f"load: {milliseconds(load_ns)}, timed apart")
    reads_ns = [read_ns / run.steps_per_sample for run in measurement.runs for read_ns in run.read_ns]
    if reads_ns:
        place = "part of the step" if measurement.scenario.includes_read else "not part of the step"
        texts.append(f"read: median {milliseconds(median(reads_ns))} per step, {place}")
    if measurement.window.trace_file is not None:
        texts.append(f"trace: {measurement.window.trace_file}, in the store")
    return tuple(Text(text) for text in texts)


def _conditions(scenario: Scenario) -> list[str]:
    threads = counted(scenario.intra_op_threads, "thread")
    gradients = f"gradients {scenario.gradients} around the step"
    found = [f"mode {scenario.module_mode}", f"device {scenario.device}", threads, gradients]
    found += [f"autocast {' '.join(scenario.autocast)}"] if scenario.autocast else []
    found += [f"compiled {' '.join(scenario.compiled)}"] if scenario.compiled else []
    return found


def _batch(scenario: Scenario) -> str:
    leaves = first_few([_leaf(leaf) for leaf in scenario.batch], _LEAVES_SHOWN)
    return f"{leaves or 'none'} (from {scenario.batch_source})" if scenario.batch_source else leaves


def _leaf(leaf: InputLeaf) -> str:
    path = f"{leaf.path}: " if leaf.path else ""
    if leaf.shape is None:
        return f"{path}{leaf.type_name}"
    return f"{path}{leaf.dtype or leaf.type_name} {list(leaf.shape)}"
