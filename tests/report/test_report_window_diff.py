"""A diff as text: tables per quantity, small changes counted, and a few lines for a failing test."""

from pytest_stepprof.analysis.window.diff import CPU_TIME, DEVICE_WORK, ELAPSED, ELAPSED_TIME, WAITING
from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.window_diff import CostChange, CostKind, QuantityChange, WindowDiff
from pytest_stepprof.report.document import Document, Table, Text
from pytest_stepprof.report.terminal import render_terminal
from pytest_stepprof.report.window_diff import diff_blocks, where_it_went


def cost(
    name: str, calls: tuple[float, float], ms: tuple[float | None, float | None], kind: CostKind = "operator"
) -> CostChange:
    before, after = (None if side is None else side * 1e6 for side in ms)
    return CostChange(
        kind=kind, name=name, before_calls=calls[0], after_calls=calls[1], before_ns=before, after_ns=after
    )


def quantity(name: str, unit: str, before: float | None, after: float | None) -> QuantityChange:
    return QuantityChange(name=name, unit=unit, before=before, after=after)


def diff(
    *costs: CostChange,
    quantities: tuple[QuantityChange, ...] = (),
    counters: tuple[CounterChange, ...] = (),
    remarks: tuple[str, ...] = (),
) -> WindowDiff:
    """A step of 10 ms before and 20 ms after."""
    elapsed = quantity(ELAPSED, ELAPSED_TIME, 10e6, 20e6)
    return WindowDiff(quantities=(elapsed, *quantities), costs=costs, counters=counters, remarks=remarks)


def shown(change: WindowDiff, verbosity: int = 0) -> str:
    return render_terminal(
        Document(title=Text("t"), blocks=diff_blocks(change, verbosity=verbosity)), width=160, colour=False
    )


def test_a_line_for_a_failing_test() -> None:
    lines = where_it_went(diff(cost("aten::copy_", (4, 12), (0.11, 0.83))))
    assert lines == ("aten::copy_: 4 -> 12 calls/step, self CPU 0.110 -> 0.830 ms/step (profiled)",)


def test_lines_are_the_largest_growths_only() -> None:
    changes = diff(
        cost("shrunk", (1, 1), (9, 1)),
        cost("grown", (1, 1), (1, 3)),
        cost("most", (2, 2), (1, 9)),
        cost("hardly", (1, 1), (1, 1.1)),
        cost("more calls", (1, 2.5), (1, 1.1)),
        cost("gone", (1, 0), (4, None)),
        quantities=(
            quantity("reading the batch", ELAPSED_TIME, 1e6, 5e6),
            quantity("device 0 busy", DEVICE_WORK, None, 9),
        ),
    )
    assert where_it_went(changes, most=4) == (
        "most: 2 calls/step, self CPU 1.000 -> 9.000 ms/step (profiled)",
        "reading the batch: elapsed time 1.000 -> 5.000 ms/step (profiled)",
        "grown: 1 call/step, self CPU 1.000 -> 3.000 ms/step (profiled)",
        "more calls: 1 -> 2.5 calls/step, self CPU 1.000 -> 1.100 ms/step (profiled)",
    )
    assert where_it_went(changes, most=1)[0].startswith("most:")
    assert where_it_went(changes, most=1, calls_first=True)[0].startswith("more calls:")
    assert where_it_went(diff(cost("below 3 % of 20 ms", (1, 1), (1, 1.5)))) == ()
    assert where_it_went(diff(cost("shrunk", (1, 1), (9, 1)))) == ()


def test_times_of_different_kinds_never_share_a_table() -> None:
    blocks = diff_blocks(
        diff(
            quantities=(
                quantity("device 0 busy", DEVICE_WORK, 1e6, 2e6),
                quantity("device 0 idle", WAITING, 9e6, 18e6),
                quantity("launching kernels", CPU_TIME, 1e6, 2e6),
                quantity("outside of operators", ELAPSED_TIME, 1e6, 2e6),
            )
        )
    )
    rows = {table.headers[0]: [row[0].content for row in table.rows] for table in blocks if isinstance(table, Table)}
    assert rows == {
        "elapsed time on the host per step, ms": ["elapsed", "outside of operators"],
        "CPU time per step, ms": ["launching kernels"],
        "device work per step, ms": ["device 0 busy"],
        "waiting per step, ms": ["device 0 idle"],
    }


def test_what_was_not_observed_has_no_number_and_no_change() -> None:
    text = shown(diff(quantities=(quantity("device 0 busy", DEVICE_WORK, None, 2e6),)))
    assert ["device", "0", "busy", "not", "observed", "2.000"] in [line.split() for line in text.splitlines()]


def test_small_changes_are_counted_and_shown_on_request() -> None:
    changes = diff(
        cost("large", (1, 1), (1, 2)),
        cost("tiny", (1, 1), (1, 1.001)),
        cost("called more", (1, 2), (1, 1.001)),
        cost("Memcpy HtoD, 8 bytes", (1, 1), (0.5, 0.5), "copy"),
    )
    brief, everything = shown(changes), shown(changes, 2)
    assert "large" in brief
    assert "called more" in brief
    assert "tiny" not in brief
    assert "1 of 3 operators with smaller or no changes not shown" in brief
    assert "1 of 1 copies with smaller or no changes not shown" in brief
    assert "tiny" in everything
    assert "not shown" not in everything


def test_changes_have_signs_and_no_verdict() -> None:
    text = shown(diff(cost("less", (2, 1), (3, 1)), remarks=("before is a whole trace",)))
    rows = [line.split() for line in text.splitlines()]
    assert ["less", "2", "1", "3.000", "1.000", "-2.000"] in rows
    assert ["elapsed", "10.0", "20.0", "+10.0"] in rows
    assert "before is a whole trace" in text
    assert not [word for word in ("faster", "slower", "improved", "regressed") if word in text]


def test_decreases_between_steps_that_differ() -> None:
    less = CounterChange(name="copies", unit="calls", before=8, after=4, gated=False, certain_bound=True)
    some = CounterChange(
        name="recompilations", unit="calls", before=2, after=0, gated=False, certain_bound=True, some_steps=True
    )
    text = shown(diff(counters=(less, some)))
    assert "copies at least 8 -> at most 4 per step" in text
    assert "recompilations up to 2 -> 0 per step" in text


def test_counters() -> None:
    change = CounterChange(name="copies", unit="calls", before=1, after=3, gated=True)
    assert "copies 1 -> 3 per step" in shown(diff(counters=(change,)))
    assert "no counter" in shown(diff())
    many = tuple(CounterChange(name=f"calls of op{n}", unit="calls", before=1, after=3, gated=False) for n in range(12))
    assert "2 of 12 changed counters not shown" in shown(diff(counters=many))
    assert "op11" in shown(diff(counters=many), 2)
