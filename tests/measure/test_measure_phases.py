"""The order of phases, the points of synchronization and the stored nanoseconds, on a fake clock and a fake device."""

import gc
import random

import phase_bench
import pytest
import torch
from fakes import FakeClock
from phase_bench import (
    COPY_NS,
    CPU,
    ITERATOR_NS,
    LOAD_NS,
    READ_NS,
    RESTORE_NS,
    SETTINGS,
    STEP_NS,
    Loader,
)

from pytest_stepprof.errors import BatchError, OutputError, StateError
from pytest_stepprof.measure.phases import Instruments, check_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.settings import MeasureSettings

bench = phase_bench.bench


def timed(*reads):
    """One measured step after each of these reads."""
    return [line for read in reads for line in (f"read {read}", "synchronize", "step", "synchronize")]


LATE_NS = 150_000_000

RESTART = ["restore", "synchronize", "iterator"]


def test_the_order_of_phases_and_synchronizations(bench):
    bench.measure()
    after_the_first = ["iterator closed"]
    assert bench.big_log() == [
        "capture",
        "iterator",
        *timed(0),
        "look for what is new",
        *RESTART[:2],
        "verify",
        *after_the_first,
        "iterator",
        *timed(0),
        *RESTART[:2],
        *after_the_first,
        "iterator",
        *timed(0, 1),
        *RESTART[:2],
        *after_the_first,
        "iterator",
        "window begins",
        *[line for read in range(4) for line in (f"read {read}", "step")],
        "synchronize",
        "window ends",
        *[*RESTART[:2], *after_the_first, "iterator", *timed(0, 1), *timed(2, 3, 4)] * 2,
        "restore",
        "iterator closed",
    ]


def test_the_stored_nanoseconds(bench):
    measurement = bench.measure().measurement
    assert measurement.cold_start.step_ns == STEP_NS
    assert measurement.cold_start.read_ns == READ_NS
    assert measurement.cold_start.iterator_ns == ITERATOR_NS
    assert measurement.cold_start.load_ns is None
    assert measurement.warm_up.steps_ns == (STEP_NS,) * 2
    assert measurement.warm_up.restore_ns == RESTORE_NS + COPY_NS
    assert len(measurement.runs) == 2
    for run in measurement.runs:
        assert run.restore_ns == RESTORE_NS + COPY_NS
        assert run.iterator_ns == ITERATOR_NS
        assert run.warmup_ns == (STEP_NS,) * 2
        assert run.steps_per_sample == 1
        assert run.samples_ns == (STEP_NS,) * 3
        assert run.read_ns == (READ_NS,) * 3
        assert run.restarts == ()
        assert run.started_at_unix_ns == 1_700_000_000_000_000_000
    assert measurement.dispersion.median_ns == STEP_NS
    assert measurement.run_medians_ns == (STEP_NS,) * 2
    assert measurement.start_state_digest == "digest of the start"
    assert measurement.start_settings_digest == "digest of the rest"


def test_the_read_belongs_to_the_step_when_the_scenario_says_so(bench):
    measurement = bench.measure(includes_read=True).measurement
    both = READ_NS + 77_000_000 + STEP_NS
    assert measurement.cold_start.step_ns == READ_NS + STEP_NS
    assert measurement.runs[0].samples_ns == (both,) * 3
    assert measurement.runs[0].read_ns == (READ_NS,) * 3


@pytest.mark.parametrize("includes_read", [False, True])
def test_a_first_read_that_waits_for_workers_is_in_no_sample(bench, includes_read):
    loader = Loader(bench, count=5, prefetch_ns=0, late_ns=LATE_NS)
    measurement = bench.measure(batches=loader, includes_read=includes_read).measurement
    step_ns = STEP_NS + READ_NS * includes_read
    for run in measurement.runs:
        assert run.warmup_ns == (step_ns + LATE_NS * includes_read, step_ns)
        assert run.samples_ns == (step_ns,) * 3
        assert run.read_ns == (READ_NS,) * 3
        assert run.restarts == ()


@pytest.mark.parametrize("includes_read", [False, True])
def test_nor_is_the_first_read_of_a_pass_inside_of_a_run(bench, includes_read):
    loader = Loader(bench, count=3, prefetch_ns=0, late_ns=LATE_NS)
    measurement = bench.measure(batches=loader, includes_read=includes_read).measurement
    for run in measurement.runs:
        (restart,) = run.restarts
        assert restart.first_read_ns == READ_NS + LATE_NS
        assert run.samples_ns == (STEP_NS + READ_NS * includes_read,) * 3
        assert sum(run.read_ns) == READ_NS * (3 if includes_read else 2)


def test_loading_is_timed_apart_and_given_to_the_step(bench):
    seen = []
    bench.device.submit("someone else's", 5_000_000)

    def step(model, batch):
        seen.append(model)
        return bench.step(batch)

    measurement = bench.measure(load=bench.load, step=step).measurement
    assert measurement.cold_start.load_ns == LOAD_NS + 1_000_000
    assert bench.log.index("load") < bench.log.index("capture")
    assert set(seen) == {"model"}


