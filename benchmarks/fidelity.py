"""How exact stepprof's times are, and what stepprof costs. Prints tables and asserts nothing.

1. **times**: stepprof's sample loop beside a bare ``perf_counter_ns`` loop, in one process, taking turns. Both time
   the same number of steps together; the bare loop contains nothing but the step (and ``next()`` where reading
   belongs to it). Aim: a ratio of 0.99 to 1.01 for steps of 0.2 ms and longer.
2. **start-up**: ``pytest --collect-only`` with the plugin switched off by not asking for it, beside
   ``-p no:stepprof``, in pairs. Aim: at most 10 ms.
3. **budget**: what a test with ``--stepprof`` takes, beside its budget.
4. **state**: putting a state of 400 MB back, beside a plain copy of the same bytes, taking turns; the checks that are
   made once per test apart from it. Aim: a ratio of at most 2, and one snapshot's memory.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from state_cost import print_state
from tabulate import tabulate
from turns import Block, ratios, spread_of

from pytest_stepprof.analysis.plan import steps_per_sample
from pytest_stepprof.measure.batches import MemoryFeed
from pytest_stepprof.measure.clock import clock_cost_ns, wall_clock
from pytest_stepprof.measure.cpu_waiting import cpu_waiting
from pytest_stepprof.measure.device import CpuDevice
from pytest_stepprof.measure.sampling import Stepper, take_samples
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.store.directory import Store

STEP_TARGETS_NS = (20_000, 200_000, 2_000_000, 20_000_000)
BLOCK_NS = 12_000_000
FEWEST_SAMPLES_PER_BLOCK = 2
FEWEST_ROUNDS = 10
BATCHES_IN_MEMORY = 4

Step = Callable[[torch.Tensor], torch.Tensor]


# --- times ---------------------------------------------------------------------------------------------------------


def median_time_ns(step: Step, batch: torch.Tensor, repeats: int) -> float:
    """Return the median time of one step in nanoseconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter_ns()
        step(batch)
        times.append(time.perf_counter_ns() - begin)
    return float(np.median(times))


def orthogonal_matrix(generator: torch.Generator) -> torch.Tensor:
    """Return a matrix whose powers neither grow nor vanish, so that every product costs the same."""
    orthogonal: torch.Tensor = torch.linalg.qr(torch.randn(64, 64, generator=generator)).Q
    return orthogonal


def chain_of(products: int) -> Step:
    """Return a step that multiplies its batch by one matrix ``products`` times, on the CPU."""

    def step(batch: torch.Tensor) -> torch.Tensor:
        result = batch
        for _ in range(products):
            result = torch.mm(result, batch)
        return result

    return step


def calibrated_step(target_ns: int, batch: torch.Tensor) -> Step:
    """Return a step that takes about ``target_ns``, by the time that a chain of ten products takes here."""
    median_time_ns(chain_of(10), batch, repeats=200)  # warms caches and clocks
    one_product_ns = median_time_ns(chain_of(10), batch, repeats=400) / 10
    return chain_of(max(1, round(target_ns / one_product_ns)))


def stepprof_block(stepper: Stepper, samples: int, steps: int) -> Block:
    """Return a function that takes one block with stepprof's own loop: its median per step in nanoseconds."""

    def block() -> float:
        stepper.feed.start()
        with cpu_waiting() as waiting:
            full = replace(stepper, waiting=waiting)
            take_samples(full, samples=1, steps_per_sample=steps)  # the first after the other's turn is not used
            taken = take_samples(full, samples=samples, steps_per_sample=steps)
        return float(np.median(taken.samples_ns)) / steps

    return block


def bare_block(step: Step, batches: Sequence[torch.Tensor], samples: int, steps: int, *, reads: bool) -> Block:
    """Return a function that takes one block with a bare loop: its median per step in nanoseconds."""
    time_once = _bare_with_read if reads else _bare_without_read

    def block() -> float:
        endless = cycle(batches)
        time_once(step, endless, steps)
        return float(np.median([time_once(step, endless, steps) for _ in range(samples)])) / steps

    return block


