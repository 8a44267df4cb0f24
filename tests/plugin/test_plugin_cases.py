"""What went wrong for others with results and states, as the person sees it in a pytest session."""

import pytest

DROPOUT = """
    import torch
    from torch import nn

    def test_step(stepprof):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        {between}
        stepprof(model, batches=[torch.ones(2, 4)], state=model)
"""


def outputs_of(project) -> dict:
    return project.sessions[-1]["comparison"]["tests"][0]["outputs"]


@pytest.mark.parametrize("between", ["torch.rand(7)", "nn.Linear(9, 9)", "torch.manual_seed(5)"])
def test_numbers_drawn_on_the_way_to_the_step_are_not_blamed_on_the_change(project, between):
    project.write(test_it=DROPOUT.format(between=""))
    project.measure("--stepprof-save=main")
    project.write(test_it=DROPOUT.format(between=between))

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    assert outputs_of(project)["status"] == "equal"


TRAINING = """
    import torch
    from torch import nn

    def test_training(stepprof):
        model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)

        def step(batch):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            {between}
            optimizer.step()
            scheduler.step()
            return loss

        batches = torch.randn(10, 4, 3)
        before = [parameter.clone() for parameter in model.parameters()]
        stepprof(step, batches=list(batches), state=(model, optimizer, scheduler), check_steps=5, check_parameters=True)
        assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
"""


def test_a_training_repeats_in_another_process_whatever_its_warm_up(project):
    project.write(test_it=TRAINING.format(between=""))
    assert project.run_apart("--stepprof", "--stepprof-save=main").ret == pytest.ExitCode.OK

    result = project.run_apart("--stepprof", "--stepprof-baseline=main", "--stepprof-warmup-steps=4", "-v")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    outputs = outputs_of(project)
    assert (outputs["status"], outputs["leaves_compared"]) == ("equal", 5 + 6)


def test_a_training_that_changed_is_told_by_the_step_and_the_parameter(project):
    project.write(test_it=TRAINING.format(between=""))
    project.measure("--stepprof-save=main")
    project.write(test_it=TRAINING.format(between="model[0].weight.grad.neg_()"))

    result = project.measure("--stepprof-baseline=main")

    paths = [mismatch["path"] for mismatch in outputs_of(project)["mismatches"]]
    assert "['step 1']" not in paths
    assert {"['step 2']", "['step 5']", "['parameters']['module 0.0.weight']"} <= set(paths)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("arguments", [("--stepprof",), ()], ids=["measuring", "plain"])
def test_the_result_that_a_test_asserts_on_is_the_first_calls_with_and_without_measuring(project, arguments):
    project.write(
        test_it="""
            def test_counter(stepprof):
                calls = []

                def step():
                    calls.append(1)
                    return len(calls)

                assert stepprof(step).output == 1
        """
    )
    assert project.run(*arguments).ret == pytest.ExitCode.OK


BUFFER = """
    import torch

    def test_step(stepprof):
        buffer = torch.zeros(3)
        measured = stepprof(lambda batch: buffer.copy_(batch * {scale}), batches=list(torch.ones(20, 3)))
        assert measured.output.tolist() == [{scale}] * 3
"""


def test_a_result_in_a_buffer_that_is_used_again_is_still_compared(project):
    project.write(test_it=BUFFER.format(scale=1.0))
    project.measure("--stepprof-save=main")
    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.OK
    project.write(test_it=BUFFER.format(scale=2.0))

    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.TESTS_FAILED
    assert outputs_of(project)["status"] == "differ"


UNSTEADY = """
    import os
    import torch

    def test_step(stepprof):
        calls = []

        def step():
            calls.append(1)
            return torch.tensor([1.0 + 0.25 * (len(calls) % 2)]) + float(os.environ.get("OFF_BY", 0))

        stepprof(step)
"""


def test_a_step_that_does_not_repeat_itself_is_told_and_no_tolerance_is_widened_for_it(project, monkeypatch):
    project.write(test_it=UNSTEADY)
    said = project.measure("--stepprof-save=main")
    assert "0.25" in project.text(said)
    [measurement] = project.sessions[-1]["measurements"]
    assert "step does not repeat itself" in [notice["code"] for notice in measurement["notices"]]
    assert measurement["repeated"]["mismatches"][0]["largest_absolute"] == 0.25
    monkeypatch.setenv("OFF_BY", "0.125")

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert outputs_of(project)["status"] == "differ"
    assert outputs_of(project)["mismatches"][0]["relative_tolerance"] == 1.3e-6


def test_a_retained_graph_is_told_in_words(project):
    project.write(
        test_it="""
            import torch
            from torch import nn

            def test_step(stepprof):
                model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
                loss = model(torch.ones(1, 2)).sum()

                def step():
                    loss.backward(retain_graph=True)
                    return model[0].weight.grad

                stepprof(step, state=model)
        """
    )
    result = project.measure()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(result)
    assert "StateError" in text
    assert "graph" in text
    assert "setup=" in text
