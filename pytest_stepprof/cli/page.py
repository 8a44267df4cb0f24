"""How a Document leaves the command line: Markdown when asked for, else text that fits standard output."""

import argparse
import os
import shutil
import sys

from pytest_stepprof.report.document import Document
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.terminal import render_terminal

_WIDTH_OF_A_FILE = 160  # where nobody's screen limits the lines


def add_format_options(parser: argparse.ArgumentParser) -> None:
    """Let the user choose Markdown, and how much is shown."""
    parser.add_argument("--markdown", action="store_true", help="write GitHub-flavoured Markdown")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show more; twice: all")


def render(document: Document, *, markdown: bool) -> str:
    """Write the document for where standard output goes: colour only on a terminal and without ``NO_COLOR``."""
    if markdown:
        return render_markdown(document).rstrip("\n")
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal or "COLUMNS" in os.environ else _WIDTH_OF_A_FILE
    return render_terminal(document, width=width, colour=on_terminal and not os.environ.get("NO_COLOR"))