def _bare_without_read(step: Step, batches: Iterator[torch.Tensor], steps: int) -> int:
    read = [next(batches) for _ in range(steps)]
    begin = time.perf_counter_ns()
    for batch in read:
        step(batch)
    return time.perf_counter_ns() - begin


def _bare_with_read(step: Step, batches: Iterator[torch.Tensor], steps: int) -> int:
    begin = time.perf_counter_ns()
    for _ in range(steps):
        step(next(batches))
    return time.perf_counter_ns() - begin


def compare_times(target_ns: int, seconds: float, *, reads: bool) -> list[object]:
    """Return one row of the table: a step of about ``target_ns`` by both loops, in about ``seconds``."""
    generator = torch.Generator().manual_seed(0)
    batches = [orthogonal_matrix(generator) for _ in range(BATCHES_IN_MEMORY)]
    step = calibrated_step(target_ns, batches[0])
    step_ns = median_time_ns(step, batches[0], repeats=max(5, 20_000_000 // target_ns))
    steps = steps_per_sample(step_ns, clock_cost_ns(wall_clock))
    samples = max(FEWEST_SAMPLES_PER_BLOCK, round(BLOCK_NS / (step_ns * steps)))
    rounds = max(FEWEST_ROUNDS, round(seconds * 1e9 / (4 * (samples + 1) * steps * step_ns)))
    stepper = Stepper(
        step=step,
        feed=MemoryFeed(batches, "matrices in memory"),
        device=CpuDevice(),
        clock=wall_clock,
        includes_read=reads,
    )
    values = ratios(
        stepprof_block(stepper, samples, steps),
        bare_block(step, batches, samples, steps, reads=reads),
        rounds,
    )
    ratio = spread_of(values)
    return [
        f"{target_ns / 1e6:g}",
        "yes" if reads else "no",
        f"{step_ns / 1e6:.4f}",
        steps,
        f"{rounds} x 4 x {samples}",
        f"{ratio.median:.4f}",
        f"{ratio.lower:.4f} .. {ratio.upper:.4f}",
        f"{ratio.first_quartile:.4f} .. {ratio.third_quartile:.4f}",
    ]


def print_times(seconds: float) -> None:
    """Print stepprof's time over the bare loop's, for four lengths of step, with and without the read."""
    torch.set_num_threads(1)
    rows = [compare_times(target, seconds, reads=reads) for reads in (False, True) for target in STEP_TARGETS_NS]
    headers = ["aim ms", "read", "step ms", "k", "rounds x blocks x samples", "ratio", "95 % interval", "quartiles"]
    print("Times: stepprof / bare loop, one thread; each round four blocks in turn, ratio = median over rounds\n")
    print(tabulate(rows, headers, disable_numparse=True), end="\n\n")


# --- start-up ------------------------------------------------------------------------------------------------------


def child_environment() -> dict[str, str]:
    """Return this environment without what would make pytest compile its modules anew at every start."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS")
    }


def collect_ms(folder: Path, *arguments: str) -> float:
    """Return the wall-clock milliseconds of one ``pytest --collect-only`` process in ``folder``."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    begin = time.perf_counter_ns()
    subprocess.run(command, cwd=folder, env=child_environment(), check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter_ns() - begin) / 1e6


def paired_collections(folder: Path, pairs: int) -> list[tuple[float, float]]:
    """Return (with, without the plugin) in milliseconds, each first in every other pair."""
    without = ("-p", "no:stepprof")
    values = []
    for number in range(pairs):
        if number % 2 == 0:
            with_plugin = collect_ms(folder)
            values.append((with_plugin, collect_ms(folder, *without)))
        else:
            without_plugin = collect_ms(folder, *without)
            values.append((collect_ms(folder), without_plugin))
    return values


def print_start_up(pairs: int) -> None:
    """Print what the plugin adds to the start of a pytest that does not use it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        paired_collections(folder, 2)  # compiles what is not compiled yet
        values = paired_collections(folder, pairs)
    with_plugin, without_plugin = (spread_of(column) for column in zip(*values, strict=True))
    added = spread_of([with_ms - without_ms for with_ms, without_ms in values])
    rows = [
        [label, f"{spread.median:.1f}", f"{spread.lower:.1f} .. {spread.upper:.1f}"]
        for label, spread in (("plugin on", with_plugin), ("-p no:stepprof", without_plugin), ("added", added))
    ]
    print(f"Start-up: pytest --collect-only on one empty test, without --stepprof, {pairs} pairs in turn\n")
    print(tabulate(rows, ["", "median ms", "95 % interval"], disable_numparse=True), end="\n\n")


# --- budget --------------------------------------------------------------------------------------------------------

BUDGET_TESTS = """
import time

import pytest
import torch

torch.set_num_threads(1)  # what a pool of threads costs on a busy machine is another question


@pytest.mark.parametrize("products", [1, 100, 10_000])
def test_products(stepprof, products):
    matrix = torch.eye(64)

    def step():
        result = matrix
        for _ in range(products):
            result = torch.mm(result, matrix)
        return result

    stepprof(step)


@pytest.mark.stepprof(budget=4)
def test_longer_than_its_budget(stepprof):
    def step():
        time.sleep(0.25)
        return 1

    stepprof(step)
"""


def measure_budget_tests(folder: Path) -> tuple[tuple[Measurement, ...], float]:
    """Run the tests above with ``--stepprof``; return their measurements and the seconds of the whole process."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_budget.py").write_text(BUDGET_TESTS)
    store = folder / "store"
    command = [sys.executable, "-m", "pytest", "--stepprof", f"--stepprof-dir={store}", "-q", "-p", "no:cacheprovider"]
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=child_environment(), check=False, capture_output=True, text=True)
    elapsed_s = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    sessions, damaged = Store(store).sessions()
    if damaged or len(sessions) != 1:
        raise SystemExit(f"expected one readable session in the store, found {len(sessions)}; {damaged}")
    return sessions[0].measurements, elapsed_s


