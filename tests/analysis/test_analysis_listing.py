"""Long lists are cut where they stop to say anything, and what is left out is counted."""

from typing import Any

import pytest

from pytest_stepprof.analysis.listing import counted, first_few, listed


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


@pytest.mark.parametrize(
    ("parts", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_all_are_named_with_an_and(parts: list[str], text: str) -> None:
    assert listed(parts) == text


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [(1, "test", None, "1 test"), (0, "test", None, "0 tests"), (2, "leaf", "leaves", "2 leaves")],
)
def test_a_number_with_its_noun(number: int, noun: str, plural: str | None, text: str) -> None:
    assert counted(number, noun, plural) == text
