"""Markdown as a reader of CommonMark and GitHub's tables sees it: whatever a text holds, it shows as itself."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_scene import compared_record

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.report.commands import without_commands
from pytest_stepprof.report.document import Bullets, Details, Document, Heading, Lines, Paragraph, Table, Text
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.markdown_report import markdown_report
from pytest_stepprof.report.material import material_of

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
HOSTILE = st.text(
    alphabet=st.one_of(st.sampled_from("|`*_~<>&#\\[]()!-+=$@\n\r\t \x1b\u202e\u2066\u200bab1.:/"), st.characters()),
    max_size=25,
)


def rendered(*blocks):
    return READER.parse(render_markdown(Document(title=Text("title"), blocks=blocks)))


def seen(text):
    """What a reader may see of a text on one line: controls as escapes, spaces at the ends and in rows like one."""
    shown_text = without_commands(re.sub(r"\s+", " ", printable(text)).strip())
    return shown_text.replace("\u200b", "")


def shown(tokens):
    """All that is visible of inline tokens; an HTML element would be one of their kinds and is not expected."""
    parts = []
    for token in tokens:
        for child in token.children or ():
            assert child.type in ("text", "code_inline", "strong_open", "strong_close", "text_special"), child
            parts.append(child.content)
    return re.sub(r"\s+", " ", "".join(parts).replace("\u200b", "")).strip()


def kinds(tokens):
    return [token.type for token in tokens if token.level == 0 and not token.type.endswith("_close")]


@given(HOSTILE, HOSTILE, st.booleans(), st.sampled_from(["plain", "bad"]))
@settings(max_examples=200, deadline=None)
def test_a_row_has_its_cells_and_each_shows_its_text(first, second, literal, tone):
    row = (Text(first, literal=literal), Text(second, tone=tone), Text("last"))
    table = Table(headers=("a", "b", "c"), rows=(row, row), alignments=("left", "right", "left"))
    tokens = rendered(Paragraph(Text("before")), table, Paragraph(Text("after")))
    assert kinds(tokens) == ["heading_open", "paragraph_open", "table_open", "paragraph_open"]
    assert [token.type for token in tokens].count("td_open") == 6
    cells = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "td_open"]
    assert [shown([cell]) for cell in cells] == [seen(first),
                                                 seen(second), "last"] * 2  # fmt: skip


@given(HOSTILE, st.booleans(), st.sampled_from(["plain", "bad", "muted"]))
@settings(max_examples=200, deadline=None)
def test_prose_is_one_paragraph_one_point_one_heading_and_shows_its_text(text, literal, tone):
    one = Text(f"x{text}", tone=tone, literal=literal)
    tokens = rendered(Heading(one), Paragraph(one), Bullets((one, Text("y"))))
    assert kinds(tokens) == ["heading_open", "heading_open", "paragraph_open", "bullet_list_open"]
    inline = [token for token in tokens if token.type == "inline"]
    assert [shown([token]) for token in inline[1:]] == [*[seen(f"x{text}")] * 3, "y"]


@given(st.text(alphabet="-+=*#>1234567890.) \tab", min_size=1, max_size=8).filter(str.strip))
@settings(max_examples=200, deadline=None)
def test_no_text_begins_a_list_a_rule_or_a_heading(text):
    assert kinds(rendered(Paragraph(Text(text)))) == ["heading_open", "paragraph_open"]
    tokens = rendered(Bullets((Text(text), Text(text))))
    assert [token.type for token in tokens if token.type.endswith("_open")] == [
        "heading_open", "bullet_list_open", *["list_item_open", "paragraph_open"] * 2,
    ]  # fmt: skip


@given(st.lists(st.one_of(HOSTILE, st.text(alphabet="`~ a", max_size=6)), max_size=5))
@settings(max_examples=100, deadline=None)
def test_lines_are_one_fence_with_every_line_as_it_is(lines):
    tokens = rendered(Lines(tuple(lines)), Paragraph(Text("after")))
    assert kinds(tokens) == ["heading_open", "fence", "paragraph_open"]
    assert tokens[3].content == "".join(f"{printable(line)}\n" for line in lines)


@given(HOSTILE, HOSTILE, st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_folded_opens_and_closes_where_it_should(summary, inside, literal, is_open):
    folded = Details(
        summary=Text(f"s{summary}", literal=literal),
        blocks=(Paragraph(Text(f"x{inside}")), Lines((inside,))),
        open=is_open,
    )
    tokens = rendered(folded, Paragraph(Text("after")))
    assert kinds(tokens) == ["heading_open", "html_block", "paragraph_open", "fence", "html_block", "paragraph_open"]
    begin, end = (token.content for token in tokens if token.type == "html_block")
    assert end == "</details>\n"
    found = re.fullmatch(r"<details( open)?>\n<summary>(<code>)?([^<>]*)(</code>)?</summary>\n", begin)
    assert found, begin
    assert (found[1] is not None, found[2] is not None) == (is_open, literal)
    told = html.unescape(found[3])
    assert (told if literal else re.sub("(?<=[@#])\u200b", "", told)) == printable(f"s{summary}")


def test_text_of_a_fold_neither_pings_nor_links():
    markdown = render_markdown(Document(title=Text("t"), blocks=(Details(Text("@all #1 'q'"), ()),)))
    assert "<summary>@&#8203;all #&#8203;1 &#x27;q&#x27;</summary>" in markdown


@pytest.mark.parametrize("limit", [60_000, 12_000, 7_000])
def test_a_whole_report_is_read_as_it_was_meant(limit):
    tokens = READER.parse(markdown_report(material_of(compared_record()), limit=limit))
    assert tokens[0].type == "html_block"
    assert tokens[0].content.startswith("<!-- pytest-stepprof: main -->")
    tables, open_tables = [], []
    for token in tokens:
        if token.type == "table_open":
            open_tables.append([])
        elif token.type == "tr_open":
            open_tables[-1].append(0)
        elif token.type in ("td_open", "th_open"):
            open_tables[-1][-1] += 1
        elif token.type == "table_close":
            tables.append(open_tables.pop())
    assert tables, "at least the table of all tests"
    assert all(len(set(cells)) == 1 for cells in tables), "as many cells in each row as there are headers"
    assert len(tables[0]) == 12 or limit < 60_000
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert sum("<details" in block for block in blocks) == sum("</details>" in block for block in blocks)
    assert not any("html_inline" in (child.type for child in token.children or ()) for token in tokens)
