from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.errors import StepprofError, StoreError, UsageError
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store.baseline_changes import closest_first
from pytest_stepprof.store.directory import Store

OLD, NEW, OTHER = "test_a.py::test_old", "test_a.py::test_new", "test_b.py::test_other"


def measured(key: str) -> Measurement:
    file, _, rest = key.partition("::")
    name, _, inside = rest.partition("[")
    pairs = [part.partition("=") for part in inside.removesuffix("]").split(", ") if part]
    node_id = f"{file}::{name.replace('.', '::')}" + (f"[{'-'.join(value for *_, value in pairs)}]" if pairs else "")
    test = TestIdentity(
        key=key,
        file=file,
        qualified_name=name,
        parameters=tuple((parameter, value) for parameter, _, value in pairs),
        node_id=node_id,
    )
    return sample_measurement(test=test)


def appended(store: Store, session_id: str, *tests: str, name: str = "main") -> Session:
    session = sample_session(session_id=session_id, measurements=tuple(map(measured, tests)))
    store.save_session(session, {})
    store.append_to_baseline(name, session)
    return session


def keys(sessions: Sequence[Session]) -> list[list[str]]:
    return [[measurement.test.key for measurement in session.measurements] for session in sessions]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def contents(store: Store) -> dict[str, bytes]:
    files = (path for path in store.directory.rglob("*") if path.is_file())
    return {path.relative_to(store.directory).as_posix(): path.read_bytes() for path in files}


