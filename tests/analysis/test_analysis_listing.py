"""Long lists are cut where they stop to say anything, and what is left out is counted."""

from typing import Any

import pytest

from pytest_stepprof.analysis.listing import first_few


@pytest.mark.parametrize(
    ("texts", "options", "expected"),
    [
        ([], {}, ""),
        (["a"], {}, "a"),
        (["a", "b"], {}, "a, b"),
        (["a", "b", "c"], {}, "a, b and 1 more"),
        (("a", "b", "c", "d"), {}, "a, b and 2 more"),
        (["a", "b"], {"separator": "; "}, "a; b"),
        (["a", "b", "c"], {"separator": "; "}, "a; b; and 1 more"),
        (["a", "b", "c", "d", "e"], {"rest": "older"}, "a, b and 3 older"),
    ],
)
def test_the_first_two_are_named_and_the_others_counted(texts: Any, options: dict[str, str], expected: str) -> None:
    assert first_few(texts, 2, **options) == expected
