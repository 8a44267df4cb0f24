"""Outputs of a session against those of a baseline, both as they are stored."""

from collections.abc import Sequence

from pytest_stepprof.analysis.compare import newest
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store


def compare_stored_outputs(
    store: Store, session: Session, baseline_sessions: Sequence[Session], judge: JudgeSettings
) -> dict[str, OutputComparison]:
    """Compare each test's outputs with those of the newest baseline session that has the test, by test key.

    Raises:
        StoreError: a stored payload is missing or damaged.
    """
    compared: dict[str, OutputComparison] = {}
    for after in session.measurements:
        found = newest(baseline_sessions, after.test.key)
        if found is not None:
            compared[after.test.key] = _compared(store, found[1].outputs, after.outputs, judge)
    return compared


def _compared(store: Store, before: StoredOutputs, after: StoredOutputs, judge: JudgeSettings) -> OutputComparison:
    from pytest_stepprof.measure.outputs import compare_outputs  # imports torch

    return compare_outputs(
        before, _payload(store, before), after, _payload(store, after), rtol=judge.rtol, atol=judge.atol
    )


def _payload(store: Store, outputs: StoredOutputs) -> bytes:
    return b"" if outputs.payload_sha256 is None else store.load_payload(outputs.payload_sha256)
