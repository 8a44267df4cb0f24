"""The gates that look at results: the baseline's against the one at hand, the first step's against that of each run."""

from collections.abc import Sequence
from typing import NamedTuple

from pytest_stepprof.analysis.judged import WEIGHT_OF_A_FAILURE, Judged, reason, together
from pytest_stepprof.analysis.own_spread import spread_text
from pytest_stepprof.analysis.quality import Quality, judge_quality
from pytest_stepprof.record.comparison import Gate, TestComparison, Weight
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.quality import QualityChange
from pytest_stepprof.record.settings import GateMode, JudgeSettings

_NOT_REQUIRED = "Equality was not required: quality was declared"


class Results(NamedTuple):
    """What the gates say about the result.

    ``altered`` says that it is another one and was declared to be; ``obstacle`` why times would compare two things.
    """

    outputs: Judged
    quality: Judged
    changes: tuple[QualityChange, ...]
    altered: bool
    obstacle: str | None

    @property
    def failed(self) -> bool:
        """Whether either gate fails."""
        return self.outputs.failed or self.quality.failed


def judge_results(
    before: Measurement,
    now: Measurement,
    outputs: OutputComparison | None,
    quality: Quality,
    mode: GateMode,
    *,
    accept: bool,
) -> Results:
    """Judge the result of a measured step; with ``accept``, only runs that disagree with their first step can fail."""
    accepting: GateMode = "off" if accept else mode
    of_outputs, of_runs = judge_outputs(outputs, before, now, quality, accepting), judge_runs(now, mode)
    obstacle = "the outputs differ" if of_outputs.failed else None
    if obstacle is None and of_runs.failed:
        obstacle = "runs gave another result than the first step"
    return Results(
        outputs=together(of_outputs, of_runs),
        quality=judge_quality(quality, accepting),
        changes=quality.changes,
        altered=quality.decides and outputs is not None and outputs.status == "differ",
        obstacle=obstacle,
    )


def judge_outputs(
    outputs: OutputComparison | None, before: Measurement, now: Measurement | None, quality: Quality, mode: GateMode
) -> Judged:
    """Judge a result against the baseline's; ``now`` is ``None`` for a step that ran once, unmeasured.

    Where quality decides, nothing about equality can fail, and what differs is told all the same.
    """
    if outputs is None or outputs.status == "not compared":
        note = "" if outputs is None or outputs.note is None else f": {outputs.note}"
        weight: Weight = "informs" if mode == "off" or quality.decides else "warns"
        return Judged((reason("outputs", weight, f"The outputs were not compared{note}"),), False)
    if outputs.status == "equal":
        text = f"{_NOT_REQUIRED}; the outputs are equal all the same"
        return Judged((reason("outputs", "informs", text),) if quality.decides else (), False)
    text = _differences(outputs)
    if quality.decides:
        return Judged((reason("outputs", "informs", f"{_NOT_REQUIRED}. {text}"),), False)
    spread = spread_text(
        outputs,
        repeated_before=before.repeated,
        repeated_now=None if now is None else now.repeated,
        random_draws=before.random_draws if now is None else now.random_draws,
    )
    hints = () if spread is None else (reason("outputs", "informs", spread),)
    return Judged((reason("outputs", WEIGHT_OF_A_FAILURE[mode], text), *hints), mode == "fail")


def judge_runs(now: Measurement, mode: GateMode) -> Judged:
    """Judge whether the runs measured the step that was checked; a step that never repeats itself cannot tell."""
    others = [number for number, run in enumerate(now.runs, start=1) if run.same_result is False]
    if not others or now.repeated is None or now.repeated.status != "equal":
        return Judged((), False)
    one = len(others) == 1
    text = (
        f"In {'run' if one else 'runs'} {_listed(others)} of {len(now.runs)} the first step gave another result than "
        f"the first step ever: {'its' if one else 'their'} times are times of something else"
    )
    return Judged((reason("outputs", WEIGHT_OF_A_FAILURE[mode], text),), mode == "fail")


def result_alone(
    test: TestIdentity,
    before: Measurement,
    quality: Quality,
    outputs: OutputComparison,
    judge: JudgeSettings,
) -> TestComparison:
    """Judge a result without any time: ``regressed`` when it is another one, or worse, else ``inconclusive``."""
    judged: dict[Gate, Judged] = {
        "outputs": judge_outputs(outputs, before, None, quality, judge.outputs),
        "quality": judge_quality(quality, judge.outputs),
    }
    other = any(change.lost for change in quality.changes) if quality.decides else outputs.status == "differ"
    return TestComparison(
        key=test.key,
        node_id=test.node_id,
        verdict="regressed" if other else "inconclusive",
        reasons=together(*judged.values()).reasons,
        outputs=outputs,
        counters=(),
        time=None,
        failed_gates=tuple(gate for gate, result in judged.items() if result.failed),
        quality=quality.changes,
    )


def _differences(outputs: OutputComparison) -> str:
    count = len(outputs.mismatches)
    text = f"The outputs differ from the baseline's in {count} {'place' if count == 1 else 'places'}"
    if not outputs.mismatches:
        return text
    first = outputs.mismatches[0]
    return f"{text}, first at {first.path or 'the result itself'}: {first.message}"


def _listed(numbers: Sequence[int]) -> str:
    *front, last = map(str, numbers)
    return f"{', '.join(front)} and {last}" if front else last
