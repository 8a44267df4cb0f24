"""Small but complete records for tests of any room: every required field is filled, every value is legal.

``sample_measurement(**changes)`` and ``sample_session(**changes)`` return a fresh record with named fields replaced.
"""

from typing import Any

import msgspec

from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.measurement import (
    ColdStart,
    Dispersion,
    Measurement,
    Run,
    RunPlan,
    TestIdentity,
    WarmUp,
)
from pytest_stepprof.record.outputs import OutputNode, StoredOutputs
from pytest_stepprof.record.scenario import InputLeaf, Scenario
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.record.window import Counter, DeviceObservation, OperatorCost, RegionCost, Window


def _identity() -> TestIdentity:
    return TestIdentity(
        key="test_training.py::test_step[size=4]",
        file="test_training.py",
        qualified_name="test_step",
        parameters=(("size", "4"),),
        node_id="test_training.py::test_step[4]",
    )


def _scenario() -> Scenario:
    return Scenario(
        question="how long does one training step take?",
        unit="ms/step",
        samples_per_step=4,
        includes_read=False,
        represents=None,
        regions=("forward",),
        batch=(InputLeaf(path="", type_name="Tensor", shape=(4, 8), dtype="float32", device="cpu"),),
        batch_source="list of 16 batches",
        module_mode="train",
        autocast=(),
        gradients="enabled",
        compiled=(),
        device="cpu",
        intra_op_threads=1,
        inter_op_threads=1,
        garbage_collection="as in the process",
    )


def _runs() -> tuple[Run, ...]:
    """Three runs of five samples, k = 1: their medians are 2_000_000, 2_010_000 and 1_990_000 ns."""
    return tuple(
        Run(
            started_at_unix_ns=1_709_200_000_000_000_000 + index * 1_000_000_000,
            restore_ns=50_000,
            iterator_ns=20_000,
            warmup_ns=(2_200_000, 2_050_000),
            steps_per_sample=1,
            samples_ns=(middle - 20_000, middle - 10_000, middle, middle + 10_000, middle + 20_000),
            read_ns=(30_000, 30_000, 30_000, 30_000, 30_000),
            restarts=(),
        )
        for index, middle in enumerate((2_000_000, 2_010_000, 1_990_000))
    )


def _dispersion() -> Dispersion:
    """What the fifteen values of ``_runs`` amount to (interval: order statistics 4 and 12 of 15)."""
    return Dispersion(
        count=15,
        median_ns=2_000_000.0,
        mean_ns=2_000_000.0,
        minimum_ns=1_970_000.0,
        maximum_ns=2_030_000.0,
        first_quartile_ns=1_990_000.0,
        third_quartile_ns=2_010_000.0,
        interquartile_range_ns=20_000.0,
        mad_ns=10_000.0,
        coefficient_of_variation=0.00845,
        median_interval_lower_ns=1_990_000.0,
        median_interval_upper_ns=2_010_000.0,
        median_interval_confidence=0.9648,
    )


def _window() -> Window:
    return Window(
        steps=(2, 3),
        elapsed_ns=(2_600_000, 2_500_000),
        regions=(
            RegionCost(
                name="forward",
                calls=(1, 1),
                total_cpu_ns=(1_000_000, 900_000),
                self_cpu_ns=(100_000, 90_000),
                device_work_ns=None,
            ),
        ),
        operators=(
            OperatorCost(
                name="aten::addmm", calls=(2, 2), self_cpu_ns=800_000, total_cpu_ns=900_000, device_work_ns=None
            ),
        ),
        counters=(Counter(name="calls of aten::addmm", unit="calls", per_step=(2, 2), exact=True),),
        device=DeviceObservation(status="not observed", reason="the step ran on the CPU only", work_ns=None),
        activities_asked=("CPU",),
        activities_collected=("CPU",),
    )


def _outputs() -> StoredOutputs:
    return StoredOutputs(
        nodes=(OutputNode(path="", kind="number", type_name="float", value="0.5"),),
        leaf_count=1,
        payload_sha256=None,
        payload_bytes=0,
    )


def sample_measurement(**changes: Any) -> Measurement:
    """One measured test: three runs of five samples around 2 ms, one region, one operator, one number as output."""
    measurement = Measurement(
        test=_identity(),
        scenario=_scenario(),
        settings=MeasureSettings(runs=3),
        start_state_digest="1" * 64,
        first_batch_digest="2" * 64,
        step_source_digest="3" * 64,
        cold_start=ColdStart(step_ns=9_000_000, read_ns=400_000, iterator_ns=100_000, load_ns=None),
        warm_up=WarmUp(
            restore_ns=50_000, iterator_ns=20_000, steps_ns=(2_500_000, 2_100_000, 2_000_000), read_ns=(30_000,) * 3
        ),
        plan=RunPlan(
            warmup_steps=2,
            runs=3,
            samples_per_run=5,
            steps_per_sample=1,
            needed_s=0.1,
            planned_s=0.1,
            budget_s=10.0,
            reduced=False,
        ),
        runs=_runs(),
        dispersion=_dispersion(),
        run_medians_ns=(2_000_000.0, 2_010_000.0, 1_990_000.0),
        window=_window(),
        outputs=_outputs(),
        notices=(),
        clock_cost_ns=40,
        wall_clock_s=0.2,
    )
    return msgspec.structs.replace(measurement, **changes)


def sample_session(**changes: Any) -> Session:
    """One passed session on a two-core machine that holds ``sample_measurement()`` and no comparison."""
    session = Session(
        stepprof_version="0.1.0",
        session_id="20240229T120000.000000Z-0123456789ab",
        started_at_utc="2024-02-29T12:00:00.000000Z",
        status="passed",
        environment=Environment(
            hardware={"cpu model": "Example CPU", "logical cores": "2"},
            software={"python": "CPython 3.11.2", "torch": "2.13.0"},
            circumstances={"load average": "0.10"},
        ),
        commit=Commit(revision="a" * 40, branch="main", changes_digest=None, untracked_files=0, note=None),
        measurements=(sample_measurement(),),
        comparison=None,
    )
    return msgspec.structs.replace(session, **changes)
