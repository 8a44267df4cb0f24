"""Reports beside the one on the terminal: ``--stepprof-report=FORMAT:PATH``, checked first and written last."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.plugin.places import short_path
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.report.formats import Format, ReportRequest, parse_request
from pytest_stepprof.store.report_files import (
    append_step_summary,
    check_report_paths,
    summary_room_bytes,
    write_report_file,
)

if TYPE_CHECKING:
    from pytest_stepprof.report.material import Material

_SESSION = "{session}"
_SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


class Reports:
    """The reports that a session was asked for; ``failed`` says that one of them could not be written."""

    def __init__(self, config: pytest.Config, session_id: str) -> None:
        """Check that each can be written where it is wanted.

        Raises:
            pytest.UsageError: a report cannot be understood or has no place, or a file is there already.
        """
        try:
            wanted = [_request(text) for text in config.getoption("stepprof_report") or ()]
            here = config.invocation_params.dir
            self._files: list[tuple[Format, Path]] = [
                (one.format, here / one.path.replace(_SESSION, session_id)) for one in wanted if one.path is not None
            ]
            check_report_paths([path for _, path in self._files])
        except StepprofError as error:
            raise pytest.UsageError(str(error)) from None
        self._github = any(one.format == "github" for one in wanted)
        self._verbosity = max(config.get_verbosity(), 1)
        self.failed = False

    def __bool__(self) -> bool:
        """Whether any report was asked for."""
        return bool(self._files) or self._github

    def deliver(self, record: ReportRecord) -> Iterator[tuple[str, bool]]:
        """Write all of them; gives lines for the terminal, and whether each one is an alarm.

        One that cannot be written is said, and keeps nobody from the others.
        """
        from pytest_stepprof.report.material import material_of, naming_the_whole

        try:
            material = naming_the_whole(material_of(record, verbosity=self._verbosity), self._files)
        except Exception as error:  # a fault of ours costs the reports, not the session
            yield self._failure(_own_fault(error))
            return
        for report_format, path in self._files:
            yield self._tried(f"{report_format} report", path, partial(_write, report_format, path, material))
        if self._github:
            yield from self._to_github(material)

    def _to_github(self, material: "Material") -> Iterator[tuple[str, bool]]:
        from pytest_stepprof.report.github import annotations

        place = os.environ.get(_SUMMARY_VARIABLE)
        if place:
            yield self._tried("summary of the job", Path(place), partial(_add_to_summary, Path(place), material))
        else:
            yield self._failure(f"{_SUMMARY_VARIABLE} is not set, expected a job of GitHub Actions")
        yield from ((line, False) for line in annotations(material))

    def _tried(self, name: str, path: Path, write: Callable[[], None]) -> tuple[str, bool]:
        try:
            write()
        except StepprofError as error:
            return self._failure(str(error))
        except Exception as error:  # a fault of ours in one writer costs this report only
            return self._failure(f"{short_path(path)}: {_own_fault(error)}")
        return f"stepprof: {name} written: {short_path(path)}", False

    def _failure(self, why: str) -> tuple[str, bool]:
        self.failed = True
        return f"stepprof: a report was not written: {why}", True


def _own_fault(error: Exception) -> str:
    return f"stepprof itself failed: {type(error).__name__}: {error}"


def _write(report_format: Format, path: Path, material: "Material") -> None:
    from pytest_stepprof.report.rendering import render_report

    write_report_file(path, render_report(report_format, material).encode(errors="backslashreplace"))


def _add_to_summary(path: Path, material: "Material") -> None:
    from pytest_stepprof.report.github import SUMMARY_LIMIT_BYTES, step_summary

    text = step_summary(material, summary_room_bytes(path, SUMMARY_LIMIT_BYTES))
    if not text.strip() or not append_step_summary(path, text, SUMMARY_LIMIT_BYTES):
        raise UsageError(f"the job's summary {path.name} has no room left for this report (900 KiB in all)")


def _request(text: str) -> ReportRequest:
    try:
        wanted = parse_request(text)
    except ValueError as error:
        raise UsageError(f"--stepprof-report: {error}") from None
    if wanted.path is None and wanted.format != "github":
        raise UsageError(
            f"--stepprof-report={wanted.format} names no file; expected {wanted.format}:PATH, because standard output "
            "is pytest's."
        )
    return wanted
