"""Every run begins with the result that the first step gave, or it is said which one does not, and by how much."""

from collections import Counter
from typing import Any

import msgspec
import phase_bench
import pytest
import safetensors.torch
import torch
from measuring import FEW_STEPS, codes, measured
from phase_bench import READ_NS, STEP_NS, Loader

from pytest_stepprof.measure import checked_steps, run_results
from pytest_stepprof.measure.outputs import payload
from pytest_stepprof.measure.outputs.unchanged import KnownOutputs
from pytest_stepprof.record.settings import JudgeSettings, PathTolerance

bench = phase_bench.bench

RUNS_BEGIN = (1 + 1 + 2 + 4, 1 + 1 + 2 + 4 + 5)
"""How many steps come before each of the two runs: first, repetition, warm-up, window, and the first run."""


class Step:
    """Returns 1, but ``other`` at one of its calls. Long enough on the fake clock to be a sample of its own."""

    def __init__(self, bench: Any, other: Any, at: int) -> None:
        self.bench, self.other, self.at, self.calls = bench, other, at, 0

    def __call__(self, batch: Any) -> Any:
        self.bench.step(batch)
        self.calls += 1
        return {"loss": torch.tensor(1.0), "logits": self.other if self.calls - 1 == self.at else torch.ones(3)}


def notices_of(step: Any) -> list[Any]:
    return [
        notice
        for notice in step.measurement.notices
        if notice.code in ("result changed in a run", "another first batch")
    ]


@pytest.mark.parametrize("run", [0, 1])
def test_a_run_that_begins_with_another_result_is_named_with_leaf_and_size(bench: Any, run: int) -> None:
    measured = bench.measure(step=Step(bench, torch.tensor([1.0, 1.5, 1.0]), RUNS_BEGIN[run]))
    assert [one.same_result for one in measured.measurement.runs] == [number != run for number in range(2)]
    (notice,) = notices_of(measured)
    assert notice.code == "result changed in a run"
    assert notice.message.startswith(f"run {run + 1} of 2 began with another result than the first step gave")
    assert "['logits']: largest absolute difference 0.5" in notice.message


def test_only_the_first_step_of_a_run_is_looked_at(bench: Any) -> None:
    measured = bench.measure(step=Step(bench, torch.zeros(3), RUNS_BEGIN[0] + 1))
    assert [run.same_result for run in measured.measurement.runs] == [True, True]
    assert notices_of(measured) == []


CLOSE = torch.tensor([1.0, 1.0, 1.0 + 1e-6])


@pytest.mark.parametrize(
    ("judge", "same"),
    [
        (None, True),
        (JudgeSettings(rtol=0, atol=0), False),
        (JudgeSettings(rtol=0, atol=1e-3), True),
        (JudgeSettings(tolerances=(PathTolerance(pattern="['logits']", rtol=0, atol=0),)), False),
        (JudgeSettings(tolerances=(PathTolerance(pattern="['loss']", rtol=0, atol=0),)), True),
    ],
)
def test_the_tolerances_are_those_that_the_test_is_judged_with(bench: Any, judge: Any, same: bool) -> None:
    measured = bench.measure(step=Step(bench, CLOSE, RUNS_BEGIN[0]), judge=judge)
    assert measured.measurement.runs[0].same_result == same
    assert len(notices_of(measured)) == (not same)


def test_runs_that_all_differ_are_one_notice() -> None:
    calls = iter(range(1000))
    step = measured(lambda: 1.0 if next(calls) < 2 else 2.0)
    assert [run.same_result for run in step.measurement.runs] == [False, False]
    (notice,) = notices_of(step)
    assert notice.message.startswith("runs 1, 2 of 2 began with another result")


def test_a_step_that_does_not_repeat_itself_is_said_once() -> None:
    calls = iter(range(1000))
    step = measured(lambda: float(next(calls)))
    assert [run.same_result for run in step.measurement.runs] == [False, False]
    assert codes(step) == ["step does not repeat itself"]


class Passes:
    """A loader whose first batch is another one from a certain pass on, as if workers went on drawing."""

    def __init__(self, others_from: int) -> None:
        self.passes, self.others_from = 0, others_from

    def __iter__(self) -> Any:
        self.passes += 1
        return iter([torch.full((2,), float(self.passes >= self.others_from))] * 50)


