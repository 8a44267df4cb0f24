"""The window's figures: shares of elapsed time, in columns of their own, and no number for what was not seen."""

import msgspec
import pytest
from sample_records import sample_device_window, sample_window

from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import DeviceObservation, ModuleCost, OperatorCost, RegionCost
from pytest_stepprof.report.device import device_line
from pytest_stepprof.report.document import Bullets, Document, Paragraph, Table, Text
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.quantities import listed_milliseconds, per_step, percent, share

WINDOW = sample_window()
changed = msgspec.structs.replace


def tables(window, verbosity=0):
    return [block for block in profile_blocks(window, verbosity=verbosity) if isinstance(block, Table)]


def written(window, notices=(), verbosity=0):
    return render_markdown(Document(title=Text("one window"), blocks=profile_blocks(window, notices, verbosity)))


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
    assert regions.headers == ("region", "calls/step", "total CPU", "self CPU", "device work seen")
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


def test_a_whole_trace_is_no_step():
    caption = profile_blocks(changed(WINDOW, whole_trace=True, steps=(0,)))[0]
    assert "the elapsed time of the whole trace, which has no steps" in caption.text.content
    whole = sample_device_window(whole_trace=True, steps=(0,), findings=())
    text = written(whole, verbosity=2)
    assert "elapsed per trace, profiled: 2.60 ms, 2.50 ms" in text
    assert "kernels/trace" in text
    assert "/step" not in text


def test_the_options_that_slow_a_window_down_stand_beside_its_figures():
    caption = profile_blocks(changed(WINDOW, options=("record_shapes", "record_stacks")))[0]
    assert caption.text.content.startswith("profiled with shapes, stacks: shares, not speeds")


def test_what_failed_a_check_stands_above_every_number():
    notice = Notice(code="unwarmed", message="the steps still load kernels", remedy="warm up longer")
    first, *_ = profile_blocks(WINDOW, [notice])
    assert isinstance(first, Bullets)
    assert [(item.content, item.tone) for item in first.items] == [
        ("unwarmed: the steps still load kernels -> warm up longer", "attention")
    ]


def test_the_steps_line_has_the_parts_that_were_seen_as_shares_of_it():
    _, line, *_ = profile_blocks(sample_device_window())
    assert line.text.content == (
        "elapsed per step, profiled: 2.60 ms, 2.50 ms; of it, on the host: reading 38.0 %, transfer calls 10.0 %, "
        "waiting in transfer calls 1.0 %, compilation 2.0 %, outside of operators 20.0 %"
    )


def test_the_steps_line_of_a_record_that_knows_only_the_elapsed_time():
    _, line, *_ = profile_blocks(WINDOW)
    assert line.text.content == "elapsed per step, profiled: 2.60 ms, 2.50 ms"


def test_what_the_step_does_not_do_is_not_told_and_what_it_may_do_is():
    window = changed(WINDOW, read_cpu_ns=(0, 0), compilations=(0, 0), compilation_cpu_ns=(0, 0))
    _, line, *_ = profile_blocks(changed(window, outside_operators_ns=(0, 0), transfer_cpu_ns=(0, 0)))
    assert line.text.content.endswith("of it, on the host: transfer calls 0.0 %, outside of operators 0.0 %")
    _, line, *_ = profile_blocks(window)
    assert line.text.content == "elapsed per step, profiled: 2.60 ms, 2.50 ms"


@pytest.mark.parametrize(
    ("values_ns", "text"),
    [
        ((2_600_000,), "2.60 ms"),
        ((2_600_000, 0), "2.60 ms, 0 ms"),
        ((1_000_000, 2_000_000, 3_000_000, 4_000_000, 9_000_000), "median 3.00 ms (1.00 ms to 9.00 ms)"),
    ],
)
def test_many_steps_are_told_by_their_median_and_range(values_ns, text):
    assert listed_milliseconds(values_ns) == text


@pytest.mark.parametrize(("values", "text"), [((2, 2), "2"), ((3, 2, 5), "2 to 5"), ((), "0")])
def test_values_per_step_are_one_or_a_range(values, text):
    assert per_step(values) == text


def test_modules_and_shapes_have_tables_where_they_were_asked_for():
    _, modules, _, shapes, *_ = tables(sample_device_window())
    assert modules.headers == ("module", "calls/step", "total CPU", "self CPU", "device work")
    assert contents(modules) == [["encoder.layers.0", "2", "20.0 %", "2.0 %", "15.7 %"]]
    assert shapes.headers[:4] == ("operator with shapes", "input shapes", "types", "calls/step")
    assert [row[:2] + row[3:] for row in contents(shapes)] == [
        ["aten::addmm", "[[256], [4, 64], [64, 256]]", "1", "12.7 %", "11.8 %", "10.0 %"],
        ["aten::addmm", "[[10], [4, 256], [256, 10]]", "1", "4.9 %", "3.9 %", "10.0 %"],
    ]


@pytest.mark.parametrize(("verbosity", "rows"), [(0, 5), (1, 15), (2, 40)])
def test_more_rows_with_more_verbosity(verbosity, rows):
    regions = tuple(
        RegionCost(name=f"r{number}", calls=(1,), total_cpu_ns=(number,), self_cpu_ns=(1,), device_work_ns=None)
        for number in range(40)
    )
    window = changed(WINDOW, regions=regions)
    assert len(tables(window, verbosity)[0].rows) == rows
    assert (f"{40 - rows} of 40 regions not shown" in written(window, verbosity=verbosity)) == (rows < 40)


def test_counters_are_told_with_their_unit_and_those_of_operators_last():
    window = sample_device_window()
    assert "graph breaks" not in written(window)
    (counters,) = [table for table in tables(window, 1) if table.headers[0] == "counter"]
    assert contents(counters) == [
        ["operator calls", "45", "calls/step", "yes"],
        ["kernel launches", "40 to 42", "calls/step", "no, steps differ"],
        ["graph breaks in the whole test", "3", "breaks", "yes"],
    ]
    (counters,) = [table for table in tables(window, 2) if table.headers[0] == "counter"]
    assert contents(counters)[-1] == ["calls of aten::addmm", "2", "calls/step", "yes"]


def test_how_the_window_was_taken_is_told_in_full_with_v():
    text = written(sample_device_window(), verbosity=1)
    assert "activities" not in text
    other = changed(sample_device_window(), activities_collected=("CPU",))
    assert "activities asked for: CPU, CUDA; collected: CPU" in written(other, verbosity=1)
    assert "not done any more by a warm step: cudaMalloc 2 times" in text
    assert "  CUPTI says something" in text
    assert "CUPTI" not in written(sample_device_window())


def test_a_hostile_name_stays_on_its_line():
    module = ModuleCost(path="a\n| b", calls=(1,), total_cpu_ns=(1,), self_cpu_ns=(1,), device_work_ns=None)
    assert "| `a\\x0a\\| b` |" in written(changed(WINDOW, modules=(module,)))


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.0005, "0.1 %"), (0.125, "12.5 %"), (1.5, "150.0 %")]
)
def test_what_is_not_nothing_never_reads_as_zero(part, text):
    assert percent(part) == text
