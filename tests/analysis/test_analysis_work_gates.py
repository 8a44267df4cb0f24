"""The gates of the windows: counters by rules, peak memory with its margins, and when neither is compared."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_memory, sample_session, sample_window

from pytest_stepprof.analysis.judged import Judged
from pytest_stepprof.analysis.memory_verdict import compare_memory, memory_text
from pytest_stepprof.analysis.work_gates import Work, judge_work
from pytest_stepprof.record.comparison import MemoryChange
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.settings import OWN_HOOKS_OPTION, CounterRule, GateMode, JudgeSettings
from pytest_stepprof.record.window import Counter, HolderMemory, MemoryUse, Window

_HERE = sample_session().environment
_MIB = 2**20
_replace = msgspec.structs.replace


def _counted(**numbers: int) -> Window:
    """A window with exact counters; ``__`` in a name is a space."""
    named = {"operator calls": 45, **{name.replace("__", " "): number for name, number in numbers.items()}}
    counters = (Counter(name=name, unit="calls", per_step=(n, n), exact=True) for name, n in named.items())
    return sample_window(counters=tuple(counters))


def _remembering(*uses: MemoryUse, **changes: Any) -> Window:
    return sample_window(memory=uses, counters=(), **changes)


def _judge(
    before: Window,
    after: Window,
    *,
    then: Environment | None = _HERE,
    other_conditions: bool = False,
    altered: bool = False,
    **settings: Any,
) -> Work:
    return judge_work(
        before,
        after,
        JudgeSettings(**settings),
        before_environment=then,
        after_environment=_HERE,
        other_conditions=other_conditions,
        altered=altered,
    )


def _told(judged: Judged) -> list[tuple[str, str]]:
    return [(reason.weight, reason.text) for reason in judged.reasons]


def _rule(pattern: str, mode: GateMode) -> CounterRule:
    return CounterRule(pattern=pattern, mode=mode)


@pytest.mark.parametrize(
    ("rules", "told", "failed"),
    [
        ((), [("decides", "copies 3 -> 4 per step")], True),
        ((_rule("copies", "fail"),), [("decides", "copies 3 -> 4 per step")], True),
        ((_rule("copies", "warn"),), [("warns", "Changed, which only warns: copies 3 -> 4 per step")], False),
        ((_rule("copies", "off"),), [], False),
        ((_rule("*", "off"), _rule("cop*", "fail")), [("decides", "copies 3 -> 4 per step")], True),
        (
            (_rule("copys", "off"),),
            [
                ("decides", "copies 3 -> 4 per step"),
                ("warns", "The counter rule 'copys' names no counter of either side"),
            ],
            True,
        ),
    ],
)
def test_rules_of_the_counters_gate(rules: tuple[CounterRule, ...], told: list[tuple[str, str]], failed: bool) -> None:
    found = _judge(_counted(copies=3), _counted(copies=4), counter_rules=rules)
    assert (_told(found.counters), found.failed) == (told, failed)
    assert [(change.before, change.after) for change in found.counter_changes] == [(3, 4)]


@pytest.mark.parametrize(
    ("mode", "told"),
    [("warn", [("warns", "aten::mul 0 -> 1 calls per step")]), ("off", [])],
)
def test_the_gates_mode_stands_above_its_rules(mode: GateMode, told: list[tuple[str, str]]) -> None:
    after = sample_window(
        counters=(
            *_counted().counters,
            Counter(name="calls of aten::mul", unit="calls", per_step=(1, 1), exact=True),
        )
    )
    found = _judge(_counted(), after, counters=mode, counter_rules=(_rule("aten::mul", "fail"), _rule("typo", "off")))
    assert _told(found.counters)[:1] == told
    assert not found.failed
    assert (found.counters.reasons == ()) == (mode == "off")


def test_what_is_less_and_what_counts_the_whole_test_only_inform() -> None:
    breaks = (
        Counter(name="graph breaks in the whole test", unit="breaks", per_step=(n,), exact=True, scope="measurement")
        for n in (0, 2)
    )
    before, after = (
        sample_window(counters=(*window.counters, number))
        for window, number in zip((_counted(copies=4), _counted(copies=3)), breaks, strict=True)
    )
    assert _told(_judge(before, after).counters) == [
        ("informs", "Less than before: copies 4 -> 3 per step"),
        ("informs", "More, which fails nothing: graph breaks 0 -> 2 in the whole test"),
    ]
    failing = _judge(before, after, counter_rules=(_rule("graph breaks", "fail"),))
    assert ("decides", "graph breaks 0 -> 2 in the whole test") in _told(failing.counters)
    assert failing.failed


def test_changes_that_are_asked_to_warn_are_told_apart_from_the_mix() -> None:
    before, after = _counted(copies=3, allocations=1, kernels=1), _counted(copies=2, allocations=2, kernels=2)
    told = _told(_judge(before, after, counter_rules=(_rule("copies", "warn"),)).counters)
    assert told == [
        ("warns", "Changed, which only warns: copies 3 -> 2 per step"),
        ("warns", "The mix of work changed, which fails nothing: allocations 1 -> 2 per step, kernels 1 -> 2 per step"),
    ]


def test_where_another_result_was_declared_counters_only_warn_and_memory_keeps_its_mode() -> None:
    before = _replace(_counted(copies=3), memory=(sample_memory(100 * _MIB),))
    after = _replace(_counted(copies=4), memory=(sample_memory(200 * _MIB),))
    found = _judge(before, after, altered=True)
    assert (found.counters.failed, found.memory.failed) == (False, True)
    assert _told(found.counters) == [("warns", "copies 3 -> 4 per step")]


_LABELS = ("record_modules",)
_OWN_HOOKS = (*_LABELS, OWN_HOOKS_OPTION)


@pytest.mark.parametrize(
    ("before", "after", "compilations", "why"),
    [
        ((), _OWN_HOOKS, (), "modules were labelled by hooks of their own on one side only"),
        (_OWN_HOOKS, (), (), "modules were labelled by hooks of their own on one side only"),
        (_LABELS, _OWN_HOOKS, (), "modules were labelled by hooks of their own on one side only"),
        ((), _LABELS, (0, 1), "modules were labelled on one side only"),
        (_LABELS, (), (0, 1), "modules were labelled on one side only"),
        (_OWN_HOOKS, _OWN_HOOKS, (0, 1), None),
        (_LABELS, _LABELS, (0, 1), None),
        ((), _LABELS, (0, 0), None),
        ((), _LABELS, (), None),
        ((), (), (0, 1), None),
    ],
)
def test_counters_fail_nothing_where_labels_of_modules_may_have_changed_the_work(
    before: tuple[str, ...], after: tuple[str, ...], compilations: tuple[int, ...], why: str | None
) -> None:
    then, now = _replace(_counted(copies=3), options=before), _replace(_counted(copies=4), options=after)
    found = _judge(then, _replace(now, compilations=compilations))
    told = _told(found.counters)
    assert found.failed == (why is None)
    assert told[0] == ("decides" if why is None else "warns", "copies 3 -> 4 per step")
    assert [(weight, text.split(", because ")[1].startswith(why or "?")) for weight, text in told[1:]] == (
        [] if why is None else [("warns", True)]
    )
    same = _judge(then, _replace(then, options=after, compilations=compilations))
    assert _told(same.counters) == [], "where nothing changed there is nothing to warn of"


def test_what_the_gate_cannot_look_at_is_told() -> None:
    def window(*calls: int, **counters: int) -> Window:
        copies = Counter(name="copies", unit="calls", per_step=calls, exact=len(set(calls)) == 1)
        return sample_window(counters=(*_counted(**counters).counters, copies))

    assert _told(_judge(window(3, 3), window(3, 4)).counters) == [
        ("warns", "More in some active steps, which decides nothing: copies 3 -> 3 to 4 per step")
    ]
    assert _told(_judge(window(3, 4), window(3, 3)).counters) == [
        ("informs", "Not compared, because active steps do not agree on them: copies")
    ]
    assert _told(_judge(window(3, 3), window(3, 3, recompilations=1)).counters) == [
        (
            "informs",
            "Not compared, because one side only has them: recompilations (the baseline has not counted it)",
        )
    ]
    assert _judge(window(0, 0), window(0, 1)).failed


def test_other_conditions_silence_both_gates() -> None:
    before, after = _replace(_counted(), memory=(sample_memory(1),)), _replace(_counted(copies=9), memory=())
    assert _judge(before, after, other_conditions=True) == Work(Judged((), False), Judged((), False), (), ())


@pytest.mark.parametrize("then", [None, _replace(_HERE, software={"torch": "2.12.0"})])
def test_another_torch_says_why_nothing_is_compared(then: Environment | None) -> None:
    before = _replace(_counted(copies=3), memory=(sample_memory(100 * _MIB),))
    after = _replace(_counted(copies=4), memory=(sample_memory(200 * _MIB),))
    found = _judge(before, after, then=then)
    (counters,), (memory,) = _told(found.counters), _told(found.memory)
    was = "not known" if then is None else "2.12.0"
    text = f"Counters are not compared, because another torch calls other operators: torch: {was} -> 2.13.0"
    assert counters == ("informs", text)
    assert memory[1].startswith("Peak memory is not compared, because another torch allocates in another way: torch: ")
    assert not found.failed
    assert (found.counter_changes, found.memory_changes) == ((), ())


def _changes(before: Window, after: Window, **settings: Any) -> tuple[MemoryChange, ...]:
    return compare_memory(before, after, JudgeSettings(**settings))


def _use(*peaks: int, device: str = "cpu", **holders: int) -> MemoryUse:
    listed = (HolderMemory(name=name, peak_bytes=(peak,), kept_bytes=(0,)) for name, peak in holders.items())
    return _replace(sample_memory(), device=device, peak_bytes=peaks, holders=tuple(listed))


@pytest.mark.parametrize(
    ("before", "after", "relative", "absolute", "allowed", "grew"),
    [
        (100, 110, 0.1, 0, 110, False),
        (100, 111, 0.1, 0, 110, True),
        (100, 118, 0.1, 8, 118, False),
        (100, 119, 0.1, 8, 118, True),
        (0, 8, 0.1, 8, 8, False),
        (0, 9, 0.1, 8, 8, True),
        (100, 100, 0.0, 0, 100, False),
        (100, 101, 0.0, 0, 100, True),
        (100, 50, 0.0, 0, 100, False),
        (105, 121, 0.15, 0, 120, True),  # 120.75 is allowed
        (100, 115, 0.15, 0, 115, False),  # as floats, 100 * 1.15 is less than 115
        (10 * 2**40, 11 * 2**40 + 1, 0.1, 0, 11 * 2**40, True),
    ],
)
def test_a_peak_has_grown_when_it_is_above_both_margins_together(
    before: int, after: int, relative: float, absolute: int, allowed: int, grew: bool
) -> None:
    (change,) = _changes(
        _remembering(_use(before)),
        _remembering(_use(after)),
        memory_tolerance=relative,
        memory_tolerance_bytes=absolute,
    )
    assert (change.before_bytes, change.after_bytes, change.allowed_bytes) == (before, after, allowed)
    assert change.grew == grew


@given(st.integers(0, 2**45), st.integers(0, 2**45), st.sampled_from([0.0, 0.05, 0.1, 0.3]), st.integers(0, 2**30))
def test_the_allowed_size_is_the_largest_that_is_no_growth(before: int, after: int, rel: float, absolute: int) -> None:
    settings = {"memory_tolerance": rel, "memory_tolerance_bytes": absolute}
    (change,) = _changes(_remembering(_use(before)), _remembering(_use(after)), **settings)
    assert change.grew == (after > change.allowed_bytes)
    exact = before * round(1000 * rel) / 1000 + before + absolute
    assert abs(change.allowed_bytes - exact) <= max(1, exact * 1e-12)


def test_the_largest_peak_of_the_steps_stands_for_a_window() -> None:
    (change,) = _changes(_remembering(_use(10, 30, 20)), _remembering(_use(15, 15, 40)))
    assert (change.before_bytes, change.after_bytes) == (30, 40)


def test_devices_and_holders_are_compared_where_both_windows_know_them() -> None:
    before = _remembering(_use(100, same=1, grown=10, gone=5), _use(7, device="cuda:0"))
    after = _remembering(_use(100, grown=50, same=1, new=9), _use(7, device="cuda:1"))
    found = _changes(before, after)
    assert [(change.device, change.holder, change.before_bytes, change.after_bytes) for change in found] == [
        ("cpu", None, 100, 100),
        ("cpu", "grown", 10, 50),
        ("cpu", "same", 1, 1),
    ]
    assert [text for _, text in _told(_judge(before, after).memory)] == [
        "peak memory on cuda:1 was not recorded before",
        "peak memory on cuda:0 is not recorded any more",
    ]


_SMALL, _LARGE = (_remembering(_use(size * _MIB, forward=size * _MIB // 2)) for size in (120, 155))


@pytest.mark.parametrize(
    ("mode", "weight", "failed"), [("fail", "decides", True), ("warn", "warns", False), ("off", None, False)]
)
def test_the_devices_peak_decides_and_holders_inform(mode: GateMode, weight: str | None, failed: bool) -> None:
    found = _judge(_SMALL, _LARGE, memory=mode)
    assert (found.failed, found.memory.failed) == (failed, failed)
    told = [
        (weight, "peak memory on cpu 120.0 -> 155.0 MiB in a step, allowed up to 140.0"),
        ("informs", "peak memory on cpu in forward 60.0 -> 77.5 MiB in a step, allowed up to 74.0"),
    ]
    assert _told(found.memory) == ([] if weight is None else told)


def test_a_fixed_rule_for_memory_is_named_with_what_it_allows() -> None:
    rules = {"fixed_rules": ("time:25%", "memory:10%+8MiB"), "memory_tolerance": 0.1}
    text = "peak memory on cpu 120.0 -> 155.0 MiB in a step, allowed up to 140.0"
    assert _told(_judge(_SMALL, _LARGE, **rules).memory)[0] == ("decides", f"{text} by the fixed rule memory:10%+8MiB")
    alone = _judge(_SMALL, _LARGE, fixed_rules=("memory",))
    assert _told(alone.memory)[0] == ("decides", text)


def test_growth_within_the_margins_and_less_are_told_and_decide_nothing() -> None:
    within = _remembering(_use(130 * _MIB))
    assert _told(_judge(_SMALL, within).memory) == [
        ("informs", "peak memory on cpu 120.0 -> 130.0 MiB in a step, allowed up to 140.0")
    ]
    less = _judge(_LARGE, _SMALL)
    assert _told(less.memory) == [
        ("informs", "peak memory on cpu 155.0 -> 120.0 MiB in a step, allowed up to 178.5"),
    ]
    assert not less.failed
    assert _told(_judge(_SMALL, _SMALL).memory) == []


def test_a_holder_that_grew_alone_fails_nothing() -> None:
    before, after = (_remembering(_use(500 * _MIB, forward=size * _MIB)) for size in (10, 400))
    found = _judge(before, after)
    assert not found.failed
    assert [weight for weight, _ in _told(found.memory)] == ["informs"]


@pytest.mark.parametrize(
    ("before", "after", "allowed", "grew"),
    [(-200, -200, -192, False), (-200, -192, -192, False), (-200, -191, -192, True)],
)
def test_a_holder_below_the_steps_start_has_the_absolute_margin_alone(
    before: int, after: int, allowed: int, grew: bool
) -> None:
    then, now = (_remembering(_use(1, forward=peak * _MIB)) for peak in (before, after))
    _, change = _changes(then, now)
    assert (change.holder, change.allowed_bytes, change.grew) == ("forward", allowed * _MIB, grew)


def test_a_holder_below_the_steps_start_that_is_as_it_was_is_not_told() -> None:
    window = _remembering(_use(1, forward=-200 * _MIB))
    assert _told(_judge(window, window).memory) == []


def test_only_a_few_holders_are_named() -> None:
    before, after = (_remembering(_use(1, **{f"h{n}": size for n in range(5)})) for size in (0, 100 * _MIB))
    told = [text for _, text in _told(_judge(before, after).memory)]
    assert len(told) == 4
    assert told[-1] == "peak memory grew in 2 more regions and modules"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (_remembering(), _SMALL, "the baseline did not record it (--stepprof-memory)"),
        (_SMALL, _remembering(), "this session did not record it (--stepprof-memory)"),
        (
            _remembering(_use(1), options=("record_shapes",)),
            _remembering(_use(2**30), options=("record_shapes", "record_modules")),
            "labels of modules were recorded on one side only (--stepprof-modules)",
        ),
        (
            _remembering(_use(1), options=("record_modules",)),
            _remembering(_use(2**30), options=("record_modules", OWN_HOOKS_OPTION)),
            "modules had hooks of their own on one side only (--stepprof-modules beside torch.compile)",
        ),
        (
            _remembering(_use(1, 1)),
            _remembering(_use(2**30, 1, 1)),
            "the peak on cpu was the largest of 2 steps before, and is that of 3 now",
        ),
    ],
)
def test_only_like_is_compared_with_like(before: Window, after: Window, why: str) -> None:
    found = _judge(before, after)
    weight = "warns" if after.memory else "informs"  # whoever records it now is told without asking
    assert _told(found.memory) == [(weight, f"Peak memory is not compared: {why}")]
    assert not found.failed
    assert found.memory_changes == ()


def test_options_of_the_main_window_do_not_matter_for_memory() -> None:
    found = _judge(_remembering(_use(1)), _remembering(_use(2**30), options=("record_shapes", "record_stacks")))
    assert found.memory.failed


def test_without_memory_on_either_side_there_is_nothing_to_say() -> None:
    assert _judge(_remembering(), _remembering()).memory == Judged((), False)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((100, 200, 150), "peak memory on cpu 100 -> 200 bytes in a step, allowed up to 150"),
        ((1024, 2048, 1500), "peak memory on cpu 1.0 -> 2.0 KiB in a step, allowed up to 1.5"),
        ((2**30, 2**31, 2**30), "peak memory on cpu 1.0 -> 2.0 GiB in a step, allowed up to 1.0"),
        (
            (30 * _MIB, 41 * _MIB + 2**14, 41 * _MIB),
            "peak memory on cpu 30.00 -> 41.02 MiB in a step, allowed up to 41.00",
        ),
        (
            (30 * _MIB, 41 * _MIB + 1, 41 * _MIB),
            "peak memory on cpu 31457280 -> 42991617 bytes in a step, allowed up to 42991616",
        ),
        ((30 * _MIB, 40 * _MIB, 2**30), "peak memory on cpu 0.03 -> 0.04 GiB in a step, allowed up to 1.00"),
        ((-(2**21), 2**20, -(2**20)), "peak memory on cpu -2.0 -> 1.0 MiB in a step, allowed up to -1.0"),
    ],
)
def test_a_change_is_written_in_one_unit(sizes: tuple[int, int, int], text: str) -> None:
    before, after, allowed = sizes
    change = MemoryChange(
        device="cpu", holder=None, before_bytes=before, after_bytes=after, allowed_bytes=allowed, grew=True
    )
    assert memory_text(change) == text
