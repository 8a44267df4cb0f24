"""What a baseline knows of one test: its sessions, and which of them measured the same work in the same place."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.conditions import other_conditions, other_conditions_of_time, other_machine
from pytest_stepprof.analysis.counters import compare_counters
from pytest_stepprof.analysis.time_verdict import SessionTime, waiting_share
from pytest_stepprof.record.comparison import ColdStartChange
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session


class StoredTest(NamedTuple):
    """One test in one session of a baseline."""

    session: Session
    measurement: Measurement


def history(baseline_sessions: Sequence[Session], key: str) -> tuple[StoredTest, ...]:
    """Return what a baseline's sessions, oldest first, hold of the test ``key``: in that order, the newest one last."""
    return tuple(
        StoredTest(session, measurement)
        for session in baseline_sessions
        for measurement in session.measurements
        if measurement.test.key == key
    )


def histories(baseline_sessions: Sequence[Session]) -> dict[str, tuple[StoredTest, ...]]:
    """Return the ``history`` of every test that a baseline holds, by key; of many tests much faster than one by one."""
    found: dict[str, list[StoredTest]] = {}
    for session in baseline_sessions:
        for measurement in session.measurements:
            found.setdefault(measurement.test.key, []).append(StoredTest(session, measurement))
    return {key: tuple(stored) for key, stored in found.items()}


def comparable(stored: Sequence[StoredTest], here: Environment | None = None) -> tuple[StoredTest, ...]:
    """Return those of a test's sessions, oldest first, whose times may stand beside one that is measured ``here``.

    They ran on this machine with this software, under the newest session's conditions, and their steps did the same
    work as the newest one's: no counter differs of those that fail or warn. A baseline that was added to over many
    commits holds other steps, too, and one that several machines share holds other machines. ``here`` is where the
    newest session ran if it is not given; the newest one is then always among them.

    Sessions of an older version know no first decile. Where the newest one does they do not count, lest all be compared
    by their medians for ever.
    """
    if not stored:
        return ()
    newest = stored[-1]
    place = newest.session.environment if here is None else here
    near = (one for one in stored if not other_machine(one.session.environment, place))
    return tuple(one for one in near if one is newest or _same_step(one.measurement, newest.measurement))


def session_time(measurement: Measurement, started_at_utc: str | None = None) -> SessionTime:
    """Return what a measurement says of its test's time."""
    median_ns, quiet_ns = measurement.dispersion.median_ns, measurement.quiet_ns
    return SessionTime(
        median_ns=median_ns,
        waiting_share=waiting_share(median_ns, measurement.median_without_waiting_ns),
        quiet_ns=quiet_ns,
        quiet_waiting_share=0.0 if quiet_ns is None else waiting_share(quiet_ns, measurement.quiet_without_waiting_ns),
        started_at_unix_s=None if started_at_utc is None else _unix_s(started_at_utc),
    )


def cold_start_change(stored: Sequence[StoredTest], now: Measurement) -> ColdStartChange:
    """Put the first step beside those of the baseline's sessions, oldest first; at least one."""
    steps_ns = tuple(one.measurement.cold_start.step_ns for one in stored)
    return ColdStartChange(before_ns=steps_ns[-1], after_ns=now.cold_start.step_ns, baseline_ns=steps_ns)


def _same_step(then: Measurement, now: Measurement) -> bool:
    """Whether two sessions measured a test under the same conditions, and the same work of it."""
    other_start = other_conditions(then, now, quality_decides=False)
    if then.quiet_ns is None and now.quiet_ns is not None:
        return False
    return not (other_start or other_conditions_of_time(then.scenario, now.scenario)) and _same_work(then, now)


def _same_work(one: Measurement, other: Measurement) -> bool:
    then, now = one.window.counters, other.window.counters
    if then == now:
        return True
    there_and_back = (compare_counters(then, now, ()), compare_counters(now, then, ()))
    return not any(change.gated or change.warned for changes in there_and_back for change in changes)


def _unix_s(text: str) -> float | None:
    """Read ``2026-12-01T08:00:00+00:00``, which is always UTC; ``None`` where it is no time."""
    try:
        return float(np.datetime64(text[:19], "s").astype(np.int64))
    except ValueError:
        return None
