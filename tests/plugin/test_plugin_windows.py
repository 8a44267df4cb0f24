"""What ``--stepprof-memory`` and ``--stepprof-modules`` add to a stored session."""

import pytest

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        stepprof(lambda batch: model(batch).detach(), batches=[torch.ones(2, 4)] * 3, state=model)
"""


def window(project) -> dict:
    return project.sessions[-1]["measurements"][0]["window"]


def counters(project, *left_out: str) -> dict:
    return {found["name"]: found["per_step"] for found in window(project)["counters"] if found["name"] not in left_out}


def test_memory_and_modules_are_stored_and_the_counters_stay_the_same(project):
    project.write(test_it=STEP.format(mark=""))
    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK
    assert (window(project)["memory"], window(project)["modules"], window(project)["options"]) == ([], [], [])
    plain = counters(project)

    result = project.measure("--stepprof-baseline=main", "--stepprof-memory=yes", "--stepprof-modules=yes")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    assert counters(project, "allocations") == plain
    assert counters(project)["allocations"][0] > 0
    [use] = window(project)["memory"]
    assert (use["device"], use["peak_bytes"][0] > 0) == ("cpu", True)
    assert [module["path"] for module in window(project)["modules"]] == ["Sequential", "0", "1", "2"]
    assert window(project)["options"] == ["record_modules"]
    codes = {notice["code"] for notice in project.sessions[-1]["measurements"][0]["notices"]}
    assert "modules not labelled" not in codes


def test_one_trace_is_kept_whatever_else_is_recorded(project):
    project.write(test_it=STEP.format(mark="@pytest.mark.stepprof(trace=True, memory=True, modules=True)"))

    assert project.measure().ret == pytest.ExitCode.OK

    [trace] = (project.store / "traces").glob("*/*.json.gz")
    assert window(project)["trace_file"] == trace.relative_to(project.store).as_posix()


def test_a_module_whose_name_gives_something_away_has_no_label(project):
    project.write(
        test_it="""
            import torch

            def test_step(stepprof):
                name = "/".join(["http:", "", "host", "x"])
                model = torch.nn.ModuleDict({name: torch.nn.ReLU(), "other": torch.nn.Tanh()})
                stepprof(lambda: model["other"](model[name](torch.ones(2))), state=model)
        """
    )

    assert project.measure().ret == pytest.ExitCode.OK
    result = project.measure("--stepprof-modules=yes")

    assert result.ret == pytest.ExitCode.OK
    text = " ".join(result.stdout.str().split())
    assert "not labelled as modules: a ReLU (a name on its path is refused: it looks like a URL)" in text
    assert "http:" not in text
    assert [module["path"] for module in window(project)["modules"]] == ["other"]