def budget_row(measured: Measurement) -> list[str]:
    """Return one row of the table: what one test needed, planned and took, in seconds."""
    plan = measured.plan
    return [
        measured.test.qualified_name + "".join(f" {value}" for _, value in measured.test.parameters),
        f"{measured.dispersion.median_ns / 1e6:.3f}",
        f"{len(measured.runs)} x {plan.samples_per_run} x {plan.steps_per_sample}",
        f"{plan.budget_s:.1f}",
        f"{plan.needed_s:.2f}",
        f"{plan.planned_s:.2f}",
        f"{measured.wall_clock_s:.2f}",
        "yes" if plan.reduced else "no",
    ]


def print_budget() -> None:
    """Print what measured tests take beside what they may take."""
    with tempfile.TemporaryDirectory() as name:
        measurements, elapsed_s = measure_budget_tests(Path(name))
    headers = ["test", "step ms", "runs x samples x k", "budget s", "needed s", "planned s", "took s", "reduced"]
    took_s = sum(measured.wall_clock_s for measured in measurements)
    print("Budget: wall-clock seconds of tests with --stepprof\n")
    print(tabulate([budget_row(measured) for measured in measurements], headers, disable_numparse=True))
    print(f"\nAll tests took {took_s:.1f} s, the whole pytest process {elapsed_s:.1f} s.")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="times, start-up, budget, state (default: all)")
    parser.add_argument("--seconds", type=float, default=12, help="seconds for each row of times [12]")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of start-ups [40]")
    parser.add_argument("--rounds", type=int, default=15, help="rounds for each row of state [15]")
    return parser.parse_args()


def main() -> None:
    """Print the tables that were asked for."""
    arguments = parse_arguments()
    parts: dict[str, Callable[[], None]] = {
        "times": lambda: print_times(arguments.seconds),
        "start-up": lambda: print_start_up(arguments.pairs),
        "budget": print_budget,
        "state": lambda: print_state(arguments.rounds),
    }
    if unknown := [part for part in arguments.parts if part not in parts]:
        raise SystemExit(f"unknown part {unknown[0]!r}; expected one of {', '.join(parts)}")
    for part in arguments.parts or parts:
        parts[part]()


if __name__ == "__main__":
    main()
