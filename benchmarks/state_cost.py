"""What capturing a state and putting it back costs, beside a plain copy of the same bytes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate
from torch import nn
from turns import Block, ratios, spread_of

from pytest_stepprof.measure.state.snapshot import StateSnapshot, capture_state

LAYERS = 11
"""Layers of 512 features: with Adam's two moments they make a state of about 400 MB in 528 tensors."""

State = tuple[nn.Module, torch.optim.Optimizer]
CLEAR_PEAK = Path("/proc/self/clear_refs")


def large_state() -> State:
    """Return an encoder and its Adam optimizer, whose state exists."""
    layer = nn.TransformerEncoderLayer(512, 8, dim_feedforward=2048)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def tensors_of(state: State) -> list[torch.Tensor]:
    """Return every tensor of the state."""
    model, optimizer = state
    of_optimizer = (value for entry in optimizer.state.values() for value in entry.values())
    return [*(tensor.detach() for tensor in model.state_dict().values()), *of_optimizer]


def bytes_of(tensors: list[torch.Tensor]) -> int:
    """Return how many bytes the tensors hold."""
    return sum(tensor.nbytes for tensor in tensors)


# --- time ----------------------------------------------------------------------------------------------------------


def timed(work: Callable[[], object]) -> Block:
    """Return a function that does the work and returns the nanoseconds that it took."""

    def block() -> float:
        begin = time.perf_counter_ns()
        work()
        return float(time.perf_counter_ns() - begin)

    return block


def plain_copy(tensors: list[torch.Tensor]) -> Callable[[], object]:
    """Return a function that copies the same bytes into memory that is there already."""
    pairs = [(tensor.clone(), tensor.clone()) for tensor in tensors]

    def copy_all() -> None:
        for target, source in pairs:
            target.copy_(source)

    return copy_all


def works(state: State, snapshot: StateSnapshot) -> dict[str, tuple[Callable[[], object], str]]:
    """Return what is timed, each with what it is timed beside."""
    return {
        "restore": (snapshot.restore, "plain copy"),
        "verify (once per test)": (snapshot.verify, "plain copy"),
        "unrestored (once per test)": (snapshot.unrestored, "plain copy"),
        "digests (once per test)": (lambda: (snapshot.digest(), snapshot.settings_digest()), "plain copy"),
        "capture (once per test)": (lambda: capture_state(state), "clones"),
    }


def print_times(rounds: int) -> None:
    """Print what each work takes as a ratio to a plain copy (or to clones, where memory is new) of the same bytes."""
    torch.set_num_threads(1)
    state = large_state()
    tensors, snapshot = tensors_of(state), capture_state(state)
    beside = {"plain copy": plain_copy(tensors), "clones": lambda: [tensor.clone() for tensor in tensors]}
    rows = []
    for name, (work, other) in works(state, snapshot).items():
        values = ratios(timed(work), timed(beside[other]), rounds + 1)[1:]  # the first touches new memory
        ratio = spread_of(values)
        rows.append(
            [
                name,
                other,
                f"{ratio.median:.3f}",
                f"{ratio.lower:.3f} .. {ratio.upper:.3f}",
                f"{ratio.first_quartile:.3f} .. {ratio.third_quartile:.3f}",
            ]
        )
    print(
        f"State: {bytes_of(tensors) / 1e6:.0f} MB in {len(tensors)} tensors (module and Adam), one thread; "
        f"{rounds} rounds of four in turn\n"
    )
    print(tabulate(rows, ["work", "beside", "ratio", "95 % interval", "quartiles"], disable_numparse=True), end="\n\n")


# --- memory --------------------------------------------------------------------------------------------------------


def resident_bytes(field: str) -> int:
    """Return a figure of this process's resident memory: ``VmRSS`` now, ``VmHWM`` at its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {field}")


def added_bytes(work: Callable[[], Any]) -> tuple[Any, int, int]:
    """Do the work; return its result and by how much resident memory grew meanwhile: at most, and in the end."""
    CLEAR_PEAK.write_text("5")
    before = resident_bytes("VmRSS")
    result = work()
    return result, resident_bytes("VmHWM") - before, resident_bytes("VmRSS") - before


def memory_in_this_process() -> dict[str, tuple[float, float]]:
    """Return what each work adds to the memory, at most and in the end, in units of the state's own bytes."""
    state = large_state()
    size = bytes_of(tensors_of(state))
    snapshot, *of_capture = added_bytes(lambda: capture_state(state))
    found = {"capture": of_capture}
    for name, (work, _) in works(state, snapshot).items():
        if not name.startswith("capture"):
            _, *found[name] = added_bytes(work)
    return {name: (peak / size, kept / size) for name, (peak, kept) in found.items()}


def print_memory() -> None:
    """Print the memory that a snapshot takes, measured in a process of its own."""
    print("Memory: growth of resident memory in units of the state's own bytes, in a process of its own\n")
    if not CLEAR_PEAK.exists():
        print("not known on this system: it has no /proc/self/clear_refs\n")
        return
    done = subprocess.run([sys.executable, __file__], check=True, capture_output=True, text=True)
    rows = [[name, f"{peak:.3f}", f"{kept:.3f}"] for name, (peak, kept) in json.loads(done.stdout).items()]
    print(tabulate(rows, ["work", "at most", "kept"], disable_numparse=True), end="\n\n")


def print_state(rounds: int) -> None:
    """Print both tables."""
    print_times(rounds)
    print_memory()


if __name__ == "__main__":
    print(json.dumps(memory_in_this_process()))
