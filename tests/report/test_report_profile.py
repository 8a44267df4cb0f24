"""The window's figures: shares of elapsed time, in columns of their own, and no number for what was not seen."""

import msgspec
import pytest
from sample_records import sample_measurement

from pytest_stepprof.record.window import DeviceObservation, OperatorCost
from pytest_stepprof.report.document import Paragraph, Table
from pytest_stepprof.report.profile import device_line, profile_blocks, share

WINDOW = sample_measurement().window
changed = msgspec.structs.replace


def tables(window):
    return [block for block in profile_blocks(window) if isinstance(block, Table)]


def contents(table):
    return [[cell.content for cell in row] for row in table.rows]


def operator(name, self_cpu_ns, calls=(1, 1)):
    return OperatorCost(name=name, calls=calls, self_cpu_ns=self_cpu_ns, total_cpu_ns=self_cpu_ns, device_work_ns=None)


def test_shares_are_of_the_active_steps_elapsed_time():
    regions, operators = tables(WINDOW)
    assert regions.headers == ("region", "calls/step", "total CPU", "self CPU")
    assert contents(regions) == [["forward", "1", "37.3 %", "3.7 %"]]  # 1.9 ms and 0.19 ms of 5.1 ms
    assert contents(operators) == [["aten::addmm", "2", "17.6 %", "15.7 %"]]  # 0.9 ms and 0.8 ms


def test_the_caption_says_that_these_are_no_speeds():
    caption = profile_blocks(WINDOW)[0]
    assert isinstance(caption, Paragraph)
    assert "shares, not speeds" in caption.text.content
    assert "2 active steps" in caption.text.content


def test_a_window_without_elapsed_time_has_no_shares():
    assert share(5, changed(WINDOW, elapsed_ns=(0, 0))) == "unknown"


def test_device_work_has_its_own_column_and_no_zero_where_it_was_not_seen():
    seen = changed(WINDOW, device=DeviceObservation(status="incomplete", reason="step 3 has gaps", work_ns=(1, 2)))
    regions, _ = tables(seen)
    assert regions.headers == ("region", "calls/step", "total CPU", "self CPU", "device work")
    assert contents(regions)[0][-1] == "not observed"


@pytest.mark.parametrize(
    ("device", "line"),
    [
        (
            DeviceObservation(status="not observed", reason="no device event came", work_ns=None),
            "device: not observed (no device event came)",
        ),
        (
            DeviceObservation(status="observed", reason="", work_ns=(1_500_000, 0)),
            "device: observed, work 1.50 ms, 0 ms in the active steps, profiled",
        ),
        (
            DeviceObservation(status="incomplete", reason="2 kernels missing", work_ns=(1_500_000,)),
            "device: incomplete, seen: work 1.50 ms in the active steps, profiled (2 kernels missing)",
        ),
        (
            DeviceObservation(status="incomplete", reason="2 kernels missing", work_ns=None),
            "device: incomplete, seen: work not known (2 kernels missing)",
        ),
    ],
)
def test_device_line(device, line):
    assert device_line(device) == line


def test_the_largest_come_first_and_the_rest_is_counted():
    window = changed(WINDOW, operators=tuple(operator(f"op{number}", number * 1000) for number in range(12)))
    blocks = profile_blocks(window)
    assert [row[0] for row in contents(tables(window)[1])] == [f"op{number}" for number in range(11, 3, -1)]
    assert "4 of 12 operators not shown" in [block.text.content for block in blocks if isinstance(block, Paragraph)]


def test_as_many_as_fit_leave_nothing_out():
    window = changed(WINDOW, operators=tuple(operator(f"op{number}", 1) for number in range(8)))
    assert len(tables(window)[1].rows) == 8
    assert not [
        block for block in profile_blocks(window) if isinstance(block, Paragraph) and "shown" in block.text.content
    ]


@pytest.mark.parametrize(("calls", "text"), [((2, 2), "2"), ((2, 5), "2 to 5"), ((), "0")])
def test_calls(calls, text):
    window = changed(WINDOW, operators=(operator("op", 1, calls),))
    assert contents(tables(window)[1])[0][1] == text


def test_an_empty_window_says_so():
    texts = [block.text.content for block in profile_blocks(changed(WINDOW, regions=(), operators=()))]
    assert "no region was seen in the window" in texts
    assert "no operator was seen in the window" in texts
