"""What a session is compared with: the baseline as it was when the session began."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pytest

from pytest_stepprof.analysis.compare import compare_test, newest
from pytest_stepprof.analysis.conditions import other_conditions
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.measure.stored_outputs import compare_with_stored
from pytest_stepprof.record.comparison import Reason, TestComparison
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store


@dataclass(frozen=True)
class Judge:
    """Compares tests with a baseline.

    ``results_only`` is for adding to a baseline without comparing with it: only a changed result can fail then.
    ``accept_results`` lets a changed result pass as well.
    """

    store: Store
    baseline: str
    sessions: tuple[Session, ...]
    results_only: bool = False
    accept_results: bool = False

    def known(self, keys: Iterable[str]) -> int:
        """Return how many of the tests the baseline holds."""
        return sum(newest(self.sessions, key) is not None for key in keys)

    def missing(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the baseline's tests that are not among ``keys``."""
        known = {measurement.test.key for session in self.sessions for measurement in session.measurements}
        return tuple(sorted(known - set(keys)))

    def judge(
        self, step: MeasuredStep, settings: JudgeSettings, environment: Environment, tests_sharing_level: int
    ) -> TestComparison | None:
        """Compare a measured step; ``None`` when there is nothing to compare with and nobody asked for it.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        measurement = step.measurement
        assert measurement is not None, "only measured steps are judged"
        session, before = newest(self.sessions, measurement.test.key) or (None, None)
        if before is None and self.results_only:
            return None
        return compare_test(
            measurement,
            before,
            now_environment=environment,
            before_environment=None if session is None else session.environment,
            outputs=None if before is None else self._outputs(step, before, settings),
            judge=self._in_force(settings),
            tests_sharing_level=tests_sharing_level,
            baseline=self.baseline,
        )

    def check_result(self, step: MeasuredStep, test: TestIdentity, settings: JudgeSettings) -> TestComparison | None:
        """Compare the result of a step that ran once, unmeasured; ``None`` when the baseline does not have the test.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        found = newest(self.sessions, test.key)
        if found is None:
            return None
        before = found[1]
        conditions = other_conditions(before, step)
        outputs = None if conditions else self._outputs(step, before, settings)
        differ = outputs is not None and outputs.status == "differ"
        return TestComparison(
            key=test.key,
            node_id=test.node_id,
            verdict="not comparable" if conditions else "regressed" if differ else "inconclusive",
            reasons=tuple(Reason(gate="conditions", weight="decides", text=text) for text in conditions),
            outputs=outputs,
            counters=(),
            time=None,
            failed_gates=("outputs",) if differ and settings.outputs == "fail" else (),
        )

    def _in_force(self, settings: JudgeSettings) -> JudgeSettings:
        if self.results_only:
            settings = msgspec.structs.replace(settings, counters="off", time="off")
        return msgspec.structs.replace(settings, outputs="off") if self.accept_results else settings

    def _outputs(self, step: MeasuredStep, before: Measurement, settings: JudgeSettings) -> OutputComparison:
        return compare_with_stored(self.store, before.outputs, step.outputs.stored, step.outputs.payload, settings)


def load_judge(config: pytest.Config, store: Store) -> tuple[Judge, tuple[str, ...]]:
    """Return the judge of a session, and why sessions of its baseline cannot be read.

    Raises:
        pytest.UsageError: the baseline's name cannot be one, or none of its sessions can be read.
    """
    compared, saved = config.getoption("stepprof_baseline"), config.getoption("stepprof_save")
    name = compared or saved or ""
    try:
        sessions, unreadable = store.read_baseline(name) if name else ((), ())
    except StepprofError as error:
        raise pytest.UsageError(f"stepprof: {error}") from None
    if unreadable and not sessions:
        raise pytest.UsageError(f"stepprof: no session of the baseline '{name}' can be read: {' '.join(unreadable)}")
    judge = Judge(
        store=store,
        baseline=name,
        sessions=sessions,
        results_only=not compared,
        accept_results=bool(config.getoption("stepprof_update_outputs")),
    )
    return judge, unreadable
