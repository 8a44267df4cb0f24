"""Outputs against those of a baseline, as they lie in the store."""

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_stepprof.analysis.compare import judged_as
from pytest_stepprof.errors import OutputError, StoreError
from pytest_stepprof.measure.outputs.taking import compare_outputs
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store


def compare_with_stored(
    store: Store, before: StoredOutputs, after: StoredOutputs, after_payload: bytes, judge: JudgeSettings
) -> OutputComparison:
    """Compare outputs at hand with stored ones, with the tolerances of ``judge``, those for paths included.

    Raises:
        StoreError: the stored payload is missing or damaged.
        OutputError: the stored payload or the record of it cannot be right.
    """
    before_payload = stored_payload(store, before)
    return compare_outputs(
        before, before_payload, after, after_payload, rtol=judge.rtol, atol=judge.atol, tolerances=judge.tolerances
    )


def stored_payload(store: Store, outputs: StoredOutputs) -> bytes:
    """Return the tensors of a result; nothing when it has none.

    Raises:
        StoreError: the payload is missing or damaged; a file of another size than the record names is not even read.
    """
    if outputs.payload_sha256 is None:
        return b""
    return store.load_payload(outputs.payload_sha256, outputs.payload_bytes)


def compare_stored_outputs(
    store: Store, session: Session, baseline_sessions: Sequence[Session], overrides: Mapping[str, Any]
) -> tuple[dict[str, OutputComparison], dict[str, str]]:
    """Compare each test's outputs with those of the newest baseline session that has the test, by test key.

    Each test has the tolerances that were stored with it, less ``overrides`` (see ``judged_as``). Comes second: by key,
    why outputs could not be compared, because what is stored of them is missing or damaged. The others still are.
    """
    newest: dict[str, Measurement] = {}
    for stored in baseline_sessions:
        newest |= {measurement.test.key: measurement for measurement in stored.measurements}
    pairs = [(newest[after.test.key], after) for after in session.measurements if after.test.key in newest]
    compared: dict[str, OutputComparison] = {}
    damaged: dict[str, str] = {}
    for before, after in pairs:
        try:
            payload = stored_payload(store, after.outputs)
            judge = judged_as(after, overrides)
            compared[after.test.key] = compare_with_stored(store, before.outputs, after.outputs, payload, judge)
        except (StoreError, OutputError) as error:
            damaged[after.test.key] = str(error)
    return compared, damaged
