"""How a person asks for a report."""

import pytest
from report_scene import compared_record

from pytest_stepprof.report.formats import FORMATS, ReportRequest, parse_request
from pytest_stepprof.report.material import material_of
from pytest_stepprof.report.rendering import render_report


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("markdown:out/report.md", ("markdown", "out/report.md")),
        ("json:C:/out/r.json", ("json", "C:/out/r.json")),
        ("html:{session}.html", ("html", "{session}.html")),
        ("terminal", ("terminal", None)),
        ("github", ("github", None)),
        ("action-benchmark:b.json", ("action-benchmark", "b.json")),
    ],
)
def test_what_is_understood(text, expected):
    assert parse_request(text) == ReportRequest(*expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected FORMAT or FORMAT:PATH with one of the formats terminal, markdown, json, html"),
        ("pdf:x.pdf", "found 'pdf:x.pdf', expected FORMAT or FORMAT:PATH"),
        ("Markdown:x", "expected FORMAT or FORMAT:PATH"),
        ("markdown:", "expected a path behind the colon, as in markdown:report.txt"),
        ("html: ", "expected a path behind the colon"),
        ("github:x", "expected github alone"),
    ],
)
def test_what_is_not_understood_says_what_was_expected(text, expected):
    with pytest.raises(ValueError, match=expected):
        parse_request(text)


@pytest.mark.parametrize("report_format", [name for name in FORMATS if name != "html"])
def test_every_format_ends_with_one_line_break(report_format):
    text = render_report(report_format, material_of(compared_record()))
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "test_slow" in text


def test_a_file_has_no_colour_and_the_width_that_was_asked_for():
    text = render_report("terminal", material_of(compared_record()), width=80)
    assert "\x1b" not in text
    table = text[text.index("--- All tests") : text.index("too narrow for")]
    assert max(map(len, table.splitlines())) <= 80