class TestRenameTest:
    def test_gives_every_session_of_the_baseline_the_new_name_and_writes_none_anew(self, store: Store) -> None:
        sessions = [appended(store, "a", OLD, OTHER), appended(store, "b", OTHER), appended(store, "c", OLD)]
        before = contents(store)
        assert store.rename_test("main", OLD, NEW) == 2
        assert keys(store.baseline("main")) == [[NEW, OTHER], [OTHER], [NEW]]
        (renamed, *_), *_ = (session.measurements for session in store.baseline("main"))
        assert renamed == msgspec.structs.replace(sessions[0].measurements[0], test=measured(NEW).test)
        assert [store.load_session(session.session_id) for session in sessions] == sessions
        after = contents(store)
        assert {name: after[name] for name in before} == before
        assert len(after) == len(before) + 1

    def test_holds_for_the_sessions_of_now_and_not_for_later_ones(self, store: Store) -> None:
        appended(store, "a", OLD)
        store.rename_test("main", OLD, NEW)
        appended(store, "b", NEW, OLD)  # another test got the free name
        assert keys(store.baseline("main")) == [[NEW], [NEW, OLD]]

    def test_renames_follow_one_another(self, store: Store) -> None:
        appended(store, "a", "t.py::test_1")
        for number in range(1, 12):
            store.rename_test("main", f"t.py::test_{number}", f"t.py::test_{number + 1}")
        assert keys(store.baseline("main")) == [["t.py::test_12"]]
        store.rename_test("main", "t.py::test_12", "t.py::test_1")
        assert keys(store.baseline("main")) == [["t.py::test_1"]]

    def test_two_names_change_places_over_a_third(self, store: Store) -> None:
        appended(store, "a", OLD, NEW)
        for before, after in ((OLD, OTHER), (NEW, OLD), (OTHER, NEW)):
            store.rename_test("main", before, after)
        assert keys(store.baseline("main")) == [[NEW, OLD]]

    def test_a_history_under_both_names_becomes_one(self, store: Store) -> None:
        appended(store, "a", OLD)
        appended(store, "b", NEW)
        assert store.rename_test("main", OLD, NEW) == 1
        assert keys(store.baseline("main")) == [[NEW], [NEW]]

    def test_other_baselines_keep_the_name(self, store: Store) -> None:
        store.append_to_baseline("other", appended(store, "a", OLD))
        store.rename_test("main", OLD, NEW)
        assert keys(store.baseline("other")) == [[OLD]]

    def test_pytest_s_own_name_of_the_test_will_do(self, store: Store) -> None:
        appended(store, "a", "t.py::TestA.test_b[kind='x', size=4]", OTHER)
        assert store.rename_test("main", "t.py::TestA::test_b['x'-4]", "t.py::test_c[kind='x', size=4]") == 1
        assert keys(store.baseline("main")) == [["t.py::test_c[kind='x', size=4]", OTHER]]

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            (
                "a.py::test_a[kind='x', size=4]",
                "b/c.py::TestC.test_d[kind='x', size=4]",
                ("b/c.py", "TestC.test_d", (("kind", "'x'"), ("size", "4")), "b/c.py::TestC::test_d['x'-4]"),
            ),
            (
                "a.py::test_a[size=4]",
                "a.py::test_a[batch=1, size=4]",
                ("a.py", "test_a", (("batch", "1"), ("size", "4")), "a.py::test_a[batch=1, size=4]"),
            ),
            ("a.py::test_a[size=4]", "a.py::test_a", ("a.py", "test_a", (), "a.py::test_a")),
            ("a.py::test_a", "[x].py::基準線", ("[x].py", "基準線", (), "[x].py::基準線")),
        ],
    )
    def test_the_new_identity_is_made_of_the_name(
        self, store: Store, old: str, new: str, expected: tuple[object, ...]
    ) -> None:
        appended(store, "a", old)
        store.rename_test("main", old, new)
        test = store.baseline("main")[0].measurements[0].test
        assert (test.file, test.qualified_name, test.parameters, test.node_id) == expected

    def test_the_new_identity_is_that_of_a_session_that_has_it(self, store: Store) -> None:
        appended(store, "a", OLD)
        known = msgspec.structs.replace(measured(NEW).test, node_id="as pytest writes it", line=7)
        session = sample_session(session_id="b", measurements=(sample_measurement(test=known),))
        store.save_session(session, {})
        store.append_to_baseline("main", session)
        store.rename_test("main", OLD, NEW)
        assert store.baseline("main")[0].measurements[0].test == known

    @pytest.mark.parametrize(
        ("arguments", "kind", "reason"),
        [
            (("main", "test_a.py::test_odl", NEW), StoreError, f"holds no test .*It holds {OLD}, {OTHER}"),
            (("main", OLD, OTHER), StoreError, "session a of the baseline main holds both"),
            (("main", OLD, OLD), UsageError, "called .* already"),
            (("main", OLD, ""), UsageError, "is not the name of a test"),
            (("main", OLD, "test_new"), UsageError, "is not the name of a test"),
            (("main", OLD, "::test_new"), UsageError, "is not the name of a test"),
            (("main", OLD, "a.py::"), UsageError, "is not the name of a test"),
            (("main", OLD, "a.py::b\nc"), UsageError, "is not the name of a test"),
            (("main", OLD, "a.py::b\x1b[31m"), UsageError, "is not the name of a test"),
            (("mian", OLD, NEW), StoreError, "no baseline mian. Known are main"),
            ((" ", OLD, NEW), UsageError, "needs a name"),
        ],
    )
    def test_what_cannot_be_renamed_is_told_and_changes_nothing(
        self, store: Store, arguments: tuple[str, str, str], kind: type[StepprofError], reason: str
    ) -> None:
        appended(store, "a", OLD, OTHER)
        before = contents(store)
        with pytest.raises(kind, match=reason):
            store.rename_test(*arguments)
        assert contents(store) == before

    @pytest.mark.parametrize("damage", [b"", b"{", b'{"schema_version": %d}' % (SCHEMA_VERSION + 1)])
    def test_a_damaged_rename_is_named_and_keeps_nobody_from_the_sessions(self, store: Store, damage: bytes) -> None:
        appended(store, "a", OLD)
        store.rename_test("main", OLD, NEW)
        (file,) = store.directory.rglob("rename-*.json")
        file.write_bytes(damage)
        sessions, (message,) = store.read_baseline("main")
        assert keys(sessions) == [[OLD]]
        assert str(file) in message

    def test_a_damaged_session_does_not_keep_the_others_from_a_rename(self, store: Store) -> None:
        for session_id in ("a", "b"):
            appended(store, session_id, OLD)
        (store.directory / "sessions" / "a.json").write_bytes(b"")
        assert store.rename_test("main", OLD, NEW) == 1
        assert keys(store.read_baseline("main")[0]) == [[NEW]]

    def test_many_writers_lose_no_rename_and_no_session(self, store: Store) -> None:
        tests = [f"t.py::test_{number}" for number in range(8)]
        appended(store, "a", *tests)
        more = [sample_session(session_id=f"b{number}", measurements=(measured(OTHER),)) for number in range(8)]
        for session in more:
            store.save_session(session, {})
        calls: list[Callable[[], object]] = [
            *(lambda test=test: store.rename_test("main", test, f"{test}_new") for test in tests),  # type: ignore[misc]
            *(lambda session=session: store.append_to_baseline("main", session) for session in more),  # type: ignore[misc]
        ]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda call: call(), calls))
        sessions, messages = store.read_baseline("main")
        assert messages == ()
        assert keys(sessions)[0] == [f"{test}_new" for test in tests]
        assert {session.session_id for session in sessions} == {"a", *(f"b{number}" for number in range(8))}


