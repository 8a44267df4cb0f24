"""One side in one fresh pytest process."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof.ab import witness
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.imported import check_imports
from pytest_stepprof.ab.process import Finished, SideFailedError, run_process
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
    """What to run: the side, its hash seed, a folder of its own for all it stores, and the person's arguments."""

    side: Side
    checkouts: Checkouts
    hash_seed: int
    folder: Path
    pytest_arguments: Sequence[str]
    limit_s: float


def run_side(request: SideRequest) -> SideRun:
    """Run the marked tests of one side in a fresh process, and check whose files it imported.

    Raises:
        SideFailedError: the process crashed, hung, or was interrupted.
        UsageError: pytest did not understand its arguments.
        ForeignImportError: the side imported files of the other one, or the user's.
        StoreError: the stored session cannot be read.
    """
    request.folder.mkdir(parents=True)
    statement_file = request.folder / "witness.json"
    finished = run_process(
        _command(request),
        folder=request.side.start,
        environment=_environment(request, statement_file),
        log=request.folder / "pytest.log",
        limit_s=request.limit_s,
    )
    _check_exit(request.side, finished)
    try:
        statement = json.loads(statement_file.read_bytes())
    except OSError as error:
        raise SideFailedError(_told(request.side, "ended before it could say what it imported", finished)) from error
    check_imports(request.side, statement["modules"], request.checkouts)
    store = Store(request.folder / "sessions")
    session_ids = store.session_ids()
    return SideRun(
        session=store.load_session(session_ids[-1]) if session_ids else None,
        store=store,
        failed=_printable(statement["failed"]),
        skipped=_printable(statement["skipped"]),
        modules=statement["modules"],
        duration_s=finished.duration_s,
    )


def _command(request: SideRequest) -> list[str]:
    return [
        *(sys.executable, "-m", "pytest", "--stepprof", f"--stepprof-dir={request.folder / 'sessions'}"),
        *("-p", "no:cacheprovider", "-p", witness.__name__, "--continue-on-collection-errors", "-m", "stepprof"),
        *request.pytest_arguments,
    ]


def _environment(request: SideRequest, statement_file: Path) -> dict[str, str]:
    """This process's variables, with the side's own folders in front of everything that Python can import.

    What is on ``PYTHONPATH`` already stays there; the user's own folders are replaced by their counterparts. git must
    not take a temporary folder that lies inside some repository for a part of it.
    """
    checkouts, side = request.checkouts, request.side
    roots = (side.checkout, checkouts.original, checkouts.base.checkout, checkouts.head.checkout)
    folders = [side.start, side.start / "src", side.checkout, side.checkout / "src"]
    own = dict.fromkeys(str(folder) for folder in folders if folder.is_dir())
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    moved = dict.fromkeys(_moved(entry, request) for entry in given)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join({**own, **moved}),
        "PYTHONHASHSEED": str(request.hash_seed),
        "GIT_CEILING_DIRECTORIES": str(side.checkout.parent),
        witness.VARIABLE: json.dumps(
            {
                "write_to": str(statement_file),
                "roots": [str(root) for root in roots],
                "spare": str(checkouts.original),
            }
        ),
    }


def _moved(entry: str, request: SideRequest) -> str:
    place = Path(entry).resolve()
    if not place.is_relative_to(request.checkouts.original):
        return entry
    counterpart = request.side.checkout / place.relative_to(request.checkouts.original)
    return str(counterpart) if counterpart.exists() else entry


def _check_exit(side: Side, finished: Finished) -> None:
    if finished.exit_status in (_PASSED, _TESTS_FAILED, _NO_TESTS):
        return
    if finished.exit_status == _USAGE_ERROR:
        raise UsageError(_told(side, "did not accept its arguments", finished))
    raise SideFailedError(_told(side, f"ended with the exit status {finished.exit_status}", finished))


def _told(side: Side, what: str, finished: Finished) -> str:
    return f"{side.name}: pytest {what}. Its last lines:\n{finished.last_lines()}"


def _printable(reasons: Mapping[str, str]) -> dict[str, str]:
    return {printable(node_id): printable(reason) for node_id, reason in reasons.items()}
