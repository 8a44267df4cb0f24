"""What comes of a test's step: its result always, and a measurement where one was taken."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_stepprof.measure.first_step import FirstStep, take_first_step
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.outputs.taking import TakenOutputs
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.start import Start, prepared
from pytest_stepprof.measure.surroundings import kept_surroundings
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.scenario import Scenario
from pytest_stepprof.record.settings import MeasureSettings


@dataclass(frozen=True)
class MeasuredStep:
    """What the fixture returns. ``output`` is the first step's result, on the CPU and apart from the step's memory.

    ``measurement`` is ``None`` when nothing was measured. ``outputs`` is what is stored and compared: the same result,
    or those of all ``check_steps`` steps and the parameters after them.
    """

    output: Any
    outputs: TakenOutputs
    start_state_digest: str
    start_settings_digest: str
    first_batch_digest: str
    scenario: Scenario
    quality: tuple[QualityValue, ...] = ()
    measurement: Measurement | None = None
    trace_path: Path | None = None


def seen_step(start: Start, first: FirstStep) -> MeasuredStep:
    """Put together what is known after the first step: nothing is measured yet."""
    weights, rest = start.beginning.digests
    return MeasuredStep(
        output=first.output,
        outputs=first.outputs,
        start_state_digest=weights,
        start_settings_digest=rest,
        first_batch_digest=first.batch_digest,
        scenario=first.scenario,
        quality=first.quality,
    )


def check_step(
    request: StepRequest, settings: MeasureSettings, instruments: Instruments, *, under_test: torch.device | str
) -> MeasuredStep:
    """Run the step once and keep its result: nothing is measured.

    Raises:
        StepprofError: the step, its state, its batches or its result are not what they have to be.
    """
    with kept_surroundings(), prepared(request, settings, instruments, under_test) as start:
        return seen_step(start, take_first_step(start))
