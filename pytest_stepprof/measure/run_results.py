"""The cheap check that each run's first step still gives the result that the first step ever gave."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_stepprof.measure import observations
from pytest_stepprof.measure.first_step import FirstStep
from pytest_stepprof.measure.inputs import digest_batch
from pytest_stepprof.measure.outputs.taking import compare_outputs, take_outputs
from pytest_stepprof.measure.outputs.unchanged import KnownOutputs
from pytest_stepprof.measure.sampling import Samples, Stepper, take_samples
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import JudgeSettings, MeasureSettings


@dataclass
class Seen:
    """The batch and the result of one step, until they have been looked at."""

    batch: Any = None
    result: Any = None


@dataclass(frozen=True)
class ChangedRun:
    """A run whose first step gave another result; ``other_batch`` says that it was given another batch."""

    number: int
    comparison: OutputComparison
    other_batch: bool


class RunResults:
    """Takes each run's warm-up, and compares what its first step returns, outside of all timing."""

    def __init__(self, first: FirstStep, *, needed: bool, settings: MeasureSettings, judge: JudgeSettings) -> None:
        checks = needed and first.result.stored.leaf_count > 0
        self._first = first
        self._settings = settings
        self._judge = judge
        self._known = KnownOutputs(first.result, settings.outputs_limit_bytes) if checks else None
        self.changed: list[ChangedRun] = []

    def warm_up(self, stepper: Stepper, steps: int, run_number: int) -> tuple[Samples, bool | None]:
        """Take a run's warm-up steps; say whether the first gave the first result.

        ``None`` where nobody looked, or where it had another batch, so that nobody can tell.
        """
        if self._known is None or not steps:
            return take_samples(stepper, samples=steps, steps_per_sample=1), None
        taken, same = self._first_step(self._known, stepper, run_number)
        rest = take_samples(stepper, samples=steps - 1, steps_per_sample=1)
        taken.samples_ns += rest.samples_ns
        return taken, same

    def _first_step(self, known: KnownOutputs, stepper: Stepper, run_number: int) -> tuple[Samples, bool | None]:
        seen = Seen()

        def see_batch(batch: Any) -> None:
            stepper.see_batch(batch)
            seen.batch = batch

        def step(*arguments: Any) -> None:
            seen.result = stepper.step(*arguments)

        taken = take_samples(replace(stepper, step=step, see_batch=see_batch), samples=1, steps_per_sample=1)
        return taken, self._same(known, seen, run_number)

    def _same(self, known: KnownOutputs, seen: Seen, run_number: int) -> bool | None:
        """Compare the digests, and only where these differ the values: most results are the very same bits."""
        if known.are_those_of(seen.result):
            seen.result = None
            return True
        first, judge = self._first.result, self._judge
        now = take_outputs(seen.result, limit_bytes=self._settings.outputs_limit_bytes)
        seen.result = None
        comparison = compare_outputs(
            first.stored,
            first.payload,
            now.stored,
            now.payload,
            rtol=judge.rtol,
            atol=judge.atol,
            tolerances=judge.tolerances,
        )
        if comparison.status != "differ":
            return True if comparison.status == "equal" else None
        other_batch = digest_batch(seen.batch) != self._first.used_batch_digest
        self.changed.append(ChangedRun(run_number, comparison, other_batch))
        return None if other_batch else False

    def notices(self, runs: int, repeated: OutputComparison) -> list[Notice]:
        """Say which runs began differently, unless the step is known not to repeat itself anyway."""
        if repeated.status == "differ":
            return []
        with_other_batch = [run for run in self.changed if run.other_batch]
        others = [run for run in self.changed if not run.other_batch]
        notices = []
        if with_other_batch:
            notices.append(
                observations.of_another_batch(_named(with_other_batch, runs), with_other_batch[0].comparison)
            )
        if others:
            notices.append(observations.of_another_result(_named(others, runs), others[0].comparison))
        return notices


def _named(changed: Sequence[ChangedRun], runs: int) -> str:
    numbers = ", ".join(str(run.number) for run in changed)
    return f"run{'s' if len(changed) > 1 else ''} {numbers} of {runs}"
