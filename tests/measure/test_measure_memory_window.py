"""The window that records memory: when it is taken, what of it becomes part of the main one, and exact bytes."""

import gc

import msgspec
import phase_bench
import pytest
import torch
from measuring import EMPTY_WINDOW, SHORT_WINDOW, measured_with_window, measurement_of
from phase_bench import SETTINGS
from torch import nn

from pytest_stepprof.errors import BatchError, ProfilerError
from pytest_stepprof.measure import memory_window
from pytest_stepprof.measure.memory_window import memory_request, with_memory
from pytest_stepprof.measure.phases import Instruments
from pytest_stepprof.measure.window import TakenWindow, WindowRequest
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.record.window import Counter, MemoryUse

bench = phase_bench.bench

WITH_MEMORY = msgspec.structs.replace(SETTINGS, record_memory=True)
USE = MemoryUse(
    device="cpu",
    allocations=(3, 3),
    allocated_bytes=(30, 30),
    peak_bytes=(20, 20),
    peak_total_bytes=90,
    peak_holder="forward",
    holders=(),
)


def counter(name: str, *per_step: int) -> Counter:
    return Counter(name=name, unit="calls", per_step=per_step, exact=len(set(per_step)) == 1)


def notice(code: str, message: str) -> Notice:
    return Notice(code=code, message=message, remedy="do something")


# When it is taken


def test_it_comes_after_the_main_one_from_the_same_start(bench):
    bench.measure(WITH_MEMORY)
    log = bench.big_log()
    a_window = [
        *("restore", "synchronize", "iterator closed", "iterator", "window begins"),
        *[line for read in range(4) for line in (f"read {read}", "step")],
        *("synchronize", "window ends"),
    ]
    first = log.index("window begins") - 4
    assert log[first : first + 2 * len(a_window)] == a_window * 2
    assert log[first + 2 * len(a_window) :][:5] == ["restore", "synchronize", "iterator closed", "iterator", "read 0"]
    assert log.count("window begins") == 2


def test_there_is_none_unless_memory_is_asked_for(bench):
    bench.measure()
    (request,) = bench.requests
    assert not request.record_memory


def test_the_main_window_is_the_one_that_it_is_without_memory(bench):
    everything = msgspec.structs.replace(SETTINGS, record_shapes=True, record_stacks=True, record_modules=True)
    bench.measure(everything, regions=("forward",))
    bench.measure(msgspec.structs.replace(everything, record_memory=True), regions=("forward",))
    alone, main, recorded = bench.requests
    assert main == alone
    assert recorded == WindowRequest(
        0, 1, 3, ("forward",), record_memory=True, record_modules=True, reading_counted=False, lead_in_steps=1
    )


@pytest.mark.parametrize(
    ("wait", "warmup", "shifted"),
    [(2, 1, (1, 1, 3, 1)), (0, 2, (0, 1, 3, 1)), (0, 1, (0, 0, 3, 1)), (0, 0, (0, 0, 2, 0))],
)
def test_the_step_before_is_recorded_too_where_there_is_one(wait, warmup, shifted):
    main = WindowRequest(wait, warmup, 2)
    request = memory_request(main)
    assert (request.wait_steps, request.warmup_steps, request.active_steps, request.lead_in_steps) == shifted
    assert request.numbers == main.numbers


@pytest.mark.parametrize("wait", [1, 0])
def test_what_the_step_before_took_and_this_one_gives_back_is_no_peak(wait, capfd):
    """Each step frees a million bytes, takes as many, and 30 kB for a moment."""
    held = []

    def step():
        held.clear()
        held.append(torch.ones(1_000_000, dtype=torch.uint8))
        torch.ones(30_000, dtype=torch.uint8)
        return torch.ones(1)

    settings = msgspec.structs.replace(
        SHORT_WINDOW, record_memory=True, window_wait_steps=wait, window_warmup_steps=1, window_active_steps=3
    )
    measurement = measurement_of(measured_with_window(step, settings=settings))
    (use,) = measurement.window.memory
    assert use.peak_bytes == (30_000, 30_000, 30_000)
    assert len(use.allocations) == len(measurement.window.steps) == 3
    assert measurement.window.messages == ()
    assert "profiler message" not in [notice.code for notice in measurement.notices]
    assert "Memory block" not in capfd.readouterr().err


