"""How long it takes from a trace file to its explanation, beside others on the same file. Asserts nothing.

1. **side by side**: stepprof (file to Window with findings), HolisticTraceAnalysis (its load alone), the standard
   library's ``json.load`` (which explains nothing), and ``key_averages().table()`` of torch.profiler on the window that
   the file was written from. Each in a fresh process, imports not counted, taking turns over several rounds.
2. **memory**: the most that stepprof's process ever held, divided by the size of the file.
3. **linearity**: nanoseconds per event for windows of one, three and nine times as many steps.

The trace is made here: a transformer encoder of 4 layers in training, Adam with ``foreach=False``.
"""

import argparse
import importlib.metadata
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

STEPS = 150
LINEARITY = (1, 3, 9)
WARM_UP_STEPS = 3


class Result(NamedTuple):
    """What a child process has measured: seconds, by part; the most memory that it ever held; complete events seen."""

    parts_s: dict[str, float]
    peak_bytes: int
    events: int

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.parts_s.values())


# --- in child processes --------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What a child process works on: the trace file, and how many active steps it holds."""

    file: Path
    steps: int


Parts = tuple[dict[str, float], int]


class Stopwatch:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap_s(self) -> float:
        """Return the seconds since the last call, or since the start."""
        last, self._last = self._last, time.perf_counter()
        return self._last - last


def stepprof_child(task: Task) -> Parts:
    from pytest_stepprof.analysis.traces.reader import read_trace
    from pytest_stepprof.analysis.window.breakdown import reduce_window

    watch = Stopwatch()
    data = task.file.read_bytes()
    loaded_s = watch.lap_s()
    trace = read_trace(data)
    read_s = watch.lap_s()
    window = reduce_window(trace, device_expected=False)
    reduced_s = watch.lap_s()
    if len(window.steps) != task.steps:
        print(f"expected {task.steps} steps, found {len(window.steps)}", file=sys.stderr)
    return {"load the bytes": loaded_s, "read": read_s, "explain": reduced_s}, sum(trace.categories.values())


def hta_child(task: Task) -> Parts:
    logging.disable(logging.WARNING)
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found,unused-ignore]

    watch = Stopwatch()
    analysis = TraceAnalysis(trace_files={0: str(task.file)}, include_last_profiler_step=True)
    return {"load": watch.lap_s()}, len(analysis.t.get_trace(0))


def json_child(task: Task) -> Parts:
    watch = Stopwatch()
    with task.file.open(encoding="utf-8") as opened:
        loaded = json.load(opened)
    return {"load": watch.lap_s()}, sum(event["ph"] == "X" for event in loaded["traceEvents"])


def key_averages_child(task: Task) -> Parts:
    """Profile the same window again, because torch reads no files, and print its table to nowhere."""
    profiler = profiled_window(task.steps)
    watch = Stopwatch()
    averages = profiler.key_averages()
    averages.table()
    return {"table": watch.lap_s()}, sum(row.count for row in averages)


def export_child(task: Task) -> Parts:
    profiler = profiled_window(task.steps)
    watch = Stopwatch()
    profiler.export_chrome_trace(str(task.file))
    return {"export": watch.lap_s()}, 0


def profiled_window(steps: int) -> "torch.profiler.profile":
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    batch = torch.randn(4, 8, 32)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

    for _ in range(WARM_UP_STEPS):
        step()
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    profiler: profile
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _ in range(steps + 1):
            step()
            profiler.step()
    return profiler


CHILDREN: dict[str, Callable[[Task], Parts]] = {
    "stepprof": stepprof_child,
    "HolisticTraceAnalysis": hta_child,
    "json.load": json_child,
    "key_averages": key_averages_child,
    "export": export_child,
}
NEED_LONG = ("HolisticTraceAnalysis", "key_averages")


