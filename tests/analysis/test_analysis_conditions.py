"""Conditions and machines are compared by named facts."""

from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.conditions import (
    changes_up_to_quality,
    other_conditions,
    other_conditions_of_time,
    other_machine,
    unknown_facts,
)
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import InputLeaf, Scenario

_HERE = sample_session().environment


def _under(**scenario: Any) -> Measurement:
    base = sample_measurement()
    return msgspec.structs.replace(base, scenario=msgspec.structs.replace(base.scenario, **scenario))


def forbidding(before: Measurement, now: Measurement) -> tuple[str, ...]:
    return other_conditions(before, now, quality_decides=False)


_OF_TIME: dict[str, tuple[Any, str]] = {
    "unit": ("samples/s", "unit: ms/step -> samples/s"),
    "samples_per_step": (None, "samples per step: 4 -> none"),
    "includes_read": (True, "includes read: no -> yes"),
    "batch_source": ("DataLoader", "batch source: list of 16 batches -> DataLoader"),
    "intra_op_threads": (2, "intra op threads: 1 -> 2"),
    "inter_op_threads": (2, "inter op threads: 1 -> 2"),
    "garbage_collection": ("off", "garbage collection: as in the process -> off"),
    "torch_flags": (("cudnn.benchmark: on",), "torch flags: none -> cudnn.benchmark: on"),
    "start": ("built fresh", "start: state put back -> built fresh"),
}
_OF_RESULT: dict[str, tuple[Any, str]] = {
    "batch": ((), "batch: Tensor float32 (4, 8) cpu -> nothing"),
    "module_mode": ("eval", "module mode: train -> eval"),
    "autocast": (("cpu bfloat16",), "autocast: none -> cpu bfloat16"),
    "gradients": ("disabled", "gradients: enabled -> disabled"),
    "device": ("cuda:0 Example GPU", "device: cpu -> cuda:0 Example GPU"),
    "check_steps": (3, "check steps: 1 -> 3"),
    "check_parameters": (True, "check parameters: no -> yes"),
}
_FREE: dict[str, Any] = {
    "question": "and now?",
    "represents": "synthetic input",
    "regions": ("forward", "backward"),
    "compiled": ("model",),
}


@pytest.mark.parametrize("field", _OF_RESULT)
def test_what_changes_the_result_is_named_with_what_it_was_and_is(field: str) -> None:
    value, text = _OF_RESULT[field]
    assert forbidding(_under(), _under(**{field: value})) == (text,)


@pytest.mark.parametrize("field", _OF_TIME)
def test_what_changes_only_the_time_leaves_the_outputs_to_compare(field: str) -> None:
    value, text = _OF_TIME[field]
    before, now = _under(), _under(**{field: value})
    assert forbidding(before, now) == ()
    assert other_conditions_of_time(before.scenario, now.scenario) == (text,)


@pytest.mark.parametrize("field", _FREE)
def test_words_labels_and_compilation_may_change(field: str) -> None:
    before, now = _under(), _under(**{field: _FREE[field]})
    assert (forbidding(before, now), other_conditions_of_time(before.scenario, now.scenario)) == ((), ())


def test_no_field_of_the_scenario_is_forgotten() -> None:
    assert {*_OF_TIME, *_OF_RESULT, *_FREE} == set(Scenario.__struct_fields__)


def test_another_device_of_one_kind_is_another_time_only() -> None:
    first, second = (
        _under(
            device=f"cuda:{index} {model}",
            batch=(InputLeaf(path="", type_name="Tensor", dtype="float32", device=f"cuda:{index}"),),
        )
        for index, model in enumerate(("Example GPU", "Other GPU"))
    )
    assert forbidding(first, second) == ()
    assert other_conditions_of_time(first.scenario, second.scenario) == (
        "device: cuda:0 Example GPU -> cuda:1 Other GPU",
    )


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ("a", "b", ("started from other optimizer settings, or with other parts in state=",)),
        ("a", "a", ()),
        ("", "b", ()),
        ("a", "", ()),
    ],
)
def test_other_settings_with_the_same_weights_are_told_apart_where_both_are_known(
    before: str, now: str, told: tuple[str, ...]
) -> None:
    then, here = (sample_measurement(start_settings_digest=digest) for digest in (before, now))
    assert forbidding(then, here) == told


_OTHER_SETTINGS = "started from other optimizer settings, or with other parts in state="


def test_other_weights_and_other_settings_are_both_told() -> None:
    then = sample_measurement(start_settings_digest="a")
    here = sample_measurement(start_settings_digest="b", start_state_digest="f" * 64)
    assert forbidding(then, here) == ("started from other weights", _OTHER_SETTINGS)


