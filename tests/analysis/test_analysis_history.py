"""Which sessions of a baseline stand behind a verdict on time, and what several sessions are together."""

from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.compare import compare_sessions, compare_stored, judged_as
from pytest_stepprof.analysis.fail_rules import parse_fail_rule
from pytest_stepprof.analysis.history import StoredTest, comparable, histories, history, session_time
from pytest_stepprof.analysis.remedies import remedy_for, visible_ratio
from pytest_stepprof.analysis.ruled import apply_fail_rules
from pytest_stepprof.analysis.shards import as_one
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings

changed = msgspec.structs.replace
OTHER_THREADS = changed(sample_measurement().scenario, intra_op_threads=7)
EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())


def measured(key: str = "a", median_ns: float = 2e6, quiet_ns: float | None = None, **changes: Any) -> Measurement:
    base = sample_measurement()
    dispersion = changed(base.dispersion, median_ns=median_ns)
    test = changed(base.test, key=key, node_id=key)
    return changed(base, test=test, dispersion=dispersion, quiet_ns=quiet_ns or median_ns, **changes)


def session(name: str, *measurements: Measurement, **changes: Any) -> Session:
    return sample_session(session_id=name, measurements=measurements, **changes)


def elsewhere() -> Environment:
    here = sample_session().environment
    return changed(here, hardware={**here.hardware, "cpu model": "another one"})


def more_copies() -> Any:
    window = sample_measurement().window
    counter = window.counters[0]
    more = changed(counter, per_step=tuple(value + 1 for value in counter.per_step))
    return changed(window, counters=(more, *window.counters[1:]))


def kept(*sessions: Session) -> list[str]:
    return [one.session.session_id for one in comparable(history(sessions, "a"))]


def test_a_tests_history_is_in_the_order_of_the_baseline() -> None:
    found = history(
        [session("1", measured()), session("2", measured("b")), session("3", measured("b"), measured())], "a"
    )
    assert [one.session.session_id for one in found] == ["1", "3"]


def test_sessions_of_the_same_place_and_work_are_comparable() -> None:
    assert kept(session("1", measured(median_ns=9e6)), session("2", measured())) == ["1", "2"]


@pytest.mark.parametrize(
    "odd",
    [
        lambda: session("1", measured(), environment=elsewhere()),
        lambda: session("1", measured(scenario=OTHER_THREADS)),
        lambda: session("1", measured(start_state_digest="other")),
        lambda: session("1", measured(window=more_copies())),
    ],
    ids=["machine", "threads", "weights", "work"],
)
def test_sessions_of_another_place_or_work_are_left_out(odd: Any) -> None:
    assert kept(odd(), session("2", measured()), session("3", measured())) == ["2", "3"]


def test_the_newest_session_always_counts() -> None:
    assert kept(session("1", measured()), session("2", measured(), environment=elsewhere())) == ["2"]
    assert comparable(()) == ()


def test_a_time_that_cannot_be_read_is_not_known() -> None:
    assert session_time(measured(), "2026-02-30T00:00:00+00:00").started_at_unix_s is None
    assert session_time(measured(), "1970-01-01T00:00:10+00:00").started_at_unix_s == 10


def judged(*stored: Session, now: Measurement) -> Any:
    return compare_stored(
        now,
        history(stored, now.test.key),
        now_environment=sample_session().environment,
        outputs=EQUAL,
        judge=JudgeSettings(),
        tests_sharing_level=1,
        baseline="main",
    )


def test_time_is_held_against_all_comparable_sessions_and_the_rest_against_the_newest() -> None:
    first = sample_measurement().cold_start
    stored = [session(str(number), measured(median_ns=1e6 * number)) for number in (1, 4)]
    found = judged(*stored, now=measured(median_ns=2e6, cold_start=changed(first, step_ns=77)))
    assert found.time.before_ns == pytest.approx(2e6)
    assert found.time.baseline_medians_ns == (1e6, 4e6)
    assert (found.cold_start.before_ns, found.cold_start.after_ns) == (first.step_ns, 77)
    assert found.cold_start.baseline_ns == (first.step_ns,) * 2


