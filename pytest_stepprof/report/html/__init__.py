"""A Document as one self-contained HTML page: no script, no request, plots as inline SVG."""

from pytest_stepprof.report.html.page import render_html

__all__ = ["render_html"]
