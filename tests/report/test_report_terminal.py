"""Text for a terminal: what fits, what is shortened, what is left out, and what may never get through."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.report.document import Bullets, Document, Heading, Lines, Paragraph, Table, Text
from pytest_stepprof.report.terminal import render_terminal, shorten_middle, visible_width

LONG_NAME = "tests/performance/test_training.py::TestStep::test_step[resnet50-float16-64]"
TABLE = Table(
    headers=("test", "median", "cold start", "verdict"),
    rows=(
        (Text(LONG_NAME, literal=True), Text("2.00 ms/step"), Text("9.00 ms"), Text("regressed", tone="bad")),
        (Text("test_b.py::test_b"), Text("12.0 ms/step"), Text("80.0 ms"), Text("improved", tone="good")),
    ),
    alignments=("left", "right", "right", "left"),
    drop_order=(2, 1),
)


def rendered(*blocks, width=80, colour=False):
    return render_terminal(Document(title=Text("title"), blocks=blocks), width=width, colour=colour)


def test_blocks_follow_each_other_with_an_empty_line_between():
    text = rendered(Heading(Text("part")), Heading(Text("test"), level=2), Paragraph(Text("said")), Lines(("  a", "b")))
    assert text == "title\n\n--- part\n\ntest\n\nsaid\n\n  a\nb"


def test_a_table_that_fits_is_whole():
    assert rendered(TABLE, width=120).splitlines()[2:] == [
        "test" + " " * 72 + "        median  cold start  verdict",
        "-" * 76 + "  ------------  ----------  ---------",
        LONG_NAME + "  2.00 ms/step     9.00 ms  regressed",
        "test_b.py::test_b" + " " * 59 + "  12.0 ms/step     80.0 ms  improved",
    ]


def test_names_are_shortened_in_the_middle_before_a_column_goes():
    text = rendered(TABLE, width=80)
    assert text.splitlines()[4] == "tests/performance/te...resnet50-float16-64]  2.00 ms/step     9.00 ms  regressed"
    assert "too narrow" not in text


@pytest.mark.parametrize(
    ("width", "kept", "left_out"),
    [
        (61, ["median", "cold start", "verdict"], []),
        (60, ["median", "verdict"], ["cold start"]),
        (44, ["verdict"], ["cold start", "median"]),
    ],
)
def test_columns_go_in_their_order_and_are_named(width, kept, left_out):
    text = rendered(TABLE, width=width)
    header, last = text.splitlines()[2], text.splitlines()[-1]
    assert header.split("  ")[0] == "test"
    assert [name for name in ("median", "cold start", "verdict") if name in header] == kept
    named = re.fullmatch(r"\(too narrow for: (.*)\)", last)
    assert (sorted(named[1].split(", ")) if named else []) == sorted(left_out)


@given(width=st.integers(min_value=45, max_value=200))
def test_a_table_with_room_for_its_last_columns_is_never_wider_than_the_terminal(width):
    assert all(visible_width(line) <= width for line in rendered(TABLE, width=width).splitlines())


def test_a_table_that_cannot_fit_keeps_its_verdicts():
    assert "regressed" in rendered(TABLE, width=5)


def test_a_table_without_rows_is_nothing():
    assert rendered(Table(headers=("a",), rows=(), alignments=("left",))) == "title"


def test_text_that_looks_like_a_number_stays_as_it_is():
    table = Table(headers=("name",), rows=((Text("1e5"),), (Text("007"),), (Text("0.100"),)), alignments=("left",))
    assert rendered(table).splitlines()[4:] == ["1e5", "007", "0.100"]


def test_prose_is_wrapped_and_bullets_hang():
    text = rendered(Bullets((Text("one two three four five"), Text("six"))), width=20)
    assert text.splitlines()[2:] == ["  - one two three", "    four five", "  - six"]


def test_lines_keep_their_indent_when_they_are_wrapped():
    assert rendered(Lines(("  one two three four five",)), width=20).splitlines()[2:] == [
        "  one two three four",
        "    five",
    ]


def test_colour_only_when_asked_for():
    assert "\x1b" not in rendered(TABLE, width=120)
    coloured = rendered(TABLE, width=120, colour=True)
    assert "\x1b[1;31mregressed\x1b[0m" in coloured
    assert "\x1b[32mimproved\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == rendered(TABLE, width=120)


@given(st.text())
def test_nothing_from_outside_steers_the_terminal(name):
    table = Table(headers=("test",), rows=((Text(name),),), alignments=("left",))
    text = rendered(table, Paragraph(Text(name)), Bullets((Text(name),)), Lines((name,)), Heading(Text(name)))
    assert not set(text) & {"\x1b", "\x00", "\r", "\x07", "\x9b", "\u202e", "\u2028", "\x85"}


def test_a_hostile_name_is_shown_escaped():
    assert r"red\x1b[31m\x0aname" in rendered(Paragraph(Text("red\x1b[31m\nname")))


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 9, "abc...hij"),
        ("abcdefghij", 8, "ab...hij"),
        ("漢字漢字漢字", 9, "漢...字"),
        ("abcdefghij", 1, "a...j"),
    ],
)
def test_shorten_middle(text, width, expected):
    assert shorten_middle(text, width) == expected


@given(
    st.text(st.characters(categories=["L", "N", "P"], exclude_characters=".")), st.integers(min_value=5, max_value=60)
)
def test_shortened_text_fits_and_keeps_both_ends(text, width):
    short = shorten_middle(text, width)
    assert visible_width(short) <= width
    if short != text:
        head, tail = short.split("...")
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("", 0)])
def test_visible_width(text, columns):
    assert visible_width(text) == columns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("::set-output name=a::b", r"\x3a:set-output name=a::b"),
        ("a ##[group] b", r"a \x23#[group] b"),
        ("a ##vso[task.x]", r"a \x23#vso[task.x]"),
        ("t.py::test_a: ::error::x", "t.py::test_a: ::error::x"),
        ("# a ## b", "# a ## b"),
    ],
)
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_a_command_of_a_runner_of_jobs(text, expected, colour):
    """GitHub's reads every line, blanks in front of it aside; a name or a reason comes from anybody."""
    shown = rendered(Paragraph(Text(text, tone="bad")), Lines((f"   {text}",)), width=70, colour=colour)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert plain[2] == expected
    assert plain[4] == f"   {expected}"


def test_a_line_that_wrapping_begins_is_no_command_either():
    text = rendered(Paragraph(Text(f"{'x' * 30} ::stop-commands::abc")), width=40)
    assert text.splitlines()[3] == r"\x3a:stop-commands::abc"


def test_the_title_is_wrapped_as_all_prose_is():
    title = "stepprof: 11 tests measured, session 20240229T120000.000000Z-0123456789ab (failed)"
    lines = render_terminal(Document(title=Text(title), blocks=()), width=60, colour=False).splitlines()
    assert [visible_width(line) <= 60 for line in lines] == [True, True]
