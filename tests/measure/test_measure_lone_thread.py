"""Did one thread do all the work? Other threads that compute, and children, are seen."""

import subprocess
import sys
import threading

import pytest

from pytest_stepprof.measure.lone_thread import CpuTimes, cpu_times, worked_alone

BEFORE = CpuTimes(1_000_000, 5_000_000, has_children=False)


@pytest.mark.parametrize(
    ("own_ns", "others_ns", "alone"),
    [
        (10_000_000, 0, True),
        (10_000_000, 100_000, True),
        (10_000_000, 150_000, False),
        (0, 10_000, True),
        (0, 30_000, False),
    ],
)
def test_processor_time_of_other_threads_tells(own_ns, others_ns, alone):
    after = CpuTimes(1_000_000 + own_ns, 5_000_000 + own_ns + others_ns, has_children=False)
    assert worked_alone(BEFORE, after) == alone


@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_child_may_have_worked_at_any_moment(at_the_end):
    one, other = BEFORE, BEFORE._replace(has_children=True)
    assert not worked_alone(*((one, other) if at_the_end else (other, one)))


def test_a_child_that_came_and_went_in_between_may_have_worked():
    after = BEFORE._replace(thread_ns=11_000_000, process_ns=15_000_000)
    assert worked_alone(BEFORE, after)
    assert not worked_alone(BEFORE, after._replace(children_ns=1_000))


def test_the_work_of_a_real_child_that_has_ended_is_seen():
    before = cpu_times()
    subprocess.run([sys.executable, "-c", "sum(range(300_000))"], check=True)
    assert cpu_times().children_ns > before.children_ns


def test_a_thread_that_computes_beside_this_one_is_seen():
    def busy():
        sum(range(2_000_000))

    before = cpu_times()
    thread = threading.Thread(target=busy)
    thread.start()
    thread.join()
    after = cpu_times()
    assert after.process_ns - before.process_ns > after.thread_ns - before.thread_ns
    assert not worked_alone(before._replace(has_children=False), after._replace(has_children=False))


def test_a_child_is_seen_until_its_exit_status_is_taken_and_that_stays_takeable():
    if cpu_times().has_children:
        pytest.skip("this process has children of its own")
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    assert cpu_times().has_children
    assert child.wait() == 7
    assert not cpu_times().has_children
