"""What is known about a test's result beside its one word: tolerances, samples, and declared quality."""

from collections.abc import Iterator

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.quality import quality_text
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, UsedTolerance
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.report.document import Text
from pytest_stepprof.report.quantities import byte_size, counted

_PATHS_NAMED = 4


def result_texts(measurement: Measurement, test: TestComparison | None) -> tuple[Text, ...]:
    """Say with which tolerances a result was compared, what of it is a sample, and what its quality is."""
    texts: list[Text] = []
    outputs = None if test is None else test.outputs
    if outputs is not None:
        texts += [Text(f"outputs: {text}") for text in compared_text(outputs)]
        texts += [Text(f"outputs: {outputs.note}")] if outputs.note else []
    stored = _stored_sample(measurement)
    if stored:
        verb = "stored as" if outputs is None or not outputs.sampled else "compared by"
        texts.append(Text(f"outputs: {verb} {stored}", tone="attention"))
    elif outputs is not None:
        texts += [Text(f"outputs: {text}", tone="attention") for text in sampled_text(outputs)]
    return (*texts, *_quality_texts(measurement, test))


def compared_text(outputs: OutputComparison) -> tuple[str, ...]:
    """Name the tolerances that were used, and how far apart leaves were at most; nothing where none are known."""
    if not outputs.tolerances:
        return ()
    equal = outputs.status == "equal"
    used = "; ".join(_used(one, "within" if equal else "with") for one in outputs.tolerances)
    return (f"{counted(outputs.leaves_compared, 'leaf', 'leaves')} {'equal' if equal else 'compared'}: {used}",)


def sampled_text(outputs: OutputComparison) -> tuple[str, ...]:
    """Name the leaves of which only a sample was compared."""
    if not outputs.sampled:
        return ()
    paths = first_few([path or "the result" for path in outputs.sampled], _PATHS_NAMED)
    return (f"compared by a sample, norms and a digest: {paths}",)


def _used(used: UsedTolerance, preposition: str) -> str:
    tolerance = f"{preposition} rtol {used.relative:.6g}, atol {used.absolute:.6g}"
    if used.relative == used.absolute == 0:
        tolerance = "exactly"
    sizes = [("absolute", used.largest_absolute), ("relative", used.largest_relative)]
    known = [f"{value:.3g} {name}" for name, value in sizes if value is not None]
    largest = f"; largest difference {', '.join(known)}" if known else ""
    return f"{used.leaves} {tolerance} ({used.tolerance_from}{largest})"


def _stored_sample(measurement: Measurement) -> str:
    sampled = [node for node in measurement.outputs.nodes if node.sample is not None]
    if not sampled:
        return ""
    limit = byte_size(measurement.settings.outputs_limit_bytes)
    return (
        f"a sample, norms and a digest, because all of it is above the limit of {limit}: "
        f"{first_few([*_kept(sampled)], _PATHS_NAMED)} (--stepprof-outputs-limit)"
    )


def _kept(nodes: list[OutputNode]) -> Iterator[str]:
    for node in nodes:
        if node.sample is not None:
            yield f"{node.path or 'the result'} ({node.sample.kept} of {node.sample.elements} elements)"


def _quality_texts(measurement: Measurement, test: TestComparison | None) -> Iterator[Text]:
    if test is None or not test.quality:
        yield from (Text(f"quality: {quality_value_text(value)}") for value in measurement.quality)
        return
    yield Text("quality: decides in place of equal outputs, which were not required")
    if test.outputs is not None and test.outputs.mismatches:
        first = test.outputs.mismatches[0]
        count = counted(len(test.outputs.mismatches), "place")
        yield Text(f"outputs: differ in {count}, first at {first.path or 'the result itself'}: {first.message}")
    for change in test.quality:
        yield Text(f"quality: {quality_text(change)}", tone="bad" if change.lost else "good")


def quality_value_text(value: QualityValue) -> str:
    """Write a measure that stands alone: ``accuracy 0.912 (margin 0.01, higher is better)``."""
    number = value.not_finite if value.value is None else f"{value.value:.6g}"
    return f"{value.name} {number} (margin {value.margin:.6g}, {value.better} is better)"
