import contextlib
import gc
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import window_steps
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from window_steps import InStep, Step, assert_good_window, nothing, request_of, taken, work

from pytest_stepprof.errors import ProfilerError, UsageError
from pytest_stepprof.measure.profiler_guard import guarded_profilers, is_recording, stop_recording
from pytest_stepprof.measure.window import READ_LABEL, take_window

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind

PHASES = pytest.mark.parametrize("at", range(4), ids=["wait", "warmup", "first active", "last active"])


def test_a_window() -> None:
    result = taken(work, "forward", READ_LABEL)
    assert result.window.steps == (2, 3)
    assert all(elapsed > 0 for elapsed in result.window.elapsed_ns)
    calls = {region.name: region.calls for region in result.window.regions}
    assert calls == {READ_LABEL: (1, 1), "forward": (1, 1)}
    counters = {counter.name: counter for counter in result.window.counters}
    assert counters["calls of aten::add"].per_step == (1, 1)
    clones, copies = (counters[f"calls of aten::{name}"].per_step[0] for name in ("clone", "copy_"))
    assert counters["copies"].per_step == (clones + copies,) * 2
    assert clones == 1
    assert counters["operator calls"].exact
    assert result.window.device.status == "not observed"
    assert result.window.device.reason == "no device activity was asked for"
    assert result.window.activities_asked == result.window.activities_collected == ("CPU",)
    assert result.window.options == ()
    assert result.trace is None


@pytest.mark.skipif(torch.version.cuda is not None and not torch.cuda.is_available(), reason="torch complains: no GPU")
def test_a_quiet_window_has_neither_messages_nor_notices() -> None:
    result = taken(work, "forward", READ_LABEL)
    assert result.window.messages == ()
    assert result.notices == ()


@pytest.mark.parametrize(("wait", "warmup", "active"), [(0, 0, 1), (0, 1, 1), (1, 0, 2), (0, 2, 3)])
def test_shapes_of_the_window(wait: int, warmup: int, active: int) -> None:
    order: list[str] = []

    def step() -> None:
        order.append("step")
        work()

    take_window(
        step,
        request_of("forward", wait=wait, warmup=warmup, active=active),
        lambda: order.append(f"sync {'while' if is_recording() else 'not'} recording"),
    )
    before = ["step"] * (wait + warmup)
    assert order == [*before, "sync not recording", *["step"] * active, "sync while recording"]


@pytest.mark.parametrize(("wait", "warmup", "active"), [(1, 1, 0), (-1, 1, 2), (1, -1, 2)])
def test_numbers_that_make_no_window(wait: int, warmup: int, active: int) -> None:
    with pytest.raises(UsageError, match="at least 0, 0 and 1"):
        taken(wait=wait, warmup=warmup, active=active)


def test_the_final_wait_is_no_part_of_the_step() -> None:
    def synchronize() -> None:
        torch.ones(10).sum()

    with_long_wait = take_window(work, request_of(active=1), synchronize)
    assert "calls of aten::sum" not in {counter.name for counter in with_long_wait.window.counters}
    assert "stepprof: synchronize" not in {region.name for region in with_long_wait.window.regions}


def test_options_are_on_only_when_asked() -> None:
    asked = take_window(
        work, request_of(record_shapes=True, record_stacks=True, record_memory=True, active=1), nothing
    ).window
    assert asked.options == ("record_shapes", "record_stacks", "record_memory")
    assert "allocations" in {counter.name for counter in asked.counters}


# Other profilers


def open_profiler() -> None:
    with profile(activities=[ProfilerActivity.CPU]):
        work()


def open_legacy_profiler() -> None:
    with torch.autograd.profiler.profile():
        work()


def open_scheduled_profiler() -> None:
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=1)) as profiler:
        for _ in range(3):
            work()
            profiler.step()


def swallow_refusal() -> None:
    with contextlib.suppress(ProfilerError):
        open_profiler()


@PHASES
@pytest.mark.parametrize(
    "act",
    [open_profiler, open_legacy_profiler, open_scheduled_profiler, swallow_refusal],
    ids=lambda act: act.__name__,
)
def test_a_profiler_in_the_step_is_refused_in_every_phase(at: int, act: Step) -> None:
    with pytest.raises(ProfilerError, match="profiler of its own"):
        taken(InStep(at, act))
    assert_good_window()


@PHASES
def test_a_profiler_in_another_thread_is_refused(at: int) -> None:
    refused: list[BaseException] = []

    def attempt() -> None:
        try:
            open_profiler()
        except ProfilerError as error:
            refused.append(error)

    def act() -> None:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    with pytest.raises(ProfilerError, match="profiler of its own"):
        taken(InStep(at, act))
    assert len(refused) == 1
    assert_good_window()


def test_a_refused_profiler_does_not_stop_the_recording_on_its_way_out() -> None:
    still_recording: list[bool] = []

    def act() -> None:
        plan = schedule(wait=1, warmup=0, active=1)
        with contextlib.suppress(ProfilerError), profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
            profiler.step()
        still_recording.append(is_recording())

    with pytest.raises(ProfilerError, match="profiler of its own"):
        taken(InStep(2, act))
    assert still_recording == [True]


def test_a_profiler_that_is_off_may_be_there() -> None:
    def act() -> None:
        with torch.autograd.profiler.profile(enabled=False):
            work()

    assert taken(InStep(2, act)).window.steps == (2, 3)


