"""Commands that reports advise: a shell reads back exactly the name that the baseline has."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.advised import recording, saving


@given(st.text(min_size=1).filter(lambda name: "\0" not in name))
def test_a_shell_reads_the_name_as_it_is(name: str) -> None:
    assert shlex.split(saving(name)) == [f"--stepprof-save={name}"]
    words = shlex.split(recording(name, 4).replace("; done", " "))
    assert (f"--stepprof-save={name}" if name.startswith("-") else name) in words


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("main", "stepprof baseline record main --sessions 4"),
        ("my base; touch X", "stepprof baseline record 'my base; touch X' --sessions 4"),
        ("-x", "for n in $(seq 4); do pytest --stepprof --stepprof-save=-x; done"),
    ],
)
def test_the_usual_name_needs_no_quotes(name: str, command: str) -> None:
    assert recording(name, 4) == command
