"""The gates that look at the work inside the windows: exact counters, and peak memory."""

from typing import NamedTuple

from pytest_stepprof.analysis.counter_verdict import judge_counters
from pytest_stepprof.analysis.judged import SILENT, Judged, reason, together
from pytest_stepprof.analysis.memory_verdict import judge_memory
from pytest_stepprof.record.comparison import CounterChange, MemoryChange
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.settings import OWN_HOOKS_OPTION, GateMode, JudgeSettings
from pytest_stepprof.record.window import Window


class Work(NamedTuple):
    """What the windows' gates say, and every change that they looked at."""

    counters: Judged
    memory: Judged
    counter_changes: tuple[CounterChange, ...]
    memory_changes: tuple[MemoryChange, ...]

    @property
    def failed(self) -> bool:
        """Whether either gate fails."""
        return self.counters.failed or self.memory.failed


def judge_work(
    before: Window,
    after: Window,
    judge: JudgeSettings,
    *,
    before_environment: Environment | None,
    after_environment: Environment,
    other_conditions: bool,
    altered: bool,
) -> Work:
    """Judge the work of two windows where both sides ran one version of torch under the same conditions.

    Another version of torch calls other operators and allocates in another way. The device needs no look of its own: it
    belongs to the scenario, and where that is another one, ``other_conditions`` says so and both gates are silent.
    ``altered`` says that another result was declared: it takes other work, so that counters only warn then; and so they
    do where the work may be another one because of labels of modules. Memory is a cost like time, and keeps its mode.
    """
    if other_conditions:
        return Work(SILENT, SILENT, (), ())
    versions = _other_torch(before_environment, after_environment)
    if versions is not None:
        return _of_other_torch(before, after, judge, versions)
    labels = _work_of_labels(before, after)
    of_counters: GateMode = "warn" if (altered or labels) and judge.counters == "fail" else judge.counters
    counter_changes, counters = judge_counters(before, after, judge.counter_rules, of_counters)
    if labels and counters.reasons:
        counters = together(counters, Judged((reason("counters", "warns", labels),), False))
    memory_changes, memory = judge_memory(before, after, judge)
    return Work(counters, memory, counter_changes, memory_changes)


def _other_torch(before: Environment | None, after: Environment) -> str | None:
    then = "not known" if before is None else before.software.get("torch", "not known")
    here = after.software.get("torch", "not known")
    return None if then == here else f"torch: {then} -> {here}"


def _work_of_labels(before: Window, after: Window) -> str | None:
    """Say why labels of modules may have changed the work that is counted, ``None`` where they have not."""
    by_own_hooks = [OWN_HOOKS_OPTION in window.options for window in (before, after)]
    if by_own_hooks[0] != by_own_hooks[1]:
        return (
            "Counters fail nothing, because modules were labelled by hooks of their own on one side only "
            "(--stepprof-modules beside torch.compile), and a module that looks at its hooks does other work"
        )
    labelled = ["record_modules" in window.options for window in (before, after)]
    if labelled[0] != labelled[1] and (any(before.compilations) or any(after.compilations)):
        return (
            "Counters fail nothing, because modules were labelled on one side only (--stepprof-modules), and hooks of "
            "modules may make torch.compile, which was at work in the active steps, compile more often"
        )
    return None


def _of_other_torch(before: Window, after: Window, judge: JudgeSettings, versions: str) -> Work:
    counters = memory = SILENT
    if judge.counters != "off":
        text = f"Counters are not compared, because another torch calls other operators: {versions}"
        counters = Judged((reason("counters", "informs", text),), False)
    if judge.memory != "off" and before.memory and after.memory:
        text = f"Peak memory is not compared, because another torch allocates in another way: {versions}"
        memory = Judged((reason("memory", "informs", text),), False)
    return Work(counters, memory, (), ())
