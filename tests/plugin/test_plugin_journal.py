"""What a killed process had measured is not lost, and keeping it costs no test."""

import signal

import pytest

from pytest_stepprof.plugin.journaling import Journaling
from pytest_stepprof.store.directory import Store

STEPS = """
    import os
    import signal
    import torch

    def test_one(stepprof):
        stepprof(lambda: torch.ones(3) * 2)

    def test_two(stepprof):
        stepprof({step})

    def test_three(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""
KILL = "lambda: os.kill(os.getpid(), signal.SIGKILL)"


def unfinished(project) -> list[str]:
    return sorted(path.name for path in (project.store / "unfinished").glob("*.jsonl"))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process at once")
def test_kill_in_the_second_test_keeps_the_first_and_the_next_session_names_it_once(project):
    project.write(test_it=STEPS.format(step=KILL))

    killed = project.run_apart("--stepprof", "--stepprof-save=main", "-s")

    assert killed.ret == -signal.SIGKILL
    store = Store(project.store)
    [session_id] = store.unfinished()
    session = store.load_session(session_id)
    assert session.status == "interrupted"
    assert [one.test.qualified_name for one in session.measurements] == ["test_one"]
    assert session.environment.software["torch"]
    assert project.baseline_entries() == []

    project.write(test_it=STEPS.format(step="lambda: torch.ones(3)"))
    following = project.measure("--stepprof-save=main")
    assert following.ret == pytest.ExitCode.OK
    told = f"stepprof: killed before its end: {session_id}; `stepprof show SESSION` shows what it measured"
    following.stdout.fnmatch_lines([told])
    assert unfinished(project) == [f"{session_id}.jsonl"], "this session's own is gone, the other's stays"

    project.measure("--stepprof-baseline=main").stdout.no_fnmatch_line("*killed before its end*")


def test_a_session_that_is_stored_leaves_no_journal_and_so_does_one_whose_tests_did_not_pass(project):
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3))")
    project.measure()
    assert unfinished(project) == []

    project.write(
        test_it="""
            import pytest
            import torch

            def test_step(stepprof):
                stepprof(lambda: torch.ones(3))
                pytest.xfail("known")
        """
    )
    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "nothing was measured, so the baseline 'main' stays as it is" in project.text(result)
    assert unfinished(project) == []
    assert len(project.session_files) == 1


def test_a_session_that_cannot_be_stored_says_where_its_measurements_stay(project):
    in_the_way = "import shutil; shutil.rmtree('.stepprof/sessions'); open('.stepprof/sessions', 'w').close()"
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3))")
    project.measure()
    project.write(test_it=f"import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3)); {in_the_way}")

    result = project.measure()

    assert result.ret == pytest.ExitCode.OK
    [journal] = unfinished(project)
    text = project.text(result)
    assert "stepprof: warning: this session was not stored: cannot write" in text
    assert f"stepprof: what was measured, without the results, stays in .stepprof/unfinished/{journal}" in text


def test_the_disk_that_refuses_is_told_once_and_is_not_asked_again(project):
    (project.pytester.path / "file").write_text("in the way", encoding="utf-8")
    project.write(test_it=STEPS.format(step="lambda: torch.ones(3)"))

    result = project.measure("--stepprof-dir=file/inside")

    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.OK
    assert project.text(result).count("stepprof: warning: not written down: cannot write ") == 1


def test_a_store_that_cannot_be_read_says_nothing_of_killed_sessions(tmp_path):
    (tmp_path / "unfinished").write_text("in the way", encoding="utf-8")

    assert Journaling(Store(tmp_path)).lines("20261201T000000.000000Z-000000000000") == []
