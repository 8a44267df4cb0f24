"""The verdicts of a session: each is passed inside the test's own call, so that xfail and reruns behave."""

from collections.abc import Callable

import msgspec
import pytest

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.standing import finish_comparison
from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.plugin.identity import identify
from pytest_stepprof.plugin.joining import Joining
from pytest_stepprof.plugin.judge import Judge, load_judges, unmeasured
from pytest_stepprof.plugin.settings import judge_settings
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.report.failure import failure_text
from pytest_stepprof.report.where import where_lines
from pytest_stepprof.store.directory import Store

_MISSING_NAMED = 5
STRICT = ("not comparable", "no baseline")
STRICT_WHEN_MEASURED = (*STRICT, "inconclusive")


class Verdicts:
    """Compares tests with the baselines of a session and remembers what came of it.

    ``unreadable`` says which sessions of the baselines cannot be read, ``joining`` what the baseline that this session
    is to join would hold anew.
    """

    def __init__(self, config: pytest.Config, store: Store) -> None:
        self._config = config
        (self._judge, *self._others), self.unreadable = load_judges(config, store)
        self._tests_sharing_level = 1
        self.comparisons: dict[str, TestComparison] = {}
        accepting = bool(config.getoption("stepprof_update_outputs"))
        self.joining = Joining(store, accepting=accepting, every_leaf=config.get_verbosity() >= 1)

    @property
    def judge(self) -> Judge:
        """The judge whose verdicts are shown."""
        return self._judge

    def share_level_among(self, tests: set[str]) -> None:
        """Fix, before anything is measured, how many tests share the session's false-alarm rate."""
        self._tests_sharing_level = max(1, self._judge.known(tests))

    def compare(self, item: pytest.Item, step: MeasuredStep, facts: Environment) -> TestComparison | None:
        """Compare a test with the baseline that is shown; ``None`` when there is none.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        if not self._judge.baseline:
            return None
        settings = judge_settings(item)
        if step.measurement is None:
            comparison: TestComparison | None = self._judge.check_result(step, identify(item), settings)
        else:
            comparison = self._judge.judge(step, settings, facts, self._tests_sharing_level)
        if comparison is not None:
            comparison = msgspec.structs.replace(comparison, where=self._where(step, comparison))
            self.comparisons[comparison.key] = comparison
        return comparison

    def compare_with_others(
        self, item: pytest.Item, step: MeasuredStep, facts: Environment
    ) -> list[tuple[str, TestComparison]]:
        """Compare a test's result with the baseline that it will join, where that is another one.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        settings = judge_settings(item)
        judged = [(judge.baseline, judge.judge(step, settings, facts, 1)) for judge in self._others]
        return [(baseline, comparison) for baseline, comparison in judged if comparison is not None]

    def note_joining(self, item: pytest.Item, step: MeasuredStep, judged: list[tuple[str, TestComparison]]) -> None:
        """Remember what a test would bring into the baseline that it is to join.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        results = {judge.baseline: judge for judge in (self._judge, *self._others)}
        joined = self._config.getoption("stepprof_save")
        for baseline, comparison in judged:
            if baseline == joined:
                before = results[baseline].stored_result(comparison.key)
                self.joining.note(comparison, before, step.outputs, judge_settings(item).outputs)

    def note_error(self, test: TestIdentity, why: str) -> None:
        """Remember that a measured test broke, so that it is not shown as one without a baseline."""
        if not self._judge.results_only:
            self.comparisons[test.key] = unmeasured(test, "error", (why,))

    def failure(self, step: MeasuredStep, comparison: TestComparison, baseline: str) -> str | None:
        """Return the report of a test that fails, ``None`` for one that does not."""
        measured = step.measurement is not None
        strict = self._strict and comparison.verdict in (STRICT_WHEN_MEASURED if measured else STRICT)
        if not (comparison.failed_gates or strict):
            return None
        return failure_text(
            comparison,
            baseline=baseline,
            unit=step.scenario.unit,
            samples_per_step=step.scenario.samples_per_step,
            strict=strict,
        )

    def _where(self, step: MeasuredStep, comparison: TestComparison) -> tuple[str, ...]:
        """Only the judge that is shown judges time and counters: the windows are this session's and its newest."""
        after = None if step.measurement is None else step.measurement.window
        return where_lines(comparison, self._judge.window_before(comparison.key), after)

    @property
    def _strict(self) -> bool:
        return bool(self._config.getoption("stepprof_strict")) and not self._judge.results_only

    def record(
        self, measurements: tuple[Measurement, ...], session_id: str, not_selected: Callable[[TestIdentity], bool]
    ) -> Comparison | None:
        """Return what the session's record says about the baseline, ``None`` when none was asked for."""
        if not self.comparisons and (self._judge.results_only or not self._judge.baseline):
            return None
        return finish_comparison(
            self.comparisons.values(),
            measurements,
            baseline=self._judge.baseline,
            baseline_sessions=self._judge.sessions,
            sessions=(session_id,),
            tests_sharing_level=self._tests_sharing_level,
            known_baselines=() if self._judge.sessions else self._judge.known_names(),
            not_selected=not_selected,
        )

    def strict_faults(self, comparison: Comparison | None) -> list[str]:
        """Say what fails a whole session under ``--stepprof-strict``: nothing that one test can be blamed for."""
        if comparison is None or not self._strict:
            return []
        missing = [test.node_id for test in comparison.missing_tests]
        faults = [f"missing, though the baseline holds it: {first_few(missing, _MISSING_NAMED)}"] if missing else []
        nothing = comparison.compared == "nothing compared" or not comparison.tests
        return faults + (
            [f"nothing was compared with the baseline '{printable(comparison.baseline)}'"] if nothing else []
        )
