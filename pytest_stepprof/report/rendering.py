"""One report in the format that was asked for."""

from pytest_stepprof.report.action_benchmark import action_benchmark
from pytest_stepprof.report.formats import Format
from pytest_stepprof.report.github import step_summary
from pytest_stepprof.report.json_report import json_report
from pytest_stepprof.report.markdown_report import markdown_report
from pytest_stepprof.report.material import Material
from pytest_stepprof.report.sticky import with_header
from pytest_stepprof.report.terminal import render_terminal

WIDTH_OF_A_FILE = 160
"""Columns of a terminal's report where nobody's screen limits the lines."""


def render_report(report_format: Format, material: Material, *, width: int = WIDTH_OF_A_FILE) -> str:
    """Write a report as text that ends with a line break; a terminal's without colour, ``width`` columns wide.

    ``github`` is what belongs into the summary of a step; ``github.annotations`` are for standard output.

    Raises:
        StoreError: a record holds what JSON does not bring back as it was.
    """
    match report_format:
        case "terminal":
            return render_terminal(material.document, width=width, colour=False).rstrip() + "\n"
        case "markdown":
            return markdown_report(material)
        case "json":
            return json_report(material.json_record)
        case "html":
            from pytest_stepprof.report.html.page import render_html  # Jinja2, and matplotlib where it is installed

            return render_html(with_header(material.document, material.commits, material.when_utc))
        case "action-benchmark":
            return action_benchmark(material)
        case "github":
            return step_summary(material)