def test_a_step_without_batches_has_neither_reads_nor_iterators(bench):
    measurement = bench.measure(batches=None).measurement
    assert measurement.cold_start.read_ns is None
    assert measurement.cold_start.iterator_ns is None
    assert measurement.runs[0].read_ns == ()
    assert measurement.runs[0].iterator_ns is None
    assert not [line for line in bench.log if line.startswith(("read", "iterator"))]


def test_a_short_step_is_timed_in_samples_of_k_steps(bench):
    def step(batch):
        bench.clock.advance(100_000)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=1, runs=1, steps_per_run=40)
    measurement = bench.measure(settings, step=step).measurement
    assert measurement.plan.steps_per_sample == 10
    assert measurement.runs[0].samples_ns == (1_000_000,) * 4
    assert measurement.dispersion.median_ns == 100_000


def test_the_output_is_the_first_steps_and_does_not_follow_the_step(bench):
    buffer = torch.zeros(1)

    def step(batch):
        bench.step(batch)
        return buffer.add_(1)

    measured = bench.measure(step=step)
    assert measured.output.item() == 1


def test_another_output_from_the_same_state_is_a_notice_with_its_size(bench):
    results = iter(range(1, 100))

    def step(batch):
        bench.step(batch)
        return torch.tensor([float(next(results))])

    (notice,) = [n for n in bench.measure(step=step).measurement.notices if n.code == "step does not repeat itself"]
    assert "largest absolute difference 1" in notice.message


def test_a_step_that_repeats_itself_says_nothing(bench):
    assert bench.measure().measurement.notices == ()


def test_a_state_that_cannot_be_put_back_is_an_error_that_names_the_leaf(bench):
    bench.snapshot.differing = ("[0].weight",)
    with pytest.raises(StateError, match=r"\[0\]\.weight"):
        bench.measure()


def test_attributes_that_are_not_put_back_are_named(bench):
    bench.snapshot.changed_attributes = ("[0].calls",)
    (notice,) = bench.measure().measurement.notices
    assert notice.code == "restore incomplete"
    assert "[0].calls" in notice.message


def test_a_step_that_writes_into_its_batch_is_a_notice(bench):
    def step(batch):
        bench.step(batch)
        batch += 1
        return torch.tensor([1.0])

    assert [n.code for n in bench.measure(step=step).measurement.notices] == ["input changed"]


def test_new_shapes_in_the_measured_part_are_counted(bench):
    batches = [torch.zeros(2)] * 4 + [torch.zeros(3)]
    settings = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=5)
    (notice,) = bench.measure(settings, batches=batches).measurement.notices
    assert notice.code == "new input shape"
    assert notice.message.startswith("2 batches of the measured runs have shapes that no warm-up step had, first (3,)")


def test_waiting_for_a_core_is_stored_and_said(bench):
    bench.waited_per_reading_ns = STEP_NS // 2
    measurement = bench.measure().measurement
    assert measurement.runs[0].waited_ns == (STEP_NS // 2,) * 3
    assert measurement.median_without_waiting_ns == STEP_NS / 2
    (notice,) = measurement.notices
    assert notice.code == "busy machine"
    assert "can explain up to 50 % of the median step" in notice.message


def test_an_empty_loader_is_an_error(bench):
    with pytest.raises(BatchError, match="needed at least 1 batch, got 0"):
        bench.measure(batches=Loader(bench, count=0))


def test_a_loader_that_ends_early_is_restarted_inside_the_window_and_the_runs(bench):
    measurement = bench.measure(batches=Loader(bench, count=3)).measurement
    assert [restart.before_sample for restart in measurement.runs[0].restarts] == [1]


PHASES = {"first step": 1, "repeat": 2, "warm-up": 3, "window": 6, "first run": 9, "second run": 14}


@pytest.mark.parametrize("at", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("error", [RuntimeError("broke"), KeyboardInterrupt(), pytest.skip.Exception("not here")])
def test_a_step_that_raises_in_any_phase_leaves_everything_as_it_was(bench, at, error):
    bench.raise_at, bench.error = at, error
    random.seed(5)
    torch.manual_seed(5)
    before = random.getstate(), torch.get_rng_state().tolist()
    assert gc.isenabled()
    with pytest.raises(type(error)) as caught:
        bench.measure()
    assert caught.value is error
    assert bench.steps == at
    assert gc.isenabled()
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_a_changed_thread_count_is_put_back_and_said(bench):
    threads = torch.get_num_threads()

    def step(batch):
        torch.set_num_threads(threads + 1)
        return bench.step(batch)

    (notice,) = bench.measure(step=step).measurement.notices
    assert notice.message == (
        f"the step changed the process: intra-op threads {threads} -> {threads + 1}; it was put back"
    )
    assert torch.get_num_threads() == threads


def test_checking_only_runs_the_step_once_and_puts_the_state_back(bench):
    request = StepRequest(step=bench.step, batches=Loader(bench))
    checked = check_step(request, SETTINGS, bench.instruments, under_test=CPU)
    assert checked.measurement is None
    assert checked.output.item() == 1
    assert bench.steps == 1
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_progress_names_each_phase(bench):
    said = []
    bench.instruments = Instruments(**{**vars(bench.instruments), "progress": said.append})
    bench.measure()
    assert said == ["first step", "check that the step repeats", "warm-up", "profiler window", "run 1/2", "run 2/2"]


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (None, "returned None"),
        ({}, "returned a dict without any value"),
        ((None, []), "returned a tuple without any value"),
    ],
)
def test_a_step_without_a_result_to_compare_is_an_error_that_says_what_to_do(bench, result, found):
    with pytest.raises(OutputError, match=rf"{found}.*Return the loss or the logits.*stepprof\(outputs=\"off\"\)"):
        bench.measure(step=lambda batch: result)
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_a_step_may_return_nothing_when_nothing_is_to_be_compared(bench):
    def step(batch):
        bench.step(batch)

    measured = bench.measure(step=step, needs_output=False)
    assert measured.output is None
    assert measured.measurement.outputs.leaf_count == 0


