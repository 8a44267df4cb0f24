"""The line that says what a long measurement is doing, on a terminal only."""

from contextlib import nullcontext

import pytest

SAVE, RESTORE, NO_WRAP, WRAP, ERASE = "\x1b7", "\x1b8", "\x1b[?7l", "\x1b[?7h", "\x1b[K"


class LiveLine:
    """Writes behind the cursor and puts the cursor back, so that pytest's own progress stays as it is."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def show(self, text: str) -> None:
        """Replace the line's text."""
        self._write(f"{SAVE}{NO_WRAP}  {text}{ERASE}{RESTORE}{WRAP}")

    def clear(self) -> None:
        """Take the line away."""
        self._write(ERASE)

    def _write(self, text: str) -> None:
        plugins = self._config.pluginmanager  # asked late: when this object is made, pytest has no reporter yet
        reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
        if reporter is None or not reporter.isatty or self._config.get_verbosity() < 0:
            return
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            reporter.write(text, flush=True)
