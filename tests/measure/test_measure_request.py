"""What a test may ask for, and what is refused at the call rather than when the session is written."""

from typing import Any

import numpy as np
import pytest
import torch

from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.request import StepRequest, with_state


def asked(**more: Any) -> StepRequest:
    return StepRequest(step=lambda: 1, **more)


@pytest.mark.parametrize("given", [64, np.int64(64), torch.tensor(64)])
def test_a_whole_number_of_samples_is_kept_as_an_int(given: Any) -> None:
    kept = asked(samples_per_step=given).samples_per_step
    assert type(kept) is int
    assert kept == 64


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"samples_per_step": 64.0}, r"samples_per_step is 64\.0, a float; expected a whole number"),
        ({"samples_per_step": True}, "samples_per_step is True, a bool; expected a whole number"),
        ({"samples_per_step": "64"}, "samples_per_step is '64', a str; expected a whole number"),
        ({"samples_per_step": 0}, "samples_per_step is 0; expected a number above 0"),
        ({"samples_per_step": -2}, "samples_per_step is -2; expected a number above 0"),
        ({"unit": "samples/s"}, "samples_per_step is not given"),
        ({"unit": "ms"}, "unit is 'ms'; expected one of 'ms/step', 'samples/s'"),
        ({"question": 5}, "question is 5, a int; expected text"),
        ({"represents": ["a", "b"]}, r"represents is \['a', 'b'\], a list; expected text"),
        ({"regions": "forward"}, "regions is 'forward', a str; expected a tuple of texts"),
        ({"regions": ("forward", 1)}, r"regions is \('forward', 1\), a tuple; expected a tuple of texts"),
        ({"regions": 3}, "regions is 3, a int; expected a tuple of texts"),
        ({"includes_read": "no"}, "includes_read is 'no', a str; expected True or False"),
        ({"includes_read": True}, "includes_read=True and no batches"),
        ({"load": 3}, "load is not callable"),
    ],
)
def test_what_cannot_be_stored_or_done_is_refused_at_the_call(argument: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        asked(**argument)


def test_a_step_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="step is a int; expected a function"):
        StepRequest(step=3)  # type: ignore[arg-type]


def test_labels_in_a_list_are_taken_too() -> None:
    assert asked(regions=["a", "b"]).regions == ("a", "b")


def test_another_state_leaves_everything_else_as_it_was() -> None:
    request = asked(regions=("a",), samples_per_step=3, needs_output=False, question="q")
    other = with_state(request, "state")
    assert other.state == "state"
    assert {**vars(other), "state": None} == vars(request)


def test_a_result_is_needed_unless_said_otherwise() -> None:
    assert asked().needs_output