def test_the_sentence_on_time_names_what_is_compared() -> None:
    found = judged(session("1", measured(median_ns=3e6, quiet_ns=2e6)), now=measured(median_ns=9e6, quiet_ns=8e6))
    (said,) = [one.text for one in found.reasons if one.gate == "time"]
    assert found.verdict == "regressed"
    assert "2.00 ms/step before, 8.00 ms/step now in the fastest 10 % of steps, 4.00x slower" in said
    assert "(medians 3.00 ms/step before, 9.00 ms/step now)" in said


@pytest.mark.parametrize(
    ("stored", "now", "remedy"),
    [
        ((), measured(), "add it to the baseline: pytest --stepprof --stepprof-save=main"),
        ((session("1", measured()),), measured(), "`stepprof baseline record main --sessions 4`"),
        (
            (session("1", measured(start_state_digest="x", scenario=OTHER_THREADS)),),
            measured(),
            "measure as baseline 'main' did (not the same: started from other weights, intra op threads), "
            "or save a new one (--stepprof-save=main)",
        ),
        (
            (session("1", measured(), environment=elsewhere()),),
            measured(),
            "measure where baseline 'main' was measured (not the same: cpu model), "
            "or add a session from here to it (--stepprof-save=main); `stepprof ab BASE`",
        ),
        (tuple(session(str(one), measured()) for one in range(5)), measured(), "`stepprof ab BASE`"),
        ((session("1", measured(median_ns=9e7)),), measured(), None),
    ],
    ids=["no baseline", "inconclusive", "not comparable", "elsewhere", "enough sessions", "improved"],
)
def test_what_cannot_be_judged_says_what_would_make_it_judgeable(stored: Any, now: Measurement, remedy: str) -> None:
    found = judged(*stored, now=now)
    assert (remedy in found.remedy) if remedy else found.remedy is None


def test_an_inconclusive_test_is_told_what_more_sessions_would_show() -> None:
    found = judged(session("1", measured()), now=measured())
    seen = found.time.smallest_visible_ratio
    expected = visible_ratio(5, JudgeSettings().level, JudgeSettings().tolerance)
    assert 1 < expected < seen
    assert f"one could see {expected:.2f}x slower, and not only {seen:.2f}x slower" in found.remedy


def test_outputs_that_differ_where_that_only_warns_are_to_be_accepted() -> None:
    before, now = session("1", measured()), measured()
    differ = changed(EQUAL, status="differ")
    failing = JudgeSettings()
    found = compare_test(
        now,
        before.measurements[0],
        now_environment=before.environment,
        before_environment=before.environment,
        outputs=differ,
        judge=failing,
        tests_sharing_level=1,
        baseline="main",
    )
    not_failing = changed(found, failed_gates=(), verdict="not comparable")
    stored = history((before,), "a")
    remedy = remedy_for(not_failing, stored, before.environment, "main", failing)
    assert remedy is not None
    assert "--stepprof-update-outputs" in remedy
    assert remedy_for(found, stored, before.environment, "main", failing) is None


def test_of_a_baseline_that_machines_share_those_count_that_are_like_this_one() -> None:
    stored = [
        session("1", measured(median_ns=2e6)),
        session("2", measured(median_ns=9e6), environment=elsewhere()),
        session("3", measured(median_ns=9e6), environment=elsewhere()),
    ]
    found = judged(*stored, now=measured(median_ns=2e6))
    assert found.time.baseline_medians_ns == (2e6,)
    assert found.verdict == "inconclusive"
    (left_out,) = [one.text for one in found.reasons if "not count" in one.text]
    assert left_out.startswith("2 sessions of 3 do not count, the newest one among them: measured elsewhere")
    alone = judged(*stored[1:], now=measured(median_ns=2e6))
    assert alone.verdict == "not comparable"
    assert not [one for one in alone.reasons if "not count" in one.text]


