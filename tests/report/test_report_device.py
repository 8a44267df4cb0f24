"""The device's tables: work and waiting apart, what was not seen without any number."""

import msgspec
import pytest
from sample_records import sample_device_window, sample_incomplete_window

from pytest_stepprof.record.window import DeviceObservation
from pytest_stepprof.report.device import device_blocks
from pytest_stepprof.report.document import Bullets, Document, Paragraph, Table, Text
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.terminal import render_terminal

changed = msgspec.structs.replace
UNSEEN = DeviceObservation(status="not observed", reason="no device event came", work_ns=None)


def tables(window, verbosity=0):
    return [block for block in device_blocks(window, verbosity) if isinstance(block, Table)]


def contents(table):
    return [[cell.content for cell in row] for row in table.rows]


def sentences(window):
    return [item.content for block in device_blocks(window, 1) if isinstance(block, Bullets) for item in block.items]


def test_each_device_has_a_row_of_shares_of_the_step():
    (table,) = tables(sample_device_window())
    assert dict(zip(table.headers, contents(table)[0], strict=True)) == {
        "device": "device 0",
        "kernels/step": "40",
        "busy": "56.9 %",
        "compute": "49.0 %",
        "copy": "11.8 %",
        "communication": "2.9 %",
        "idle": "43.1 %",
        "idle: reading": "21.6 %",
        "idle: late launch": "2.0 %",
    }
    assert [row[0] for row in contents(table)] == ["device 0", "device 1"]


def test_what_was_seen_in_part_bounds_the_idle_time():
    (table,) = tables(sample_incomplete_window())
    assert table.headers == (
        "device",
        "kernels seen/step",
        "busy seen",
        "compute seen",
        "copy seen",
        "communication seen",
        "idle at most",
        "idle: reading at most",
    )


def test_late_launches_have_no_number_where_nobody_knows_them():
    unknown = sample_incomplete_window()
    text = [block.text.content for block in device_blocks(unknown) if isinstance(block, Paragraph)]
    assert text[-1] == "idle before late launches: not known (the device's side is incomplete)"
    stored_before = changed(unknown, devices=sample_device_window().devices)
    assert not [header for header in tables(stored_before)[0].headers if "late" in header]
    two_clocks = changed(unknown, device=changed(unknown.device, status="observed"))
    assert tables(two_clocks)[0].headers[-1] == "idle: reading"


def test_a_queue_delay_between_two_clocks_has_no_number():
    window = sample_device_window()
    launches = changed(window.launches, median_queue_ns=None, largest_queue_ns=None)
    *_, queue, _ = sentences(changed(window, launches=launches))
    assert queue == ("queue delay: not known, because the clocks of host and device differ; median kernel 8.0 us")


def test_sums_unions_and_spans_are_told_apart():
    first, *_ = sentences(sample_device_window())
    assert first == (
        "device 0, whole window: work 2.90 ms as a union, 3.50 ms summed over 2 streams, from first to last 4.90 ms"
    )
    assert "elapsed" not in " ".join(sentences(sample_device_window()))


def test_launches_and_their_queue_delay_which_may_be_negative():
    *_, launches, queue, unrecorded = sentences(sample_device_window())
    assert launches == (
        "launches: 40 to 42 calls/step, which take 8.0 % of the step on the CPU; 30 kernels/step below 10.0 us"
    )
    assert queue == "queue delay from launch to kernel: median -1.5 us, largest 300.0 us; median kernel 8.0 us"
    assert unrecorded == "launches from threads without a recorded operator: 2 calls/step"


def test_a_queue_delay_that_nobody_knows_has_no_number():
    *_, queue = sentences(sample_incomplete_window())
    assert queue == "queue delay: not known, because no kernel was matched with its launch"


def test_communication_is_told_where_there_is_any():
    window = sample_device_window()
    assert "device 0: communication with no other work beside it: 0.6 % of the step" in sentences(window)
    silent = tuple(changed(use, communication_ns=(0, 0)) for use in window.devices)
    assert not [text for text in sentences(changed(window, devices=silent)) if "communication" in text]


def test_copies_by_kind_and_size_and_whether_every_step_makes_them():
    _, copies, _ = tables(sample_device_window(), 1)
    assert contents(copies) == [
        ["Memcpy HtoD (Pageable -> Device)", "64 MiB", "1", "yes", "11.8 %"],
        ["Memcpy HtoD (Pageable -> Device)", "4 B", "0 to 3", "no", "0.1 %"],
    ]


def test_synchronizations_are_waiting_of_the_host():
    *_, waits = tables(sample_device_window(), 1)
    assert waits.headers == ("synchronization", "calls/step", "host waits")
    assert contents(waits) == [
        ["cudaStreamSynchronize", "1 to 3", "5.0 %"],
        ["calls that copy, until their copy begins", "", "1.0 %"],
    ]


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_a_device_that_was_not_observed_has_no_number_and_no_column_anywhere(verbosity):
    window = changed(
        sample_device_window(),
        device=UNSEEN,
        synchronizations=(),
        findings=(),
        counters=(),
        transfer_cpu_ns=None,
        transfer_waiting_ns=None,
    )
    document = Document(title=Text("t"), blocks=profile_blocks(window, (), verbosity))
    text = render_terminal(document, width=200, colour=False)
    assert "device: not observed (no device event came)" in text
    for word in ("device work", "device 0", "kernels", "busy", "idle", "queue", "launches", "device copy"):
        assert word not in text, word


def test_no_column_holds_two_kinds_of_time():
    """CPU time, device work and waiting: each header says which of them its column is."""
    window = sample_device_window()
    kinds = {"CPU": "total CPU self CPU", "work": "device work busy compute copy communication", "wait": "idle waits"}
    for table in [block for block in profile_blocks(window, (), 1) if isinstance(block, Table)]:
        for column, header in enumerate(table.headers):
            if any(cell[column].content.endswith("%") for cell in table.rows):
                named = [kind for kind, words in kinds.items() if any(word in header for word in words.split())]
                assert len(named) == 1, (header, named)


@pytest.mark.parametrize(("verbosity", "rows"), [(0, 4), (1, 16), (2, 20)])
def test_many_devices_are_counted(verbosity, rows):
    window = sample_device_window()
    many = changed(window, devices=tuple(changed(window.devices[0], device=number) for number in range(20)))
    assert len(tables(many, verbosity)[0].rows) == rows
