"""What stays of a report that is too large, and what is said about the rest."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_scene import compared_record

from pytest_stepprof.report.budget import fitting
from pytest_stepprof.report.document import Bullets, Details, Document, Heading, Lines, Paragraph, Table, Text
from pytest_stepprof.report.github import step_summary
from pytest_stepprof.report.markdown import render_block, render_markdown
from pytest_stepprof.report.markdown_report import markdown_report
from pytest_stepprof.report.material import Material, material_of
from pytest_stepprof.report.sticky import marker_line

changed = msgspec.structs.replace


def size_of(block):
    text = render_block(block)
    return len(f"{text}\n\n") if text else 0


def fitted(blocks, room):
    document = Document(title=Text("title"), blocks=tuple(blocks))
    return fitting(document, room=room, size_of=size_of, note="Cut. All of it is elsewhere.")


def many(count, width=100):
    """As many failures, rows and folded tests as asked for, about ``width`` characters each."""
    names = [f"test_{number:05}" for number in range(count)]
    failures = [
        block
        for name in names
        for block in (Heading(Text(name, literal=True), level=2), Paragraph(Text("x" * width)), Lines(("a", "b")))
    ]
    rows = tuple((Text(name, literal=True), Text("y" * width)) for name in names)
    return (
        Paragraph(Text("what happened")),
        Heading(Text("Failed")),
        *failures,
        Heading(Text("All tests")),
        Table(headers=("test", "what"), rows=rows, alignments=("left", "left")),
        Heading(Text("What was compared")),
        Bullets(tuple(Text(f"fact {name}") for name in names[:20])),
        *(Details(summary=Text(name, literal=True), blocks=(Paragraph(Text("z" * width)),)) for name in names),
    )


def material(blocks, **changes):
    document = Document(title=Text("title"), blocks=tuple(blocks))
    return Material(document=document, comparison=None, measurements={}, json_record=compared_record(), marker="m",
                    **changes)  # fmt: skip


def test_what_fits_stays_as_it_is():
    blocks = many(3)
    document = Document(title=Text("title"), blocks=blocks)
    whole = len(render_markdown(document)) + 2  # counted as another heading, and with an empty line at the end
    assert fitted(blocks, whole) == document
    assert fitted(blocks, whole - 1) != document


def test_failures_come_first_and_every_section_shows_something_and_counts_the_rest():
    text = render_markdown(fitted(many(500), 30_000))
    assert len(text) <= 30_000
    cut = text.split("\n\n")[2]
    found = re.fullmatch(
        r"Cut\. All of it is elsewhere\. Left out: (\d+) of 500 parts under 'Failed', "
        r"(\d+) of 500 parts shortened under 'Failed', "
        r"(\d+) of 500 rows under 'All tests', (\d+) of 500 tests at the end\.", cut,
    )  # fmt: skip
    assert found, cut
    failures, short, rows, folds = (500 - int(number) for number in found.groups())
    assert 40 < 500 - short < failures - 40, "half of the room is for names"
    assert text.count("#### `test_") == failures > rows >= 10
    assert text.count("| `test_") == rows
    assert text.count("<details>") == text.count("</details>") == folds >= 10
    assert f"({500 - failures} more parts left out, {500 - short} parts shortened)" in text
    assert f"({500 - rows} more rows left out)" in text
    assert text.index("#### `test_00000`") < text.index("| `test_00000` |")
    assert text.count("fact test") == 20, "what is small is whole"


def test_rows_take_all_the_room_there_is():
    """What all rows share, the headers, is counted once."""
    rows = tuple((Text(f"row {number}"), Text("1")) for number in range(2000))
    table = Table(headers=("h" * 100, "g" * 100), rows=rows, alignments=("left", "left"))
    assert 18_500 < len(render_markdown(fitted([Heading(Text("All tests")), table], 20_000))) <= 20_000


def test_a_part_that_does_not_fit_is_shortened_and_hides_no_other():
    blocks = [
        Heading(Text("Failed")),
        *(block for name, width in (("small", 10), ("huge", 5000), ("last", 10))
          for block in (Heading(Text(name), level=2), Paragraph(Text("w" * width)))),
    ]  # fmt: skip
    text = render_markdown(fitted(blocks, 3000))
    assert re.findall(r"^#### (\w+)$", text, re.MULTILINE) == ["small", "huge", "last"]
    assert f"{'w' * 200} ... (4600 characters left out) ... {'w' * 200}" in text
    assert "Left out: 1 of 3 parts shortened under 'Failed'." in text
    assert "(1 part shortened)" in text


def failure_of(name, lines):
    return Heading(Text(name, literal=True), level=2), Paragraph(Text("regressed (time)")), Lines(tuple(lines))


def test_one_endless_reason_hides_no_other_failure():
    """A first reason of 80 000 characters once left a comment without the name of any failed test."""
    names = [f"test_{number}" for number in range(4)]
    reasons = [["time:", "  " + "r" * 80_000], *([["time:", f"  reason {name}"] for name in names[1:]])]
    blocks = [Heading(Text("Failed")), *(block for name, lines in zip(names, reasons, strict=True)
                                         for block in failure_of(name, lines))]  # fmt: skip
    text = render_markdown(fitted(blocks, 60_000))
    assert [name for name in names if f"#### `{name}`" in text] == names
    assert [name for name in names[1:] if f"reason {name}" in text] == names[1:]
    assert "characters left out" in text


def test_with_hardly_any_room_failures_are_named_before_anything_else_is_told():
    """In a summary that others had nearly filled, the failed part was empty and what was not judged stood in full."""
    blocks = [
        Heading(Text("Failed")), *failure_of("test_failed", ["x" * 300] * 9),
        Heading(Text("Not judged")), *failure_of("test_open", ["y" * 100]),
    ]  # fmt: skip
    text = render_markdown(fitted(blocks, 1900))
    assert "#### `test_failed`\n\nregressed (time)" in text


def test_what_is_counted_is_what_a_reader_would_count():
    """A legend is no row, and the environment is no test."""
    rows = tuple((Text(f"test_{number:05}", literal=True), Text("y" * 30)) for number in range(1000))
    folds = [Details(summary=Text(f"test_{number:05}", literal=True), blocks=(Paragraph(Text("z" * 30)),))
             for number in range(1000)]  # fmt: skip
    blocks = [
        Heading(Text("All tests")), Table(headers=("test", "what"), rows=rows, alignments=("left", "left")),
        Paragraph(Text("what the columns mean")), *folds,
        Details(summary=Text("environment"), blocks=(Paragraph(Text("e" * 5000)),)),
    ]  # fmt: skip
    text = render_markdown(fitted(blocks, 10_000))
    told = re.search(r"Left out: (\d+) of 1000 rows under 'All tests', (\d+) of 1000 tests at the end, "
                     r"1 of 1 part at the end\.", text)  # fmt: skip
    assert told, text[:2000]
    assert text.count("| `test_") == 1000 - int(told[1])
    assert text.count("<details>") == 1000 - int(told[2])
    assert "what the columns mean" in text


@given(st.integers(0, 60), st.integers(0, 300), st.integers(1500, 20_000))
@settings(max_examples=60, deadline=None)
def test_the_room_is_never_exceeded_and_nothing_is_left_open(count, width, room):
    text = render_markdown(fitted(many(count, width), room))
    assert len(text) <= room
    assert text.count("```") % 2 == 0
    assert text.count("<details>") == text.count("</details>")


@given(st.integers(10, 70_000))
@settings(max_examples=30, deadline=None)
def test_a_comment_keeps_its_limit_whatever_it_is(limit):
    text = markdown_report(material(many(80)), limit=limit)
    assert len(text) <= limit
    assert text == "" or text.startswith("<!-- pytest-stepprof: m -->\n## title\n")


def test_a_comment_of_many_tests_is_below_githubs_limit_and_names_the_whole_report():
    text = markdown_report(material(many(3000, 300), elsewhere="in report.html"))
    assert 50_000 < len(text) <= 60_000
    assert "This report is cut to 60000 characters. All of it is in report.html. Left out: " in text


def test_a_summary_is_counted_in_bytes():
    wide = [Heading(Text("Failed")), Bullets(tuple(Text("語" * 100) for _ in range(200)))]
    text = step_summary(material(wide), 20_000)
    assert 15_000 < len(text.encode()) <= 20_000
    assert "This report is cut to 20000 bytes. The formats html and json hold all of it." in text
    assert step_summary(material(wide), 20) == "", "where there is room for nothing"


def test_a_name_that_is_larger_than_everything_does_not_break_the_budget():
    record = compared_record()
    (session,) = record.sessions
    longer = changed(session, session_id="s" * 200_000)
    text = markdown_report(material_of(changed(record, sessions=(longer,))))
    assert len(text) <= 60_000
    assert "### Failed" in text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("main", "<!-- pytest-stepprof: main -->"),
        ("release/1.0_x", "<!-- pytest-stepprof: release-1.0_x-ad377e88 -->"),
        ("a-->b<script>\n", "<!-- pytest-stepprof: a-b-script-c2602d44 -->"),
        ("--", "<!-- pytest-stepprof: d8156bae -->"),
        ("語", "<!-- pytest-stepprof: de7754f7 -->"),
        ("n" * 300, f"<!-- pytest-stepprof: {'n' * 80}-230b0774 -->"),
    ],
)
def test_a_marker_is_one_comment_whatever_the_name(name, line):
    assert marker_line(name) == line


@pytest.mark.parametrize(
    ("one", "other"), [("feature/a", "feature-a"), ("n" * 81, "n" * 82), ("語", "言"), ("--", "report")]
)
def test_two_names_never_share_a_marker(one, other):
    assert marker_line(one) != marker_line(other)


def test_the_header_has_both_commits_and_the_time():
    text = markdown_report(material_of(compared_record()))
    lines = text.splitlines()
    assert lines[0] == "<!-- pytest-stepprof: main -->"
    assert lines[1].startswith("## stepprof: ")
    assert f"commit before: {'b' * 40}; commit now: {'a' * 40}; measured 2024-02-29T12:00:00.000000Z" in lines[:8]


def test_a_header_without_a_comparison_has_one_commit():
    record = changed(compared_record(), comparison=None, before_sessions=(), before=())
    assert f"\ncommit: {'a' * 40}; measured 2024" in markdown_report(material_of(record))


def test_a_header_tells_two_changed_trees_of_one_commit_from_each_other():
    record = compared_record()
    dirty = [changed(one, commit=changed(one.commit, revision="a" * 40, changes_digest=digest))
             for one, digest in ((record.before_sessions[-1], "1"), (record.sessions[0], "2"))]  # fmt: skip
    text = markdown_report(material_of(changed(record, before_sessions=(dirty[0],), sessions=(dirty[1],))))
    name = f"{'a' * 40} with uncommitted changes"
    assert f"\ncommit before: {name}; commit now: {name}; measured " in text