@pytest.mark.parametrize(
    ("weights", "settings", "named"),
    [
        ("f" * 64, "a", ("started from other weights",)),
        ("1" * 64, "b", (_OTHER_SETTINGS,)),
        ("f" * 64, "b", ("started from other weights", _OTHER_SETTINGS)),
        ("1" * 64, "a", ()),
    ],
)
def test_where_quality_decides_another_start_is_named_and_left_to_the_measures(
    weights: str, settings: str, named: tuple[str, ...]
) -> None:
    then = sample_measurement(start_state_digest="1" * 64, start_settings_digest="a")
    here = sample_measurement(start_state_digest=weights, start_settings_digest=settings)
    assert other_conditions(then, here, quality_decides=True) == ()
    assert changes_up_to_quality(then, here) == named


def test_where_quality_decides_another_mode_still_forbids() -> None:
    then, here = _under(), _under(module_mode="eval", autocast=("cpu bfloat16",))
    assert other_conditions(then, here, quality_decides=True) == ("module mode: train -> eval",)
    assert changes_up_to_quality(then, here) == ("autocast: none -> cpu bfloat16",)


def test_equal_measurements_have_equal_conditions() -> None:
    assert forbidding(sample_measurement(), sample_measurement(notices=(), wall_clock_s=9.0)) == ()


def test_everything_that_differs_is_listed_scenario_first() -> None:
    now = msgspec.structs.replace(
        _under(module_mode="eval", batch=()), start_state_digest="a" * 64, first_batch_digest="b" * 64
    )
    assert forbidding(_under(), now) == (
        "batch: Tensor float32 (4, 8) cpu -> nothing",
        "module mode: train -> eval",
        "started from other weights",
        "another first batch",
    )


def test_a_batch_that_changed_is_told_leaf_by_leaf() -> None:
    then = (InputLeaf(path="['x']", type_name="Tensor", shape=(4, 8), dtype="float32", device="cpu"),)
    here = (
        InputLeaf(path="['x']", type_name="Tensor", shape=(8, 8), dtype="float32", device="cpu", requires_grad=True),
        InputLeaf(path="['n']", type_name="int"),
    )
    assert forbidding(_under(batch=then), _under(batch=here)) == (
        "batch: ['x'] Tensor float32 (4, 8) cpu -> Tensor float32 (8, 8) cpu requires grad; ['n'] nothing -> int",
    )


def test_a_batch_of_many_changed_leaves_names_five() -> None:
    then, here = (
        tuple(InputLeaf(path=f"[{index}]", type_name="Tensor", dtype=dtype) for index in range(40))
        for dtype in ("float32", "float16")
    )
    (text,) = forbidding(_under(batch=then), _under(batch=here))
    assert text.count(" -> ") == 5
    assert text.endswith("; and 35 more")


def test_leaves_in_another_order_are_another_batch() -> None:
    leaves = (InputLeaf(path="['a']", type_name="int"), InputLeaf(path="['b']", type_name="int"))
    assert forbidding(_under(batch=leaves), _under(batch=leaves[::-1])) == ("batch: the same leaves in another order",)


def test_every_fact_of_a_machine_that_differs_is_named() -> None:
    then = Environment(
        hardware={**_HERE.hardware, "cpu model": "Other CPU"},
        software={**_HERE.software, "python": "2"},
        circumstances={},
    )
    assert other_machine(then, _HERE) == (
        "cpu model: Other CPU -> Example CPU",
        f"python: 2 -> {_HERE.software['python']}",
    )
    assert unknown_facts(then, _HERE) == ()


def test_a_fact_that_one_record_lacks_is_not_known_and_no_difference() -> None:
    older = Environment(hardware={"cpu model": "Example CPU"}, software=_HERE.software, circumstances={})
    newer = msgspec.structs.replace(_HERE, software={**_HERE.software, "python compiler": "GCC 12"})
    assert other_machine(older, newer) == other_machine(newer, older) == ()
    assert unknown_facts(older, newer) == unknown_facts(newer, older) == ("logical cores", "python compiler")


def test_a_variable_that_is_not_set_and_a_device_that_is_not_there_are_differences() -> None:
    there = msgspec.structs.replace(
        _HERE,
        hardware={**_HERE.hardware, "device": "NVIDIA H200", "device driver": "nvidia 570"},
        software={**_HERE.software, "variable OMP_NUM_THREADS": "4"},
    )
    assert other_machine(_HERE, there) == (
        "device: none -> NVIDIA H200",
        "variable OMP_NUM_THREADS: not set -> 4",
    )
    assert other_machine(there, _HERE)[1] == "variable OMP_NUM_THREADS: 4 -> not set"
    assert unknown_facts(_HERE, there) == ("device driver",)


def test_circumstances_are_not_part_of_a_machine() -> None:
    assert other_machine(msgspec.structs.replace(_HERE, circumstances={"load average": "7.5"}), _HERE) == ()
