"""Reports beside the one on the screen: ``--report FORMAT[:PATH]``, checked before anything else, written last."""

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.report.document import Document
from pytest_stepprof.report.formats import FORMATS, Format, ReportRequest, parse_request
from pytest_stepprof.store.report_files import (
    append_step_summary,
    check_report_paths,
    summary_room_bytes,
    write_report_file,
)

if TYPE_CHECKING:
    from pytest_stepprof.report.material import Material

_SESSION = "{session}"
_SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_DATA: tuple[Format, ...] = ("json", "action-benchmark")
_ONLY_FILES: tuple[Format, ...] = ("html",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReports:
    """What was asked for: files, what stands on standard output in place of the usual text, and GitHub's own places."""

    files: tuple[tuple[Format, Path], ...] = ()
    to_output: Format | None = None
    github: bool = False

    def __bool__(self) -> bool:
        """Whether anything but the usual text was asked for."""
        return bool(self.files) or self.to_output is not None or self.github


def add_report_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Let a person ask for reports, as often as they like."""
    meaning = (
        f"write a report, too: {', '.join(FORMATS)}; without PATH to standard output in place of the usual text "
        f"(github: to the job's summary, and annotations); {_SESSION} in PATH stands for the session; repeatable"
    )
    parser.add_argument("--report", type=_request, action="append", default=[], metavar="FORMAT[:PATH]", help=meaning)


def wanted_reports(
    requests: Sequence[ReportRequest], *, session_id: str | None, markdown: bool = False
) -> WantedReports:
    """Check what ``--report`` asks for; ``markdown`` says that standard output is asked for as Markdown already.

    ``session_id`` stands for ``{session}``; ``None`` where there is no session.

    Raises:
        UsageError: two reports for standard output or for one file, a format that needs a file, a file that exists,
            no folder for one, or ``{session}`` where no session is.
        StoreError: the session's name, which somebody else may have written, cannot be part of a file's name.
    """
    streamed: dict[Format, None] = {"markdown": None} if markdown else {}
    files = []
    for wanted in requests:
        if wanted.path is not None:
            files.append((wanted.format, _place(wanted, session_id)))
        elif wanted.format in _ONLY_FILES:
            raise UsageError(f"found --report {wanted.format}, expected a file for it: --report {wanted.format}:PATH.")
        elif wanted.format != "github":
            streamed[wanted.format] = None
    if len(streamed) > 1:
        raise UsageError(
            f"found {' and '.join(streamed)} for standard output, expected one: give the others a file, as "
            f"--report {list(streamed)[-1]}:PATH."
        )
    check_report_paths([path for _, path in files])
    github = any(wanted.format == "github" for wanted in requests)
    return WantedReports(files=tuple(files), to_output=next(iter(streamed), None), github=github)


def delivered(
    wanted: WantedReports, document: Document, material: "Callable[[], Material]", outcome: Outcome
) -> Outcome:
    """Write all reports; ``outcome`` brings remarks and the exit code, ``document`` is what standard output shows.

    What cannot be written is a remark, and the verdict is not lost with it; an exit code of 0 is 2 then (3 after a
    fault of ours). ``material`` is asked for once, and only if a report needs it.
    """
    if not wanted:
        return replace(outcome, text=render(document, markdown=False))
    from pytest_stepprof.report.material import naming_the_whole

    made = naming_the_whole(material(), wanted.files)
    for report_format, path in wanted.files:
        outcome = _tried(outcome, str(path), partial(_write_file, report_format, path, made))
    if wanted.github:
        outcome = _tried(outcome, "the job's summary", partial(_add_to_summary, made))
        outcome = replace(outcome, commands=_annotations(made))
    if wanted.to_output in (None, "terminal"):
        return replace(outcome, text=render(document, markdown=False))
    text = _rendered(wanted.to_output, made).rstrip("\n")
    return replace(outcome, text=text, is_data=wanted.to_output in _DATA)


def _request(text: str) -> ReportRequest:
    try:
        return parse_request(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _place(wanted: ReportRequest, session_id: str | None) -> Path:
    path = wanted.path or ""
    if _SESSION not in path:
        return Path(path)
    if session_id is None:
        raise UsageError(f"found {_SESSION} in {path}, expected a name without it: two commits are compared here.")
    if not _SESSION_NAME.fullmatch(session_id):
        raise StoreError(f"the session is called {session_id!a}, which no file's name can hold: leave out {_SESSION}.")
    return Path(path.replace(_SESSION, session_id))


def _rendered(report_format: Format, material: "Material") -> str:
    from pytest_stepprof.report.rendering import render_report

    return render_report(report_format, material)


def _write_file(report_format: Format, path: Path, material: "Material") -> None:
    write_report_file(path, _rendered(report_format, material).encode(errors="backslashreplace"))


def _add_to_summary(material: "Material") -> None:
    from pytest_stepprof.report.github import SUMMARY_LIMIT_BYTES, step_summary

    place = os.environ.get(_SUMMARY_VARIABLE)
    if not place:
        raise StoreError(f"no summary was written: {_SUMMARY_VARIABLE} is not set, expected a job of GitHub Actions.")
    text = step_summary(material, summary_room_bytes(Path(place), SUMMARY_LIMIT_BYTES))
    if not text.strip() or not append_step_summary(Path(place), text, SUMMARY_LIMIT_BYTES):
        raise StoreError(f"the job's summary {place} has no room left for this report (900 KiB in all).")


def _annotations(material: "Material") -> tuple[str, ...]:
    from pytest_stepprof.report.github import annotations

    return annotations(material)


def _tried(outcome: Outcome, name: str, write: Callable[[], None]) -> Outcome:
    """Write one report. A fault of ours in a writer costs this report, not the verdict nor the other reports."""
    try:
        write()
    except StoreError as error:
        remark, code = str(error), ExitCode.USAGE
    except Exception as error:
        remark = f"{name} was not written, stepprof itself failed: {type(error).__name__}: {error}"
        code = ExitCode.BROKEN
    else:
        return outcome
    return replace(outcome, remarks=(*outcome.remarks, remark), exit_code=outcome.exit_code or code)
