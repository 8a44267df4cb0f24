"""Markdown: whatever a name holds, a table stays a table and text stays text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.report.document import Bullets, Document, Heading, Lines, Paragraph, Table, Text
from pytest_stepprof.report.markdown import code_span, escape, render_markdown


def rendered(*blocks):
    return render_markdown(Document(title=Text("title"), blocks=blocks))


def cells(line):
    """Cut a row as GFM does: at every pipe that has no backslash before it."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def test_blocks_in_order():
    text = rendered(
        Heading(Text("part")),
        Heading(Text("test[a]", literal=True), level=2),
        Paragraph(Text("said", tone="bad")),
        Bullets((Text("one"), Text("two"))),
        Lines(("  a", "b")),
    )
    assert text == ("## title\n\n### part\n\n#### `test[a]`\n\n**said**\n\n- one\n- two\n\n```text\n  a\nb\n```\n")


def test_a_table():
    table = Table(
        headers=("test", "median"),
        rows=((Text("t[a|b]", literal=True), Text("2.00 ms/step")), (Text("x|y"), Text("1"))),
        alignments=("left", "right"),
    )
    assert rendered(table).splitlines()[2:] == [
        "| test | median |",
        "| :--- | ---: |",
        "| `t[a\\|b]` | 2.00 ms/step |",
        "| x\\|y | 1 |",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::copy_ 3 -> 4", r"aten::copy\_ 3 -&gt; 4"),
        ("<script>&amp;", "&lt;script&gt;&amp;amp;"),
        ("*a* `b` [c](d) ~e~ #f $g$", r"\*a\* \`b\` \[c\](d) \~e\~ #&#8203;f \$g\$"),
        ("a\\b|c", r"a\\b\|c"),
        ("- item", r"\- item"),
        ("12. item", r"12\. item"),
        ("1.5 ms", "1.5 ms"),
        ("--markdown", "--markdown"),
        ("---", "\\---"),
        ("- - -", "\\- - -"),
        ("@someone", "@&#8203;someone"),
        ("org/repo#5 #6", "org/repo#&#8203;5 #&#8203;6"),
        ("GH-12", "GH&#8203;-12"),
        ("https://evil.example/x www.evil.com", "https:&#8203;//evil.example/x www&#8203;.evil.com"),
    ],
)
def test_escape(text, expected):
    assert escape(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", "`a`"), ("a`b", "``a`b``"), ("`a``", "``` `a`` ```"), (" a ", "`  a  `"), ("", ""), ("<b>&", "`<b>&`")],
)
def test_code_span(text, expected):
    assert code_span(text) == expected


@given(st.text(), st.text(), st.booleans())
def test_every_row_has_one_line_and_its_cells(first, second, literal):
    table = Table(
        headers=("a", "b"),
        rows=((Text(first, literal=literal), Text(second)),) * 2,
        alignments=("left", "left"),
    )
    lines = rendered(table).split("\n")
    assert len(lines) == 7  # title, empty, header, rule, two rows, nothing after the last line break
    assert [len(cells(line)) for line in lines[2:6]] == [2, 2, 2, 2]


@given(st.text())
def test_no_raw_html_outside_of_code(name):
    assert not re.search(r"[<>]", rendered(Paragraph(Text(name)), Bullets((Text(name),)), Heading(Text(name))))


@given(st.lists(st.text(alphabet="`~ab\n")))
def test_a_fence_is_longer_than_any_inside(lines):
    text = rendered(Lines(tuple(lines)))
    fence = re.match(r"`+", text.split("\n")[2])[0]
    assert text.split("\n")[-2] == fence
    assert all(fence not in line for line in text.split("\n")[3:-2])


def test_control_characters_are_escaped_everywhere():
    text = rendered(Heading(Text("a\nb")), Paragraph(Text("c\x1bd", literal=True)), Lines(("e\u202ef",)))
    assert "### a\\\\x0ab" in text
    assert "`c\\x1bd`" in text
    assert "e\\u202ef" in text


def test_no_line_of_standard_output_is_a_command_of_a_runner_of_jobs():
    text = rendered(Paragraph(Text("::add-mask::a")), Lines(("::error::b", "  ##[group]c")))
    assert not re.search(r"^\s*::|##\[", text, re.MULTILINE)
    assert r"\x3a:error::b" in text
