"""The HTML page: one file, nothing from outside, everything that is said escaped and in its place."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.window import Lane, LaneSpan, Timeline
from pytest_stepprof.report.document import (
    Bullets,
    Details,
    Document,
    Heading,
    IntervalsFigure,
    LanesFigure,
    Lines,
    Paragraph,
    RatioInterval,
    Series,
    Table,
    Text,
    ValuesFigure,
)
from pytest_stepprof.report.html import page as html_page
from pytest_stepprof.report.html import render_html
from pytest_stepprof.report.html.chosen import few_pictures

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Elements with the texts directly in them; fails on an element that is closed by another one."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for tag in {*self.open}:
            self.texts[tag][-1] += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def document(*blocks, title="stepprof: one test") -> Document:
    return Document(title=Text(title), blocks=blocks)


def page_of(*blocks, title="stepprof: one test") -> Page:
    return Page(render_html(document(*blocks, title=title)))


def verdicts(*names: str) -> Table:
    rows = tuple((Text(name, literal=True), Text("regressed", tone="bad")) for name in names)
    return Table(headers=("test", "verdict"), rows=rows, alignments=("left", "left"))


FIGURES = (
    ValuesFigure(
        title="values", unit="ms/step", before=(Series("run 1", (1.0, 1.1)),), after=(Series("run 1", (1.2,)),)
    ),
    IntervalsFigure(
        title="intervals", intervals=(RatioInterval("t.py::a", 1.2, 1.1, 1.3, "bad"),), tolerance=1.01, limit=1.05
    ),
    LanesFigure(
        title="lanes",
        timeline=Timeline(
            step=2,
            elapsed_ns=1000,
            lanes=(Lane(name="regions", kind="regions", spans=(LaneSpan(start_ns=0, end_ns=900, name="forward"),)),),
        ),
    ),
)


def test_every_block_has_its_element():
    page = page_of(
        Paragraph(Text("a sentence", tone="muted")),
        Heading(Text("Failed"), level=1),
        Heading(Text("t.py::a", literal=True), level=2),
        Bullets((Text("one"), Text("two", tone="attention"))),
        Lines(("time: slower", "  where it went")),
        verdicts("t.py::a"),
        Details(Text("t.py::a", literal=True), (Paragraph(Text("inside")),), open=True),
        Details(Text("folded"), (Paragraph(Text("inside, too")),), level=2),
        *FIGURES,
    )
    assert page.texts["title"][0] == "stepprof: one test"
    assert [text.strip() for text in page.texts["h1"]] == ["stepprof: one test"]
    assert page.texts["h2"][:1] == ["Failed"]
    assert [text.strip() for text in page.texts["h3"]] == ["t.py::a", "folded"]
    assert page.texts["li"] == ["one", "two"]
    assert page.texts["th"] == ["test", "verdict"]
    assert page.texts["td"] == ["t.py::a", "regressed"]
    assert ["open" in details for details in page.of("details")] == [True, False]
    assert {"--indent: 0ch", "--indent: 2ch"} <= {one.get("style") for one in page.of("div")}
    assert {"bad", "attention", "muted"} <= {one.get("class") for one in page.of("bdi")}
    assert len(page.of("figure")) == 3


def test_the_page_asks_nobody_for_anything():
    text = render_html(document(verdicts("t.py::a"), *FIGURES))
    page = Page(text)
    policy = next(one["content"] for one in page.of("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert {directive.split()[0] for directive in policy.split(";")} >= {"default-src", "style-src", "img-src"}
    assert not {"script", "img", "iframe", "object", "form"} & {name for name, _ in page.elements}
    assert [one for one in page.of("link") if one["href"] != "data:,"] == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert re.findall(r"url\((?!#)|@import|https?:", text) == []


def test_identities_are_unique_and_links_lead_somewhere():
    names = ("t.py::a", "t.py::b")
    details = [Details(Text(name, literal=True), FIGURES) for name in names]
    page = page_of(verdicts(*names), Heading(Text("t.py::a", literal=True), level=2), *details)
    identities = [value for _, attributes in page.elements for name, value in attributes.items() if name == "id"]
    assert len(identities) == len(set(identities)) == 2
    targets = [link["href"].removeprefix("#") for link in page.of("a")]
    assert len(targets) == 2
    assert [one.get("id") for one in page.of("details")] == targets  # not the heading: what can be unfolded


def test_parts_of_failing_tests_are_open():
    rows = tuple(
        (Text(name, literal=True), Text(word, tone=tone))
        for name, word, tone in (("a", "regressed", "bad"), ("b", "inconclusive", "attention"), ("c", "error", "bad"))
    )
    table = Table(headers=("test", "verdict"), rows=rows, alignments=("left", "left"))
    page = page_of(table, *(Details(Text(name, literal=True), ()) for name in "abc"), Details(Text("c"), ()))
    assert ["open" in one for one in page.of("details")] == [True, False, True, False]


def test_a_test_without_a_part_of_its_own_is_no_link():
    assert page_of(verdicts("t.py::a")).of("a") == []


def test_verdicts_come_first_with_their_heading_s_place_and_their_figure():
    intervals = FIGURES[1]
    blocks = html_page._verdicts_first(
        (
            lead := Paragraph(Text("2 tests failed")),
            failed := Heading(Text("Failed")),
            why := Lines(("time: slower",)),
            Heading(Text("All tests")),
            table := verdicts("t.py::a"),
            intervals,
            legend := Paragraph(Text("before, now: medians")),
            rest := Heading(Text("What was compared")),
        )
    )
    assert blocks == (lead, table, intervals, legend, failed, why, rest)
    without = (lead, failed, why)
    assert html_page._verdicts_first(without) == without
    assert html_page._verdicts_first((table, failed)) == (table, failed)


def test_a_long_table_stays_below_what_failed():
    blocks = (Paragraph(Text("said")), Heading(Text("Failed")), Lines(("time: slower",)), Heading(Text("All tests")))
    long = (*blocks, verdicts(*(f"t.py::{number}" for number in range(16))))
    assert html_page._verdicts_first(long) == long
    short = (*blocks, verdicts(*(f"t.py::{number}" for number in range(15))))
    assert html_page._verdicts_first(short)[1] == short[-1]


def test_of_many_tests_only_those_that_want_attention_are_drawn_and_the_others_counted():
    """A picture of each of 3000 tests took minutes at the end of a session."""
    words = ("regressed", "bad"), ("inconclusive", "attention"), ("not regressed", "good"), ("no baseline", "muted")
    names = [f"t.py::{number}" for number in range(8)]
    of_two = [words[number // 2] for number in range(8)]
    rows = tuple((Text(name, literal=True), Text(*word)) for name, word in zip(names, of_two, strict=True))
    folds = tuple(Details(Text(name, literal=True), FIGURES[:1]) for name in names)
    blocks = (Table(headers=("test", "verdict"), rows=rows, alignments=("left", "left")), *folds)
    resting = html_page._resting(blocks)
    assert few_pictures(blocks, resting, most=8) == blocks

    def drawn(most):
        table, told, *parts = few_pictures(blocks, resting, most=most)
        assert table == blocks[0]
        assert [part.summary for part in parts] == [fold.summary for fold in folds]
        return told.text.content, [number for number, part in enumerate(parts) if part.blocks]

    assert drawn(7) == ("The pictures of 2 of 8 tests are not drawn: only those of tests that want attention are where "
                        "there are more than 7, and 7 at most.", [0, 1, 2, 3, 6, 7])  # fmt: skip
    assert drawn(3)[1] == [0, 1, 2]


HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "t.py::test[\"quoted\" & 'single' <b>]",
    "{{ 7 * 7 }} {% raw %}",
    "\x1b[31mred\x1b[0m\r\n\x00",
    "abc\u202efdp.exe",
    "-->]]></style></title>",
    "$x^2$ \\frac{",
    "\ud800 lone",
    "\ufffe nonsense \uffff",
    "x" * 300,
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8",
)


def everywhere(text: str) -> tuple[object, ...]:
    """A document that says ``text`` in each place that takes one."""
    literal = Text(text, literal=True)
    lane = Lane(name=text, kind="regions", spans=(LaneSpan(start_ns=0, end_ns=900, name=text),))
    return (
        Paragraph(Text(text, tone="bad")),
        Heading(literal, level=2),
        Bullets((Text(text),)),
        Lines((text,)),
        Table(headers=(text, "verdict"), rows=((literal, Text(text)),), alignments=("left", "left")),
        Details(literal, (Paragraph(Text(text)),)),
        ValuesFigure(title=text, unit="ms/step", before=(), after=(Series(text, (1.0, 2.0)),)),
        IntervalsFigure(
            title=text, intervals=(RatioInterval(text, 1.1, 1.0, 1.2, "plain"),), tolerance=1.01, limit=1.05
        ),
        LanesFigure(title=text, timeline=Timeline(step=1, elapsed_ns=1000, lanes=(lane,))),
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_stay_texts(text):
    written = render_html(document(*everywhere(text), title=text))
    written.encode()
    page = Page(written)
    said = printable(text)
    assert page.texts["title"][0] == said
    assert page.texts["li"] == [said]
    assert page.texts["td"] == [said, said]
    assert [attributes for name, attributes in page.elements if name in ("script", "img", "b")] == []
    assert sum(name == "style" for name, _ in page.elements) == 1
    assert "\u202e" not in written
    assert "\x1b" not in written


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_shown_as_it_is(text):
    page = page_of(Bullets((Text(text), Text(text, literal=True))), verdicts(text), title=text)
    assert page.texts["li"] == [printable(text)] * 2
    assert page.texts["td"] == [printable(text), "regressed"]


def test_without_matplotlib_the_page_says_what_gives_plots(monkeypatch):
    monkeypatch.setattr(html_page, "can_plot", lambda: False)
    text = render_html(document(*FIGURES))
    assert len(Page(text).of("figure")) == 1  # lanes need no library
    assert text.count("pip install &#34;pytest-stepprof[html]&#34;") + text.count('"pytest-stepprof[html]"') == 2


def test_the_same_document_gives_the_same_page():
    one = document(verdicts("t.py::a"), *FIGURES)
    assert render_html(one) == render_html(one)


def test_a_page_begins_with_its_kind():
    assert render_html(document()).startswith("<!DOCTYPE html>\n")


def test_an_empty_document_is_a_page():
    assert page_of().texts["h1"] == ["stepprof: one test"]
