"""The call's own words for a fresh start, for several compared steps and for quality, through a whole session."""

import pytest

FRESH = """
    import torch

    def setup():
        model = torch.nn.Linear(4, 1)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def train(built, batch):
        model, optimizer = built
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    {marker}
    def test_train(stepprof):
        step = stepprof(train, batches=[torch.ones(2, 4)], setup=setup{more})
        assert step.output.item() > 0
"""


def test_a_step_that_is_built_fresh_is_measured_and_stored(project):
    project.write(test_it=FRESH.format(marker="", more=", check_steps=3, check_parameters=True"))
    result = project.measure()
    assert result.ret == pytest.ExitCode.OK, project.text(result)
    [session] = project.sessions
    [measurement] = session["measurements"]
    scenario = measurement["scenario"]
    assert (scenario["start"], scenario["check_steps"], scenario["check_parameters"]) == ("built fresh", 3, True)
    assert measurement["outputs"]["leaf_count"] == 3 + 2
    assert [run["same_result"] for run in measurement["runs"]] == [True]


def test_the_marker_may_say_how_much_is_compared_and_the_call_wins(project):
    marker = "import pytest\n\n    @pytest.mark.stepprof(check_steps=3, check_parameters=True)"
    project.write(test_it=FRESH.format(marker=marker, more=", check_steps=2"))
    assert project.measure().ret == pytest.ExitCode.OK
    [session] = project.sessions
    assert session["measurements"][0]["outputs"]["leaf_count"] == 2 + 2


def test_quality_is_stored_with_its_margin(project):
    more = ", quality={'loss': lambda loss: loss}, quality_margin=0.5, quality_lower_is_better=['loss']"
    project.write(test_it=FRESH.format(marker="", more=more))
    assert project.measure().ret == pytest.ExitCode.OK
    [session] = project.sessions
    [value] = session["measurements"][0]["quality"]
    assert (value["name"], value["margin"], value["better"]) == ("loss", 0.5, "lower")
    assert value["value"] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (", state=()", "setup= and state= are both given; expected one."),
        (", check_steps=0", "check_steps is 0; expected 1 or more."),
        (", quality={'a': min}", "quality is given and quality_margin is not"),
        (
            ", quality={'a': min}, quality_margin=1, quality_lower_is_better='a'",
            "quality_lower_is_better is the text 'a'; expected several names. Write quality_lower_is_better=('a',).",
        ),
    ],
)
def test_what_cannot_be_meant_is_an_error_of_the_test_without_measuring_too(project, more, message):
    project.write(test_it=FRESH.format(marker="", more=more))
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert message in project.text(result)
