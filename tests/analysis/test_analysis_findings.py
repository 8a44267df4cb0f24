"""Each finding on a window that has the fault, and the same pattern below the least share, on which it is silent."""

import msgspec
import pytest
from finding_patterns import (
    Pattern,
    codes,
    communication,
    compiling,
    copies_on_the_device,
    copies_that_take_the_host_long,
    copies_to_the_device,
    copying_operators,
    dominant_on_the_device,
    dominant_on_the_host,
    late_host,
    outside,
    reading,
    short_kernels,
    small_operators,
    starving,
    waits,
)
from finding_windows import (
    MS,
    STEPS,
    device_window,
    each_ms,
    host_window,
    of_steps,
    operator,
)

from pytest_stepprof.analysis.findings import LEAST_SHARE, find
from pytest_stepprof.analysis.findings.shares import USUAL_SHARE
from pytest_stepprof.record.finding import FindingCode
from pytest_stepprof.record.window import (
    NamedCount,
    OperatorCost,
    Window,
)

PATTERNS: tuple[tuple[FindingCode, Pattern, str], ...] = (
    ("input pipeline", reading, "Reading a batch takes 30.0 ms of 100 ms per profiled step (30.0 %)."),
    ("input pipeline", starving, "takes 40.0 ms of 100 ms per profiled step (40.0 %); device 0 is idle for 30.0 ms"),
    ("recurring copy", copies_to_the_device, "2 x 1 MiB Memcpy HtoD (Pageable -> Device). Device work: 30.0 ms"),
    ("recurring copy", copies_that_take_the_host_long, "the host's calls that copy take 30.0 ms (30.0 %)"),
    ("recurring copy", copies_on_the_device, "copies on the device: 2 x 1 MiB Memcpy DtoD. Device work: 30.0 ms"),
    ("recurring copy", copying_operators, "aten::copy_ (7 calls per step). Self CPU time of it: 30.0 ms"),
    ("many small launches", short_kernels, "1000 kernels per step, 900 of them shorter than 10.0 us (median 4.1 us)"),
    (
        "host bound",
        late_host,
        "device 0 is idle for 30.0 ms of 100 ms per profiled step (30.0 %), reading not counted.",
    ),
    ("synchronization", waits, "cudaStreamSynchronize (4 calls per step) 30.0 ms (30.0 %); device 0 is idle for 30.0"),
    ("compilation in the window", compiling, "30.0 ms of 100 ms per profiled step (30.0 %), 8 timed events per step"),
    ("time outside of operators", outside, "No operator covers 30.0 ms of 100 ms per profiled step (30.0 %)"),
    ("communication wait", communication, "30.0 ms of 100 ms per profiled step (30.0 %) with no other work beside"),
    ("many small operators", small_operators, "6000 calls per step of operators, each with 5.0 us of self CPU time"),
    ("dominant operator", dominant_on_the_host, "aten::addmm (4 calls per step) takes 90.9 % of all operators' self"),
    (
        "dominant operator",
        dominant_on_the_device,
        "aten::mm (4 calls per step) launches 80.0 % of the device's work: 30",
    ),
)
EACH_PATTERN = pytest.mark.parametrize(
    ("code", "pattern", "text"), PATTERNS, ids=[pattern.__name__ for _, pattern, _ in PATTERNS]
)


@EACH_PATTERN
def test_a_fault_of_a_third_of_the_step(code: FindingCode, pattern: Pattern, text: str) -> None:
    (finding,) = (finding for finding in find(pattern(30)) if finding.code == code)
    assert finding.share == pytest.approx(0.30)
    assert text in finding.observation


@EACH_PATTERN
def test_the_same_below_the_least_share(code: FindingCode, pattern: Pattern, text: str) -> None:
    assert find(pattern(100 * LEAST_SHARE - 0.1)) == ()


@EACH_PATTERN
def test_the_same_above_the_least_share(code: FindingCode, pattern: Pattern, text: str) -> None:
    least = {outside: USUAL_SHARE, copying_operators: USUAL_SHARE}.get(pattern, LEAST_SHARE)
    assert code in codes(pattern(100 * least + 0.1))
    assert code not in codes(pattern(100 * least - 0.1))


@EACH_PATTERN
@pytest.mark.parametrize("steps", [1, 2])
def test_a_fault_of_fewer_steps(code: FindingCode, pattern: Pattern, text: str, steps: int) -> None:
    """Two are what a window has by default; whatever needs to be repeated is silent about one."""
    expected = set(codes(pattern(30))) - ({"recurring copy"} if steps == 1 else set())
    assert set(codes(of_steps(pattern(30), steps))) == expected


def test_every_code_is_shown_here() -> None:
    without_a_share = {"unrecorded threads", "allocator not warm", "memory peak"}
    assert {code for code, _, _ in PATTERNS} | without_a_share == set(FindingCode.__args__)  # type: ignore[attr-defined]


@EACH_PATTERN
def test_a_fault_is_the_only_thing_said_of_it(code: FindingCode, pattern: Pattern, text: str) -> None:
    also = {waits: ["host bound"], copies_that_take_the_host_long: ["host bound"]}.get(pattern, [])
    assert sorted(codes(pattern(30))) == sorted([code, *also])


# Nothing to say


@pytest.mark.parametrize(
    "window",
    [
        host_window(),
        device_window(),
        host_window(elapsed_ns=(0,) * STEPS, read_cpu_ns=each_ms(5), outside_operators_ns=each_ms(5)),
        host_window(
            elapsed_ns=(),
            steps=(),
            operators=(OperatorCost(name="aten::mm", calls=(), self_cpu_ns=5, total_cpu_ns=5, device_work_ns=None),),
        ),
        host_window(read_cpu_ns=(MS, MS), outside_operators_ns=(100 * MS,)),
    ],
    ids=["host", "device", "no time", "no steps", "columns of another length"],
)
def test_silence(window: Window) -> None:
    assert find(window) == ()


def test_a_record_from_before_these_fields_were_there() -> None:
    fields = ("steps", "elapsed_ns", "regions", "operators", "counters", "device")
    new = host_window(operators=(operator("aten::a", 10), operator("aten::b", 11), operator("aten::c", 12)))
    old = msgspec.convert({name: msgspec.to_builtins(getattr(new, name)) for name in fields}, Window)
    assert find(old) == ()


def test_the_largest_share_comes_first_and_no_share_last() -> None:
    window = msgspec.structs.replace(
        starving(30),
        compilation_cpu_ns=each_ms(40),
        unwarmed=(NamedCount(name="cudaMalloc", count=9),),
        copies=(),
    )
    assert codes(window) == ["compilation in the window", "input pipeline", "allocator not warm"]
    assert [finding.share for finding in find(window)] == [pytest.approx(0.4), pytest.approx(0.3), None]
