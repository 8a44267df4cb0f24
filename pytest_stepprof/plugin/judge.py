"""What a session is compared with: the baseline as it was when the session began."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import pytest

from pytest_stepprof.analysis.compare import compare_test, newest
from pytest_stepprof.analysis.conditions import other_conditions
from pytest_stepprof.analysis.quality import compare_quality
from pytest_stepprof.analysis.result_gates import result_alone
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.measure.outputs.stored import compare_with_stored
from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.record.comparison import Reason, TestComparison, Verdict
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.record.window import Window
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

    def stored_result(self, key: str) -> StoredOutputs | None:
        """Return the result that the baseline holds for a test, ``None`` where it holds none."""
        found = newest(self.sessions, key)
        return None if found is None else found[1].outputs

    def window_before(self, key: str) -> Window | None:
        """Return the window that a test is compared with, ``None`` where the baseline holds none."""
        found = newest(self.sessions, key)
        return None if found is None else found[1].window

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
            accept_results=self.accept_results,
        )

    def check_result(self, step: MeasuredStep, test: TestIdentity, settings: JudgeSettings) -> TestComparison:
        """Compare the result of a step that ran once, unmeasured.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        found = newest(self.sessions, test.key)
        if found is None:
            return unmeasured(test, "no baseline", (f"Baseline '{self.baseline}' does not hold this test.",))
        quality = compare_quality(found[1].quality, step.quality)
        conditions = other_conditions(found[1], step, quality_decides=quality.decides)
        if conditions:
            return unmeasured(test, "not comparable", (*conditions, *quality.obstacles))
        outputs = self._outputs(step, found[1], settings)
        return result_alone(test, found[1], quality, outputs, settings)

    def _in_force(self, settings: JudgeSettings) -> JudgeSettings:
        return (
            msgspec.structs.replace(settings, counters="off", memory="off", time="off")
            if self.results_only
            else settings
        )

    def _outputs(self, step: MeasuredStep, before: Measurement, settings: JudgeSettings) -> OutputComparison:
        return compare_with_stored(self.store, before.outputs, step.outputs.stored, step.outputs.payload, settings)


def unmeasured(test: TestIdentity, verdict: Verdict, reasons: Iterable[str]) -> TestComparison:
    """Say about a test what needs no measurement."""
    return TestComparison(
        key=test.key,
        node_id=test.node_id,
        verdict=verdict,
        reasons=tuple(Reason(gate="conditions", weight="decides", text=text) for text in reasons),
        outputs=None,
        counters=(),
        time=None,
        failed_gates=(),
    )


def load_judges(config: pytest.Config, store: Store) -> tuple[list[Judge], tuple[str, ...]]:
    """Return the judges of a session, and why sessions of their baselines cannot be read.

    The first compares with the baseline asked for. Adding to another baseline needs a second one, which looks at
    results only; a session without any baseline has a judge without a name.

    Raises:
        pytest.UsageError: a baseline's name cannot be one, or none of its sessions can be read.
    """
    compared, saved = config.getoption("stepprof_baseline"), config.getoption("stepprof_save")
    accept_results = bool(config.getoption("stepprof_update_outputs"))
    judges: list[Judge] = []
    unreadable: list[str] = []
    for name in dict.fromkeys((compared or saved or "", saved or compared or "")):
        sessions, reasons = _readable(store, name)
        if reasons and name == saved:
            raise pytest.UsageError(
                f"stepprof: sessions of the baseline '{name}' cannot be read, the newest one maybe, so that a result "
                f"which was replaced on purpose could come back. Repair or delete them before you add to it: "
                f"{' '.join(reasons)}"
            )
        judges.append(Judge(store, name, sessions, results_only=name != compared, accept_results=accept_results))
        unreadable += reasons
    return judges, tuple(unreadable)


def _readable(store: Store, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    try:
        sessions, unreadable = store.read_baseline(name) if name else ((), ())
    except StepprofError as error:
        raise pytest.UsageError(f"stepprof: {error}") from None
    if unreadable and not sessions:
        raise pytest.UsageError(f"stepprof: no session of the baseline '{name}' can be read: {' '.join(unreadable)}")
    return sessions, unreadable
