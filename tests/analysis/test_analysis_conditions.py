"""Conditions and machines are compared by named facts."""

from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.conditions import other_conditions, other_machine
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import InputLeaf, Scenario

_HERE = sample_session().environment


def _under(**scenario: Any) -> Measurement:
    base = sample_measurement()
    return msgspec.structs.replace(base, scenario=msgspec.structs.replace(base.scenario, **scenario))


_FIELDS: dict[str, tuple[Any, str]] = {
    "unit": ("samples/s", "unit: ms/step -> samples/s"),
    "samples_per_step": (None, "samples per step: 4 -> none"),
    "includes_read": (True, "includes read: no -> yes"),
    "represents": ("synthetic input", "represents: none -> synthetic input"),
    "regions": (("forward", "backward"), "regions: forward -> forward, backward"),
    "batch": ((), "batch: Tensor float32 (4, 8) cpu -> nothing"),
    "batch_source": ("DataLoader", "batch source: list of 16 batches -> DataLoader"),
    "module_mode": ("eval", "module mode: train -> eval"),
    "autocast": (("cpu bfloat16",), "autocast: none -> cpu bfloat16"),
    "gradients": ("disabled", "gradients: enabled -> disabled"),
    "compiled": (("model",), "compiled: none -> model"),
    "device": ("cuda:0", "device: cpu -> cuda:0"),
    "intra_op_threads": (2, "intra op threads: 1 -> 2"),
    "inter_op_threads": (2, "inter op threads: 1 -> 2"),
    "garbage_collection": ("off", "garbage collection: as in the process -> off"),
}


@pytest.mark.parametrize("field", _FIELDS)
def test_each_field_of_the_scenario_is_named_with_what_it_was_and_is(field: str) -> None:
    value, text = _FIELDS[field]
    assert other_conditions(_under(), _under(**{field: value})) == (text,)


def test_no_field_of_the_scenario_is_forgotten_but_the_question() -> None:
    assert {*_FIELDS, "question"} == set(Scenario.__struct_fields__)
    assert other_conditions(_under(), _under(question="and now?")) == ()


def test_equal_measurements_have_equal_conditions() -> None:
    assert other_conditions(sample_measurement(), sample_measurement(notices=(), wall_clock_s=9.0)) == ()


def test_everything_that_differs_is_listed_scenario_first() -> None:
    now = msgspec.structs.replace(
        _under(module_mode="eval", regions=()), start_state_digest="a" * 64, first_batch_digest="b" * 64
    )
    assert other_conditions(_under(), now) == (
        "regions: forward -> none",
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
    assert other_conditions(_under(batch=then), _under(batch=here)) == (
        "batch: ['x'] Tensor float32 (4, 8) cpu -> Tensor float32 (8, 8) cpu requires grad; ['n'] nothing -> int",
    )


def test_a_batch_of_many_changed_leaves_names_five() -> None:
    then, here = (
        tuple(InputLeaf(path=f"[{index}]", type_name="Tensor", dtype=dtype) for index in range(40))
        for dtype in ("float32", "float16")
    )
    (text,) = other_conditions(_under(batch=then), _under(batch=here))
    assert text.count(" -> ") == 5
    assert text.endswith("; 35 more leaves")


def test_leaves_in_another_order_are_another_batch() -> None:
    leaves = (InputLeaf(path="['a']", type_name="int"), InputLeaf(path="['b']", type_name="int"))
    assert other_conditions(_under(batch=leaves), _under(batch=leaves[::-1])) == (
        "batch: the same leaves in another order",
    )


def test_every_fact_of_a_machine_that_differs_is_named_also_those_of_one_side() -> None:
    then = Environment(
        hardware={"cpu model": "Other CPU"}, software={**_HERE.software, "cuda": "12.4"}, circumstances={}
    )
    assert other_machine(then, _HERE) == (
        "cpu model: Other CPU -> Example CPU",
        "logical cores: not known -> 2",
        "cuda: 12.4 -> not known",
    )


def test_circumstances_are_not_part_of_a_machine() -> None:
    assert other_machine(msgspec.structs.replace(_HERE, circumstances={"load average": "7.5"}), _HERE) == ()