@pytest.mark.parametrize("includes_read", [False, True])
@pytest.mark.parametrize("changes_batch", [False, True])
def test_another_first_batch_is_said_instead(includes_read: bool, changes_batch: bool) -> None:
    def step(batch: torch.Tensor) -> torch.Tensor:
        batch = batch.clone() if not changes_batch else batch
        return batch.add_(1).sum()

    class Fresh(Passes):
        def __iter__(self) -> Any:
            return (batch.clone() for batch in super().__iter__())

    taken = measured(step, batches=Fresh(others_from=5), includes_read=includes_read)
    assert [run.same_result for run in taken.measurement.runs] == [None, None]  # nobody can tell
    (notice,) = notices_of(taken)
    assert notice.code == "another first batch"
    assert notice.message.startswith("runs 1, 2 of 2 began with another batch than the first step had")
    assert "the result: largest absolute difference 2" in notice.message


def test_the_same_batch_changed_in_place_is_not_called_another_one() -> None:
    calls = iter(range(1000))

    def step(batch: torch.Tensor) -> float:
        batch.add_(1)
        return 1.0 if next(calls) < 2 else 2.0

    taken = measured(step, batches=_Fresh())
    assert [notice.code for notice in notices_of(taken)] == ["result changed in a run"]


class _Fresh:
    def __iter__(self) -> Any:
        return (torch.zeros(2) for _ in range(50))


def test_a_run_that_gives_the_same_bits_costs_no_figures_and_no_storing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counter[str]()

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            calls[name] += 1
            return function(*arguments, **more)

        return call

    monkeypatch.setattr(payload, "take_sample", counted("samples", payload.take_sample))
    monkeypatch.setattr("safetensors.torch.save", counted("stores", safetensors.torch.save))
    settings = msgspec.structs.replace(FEW_STEPS, outputs_limit_bytes=4000)
    values = iter(range(1000))
    large = torch.ones(10_000)
    for changes, expected in ((False, (2, 2)), (True, (4, 4))):  # the first step and its repetition, then each run
        calls.clear()

        def step(changes: bool = changes) -> torch.Tensor:
            return large + 1e-7 * next(values) if changes else large.clone()

        taken = measured(step, settings=settings)
        assert (calls["samples"], calls["stores"]) == expected
        assert [run.same_result for run in taken.measurement.runs] == [True, True]


def test_nothing_is_looked_at_when_no_result_is_needed() -> None:
    step = measured(lambda: 1.0, needs_output=False)
    assert [run.same_result for run in step.measurement.runs] == [None, None]


def test_the_first_steps_own_result_counts_where_several_are_compared(bench: Any) -> None:
    measured = bench.measure(check_steps=3)
    assert [run.same_result for run in measured.measurement.runs] == [True, True]


def test_looking_takes_no_time_of_any_step(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(KnownOutputs):
        def are_those_of(self, result: object) -> bool:
            bench.clock.advance(50_000_000)
            assert bench.device.pending == 0
            return super().are_those_of(result)

    monkeypatch.setattr(run_results, "KnownOutputs", Slow)
    for run in bench.measure().measurement.runs:
        assert run.warmup_ns == (STEP_NS,) * 2
        assert run.samples_ns == (STEP_NS,) * 3
        assert run.read_ns == (READ_NS,) * 3


def test_the_plan_counts_what_looking_takes(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain_take = checked_steps.take_outputs

    def take_outputs(result: Any, **more: Any) -> Any:
        bench.clock.advance(50_000_000)
        return plain_take(result, **more)

    class Slow(KnownOutputs):
        def are_those_of(self, result: object) -> bool:
            bench.clock.advance(50_000_000)
            return super().are_those_of(result)

    plain = bench.measure(batches=Loader(bench, prefetch_ns=0)).measurement.plan.planned_s
    monkeypatch.setattr(checked_steps, "take_outputs", take_outputs)
    monkeypatch.setattr(run_results, "KnownOutputs", Slow)
    measurement = bench.measure(batches=Loader(bench, prefetch_ns=0)).measurement
    assert measurement.plan.planned_s == pytest.approx(measurement.wall_clock_s, rel=1e-9)
    assert measurement.plan.planned_s > plain


def test_two_real_training_runs_from_a_restored_state_begin_with_the_same_result() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    taken = measured(step, state=(model, optimizer), batches=[torch.randn(8, 4)])
    assert [run.same_result for run in taken.measurement.runs] == [True, True]