class TestDropBaseline:
    def test_forgets_the_list_and_no_session(self, store: Store) -> None:
        for session_id in ("b", "a"):
            store.append_to_baseline("other", appended(store, session_id, OLD))
        store.rename_test("main", OLD, NEW)
        assert store.drop_baseline("main") == ("b", "a")
        assert store.baseline("main") == ()
        assert store.baseline_names() == ("other",)
        assert store.session_ids() == ("a", "b")
        assert len(store.baseline("other")) == 2
        assert not any("rename" in name for name in contents(store))

    def test_the_name_is_free_again_and_old_renames_are_forgotten(self, store: Store) -> None:
        session = appended(store, "a", OLD)
        store.rename_test("main", OLD, NEW)
        store.drop_baseline("main")
        store.append_to_baseline("main", session)
        assert keys(store.baseline("main")) == [[OLD]]

    def test_files_of_the_person_s_stay(self, store: Store) -> None:
        appended(store, "a", OLD)
        (folder,) = (store.directory / "baselines").iterdir()
        (folder / "why.txt").write_text("mine")
        (folder / ".0123.tmp").write_text("left by a killed writer")
        store.drop_baseline("main")
        assert [path.name for path in folder.iterdir()] == ["why.txt"]
        assert store.baseline_names() == ()

    def test_one_that_was_killed_while_dropping_is_gone(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        def killed(self: Path, **_: object) -> None:
            raise KeyboardInterrupt

        appended(store, "a", OLD)
        appended(store, "b", OLD)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", killed)
            with pytest.raises(KeyboardInterrupt):
                store.drop_baseline("main")
        assert store.baseline("main") == ()
        assert store.baseline_names() == ()

    def test_one_that_is_not_there_is_told_with_those_that_are(self, store: Store) -> None:
        with pytest.raises(StoreError, match=r"no baseline main\. There is none yet"):
            store.drop_baseline("main")
        assert not store.directory.exists()
        for name in ("release", "main-gpu", "zzz"):
            appended(store, f"s-{name}", OLD, name=name)
        with pytest.raises(StoreError, match=r"no baseline main-gpus\. Known are main-gpu, release, zzz\."):
            store.drop_baseline("main-gpus")


class TestDropFromBaseline:
    def test_takes_out_one_session_which_stays_stored(self, store: Store) -> None:
        for session_id in ("a", "b", "c"):
            appended(store, session_id, OLD)
        store.drop_from_baseline("main", "b")
        assert [session.session_id for session in store.baseline("main")] == ["a", "c"]
        assert store.load_session("b").session_id == "b"
        store.append_to_baseline("main", store.load_session("b"))
        assert [session.session_id for session in store.baseline("main")] == ["a", "c", "b"]

    def test_a_session_that_comes_back_after_a_rename_has_the_name_it_was_measured_with(self, store: Store) -> None:
        for session_id in ("a", "b"):
            appended(store, session_id, OLD)
        store.rename_test("main", OLD, NEW)
        store.drop_from_baseline("main", "b")
        store.append_to_baseline("main", store.load_session("b"))
        assert keys(store.baseline("main")) == [[NEW], [OLD]]

    def test_a_damaged_one_can_be_taken_out(self, store: Store) -> None:
        for session_id in ("a", "b"):
            appended(store, session_id, OLD)
        (store.directory / "sessions" / "a.json").write_bytes(b"{")
        (entry,) = store.directory.rglob("*-b.json")
        entry.write_bytes(b"{")
        assert len(store.read_baseline("main")[1]) == 2
        for session_id in ("a", "b"):
            store.drop_from_baseline("main", session_id)
        assert store.read_baseline("main") == ((), ())

    def test_one_that_is_not_in_it_is_told_with_those_that_are(self, store: Store) -> None:
        for session_id in ("b", "a"):
            appended(store, session_id, OLD)
        with pytest.raises(StoreError, match=r"holds no session c\. It holds b, a\."):
            store.drop_from_baseline("main", "c")
        with pytest.raises(StoreError, match="no baseline other"):
            store.drop_from_baseline("other", "a")


def test_names_that_look_alike_come_first() -> None:
    names = ["zzz", "main", "release", "main"]
    assert closest_first(names, "mian") == ("main", "release", "zzz")
    assert closest_first(names, "relase") == ("release", "main", "zzz")
    assert closest_first([], "main") == ()
