"""Files: damaged ones are named, a place that cannot be written to costs the record and no test, traces are kept."""

import json

import pytest

STEP = """
    import torch

    def test_step(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""


@pytest.fixture
def saved(project):
    project.write(test_it=STEP)
    project.measure("--stepprof-save=main")
    return project


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 1}', '{"schema_version": 99}'])
def test_a_damaged_session_in_the_baseline_is_a_usage_error_that_names_the_file(saved, content):
    [path] = saved.session_files
    path.write_text(content, encoding="utf-8")

    for result in (saved.measure("--stepprof-baseline=main"), saved.run("--stepprof-baseline=main")):
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "stepprof: no session of the baseline 'main' can be read: " in saved.text(result)
        assert path.name in saved.text(result)


def test_a_damaged_entry_of_the_baseline_is_named_too(saved):
    [entry] = saved.baseline_entries()
    entry.write_text("not JSON", encoding="utf-8")

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert entry.name in saved.text(result)


def test_a_damaged_session_beside_a_good_one_is_warned_about(saved):
    saved.measure("--stepprof-save=main")
    damaged = saved.session_files[-1]
    damaged.write_text("{", encoding="utf-8")

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert "stepprof: warning: left out of the baseline: " in saved.text(result)
    assert damaged.name in saved.text(result)


def test_nothing_joins_a_baseline_that_cannot_be_read_whole(saved):
    saved.measure("--stepprof-save=main")
    damaged = saved.session_files[-1]
    damaged.write_text("{", encoding="utf-8")

    result = saved.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "Repair or delete them before you add to it: " in saved.text(result)
    assert damaged.name in saved.text(result)
    assert len(saved.baseline_entries()) == 2
    assert saved.measure("--stepprof-baseline=main", "--stepprof-save=other").ret == pytest.ExitCode.OK


def test_a_damaged_result_in_the_store_fails_the_test_and_is_named(saved):
    [payload] = (saved.store / "payloads").iterdir()
    payload.write_bytes(b"something else")

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"{payload.name} is damaged" in saved.text(result)


def test_a_place_that_cannot_be_written_to_costs_the_record_but_no_test(project):
    project.write(test_it=STEP)
    (project.pytester.path / "file").write_text("in the way", encoding="utf-8")

    result = project.measure("--stepprof-dir=file/inside")

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
    text = project.text(result)
    assert text.count("stepprof: warning: this session was not stored: cannot write ") == 1
    assert "Choose another place with --stepprof-dir" in text
    assert "1 test measured" in text


def test_a_place_that_cannot_be_read_is_a_usage_error_before_anything_is_measured_for_it(project):
    project.write(test_it=STEP)
    (project.pytester.path / "file").write_text("in the way", encoding="utf-8")

    result = project.measure("--stepprof-dir=file/inside", "--stepprof-save=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "stepprof: cannot read " in project.text(result)


def test_a_place_that_breaks_meanwhile_is_a_failure_when_the_session_was_to_be_saved(project):
    broken = "import shutil; shutil.rmtree('.stepprof'); open('.stepprof', 'w').close()"
    project.write(test_it=f"{STEP}        {broken}\n")

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    assert "stepprof: the baseline 'main' stays as it is: cannot write " in project.text(result)


def test_the_place_is_an_option_and_an_ini_setting(project):
    project.write(test_it=STEP)

    project.measure("--stepprof-dir=elsewhere/records", ini="stepprof_dir = here\n")
    assert len(list((project.pytester.path / "elsewhere/records/sessions").iterdir())) == 1

    result = project.measure(ini="stepprof_dir = here\n")
    assert len(list((project.pytester.path / "here/sessions").iterdir())) == 1
    result.stdout.fnmatch_lines(["stepprof: measuring, records in here", "*record stored at here/sessions/*"])


def test_a_test_that_changes_the_directory_does_not_move_the_store(project):
    project.write(
        test_it="""
            import torch

            def test_step(stepprof, tmp_path, monkeypatch):
                monkeypatch.chdir(tmp_path)
                stepprof(lambda: torch.ones(3) * 2)
        """
    )

    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK
    assert len(project.session_files) == 1


def test_a_trace_is_kept_in_a_new_file_each_time_and_only_when_asked_for(project):
    project.write(test_it=STEP)
    project.measure()
    assert not (project.store / "traces").exists()

    project.measure("--stepprof-trace=yes")
    [first] = [path for path in (project.store / "traces").rglob("*") if path.is_file()]
    content = first.read_bytes()
    assert b"aten::mul" in content or first.suffix == ".gz"
    assert first.parent.name == project.session_files[-1].stem

    project.measure("--stepprof-trace=yes")
    traces = [path for path in (project.store / "traces").rglob("*") if path.is_file()]
    assert len(traces) == 2
    assert first.read_bytes() == content


def test_sessions_are_readable_records_that_are_never_replaced(project):
    project.write(test_it=STEP)
    project.measure()
    [first] = project.session_files
    content = first.read_text(encoding="utf-8")
    record = json.loads(content)
    assert record["schema_version"] == 1
    assert record["status"] == "passed"
    assert record["session_id"] == first.stem
    assert record["measurements"][0]["runs"][0]["samples_ns"]

    project.measure()

    assert len(project.session_files) == 2
    assert first.read_text(encoding="utf-8") == content
