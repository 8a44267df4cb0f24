"""Which questions are about the cold start."""

import pytest

from pytest_stepprof.analysis.cold_start import asks_for_cold_start


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        (None, False),
        ("", False),
        ("cold start", True),
        (" COLD Start\n", True),
        ("cold starts", False),
        ("what does a cold start cost?", False),
    ],
)
def test_which_question_asks_for_the_cold_start_alone(question: str | None, asks: bool) -> None:
    assert asks_for_cold_start(question) is asks
