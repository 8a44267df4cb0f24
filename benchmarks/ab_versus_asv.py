"""The ten bundled steps by `stepprof ab` and by `asv continuous`: wall time, and what each says of known changes."""

import argparse
import json
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tabulate import tabulate

from pytest_stepprof.ab.self_check.repository import write_repository
from pytest_stepprof.ab.self_check.running import PlannedRun, run_comparison
from pytest_stepprof.ab.self_check.slowdowns import draw_slowed
from pytest_stepprof.analysis.self_check import known_cases
from pytest_stepprof.record.self_check import SlowedStep

SUITE = 10
BENCHMARKS = """
import torch
from measured.steps import STEPS, make

torch.set_num_threads(1)
torch.set_flush_denormal(True)


class Steps:
    params = list(STEPS)
    param_names = ["name"]

    def setup(self, name):
        torch.manual_seed(0)
        made = make(name, 2)
        if made.batches is None:
            self.run = made.step
        else:
            batches = iter(made.batches)
            self.run = lambda: made.step(next(batches))

    def time_step(self, name):
        self.run()
"""
INSTALL = """
import pathlib, shutil, sys, sysconfig

packages = pathlib.Path(sysconfig.get_path("purelib"))
shutil.copytree(pathlib.Path(sys.argv[1], "measured"), packages / "measured", dirs_exist_ok=True)
(packages / "outer.pth").write_text({paths!r})
"""
"""asv's own way to hand on a path (``ASV_PYTHONPATH``) is lost in 0.6.6: so torch is found here."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one tool did: seconds, what it called slower or faster, and what was slowed by the name of its step."""

    seconds: float
    setup_seconds: float
    slower: frozenset[str]
    faster: frozenset[str]
    undecided: frozenset[str]


def asv_configuration(folder: Path) -> dict[str, object]:
    """Return the settings with which asv needs no network: the steps are copied, torch is that of this interpreter."""
    return {
        "version": 1,
        "project": "measured",
        "repo": str(folder / "repository"),
        "branches": ["main"],
        "environment_type": "virtualenv",
        "pythons": [f"{sys.version_info.major}.{sys.version_info.minor}"],
        "build_command": ["python -c pass"],
        "install_command": [f"python {folder / 'install.py'} {{build_dir}}"],
        "uninstall_command": ["python -c pass"],
        "benchmark_dir": str(folder / "benchmarks"),
        "env_dir": str(folder / "env"),
        "results_dir": str(folder / "results"),
        "html_dir": str(folder / "html"),
    }


def asv(folder: Path, *words: str) -> str:
    """Run asv and return what it printed. It ends with 1 when something became slower, which is no failure."""
    command = [sys.executable, "-m", "asv", *words]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode not in (0, 1) or "failed" in done.stdout.lower():
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def by_asv(slowed: tuple[SlowedStep, ...]) -> Result:
    """Compare the two commits with `asv continuous`, its environment made beforehand."""
    with tempfile.TemporaryDirectory(prefix="stepprof-asv-") as name:
        folder = Path(name)
        for part in ("repository", "benchmarks"):
            (folder / part).mkdir()
        base, head = write_repository(folder / "repository", SUITE, slowed)
        (folder / "benchmarks" / "__init__.py").write_text("")
        (folder / "benchmarks" / "steps.py").write_text(BENCHMARKS)
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(torch.__file__).parents[1])}
        (folder / "install.py").write_text(INSTALL.format(paths="\n".join(sorted(paths))))
        (folder / "asv.conf.json").write_text(json.dumps(asv_configuration(folder)))
        started_s = time.monotonic()
        asv(folder, "machine", "--yes")
        asv(folder, "setup")
        ready_s = time.monotonic()
        printed = asv(folder, "continuous", "--show-stderr", base, head)
        return Result(
            time.monotonic() - ready_s, ready_s - started_s, changed(printed, "+"), changed(printed, "-"), frozenset()
        )


def changed(printed: str, sign: str) -> frozenset[str]:
    """Return the steps in the rows that asv marks with ``+`` (slower) or ``-`` (faster)."""
    rows = [line for line in printed.splitlines() if line.replace(" ", "").startswith(f"|{sign}|")]
    return frozenset(row.rpartition("(")[2].partition(")")[0].strip("'\"") for row in rows)


def by_stepprof(percent: int, seed: int) -> Result:
    """Compare the same two commits with `stepprof ab`."""
    run = run_comparison(PlannedRun(percent=percent, suite=SUITE, load="none", seed=seed))
    if run.problem is not None:
        raise SystemExit(f"stepprof ab ended with {run.exit_code}:\n{run.problem}")
    steps = {
        verdict: frozenset(case.step for case in known_cases(run) if case.verdict == verdict)
        for verdict in ("regressed", "improved", "inconclusive")
    }
    return Result(run.duration_s, 0.0, steps["regressed"], steps["improved"], steps["inconclusive"])


def row(tool: str, percent: int, result: Result, slowed: frozenset[str]) -> list[object]:
    """Return one row: found among the slowed, false among the others."""
    return [
        f"{percent} %",
        tool,
        f"{result.seconds:.0f}",
        f"{result.setup_seconds:.0f}",
        f"{len(result.slower & slowed)} of {len(slowed)}",
        len(result.slower - slowed),
        len(result.faster),
        len(result.undecided),
    ]


def by(tool: str, percent: int, seed: int) -> list[object]:
    """Return one tool's row; the seed draws the same slowed steps for both tools."""
    slowed = draw_slowed(percent, random.Random(seed))
    result = by_asv(slowed) if tool == "asv continuous" else by_stepprof(percent, seed)
    print(f"{tool}, {percent} %: {result.seconds:.0f} s", file=sys.stderr, flush=True)
    return row(tool, percent, result, frozenset(one.name for one in slowed))


def main() -> None:
    """Compare with both tools in turn, whoever comes first changing from pair to pair; print every pair."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slower", default="0,5,10", help="percent, with commas between [0,5,10]")
    parser.add_argument("--runs", type=int, default=1, help="pairs for each of these [1]")
    parser.add_argument("--seed", type=int, default=0, help="draws which steps are slowed [0]")
    arguments = parser.parse_args()
    percents = [int(word) for word in arguments.slower.split(",")]
    tools = ["stepprof ab", "asv continuous"]
    rows = [
        by(tool, percent, arguments.seed + 1000 * number + percent)
        for number in range(arguments.runs)
        for place, percent in enumerate(percents)
        for tool in (tools if (number + place) % 2 == 0 else tools[::-1])
    ]
    headers = ["true change", "tool", "s", "s to set up", "slower, found", "slower, false", "faster", "undecided"]
    print("Ten steps, half of them slower by the true change\n")
    print(tabulate(rows, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