def test_a_fact_that_an_older_record_lacks_is_named_and_forbids_nothing() -> None:
    here = sample_session().environment
    older = changed(here, hardware={name: fact for name, fact in here.hardware.items() if name != "logical cores"})
    found = judged(session("1", measured(), environment=older), now=measured())
    assert found.verdict == "inconclusive"
    (said,) = [one for one in found.reasons if one.gate == "conditions"]
    assert (said.weight, said.text.endswith("whether it is the same: logical cores.")) == ("informs", True)


def test_all_histories_at_once_are_those_of_each_test() -> None:
    baseline = [session("1", measured(), measured("b")), session("2", measured("b")), session("3", measured())]
    assert histories(baseline) == {key: history(baseline, key) for key in ("a", "b")}


@pytest.mark.parametrize(
    ("median_ns", "verdict"),
    [(2.4e6, "not regressed"), (2.6e6, "regressed"), (1e5, "improved"), (2.5e6, "not regressed")],
)
def test_a_fixed_rule_decides_and_is_named(median_ns: float, verdict: str) -> None:
    rules = apply_fail_rules(JudgeSettings(), [parse_fail_rule("time:25%")])
    now = measured(median_ns=median_ns, judge=rules)
    found = compare_sessions(
        (session("2", now),),
        "main",
        [session("1", measured())],
        outputs={"a": EQUAL},
        overrides={},
        tests_sharing_level=1,
    ).tests[0]
    assert found.time is not None
    assert (found.verdict, found.time.fixed_rule) == (verdict, "time:25%")
    assert ("time" in found.failed_gates) == (verdict == "regressed")
    (said,) = [one.text for one in found.reasons if one.gate == "time" and "fixed rule" in one.text]
    assert "the fixed rule time:25% allows, whose error rates are not known" in said
    assert "; interval " in said


def test_fixed_rules_of_other_gates_stay_in_force_beside_those_asked_for() -> None:
    stored = JudgeSettings(fixed_rules=("time:25%", "memory:1%"))
    found = judged_as(measured(judge=stored), {"fixed_rules": ("time:50%", "counters")})
    assert found.fixed_rules == ("memory:1%", "time:50%", "counters")
    assert judged_as(measured(judge=stored), {"rtol": 0.1}).fixed_rules == stored.fixed_rules
    alone = judged_as(measured(judge=stored), {"fixed_rules": ("time", "memory:1%")})
    assert alone.fixed_rules == ("time:25%", "time", "memory:1%")


def test_shards_are_compared_as_one_each_in_its_own_environment() -> None:
    baseline = [session("0", measured("a"), measured("b"), measured("c"))]
    shards = as_one([session("1", measured("a")), session("2", measured("b"), environment=elsewhere())])
    found = compare_sessions(
        shards, "main", baseline, outputs={"a": EQUAL, "b": EQUAL}, overrides={}, tests_sharing_level=2
    )
    assert found.sessions == ("1", "2")
    assert [(test.key, test.verdict) for test in found.tests] == [("a", "inconclusive"), ("b", "not comparable")]
    assert found.missing == ("c",)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (session("2", measured("a")), "sessions 1 and 2 both hold a"),
        (session("2", measured("b"), commit=changed(sample_session().commit, revision="f" * 40)), "of one commit"),
        (
            session("2", measured("b"), commit=changed(sample_session().commit, changes_digest="edited")),
            "of one commit",
        ),
    ],
    ids=["test twice", "another commit", "other changes"],
)
def test_sessions_that_are_no_shards_are_refused(other: Session, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        as_one([session("1", measured("a")), other])


def test_a_stored_test_is_a_session_and_what_it_measured() -> None:
    one = session("1", measured())
    assert history([one], "a") == (StoredTest(one, one.measurements[0]),)


def test_sessions_of_an_older_version_do_not_keep_a_baseline_on_medians() -> None:
    old = changed(measured(), quiet_ns=None)
    assert kept(session("1", old), session("2", measured())) == ["2"]
    assert kept(session("1", old), session("2", old)) == ["1", "2"]