def test_a_profiler_around_the_window() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as outer:
        with pytest.raises(ProfilerError, match="is recording around this test"):
            taken()
        work()
    assert "forward" in {event.name for event in outer.events()}
    assert_good_window()


def test_a_profiler_that_is_being_warmed_up_around_the_window() -> None:
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as outer:
        with pytest.raises(ProfilerError, match="warm-up steps around this test"):
            taken()
        outer.step()
        work()
        outer.step()
    assert "forward" in {event.name for event in outer.events()}
    assert_good_window()


def test_a_profiler_that_waits_around_the_window_is_no_trouble() -> None:
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=5, warmup=1, active=1)):
        assert_good_window()


@pytest.mark.parametrize("at", [2, 3])
def test_recording_that_is_stopped_from_outside(at: int) -> None:
    with pytest.raises(ProfilerError, match=f"stopped from outside during step {at}"):
        taken(InStep(at, stop_recording))
    assert_good_window()


def test_the_steps_of_another_profiler_are_not_taken_for_ones_own() -> None:
    def act() -> None:
        with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=9, warmup=1, active=1)):
            work()

    with pytest.raises(ProfilerError, match=r"holds the steps .*expected 2, 3"):
        taken(InStep(2, act))
    assert_good_window()


def test_the_guard_lets_only_its_own_profiler_in() -> None:
    with guarded_profilers() as guard:
        with pytest.raises(ProfilerError):
            open_legacy_profiler()
        assert guard.refusals == 1
        with pytest.raises(ProfilerError):
            guard.check()
    with torch.autograd.profiler.profile() as session:
        work()
    assert len(session.function_events) > 0


# Steps that end otherwise


@PHASES
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, pytest.skip.Exception, MemoryError])
def test_an_exception_passes_through_and_leaves_nothing(at: int, error: type[BaseException], tmp_path: Path) -> None:
    def act() -> None:
        raise error("stop here")

    with pytest.raises(error, match="stop here"):
        taken(InStep(at, act), keep_trace=True)
    assert list(tmp_path.iterdir()) == []
    assert_good_window()


@pytest.mark.parametrize("at", [0, 1], ids=["before recording", "at its end"])
def test_an_exception_while_waiting_for_the_device(at: int) -> None:
    calls: list[int] = []

    def synchronize() -> None:
        calls.append(1)
        if len(calls) == at + 1:
            raise RuntimeError("device lost")

    with pytest.raises(RuntimeError, match="device lost"):
        take_window(work, request_of(), synchronize)
    assert_good_window()


# Labels


def test_a_missing_label_lists_those_that_are_there() -> None:
    with pytest.raises(ProfilerError, match=r"'backward' is missing in step 2, 3;.*'forward' \(1, 1\)"):
        taken(work, "backward")


def test_a_label_in_one_step_only() -> None:
    def act() -> None:
        with record_function("sometimes"):
            work()

    with pytest.raises(ProfilerError, match=r"'sometimes' is missing in step 3;.*'sometimes' \(1, 0\)"):
        taken(InStep(2, act), "sometimes")


def test_a_label_outside_of_the_active_steps_does_not_count() -> None:
    def act() -> None:
        with record_function("early"):
            work()

    with pytest.raises(ProfilerError, match="'early' is missing in step 2, 3"):
        taken(InStep(1, act), "early")


def compiled_step() -> Step:
    def inside(values: torch.Tensor) -> torch.Tensor:
        with record_function("inside"):
            return values * 2

    compiled = torch.compile(inside, backend="eager")
    sizes = iter((2, 2, 2, 3))
    return lambda: (compiled(torch.ones(next(sizes))), None)[1]


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    level = logging.getLogger("torch").level
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    logging.getLogger("torch").setLevel(level)


@pytest.mark.usefixtures("fresh_compiler")
def test_a_label_that_the_compiler_has_dropped() -> None:
    with pytest.raises(ProfilerError, match=r"(?s)'inside' is missing.*torch.compile was at work: it drops"):
        taken(compiled_step(), "inside")


@pytest.mark.usefixtures("fresh_compiler")
def test_compilation_in_the_window_is_a_notice() -> None:
    notices = {notice.code: notice for notice in taken(compiled_step()).notices}
    assert "compiler events took" in notices["compilation in the window"].message


SECRETS = ["10.20.30.40 forward", "/home/somebody/model", "ghp_0123456789abcdefghijABCDEFGHIJ0123456"]


@pytest.mark.parametrize("secret", SECRETS)
@PHASES
def test_a_label_with_a_secret_is_refused_and_not_repeated(secret: str, at: int, tmp_path: Path) -> None:
    def act() -> None:
        with record_function(secret):
            work()

    if at < 2:  # such a step is not recorded: its labels are nowhere
        assert secret not in str(taken(InStep(at, act)))
        return
    with pytest.raises(ProfilerError, match="it looks like") as refusal:
        taken(InStep(at, act), "no such label", keep_trace=True)
    assert secret[:4] in str(refusal.value)
    assert secret[:6] not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_a_secret_among_the_regions_is_refused_before_anything_runs() -> None:
    with pytest.raises(ProfilerError, match="it looks like"):
        taken(lambda: pytest.fail("the step has run"), SECRETS[0])


def test_the_profiler_object_is_dropped() -> None:
    def alive() -> int:
        return sum(type(thing) is profile for thing in gc.get_objects())

    gc.collect()
    before = alive()
    taken()
    assert alive() == before
