"""Numbers for github-action-benchmark's tool ``customSmallerIsBetter``: a list of named values with their unit.

Its format as documented: ``name``, ``unit``, ``value``, and optionally ``range`` and ``extra`` as text.
"""

import json
import math
from collections.abc import Iterator

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.report.failure import verdict_text
from pytest_stepprof.report.material import Material
from pytest_stepprof.report.times import deciding_text, medians_decided

Entry = dict[str, str | float | int]


def action_benchmark(material: Material) -> str:
    """Write each test's median time in ms/step and its peak memory in bytes, as JSON that ends with a line break.

    Times are always in ms/step, because more samples/s are better. Where rounds were compared, the time is the one of
    the rounds. What cannot be shown as a number is left out. Cold starts are: one value of one process is no trend.
    """
    tests = {} if material.comparison is None else {test.key: test for test in material.comparison.tests}
    entries = [
        entry for key, measurement in material.measurements.items() for entry in _entries(measurement, tests.get(key))
    ]
    return json.dumps(entries, indent=1, ensure_ascii=True) + "\n"


def _entries(measurement: Measurement, test: TestComparison | None) -> Iterator[Entry]:
    name = printable(measurement.test.node_id)
    rounds = test is not None and test.time is not None and test.time.rounds
    time_ns = test.time.after_ns if rounds and test is not None and test.time else measurement.dispersion.median_ns
    if math.isfinite(time_ns) and time_ns > 0:
        entry: Entry = {"name": name, "unit": "ms/step", "value": time_ns / 1e6}
        deviation_ns = measurement.dispersion.mad_ns
        if deviation_ns is not None and not rounds:
            entry["range"] = f"± {deviation_ns / 1e6:.4g}"
        yield entry | ({} if test is None else {"extra": printable(_said(test))})
    for use in measurement.window.memory:
        value = max(use.peak_bytes, default=0)
        yield {"name": f"{name}: peak memory on {printable(use.device)}", "unit": "bytes", "value": value}


def _said(test: TestComparison) -> str:
    time = test.time
    if time is None or time.verdict == "not comparable":
        return verdict_text(test)
    said = f"{verdict_text(test)}, {deciding_text(time)}"
    if time.quantile is None or medians_decided(time):
        return said
    return f"{said} in the fastest {100 * time.quantile:.3g} % of steps"