def test_allocations_are_the_hosts_calls_on_every_device():
    request = memory_request(WindowRequest(0, 1, 1, device_kind="cuda", record_shapes=True))
    assert (request.device_kind, request.options) == ("cpu", ("record_memory",))


def test_its_trace_is_not_kept(bench, tmp_path):
    asked = []

    def take(run_step, request, synchronize, *, keep_trace):
        asked.append((request.record_memory, keep_trace))
        return bench.take_window(run_step, request, synchronize, keep_trace=keep_trace)

    bench.instruments = Instruments(**{**vars(bench.instruments), "take_window": take})
    measured = bench.measure(WITH_MEMORY, keep_trace_in=lambda: tmp_path)
    assert asked == [(False, True), (True, False)]
    assert measured.trace_path.read_bytes() == b"packed"


def test_progress_names_it(bench):
    said = []
    bench.instruments = Instruments(**{**vars(bench.instruments), "progress": said.append})
    bench.measure(WITH_MEMORY)
    assert said[2:5] == ["warm-up", "profiler window", "memory window"]


def test_one_pass_over_a_one_shot_iterator_is_enough_for_both(bench):
    settings = MeasureSettings(warmup_steps=1, runs=1, steps_per_run=3, record_memory=True)
    measurement = bench.measure(settings, batches=iter([torch.zeros(2)] * 4)).measurement
    assert [notice.code for notice in measurement.notices] == ["one-shot input"]


def test_no_garbage_is_collected_inside_of_the_windows(bench):
    """When it is would decide how high the memory of a step goes that leaves reference cycles behind."""
    collecting = []

    def step(batch):
        collecting.append(gc.isenabled())
        return bench.step(batch)

    bench.measure(WITH_MEMORY, step=step)
    windows = collecting[1 + 1 + 2 :][: 4 + 4]
    assert windows == [False] * 8
    assert gc.isenabled()


# Errors


def failing_second(bench, error):
    def take(run_step, request, synchronize, *, keep_trace):
        if request.record_memory:
            raise error
        return bench.take_window(run_step, request, synchronize, keep_trace=keep_trace)

    bench.instruments = Instruments(**{**vars(bench.instruments), "take_window": take})


def test_an_error_of_it_says_which_window_it_is_about(bench):
    failing_second(bench, ProfilerError("The trace is too large."))
    with pytest.raises(ProfilerError) as caught:
        bench.measure(WITH_MEMORY)
    assert str(caught.value) == "In the window that records memory (--stepprof-memory): The trace is too large."


@pytest.mark.parametrize("error", [RuntimeError("the step broke"), KeyboardInterrupt(), BatchError("no batch")])
def test_what_the_step_raises_in_it_goes_through_unchanged(bench, error):
    bench.raise_at, bench.error = 1 + 1 + 2 + 4 + 2, error
    with pytest.raises(type(error)) as caught:
        bench.measure(WITH_MEMORY)
    assert caught.value is error
    assert bench.log.count("window begins") == 2
    assert bench.log.count("window ends") == 1
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_an_error_of_the_main_window_is_not_about_memory(bench):
    def take(run_step, request, synchronize, *, keep_trace):
        raise ProfilerError("The trace is too large.")

    bench.instruments = Instruments(**{**vars(bench.instruments), "take_window": take})
    with pytest.raises(ProfilerError, match=r"^The trace is too large\.$"):
        bench.measure(WITH_MEMORY)


# What becomes of it


