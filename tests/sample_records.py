"""Small but complete records for tests of any room: every required field is filled, every value is legal.

``sample_measurement(**changes)`` and ``sample_session(**changes)`` return a fresh record with named fields replaced;
``sample_window``, ``sample_device_window`` and ``sample_incomplete_window`` likewise, the latter two of two devices.
"""

from typing import Any

import msgspec

from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.finding import Evidence, Finding
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
from pytest_stepprof.record.window import (
    CopyGroup,
    Counter,
    DeviceObservation,
    DeviceUse,
    HolderMemory,
    LaunchUse,
    MemoryUse,
    ModuleCost,
    NamedCount,
    OperatorCost,
    RegionCost,
    ShapeCost,
    SynchronizationCost,
    Window,
)


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


def sample_window(**changes: Any) -> Window:
    """Two active steps of 2.6 and 2.5 ms on the CPU: one region, one operator, one exact counter."""
    window = Window(
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
    return msgspec.structs.replace(window, **changes)


def sample_memory(peak_bytes: int = 120 * 2**20, device: str = "cpu") -> MemoryUse:
    """Memory of a step whose forward pass holds the peak."""
    return MemoryUse(
        device=device,
        allocations=(34, 34),
        allocated_bytes=(200 * 2**20, 201 * 2**20),
        peak_bytes=(peak_bytes - 2**20, peak_bytes),
        peak_total_bytes=peak_bytes + 500 * 2**20,
        peak_holder="forward",
        holders=(
            HolderMemory(name="backward", peak_bytes=(40 * 2**20,) * 2, kept_bytes=(-80 * 2**20,) * 2),
            HolderMemory(name="forward", peak_bytes=(peak_bytes - 2**20, peak_bytes), kept_bytes=(80 * 2**20,) * 2),
        ),
    )


def sample_finding(**changes: Any) -> Finding:
    """The device waits for batches during 38 % of the step."""
    finding = Finding(
        code="input pipeline",
        share=0.38,
        observation="the host reads batches during 38.0 % of the step, and device 0 is idle meanwhile",
        evidence=(
            Evidence(name="stepprof: read batch", value=969_000.0, unit="ns/step"),
            Evidence(name="device 0 idle while reading", value=0.38, unit="share of the step"),
        ),
        hypothesis="the loader makes batches more slowly than the step uses them",
        next_check="measure again with more workers, or with batches that are in memory already",
    )
    return msgspec.structs.replace(finding, **changes)


def _device_use(device: int, busy_ns: tuple[int, int]) -> DeviceUse:
    """One device in steps of 2.6 and 2.5 ms, whose copies run beside a fifth of its kernels."""
    return DeviceUse(
        device=device,
        streams=2,
        work_ns=busy_ns,
        busy_ns=busy_ns,
        compute_ns=(busy_ns[0] - 200_000, busy_ns[1] - 200_000),
        copy_ns=(300_000, 300_000),
        communication_ns=(100_000, 50_000),
        communication_alone_ns=(20_000, 10_000),
        idle_ns=(2_600_000 - busy_ns[0], 2_500_000 - busy_ns[1]),
        idle_while_reading_ns=(600_000, 500_000),
        idle_late_launch_ns=(51_000, 51_000),
        kernels=(40, 40),
        sum_ns=3_500_000,
        union_ns=sum(busy_ns),
        span_ns=4_900_000,
    )


def sample_device_window(**changes: Any) -> Window:
    """A window in which everything that a window can hold was asked for and seen, on two devices."""
    base = sample_window()
    copy = CopyGroup(
        kind="Memcpy HtoD (Pageable -> Device)",
        size_bytes=64 * 2**20,
        calls=(1, 1),
        work_ns=(300_000, 300_000),
        recurring=True,
        direction="host to device",
    )
    window = msgspec.structs.replace(
        base,
        read_cpu_ns=(900_000, 1_038_000),
        transfer_cpu_ns=(255_000, 255_000),
        transfer_waiting_ns=(51_000, 0),
        outside_operators_ns=(500_000, 520_000),
        compilations=(1, 0),
        compilation_cpu_ns=(102_000, 0),
        unwarmed=(NamedCount(name="cudaMalloc", count=2),),
        regions=tuple(msgspec.structs.replace(cost, device_work_ns=(900_000, 800_000)) for cost in base.regions),
        operators=tuple(msgspec.structs.replace(cost, device_work_ns=1_020_000) for cost in base.operators),
        shapes=tuple(
            ShapeCost(
                name="aten::addmm",
                shapes=shapes,
                types="[float, float, float]",
                calls=(1, 1),
                self_cpu_ns=self_cpu_ns,
                total_cpu_ns=self_cpu_ns + 50_000,
                device_work_ns=510_000,
            )
            for shapes, self_cpu_ns in (
                ("[[10], [4, 256], [256, 10]]", 200_000),
                ("[[256], [4, 64], [64, 256]]", 600_000),
            )
        ),
        modules=(
            ModuleCost(
                path="encoder.layers.0",
                calls=(2, 2),
                total_cpu_ns=(510_000, 510_000),
                self_cpu_ns=(51_000, 51_000),
                device_work_ns=(400_000, 400_000),
            ),
        ),
        memory=(sample_memory(), sample_memory(2 * 2**30, "cuda:0")),
        counters=(
            Counter(name="operator calls", unit="calls", per_step=(45, 45), exact=True),
            Counter(name="kernel launches", unit="calls", per_step=(40, 42), exact=False),
            Counter(
                name="graph breaks in the whole test", unit="breaks", per_step=(3,), exact=True, scope="measurement"
            ),
            *base.counters,
        ),
        device=DeviceObservation(status="observed", reason="", work_ns=(1_500_000, 1_400_000)),
        devices=(_device_use(0, (1_500_000, 1_400_000)), _device_use(1, (1_000_000, 900_000))),
        launches=LaunchUse(
            calls=(40, 42),
            launch_cpu_ns=(204_000, 204_000),
            short_kernels=(30, 30),
            without_operator=(2, 2),
            median_kernel_ns=8_000,
            median_queue_ns=-1_500,
            largest_queue_ns=300_000,
        ),
        copies=(
            msgspec.structs.replace(copy, size_bytes=4, work_ns=(2_550, 2_550), recurring=False, calls=(0, 3)),
            copy,
        ),
        synchronizations=(
            SynchronizationCost(name="cudaStreamSynchronize", calls=(1, 3), waiting_cpu_ns=(255_000, 0)),
        ),
        findings=(
            sample_finding(),
            sample_finding(code="recurring copy", share=0.12, observation="the same 64 MiB are copied in every step"),
            sample_finding(code="host bound", share=0.02, observation="the device waits for late launches"),
            sample_finding(code="memory peak", share=None, observation="forward holds 120 MiB", evidence=()),
        ),
        activities_asked=("CPU", "CUDA"),
        activities_collected=("CPU", "CUDA"),
        options=("record_shapes", "record_modules"),
        messages=("CUPTI says something",),
    )
    return msgspec.structs.replace(window, **changes)


def sample_incomplete_window(**changes: Any) -> Window:
    """The device's side in part: launches without kernels, so that no queue delay is known."""
    base = sample_device_window()
    assert base.launches is not None
    launches = msgspec.structs.replace(
        base.launches, median_kernel_ns=None, median_queue_ns=None, largest_queue_ns=None, without_operator=(0, 0)
    )
    device = DeviceObservation(
        status="incomplete",
        reason="2 launches have no kernel",
        work_ns=(1_500_000, 700_000),
        late_launch_reason="the device's side is incomplete",
    )
    devices = tuple(msgspec.structs.replace(use, idle_late_launch_ns=None) for use in base.devices)
    window = msgspec.structs.replace(base, device=device, devices=devices, launches=launches, transfer_cpu_ns=None)
    return msgspec.structs.replace(window, **changes)


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
        window=sample_window(),
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