def peak_bytes() -> int:
    """Return the most memory that this process ever held; ``ru_maxrss`` would count its parent's before the start."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status names no VmHWM: this bench needs Linux.")


def be_child(name: str, task: Task) -> None:
    parts_s, events = CHILDREN[name](task)
    print(json.dumps({"parts_s": parts_s, "peak_bytes": peak_bytes(), "events": events}))


# --- in the parent -------------------------------------------------------------------------------------------------


def run(name: str, task: Task) -> Result:
    command = [sys.executable, __file__, "--steps", str(task.steps), "--child", name, "--file", str(task.file)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Result(**json.loads(done.stdout.splitlines()[-1]))


def side_by_side(task: Task, rounds: int, long_rounds: int) -> dict[str, list[Result]]:
    """Let all take turns, in another order every other round; what takes minutes sits most rounds out."""
    results: dict[str, list[Result]] = {name: [] for name in CHILDREN if name != "export"}
    for number in range(rounds):
        names = [name for name in results if number < long_rounds or name not in NEED_LONG]
        for name in names if number % 2 == 0 else reversed(names):
            results[name].append(run(name, task))
            print(f"  round {number + 1}: {name} {results[name][-1].total_s:.2f} s", flush=True)
    return results


def print_side_by_side(results: dict[str, list[Result]]) -> None:
    ours = [result.total_s for result in results["stepprof"]]
    print(f"\n{'':24}{'median':>10}{'range':>18}{'rounds':>8}{'peak':>12}{'times stepprof, range over rounds':>40}")
    for name, taken in results.items():
        seconds = [result.total_s for result in taken]
        ratios = [theirs / own for theirs in seconds for own in ours]
        times = f"{median(seconds) / median(ours):.1f}  ({min(ratios):.1f} to {max(ratios):.1f})"
        spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
        peak = f"{max(result.peak_bytes for result in taken) / 1e6:.0f} MB"
        print(f"{name:24}{median(seconds):8.2f} s{spread:>18}{len(taken):8}{peak:>12}{times:>40}")


def print_parts(results: Sequence[Result], size_bytes: int) -> None:
    for part in results[0].parts_s:
        print(f"  {part:20} {median(result.parts_s[part] for result in results):.3f} s")
    peak = max(result.peak_bytes for result in results)
    print(f"  peak memory {peak / 1e6:.0f} MB = {peak / size_bytes:.2f} times the file of {size_bytes / 1e6:.1f} MB")


def print_linearity(folder: Path, steps: int, rounds: int) -> None:
    print("\nlinearity: events, seconds, ns per event, peak memory / size of the file")
    for factor in LINEARITY:
        task = Task(folder / f"steps{factor}.json", steps * factor)
        run("export", task)
        best = min((run("stepprof", task) for _ in range(rounds)), key=lambda result: result.total_s)
        size = task.file.stat().st_size
        per_event = best.total_s / best.events * 1e9
        print(f"  {best.events:9,} {best.total_s:8.2f} s {per_event:8.0f} ns {best.peak_bytes / size:6.2f}", flush=True)
        task.file.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, help="active steps of the window")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of stepprof and json.load")
    parser.add_argument("--long-rounds", type=int, default=1, help="rounds in which the peers that take long join")
    parser.add_argument("--no-linearity", action="store_true")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        be_child(chosen.child, Task(chosen.file, chosen.steps))
        return
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("torch", "HolisticTraceAnalysis", "msgspec")]
    print(", ".join([f"Python {sys.version.split()[0]}", *versions]))
    with tempfile.TemporaryDirectory() as name:
        task = Task(Path(name) / "trace.json", chosen.steps)
        run("export", task)
        print(f"{task.steps} steps, {task.file.stat().st_size / 1e6:.1f} MB")
        results = side_by_side(task, chosen.rounds, min(chosen.long_rounds, chosen.rounds))
        print_side_by_side(results)
        print(f"\nstepprof, {results['stepprof'][0].events:,} complete events:")
        print_parts(results["stepprof"], task.file.stat().st_size)
        if not chosen.no_linearity:
            print_linearity(Path(name), chosen.steps, rounds=2)


if __name__ == "__main__":
    main()