MAIN = TakenWindow(
    window=msgspec.structs.replace(EMPTY_WINDOW, counters=(counter("operator calls", 5, 5),), messages=("both",)),
    trace=b"main",
    notices=(notice("unwarmed", "said in both"),),
)
RECORDED = TakenWindow(
    window=msgspec.structs.replace(
        EMPTY_WINDOW,
        elapsed_ns=(9, 9),
        memory=(USE,),
        counters=(counter("operator calls", 7, 7), counter("allocations", 3, 4)),
        messages=("both", "only here"),
    ),
    trace=None,
    notices=(notice("unwarmed", "said in both"), notice("unwarmed", "another")),
)


def test_memory_and_allocations_are_taken_over_and_nothing_else(monkeypatch):
    seen = []
    monkeypatch.setattr(memory_window, "find", lambda window: seen.append(window) or FINDINGS)
    merged = with_memory(MAIN, RECORDED)
    assert merged.trace == b"main"
    expected = msgspec.structs.replace(
        MAIN.window,
        memory=(USE,),
        counters=(counter("operator calls", 5, 5), counter("allocations", 3, 4)),
        messages=("both", "in the window that records memory: only here"),
    )
    assert seen == [expected], "findings come of both windows together"
    assert merged.window == msgspec.structs.replace(expected, findings=FINDINGS)


FINDINGS = (Finding(code="memory peak", share=None, observation="o", evidence=(), hypothesis="h", next_check="n"),)


def test_notices_say_which_window_they_are_about():
    assert [(said.code, said.message) for said in with_memory(MAIN, RECORDED).notices] == [
        ("unwarmed", "said in both"),
        ("unwarmed", "in the window that records memory: another"),
    ]


# Real steps on this CPU


MEGABYTES = 4_000_000
REAL = msgspec.structs.replace(SHORT_WINDOW, window_active_steps=2)
REAL_MEMORY = msgspec.structs.replace(REAL, record_memory=True)


def holding_a_large_tensor() -> torch.Tensor:
    result = torch.empty(3)
    with torch.profiler.record_function("large"):
        large = torch.empty(MEGABYTES // 4)
    del large
    return result.fill_(1)


def test_a_peak_is_exact_to_the_byte():
    window = measurement_of(measured_with_window(holding_a_large_tensor, settings=REAL_MEMORY)).window
    (use,) = window.memory
    assert use.device == "cpu"
    assert use.peak_bytes == (MEGABYTES + 3 * 4,) * 2
    assert use.allocations == (2, 2)
    assert use.allocated_bytes == (MEGABYTES + 3 * 4,) * 2
    assert use.peak_holder == "large"
    (large,) = [holder for holder in use.holders if holder.name == "large"]
    assert large.kept_bytes == (MEGABYTES,) * 2
    assert [found.per_step for found in window.counters if found.name == "allocations"] == [(2, 2)]


def test_the_main_windows_counters_are_those_without_memory():
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters())

    def step(batch):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def window(settings):
        batches = [torch.ones(4, 8)] * 4
        seen = measured_with_window(step, settings=settings, state=(net, optimizer), batches=batches)
        return measurement_of(seen).window

    plain, with_memory = window(REAL), window(REAL_MEMORY)
    assert [found for found in with_memory.counters if found.name != "allocations"] == list(plain.counters)
    (allocations,) = [found for found in with_memory.counters if found.name == "allocations"]
    assert allocations.exact
    assert allocations.per_step[0] > 10
    assert plain.memory == ()
    assert with_memory.options == plain.options == ()


def test_a_module_that_holds_memory_is_named_where_modules_are_labelled():
    class Large(nn.Module):
        def forward(self, values):
            large = torch.empty(MEGABYTES // 4)
            return values + large[:3]

    net = nn.ModuleDict({"small": nn.Linear(3, 3), "large": Large()})

    def step():
        with torch.no_grad():
            return net["large"](net["small"](torch.ones(3)))

    settings = msgspec.structs.replace(REAL_MEMORY, record_modules=True)
    window = measurement_of(measured_with_window(step, settings=settings, state=net)).window
    (use,) = window.memory
    assert "large" in str(use.peak_holder)
    assert use.peak_holder != "small"