def test_checking_only_needs_a_result_too(bench):
    request = StepRequest(step=lambda batch: None, batches=Loader(bench))
    with pytest.raises(OutputError, match="returned None"):
        check_step(request, SETTINGS, bench.instruments, under_test=CPU)


def test_the_trace_is_written_only_after_the_last_run(bench, tmp_path):
    folder = tmp_path / "traces"

    def where():
        assert bench.big_log()[-1] == "iterator closed"
        return folder

    measured = bench.measure(keep_trace_in=where)
    assert list(folder.iterdir()) == [measured.trace_path]
    assert measured.trace_path.read_bytes() == b"packed"


def test_a_measurement_that_fails_after_the_window_leaves_no_trace(bench):
    bench.raise_at = PHASES["second run"]
    with pytest.raises(RuntimeError, match="the step broke"):
        bench.measure(keep_trace_in=lambda: pytest.fail("a folder was asked for"))
    assert "window ends" in bench.log


def test_a_restore_that_fails_does_not_hide_what_the_step_raised(bench):
    def restore():
        raise AttributeError("the module is in pieces")

    def step(batch):
        bench.snapshot.restore = restore
        raise bench.error

    with pytest.raises(RuntimeError, match="the step broke"):
        bench.measure(step=step)


def test_a_restore_that_fails_after_the_last_run_is_an_error_of_its_own(bench):
    bench.snapshot.restore_when_done = bench.snapshot.restore

    def restore():
        if bench.steps >= 1 + PHASES["second run"] + 3:
            raise AttributeError("the module is in pieces")
        bench.snapshot.restore_when_done()

    bench.snapshot.restore = restore
    with pytest.raises(AttributeError, match="in pieces"):
        bench.measure()


class EmptyAgain(Loader):
    """A loader whose passes are empty from a certain one on."""

    passes = 0

    def __init__(self, bench, count, empty_from):
        super().__init__(bench, count)
        self.empty_from = empty_from

    def __iter__(self):
        self.passes += 1
        return iter(()) if self.passes >= self.empty_from else super().__iter__()


@pytest.mark.parametrize("empty_from", [2, 3, 5], ids=["repeat", "warm-up", "window"])
def test_batches_that_are_gone_on_a_later_pass_are_an_error_that_says_so(bench, empty_from):
    settings = MeasureSettings(warmup_steps=3, runs=1, steps_per_run=3)
    with pytest.raises(BatchError, match="gave no batch on a new pass"):
        bench.measure(settings, batches=EmptyAgain(bench, 3, empty_from))
    assert ("window begins" in bench.log) == (empty_from == 5)


def test_what_load_made_is_not_blamed_on_state():
    request = StepRequest(step=lambda loaded: 1, load=lambda: {1, 2})
    with pytest.raises(
        StateError, match=r"What load= made is taken for .* set, which cannot .* or state=\(\)"
    ) as caught:
        check_step(request, SETTINGS, Instruments(clock=FakeClock(), unix_clock=FakeClock()), under_test=CPU)
    assert "Give state=... with the modules" in str(caught.value)


def test_what_load_made_is_left_alone_when_a_state_is_given(bench):
    made, given = {1, 2}, []

    def step(loaded, batch):
        given.append(loaded)
        return bench.step(batch)

    bench.measure(load=lambda: made, state=(), step=step)
    assert len(given) == bench.steps > 3
    assert all(loaded is made for loaded in given)


def test_the_device_under_test_may_be_text(bench):
    instruments = Instruments(clock=bench.clock, unix_clock=bench.clock)
    request = StepRequest(step=bench.step, batches=Loader(bench))
    assert check_step(request, SETTINGS, instruments, under_test="cpu").scenario.device == "cpu"
