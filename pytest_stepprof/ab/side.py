"""One side in one fresh pytest process."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_stepprof.ab import witness
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.imported import check_imports
from pytest_stepprof.ab.living import LivingProcess, ends_in_time
from pytest_stepprof.ab.process import Finished, SideFailedError
from pytest_stepprof.ab.surroundings import temporary_folder, variables_of, watched_folders
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.directory import Store

_PASSED, _TESTS_FAILED, _USAGE_ERROR, _NO_TESTS = 0, 1, 4, 5  # pytest's own exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRun:
    """What one process of one side left behind.

    ``session`` is ``None`` when nothing was measured. ``failed`` and ``skipped`` map node ids (of tests, or of files
    that could not be collected) to reasons, ``modules`` imported modules to their files.
    """

    session: Session | None
    store: Store
    failed: Mapping[str, str]
    skipped: Mapping[str, str]
    modules: Mapping[str, str]
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRequest:
    """What to run: the side, its hash seed, a folder of its own for all it stores, and the person's arguments.

    ``options`` are pytest's, too, and stand before the person's, which win over them. ``variables`` are added to the
    environment. ``seed`` is for what is random while files are imported. ``limit_s`` is how long the process may be
    silent: neither collect a file nor get to the next part of a test.
    """

    side: Side
    checkouts: Checkouts
    hash_seed: int
    folder: Path
    pytest_arguments: Sequence[str]
    limit_s: float
    seed: int = 0
    options: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    guardian: Guardian | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a process said of itself when it ended; the fields of ``SideRun``."""

    failed: Mapping[str, str]
    skipped: Mapping[str, str]
    modules: Mapping[str, str]


def run_side(request: SideRequest) -> SideRun:
    """Run the marked tests of one side in a fresh process, and check whose files it imported.

    Raises:
        SideFailedError: the process crashed, hung, or was interrupted; it names the test in which it did.
        UsageError: pytest did not understand its arguments.
        ForeignImportError: the side imported files of the other one, or the user's.
        StoreError: the stored session cannot be read.
    """
    process = start_side(request)
    try:
        in_time = ends_in_time(process, request.limit_s, _progress_file(request))
    finally:
        finished = process.end()
        shutil.rmtree(_cache(request), ignore_errors=True)
    if not in_time:
        why = f"was ended because it did nothing for {request.limit_s:g} s (--timeout gives more)"
        raise _failed(request, finished, why)
    if finished.exit_status not in (_PASSED, _TESTS_FAILED, _NO_TESTS):
        raise refused_arguments(request.side, finished) or _failed(request, finished, f"ended ({finished.in_words()})")
    statement = statement_of(request)
    if statement is None:
        raise _failed(request, finished, f"ended before it could say what it imported ({finished.in_words()})")
    store = Store(request.folder / "sessions")
    session_ids = store.session_ids()
    return SideRun(
        session=store.load_session(session_ids[-1]) if session_ids else None,
        store=store,
        failed=statement.failed,
        skipped=statement.skipped,
        modules=statement.modules,
        duration_s=finished.duration_s,
    )


def start_side(request: SideRequest) -> LivingProcess:
    """Start the marked tests of one side in a fresh process, and leave it alive.

    Raises:
        SideFailedError: it cannot be started.
    """
    return LivingProcess(**_start(request))


def statement_of(request: SideRequest) -> Statement | None:
    """Read what the process of this request said of itself; ``None`` when it ended before it could.

    Raises:
        ForeignImportError: the side imported files of the other one, or the user's.
    """
    try:
        statement = json.loads(_statement_file(request).read_bytes())
    except (OSError, ValueError):
        return None
    check_imports(request.side, statement["modules"], request.checkouts)
    return Statement(
        failed=_printable(statement["failed"]), skipped=_printable(statement["skipped"]), modules=statement["modules"]
    )


def keep_failures(request: SideRequest, failed: Mapping[str, str]) -> None:
    """Add to what the process of this request said of itself tests of which it could not know: they ended another."""
    statement = json.loads(_statement_file(request).read_bytes())
    statement["failed"] = {**statement["failed"], **failed}
    _statement_file(request).write_text(json.dumps(statement), encoding="utf-8")


def refused_arguments(side: Side, finished: Finished) -> UsageError | None:
    """Return the error to raise when pytest did not understand what it was called with."""
    if finished.exit_status != _USAGE_ERROR:
        return None
    return UsageError(f"{side.name}: pytest did not accept its arguments. Its last lines:\n{finished.last_lines()}")


def _start(request: SideRequest) -> dict[str, Any]:
    request.folder.mkdir(parents=True)
    temporary = temporary_folder(request.side)
    if temporary is not None:
        temporary.mkdir(exist_ok=True, mode=0o700)
    return {
        "command": _command(request),
        "folder": request.side.start,
        "environment": _environment(request),
        "log": request.folder / "pytest.log",
        "guardian": request.guardian,
    }


def _cache(request: SideRequest) -> Path:
    """A cache for each process: without any, pytest would not know ``--ff`` among a project's own options."""
    return request.folder / "pytest-cache"


def _command(request: SideRequest) -> list[str]:
    return [
        *(str(request.side.python), "-m", "pytest", "--stepprof", f"--stepprof-dir={request.folder / 'sessions'}"),
        *("-o", f"cache_dir={_cache(request)}", "-p", witness.__name__),
        *("--continue-on-collection-errors", "-m", "stepprof"),
        *request.options,
        *request.pytest_arguments,
    ]


def _environment(request: SideRequest) -> dict[str, str]:
    checkouts, side = request.checkouts, request.side
    own_variables = {
        "PYTHONHASHSEED": str(request.hash_seed),
        witness.VARIABLE: json.dumps(
            {
                "write_to": str(_statement_file(request)),
                "progress": str(_progress_file(request)),
                "seed": request.seed,
                "roots": [str(root) for root in watched_folders(side, checkouts)],
                "spare": str(checkouts.original),
            }
        ),
    }
    temporary = temporary_folder(side)
    if temporary is not None:
        own_variables["TMPDIR"] = str(temporary)
    return {**variables_of(side, checkouts), **own_variables, **request.variables}


def _statement_file(request: SideRequest) -> Path:
    return request.folder / "witness.json"


def _progress_file(request: SideRequest) -> Path:
    return request.folder / "progress.json"


def _failed(request: SideRequest, finished: Finished, what: str) -> SideFailedError:
    """Say which side failed, how, and in what it was then."""
    at = _last_progress(request)
    test, collecting = at.get("test"), at.get("collecting")
    place = f" in {printable(test)}" if test else f" while it collected {printable(collecting)}" if collecting else ""
    return SideFailedError(
        f"{request.side.name}: pytest's process {what}{place}. The end of its log:\n{finished.last_lines()}",
        node_id=printable(test) if test else None,
        reason=f"its process {what}",
    )


def _last_progress(request: SideRequest) -> dict[str, str]:
    try:
        at: dict[str, str] = json.loads(_progress_file(request).read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return at


def _printable(reasons: Mapping[str, str]) -> dict[str, str]:
    return {printable(node_id): printable(reason) for node_id, reason in reasons.items()}
