"""A test of a baseline under its new name: a note beside the sessions, which stay as they were measured."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.session import SCHEMA_VERSION, Session

_NAMED = 5


class TestRename(Record, frozen=True, kw_only=True):
    """One test of one baseline is called otherwise from here on. Sessions that are appended later are not touched.

    ``test`` is the new identity as far as it is known: another session that holds the test gives all of it.
    """

    __test__ = False

    schema_version: int = SCHEMA_VERSION
    name: str
    old_key: str
    test: TestIdentity


def renamed(session: Session, renames: Iterable[TestRename]) -> Session:
    """The session with its tests under their new names, in the order of the renames.

    A session that holds both names already keeps them: two tests never become one.
    """
    for rename in renames:
        if rename.old_key in _keys(session) and rename.test.key not in _keys(session):
            measurements = tuple(_under_new_name(measurement, rename) for measurement in session.measurements)
            session = msgspec.structs.replace(session, measurements=measurements)
    return session


def planned_rename(name: str, sessions: Sequence[Session], old: str, new_key: str) -> TestRename:
    """What ``Store.rename_test`` writes down. ``old`` is a test's key, or the name that pytest gives it.

    Raises:
        UsageError: the new name is not one of a test, or is the old one.
        StoreError: no session of the baseline holds the test, or one of them holds both names.
    """
    _check_new_key(new_key)
    old_key = _key_of(name, sessions, old)
    if old_key == new_key:
        raise UsageError(f"the test is called {new_key} already: expected another new name.")
    for session in sessions:
        if {old_key, new_key} <= _keys(session):
            raise StoreError(
                f"session {session.session_id} of the baseline {name} holds both {old_key} and {new_key}: two tests "
                "cannot become one. Rename the other one first, or drop this session from the baseline."
            )
    return TestRename(name=name, old_key=old_key, test=_identity(sessions, old_key, new_key))


def closest_first(names: Iterable[str], to: str) -> tuple[str, ...]:
    """All names once, those that look most like ``to`` first, others in alphabetical order."""
    known = sorted(set(names))
    alike = difflib.get_close_matches(to, known, n=_NAMED, cutoff=0.5)
    return (*alike, *(name for name in known if name not in alike))


def _under_new_name(measurement: Measurement, rename: TestRename) -> Measurement:
    if measurement.test.key != rename.old_key:
        return measurement
    return msgspec.structs.replace(measurement, test=rename.test)


def _keys(session: Session) -> set[str]:
    return {measurement.test.key for measurement in session.measurements}


def _tests(sessions: Sequence[Session]) -> Iterator[TestIdentity]:
    """All tests, those of the newest session first."""
    for session in reversed(sessions):
        yield from (measurement.test for measurement in session.measurements)


def _key_of(name: str, sessions: Sequence[Session], old: str) -> str:
    keys = [test.key for test in _tests(sessions)]
    if old in keys:
        return old
    by_node_id = {test.key for test in _tests(sessions) if test.node_id == old}
    if len(by_node_id) == 1:
        return by_node_id.pop()
    known = closest_first(keys, old)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    raise StoreError(
        f"the baseline {name} holds no test {old}. It holds {', '.join(known[:_NAMED]) or 'no test at all'}{more}."
    )


def _check_new_key(new_key: str) -> None:
    file, separator, qualified_name = new_key.partition("::")
    if not (file.strip() and separator and qualified_name.strip() and new_key.isprintable()):
        raise UsageError(
            f"{new_key!a} is not the name of a test: expected file and name as in tests/test_a.py::test_b[size=4], as "
            "`stepprof baseline show` prints them."
        )


def _identity(sessions: Sequence[Session], old_key: str, new_key: str) -> TestIdentity:
    """The identity that another session gives the new name, or one made of it; parameters stay if their text does."""
    known = {test.key: test for test in _tests(sessions)}
    if new_key in known:
        return known[new_key]
    old = known[old_key]
    file, qualified_name, brackets = _parts(new_key)
    same = brackets == _parts(old_key)[2]
    in_node_id = _parts(old.node_id)[2] if same else brackets  # pytest's own text, as far as the old name tells it
    return TestIdentity(
        key=new_key,
        file=file,
        qualified_name=qualified_name,
        parameters=old.parameters if same else _parameters(brackets[1:].removesuffix("]")),
        node_id=f"{file}::{qualified_name.replace('.', '::')}{in_node_id}",
    )


def _parts(key: str) -> tuple[str, str, str]:
    """File, qualified name, and the parameters with their brackets."""
    file, _, rest = key.partition("::")
    qualified_name, bracket, inside = rest.partition("[")
    return file, qualified_name, bracket + inside


def _parameters(inside: str) -> tuple[tuple[str, str], ...]:
    """``size=4, kind='a'`` in pairs; a comma inside a value is taken to end it, which touches only what is shown."""
    pairs = (part.partition("=") for part in inside.split(", ") if "=" in part)
    return tuple((name, value) for name, _, value in pairs)
