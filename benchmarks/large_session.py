"""What a session of ten thousand tests costs to store and to read: size and seconds, beside plain msgspec.

"plain" is msgspec's own encoding and decoding of the same record in memory, without files, layout and checks.
"""

import argparse
import gc
import hashlib
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace
from sample_records import sample_measurement, sample_session, sample_window
from tabulate import tabulate

from pytest_stepprof.record.measurement import Measurement, Run
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.window import Counter, Lane, LaneSpan, OperatorCost, Timeline, Window
from pytest_stepprof.store.directory import Store

RUNS = 5
OPERATORS = 40  # different ones in a small training step
SPANS = 100  # of the picture of such a step
PAYLOAD_BYTES = 2000
JOURNAL_TESTS = 1000


def main() -> None:
    """Print one table and two lines; asserts only that what was read is what was saved."""
    arguments = _arguments()
    drawn = random.Random(1)
    windows = {"one operator": sample_window, f"{OPERATORS} operators, timeline": partial(_larger_window, drawn)}
    rows = []
    for name, window in windows.items():
        session = _session(arguments.tests, arguments.values, window, drawn)
        rows.append({"window": name, **_costs(session, arguments.rounds)})
    print(f"{arguments.tests} tests with {arguments.values} raw values each, fastest of {arguments.rounds} rounds:\n")
    print(tabulate(rows, headers="keys", floatfmt=".2f"))
    print(f"\njournal: {_journal_s(session) * 1e6:.0f} us for each test, larger window")
    print(f"saved with another result of {PAYLOAD_BYTES} bytes for each test: {_with_results_s(session):.2f} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=10_000)
    parser.add_argument("--values", type=int, default=100, help="raw values of each test, over all runs")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def _costs(session: Session, rounds: int) -> dict[str, float]:
    encoded = msgspec.json.encode(session)
    encode_s = min(_timed(lambda: msgspec.json.encode(session)) for _ in range(rounds))
    decode_s = min(_timed(lambda: msgspec.json.decode(encoded, type=Session)) for _ in range(rounds))
    save_s, load_s, size_bytes = zip(*(_saved_and_loaded(session) for _ in range(rounds)), strict=True)
    return {
        "plain (MB)": len(encoded) / 1e6,
        "file (MB)": size_bytes[0] / 1e6,
        "plain encode (s)": encode_s,
        "saved (s)": min(save_s),
        "saved / plain": min(save_s) / encode_s,
        "plain decode (s)": decode_s,
        "loaded (s)": min(load_s),
        "loaded / plain": min(load_s) / decode_s,
    }


def _saved_and_loaded(session: Session) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "store")
        save_s = _timed(lambda: store.save_session(session, {}))
        load_s = _timed(lambda: store.load_session(session.session_id))
        assert store.load_session(session.session_id) == session
        (file,) = (store.directory / "sessions").iterdir()
        return save_s, load_s, file.stat().st_size


def _journal_s(session: Session) -> float:
    """Seconds for each measurement that is written down while measuring."""
    measurements = session.measurements[:JOURNAL_TESTS]
    with tempfile.TemporaryDirectory() as folder:
        journal = Store(Path(folder)).journal(session)
        taken_s = _timed(lambda: [journal.add(measurement) for measurement in measurements])
        journal.finish()
    return taken_s / len(measurements)


def _with_results_s(session: Session) -> float:
    payloads = {}
    measurements = []
    for number, measurement in enumerate(session.measurements):
        payload = number.to_bytes(8, "little") * (PAYLOAD_BYTES // 8)
        sha256 = hashlib.sha256(payload).hexdigest()
        payloads[sha256] = payload
        outputs = replace(measurement.outputs, payload_sha256=sha256, payload_bytes=len(payload))
        measurements.append(replace(measurement, outputs=outputs))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        return _timed(lambda: store.save_session(replace(session, measurements=tuple(measurements)), payloads))


def _timed(call: Callable[[], object]) -> float:
    gc.collect()
    begin = time.perf_counter()
    result = call()
    taken_s = time.perf_counter() - begin
    del result  # its end is not part of the call
    return taken_s


def _session(tests: int, values: int, window: Callable[[], Window], drawn: random.Random) -> Session:
    return sample_session(measurements=tuple(_measurement(number, values, window(), drawn) for number in range(tests)))


def _measurement(number: int, values: int, window: Window, drawn: random.Random) -> Measurement:
    base = sample_measurement(window=window)
    key = f"tests/test_training.py::test_step[size={number}]"
    return replace(
        base,
        test=replace(base.test, key=key, node_id=f"tests/test_training.py::test_step[{number}]"),
        runs=tuple(_run(base.runs[0], values // RUNS, drawn) for _ in range(RUNS)),
        dispersion=replace(base.dispersion, median_ns=drawn.uniform(2e6, 3e6), mean_ns=drawn.uniform(2e6, 3e6)),
    )


def _run(base: Run, values: int, drawn: random.Random) -> Run:
    def some(lowest: int, highest: int) -> tuple[int, ...]:
        return tuple(drawn.randrange(lowest, highest) for _ in range(values))

    return replace(base, samples_ns=some(2_000_000, 3_000_000), read_ns=some(20_000, 40_000), waited_ns=some(0, 3_000))


def _larger_window(drawn: random.Random) -> Window:
    """The window of a small training step: names that all tests share, and numbers that are each test's own."""
    names = [f"aten::operator_{number}" for number in range(OPERATORS)]
    operators = tuple(
        OperatorCost(
            name=name,
            calls=(drawn.randrange(1, 9),) * 2,
            self_cpu_ns=drawn.randrange(10**6),
            total_cpu_ns=drawn.randrange(10**7),
            device_work_ns=None,
        )
        for name in names
    )
    counters = tuple(Counter(name=f"calls of {name}", unit="calls", per_step=(2, 2), exact=True) for name in names)
    spans = tuple(
        LaneSpan(start_ns=number * 20_000, end_ns=number * 20_000 + drawn.randrange(20_000), name=drawn.choice(names))
        for number in range(SPANS)
    )
    timeline = Timeline(step=2, elapsed_ns=2_500_000, lanes=(Lane(name="main thread", kind="host", spans=spans),))
    return sample_window(operators=operators, counters=counters, timeline=timeline)


if __name__ == "__main__":
    main()
