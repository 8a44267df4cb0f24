"""Everyone starts from the same place: seeds, other weights, another first batch, and the outer program's numbers."""

import pytest

STEP = """
    import torch

    {before}

    def test_step(stepprof):
        weight = torch.ones(4, 4) * {scale}
        batch = torch.full((2, 4), {fill})
        stepprof(lambda given: given @ weight, batches=[batch], state=weight)
"""


def step(scale: float = 1.0, fill: float = 1.0) -> str:
    return STEP.format(before="", scale=scale, fill=fill)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [(step(scale=2.0), "started from other weights"), (step(fill=2.0), "another first batch")],
    ids=["weights", "batch"],
)
def test_another_start_is_not_comparable_and_fails_only_under_strict(project, changed, reason):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=changed)

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    text = project.text(result)
    assert "Not judged - test_it.py::test_step: not comparable: " in text
    assert reason in text
    assert "outputs differ" not in text
    assert "differ from the baseline" not in text

    strict = project.measure("--stepprof-baseline=main", "--stepprof-strict")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    headline = "stepprof: not comparable against baseline 'main' (--stepprof-strict)"
    strict.stdout.fnmatch_lines([headline, "conditions:", f"  {reason}"])


def test_another_shape_is_told_by_the_leaf(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step().replace("(2, 4)", "(3, 4)"))

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert "batch: torch.Tensor float32 (2, 4) cpu -> torch.Tensor float32 (3, 4) cpu" in project.text(result)


def test_no_baseline_fails_only_under_strict(project):
    project.write(test_it=step())

    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.OK
    assert project.measure("--stepprof-baseline=main", "--stepprof-strict").ret == pytest.ExitCode.TESTS_FAILED


UNSEEDED = """
    import random
    import numpy
    import pytest
    import torch

    @pytest.fixture
    def model():
        return torch.randn(4, 4) * random.random() * numpy.random.rand()

    def test_step(stepprof, model):
        noise = torch.nn.Dropout(0.5)
        stepprof(lambda: noise(model).sum() + torch.rand(1), state=(model, noise))
"""


def test_an_unseeded_model_in_a_fixture_gives_equal_outputs_in_every_session(project):
    project.write(test_it=UNSEEDED)
    project.measure("--stepprof-save=main")
    project.write(test_a_neighbour="import torch\ndef test_neighbour(): torch.rand(100)")

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert project.sessions[-1]["comparison"]["tests"][0]["outputs"]["status"] == "equal"


def test_the_seed_is_an_option(project):
    project.write(test_it=UNSEEDED)
    project.measure("--stepprof-save=main")

    result = project.measure("--stepprof-baseline=main", "--stepprof-seed=1")

    assert result.ret == pytest.ExitCode.OK
    assert "started from other weights" in project.text(result)


@pytest.mark.parametrize("arguments", [("--stepprof",), ()], ids=["measuring", "plain"])
def test_the_outer_programs_random_numbers_go_on_as_if_nothing_had_happened(project, arguments):
    project.write(
        test_it="""
            import random
            import numpy
            import torch

            def numbers():
                return torch.rand(3).tolist(), numpy.random.rand(3).tolist(), [random.random() for _ in range(3)]

            def seed():
                torch.manual_seed(5)
                numpy.random.seed(5)
                random.seed(5)

            def test_before():
                seed()
                numbers()

            def test_step(stepprof):
                weight = torch.randn(3)
                random.random(), numpy.random.rand()
                stepprof(lambda: weight * torch.rand(3))
                numbers()

            def test_fails(stepprof):
                stepprof(lambda: torch.rand(3) * undefined)

            def test_after():
                following = numbers()
                seed()
                numbers()
                assert following == numbers()
        """
    )

    project.run(*arguments).assert_outcomes(passed=3, failed=1)


def test_a_module_scoped_model_is_put_back_between_tests(project):
    """Each test trains the shared model in place; the second one starts where the first one did."""
    project.write(
        test_it="""
            import pytest
            import torch

            @pytest.fixture(scope="module")
            def model():
                return torch.nn.Linear(2, 2)

            starts = []

            @pytest.mark.parametrize("turn", [1, 2])
            def test_step(stepprof, model, turn):
                starts.append(model.weight.detach().clone())
                optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

                def step(batch):
                    optimizer.zero_grad()
                    model(batch).sum().backward()
                    optimizer.step()
                    return model.weight

                stepprof(step, batches=[torch.ones(1, 2)], state=(model, optimizer))
                assert torch.equal(starts[0], starts[-1])
                assert torch.equal(starts[0], model.weight)
        """
    )

    project.measure().assert_outcomes(passed=2)


MODULE_FIXTURE = """
    import pytest
    import torch

    @pytest.fixture(scope="module")
    def table():
        return torch.randn(4)

    @pytest.fixture
    def weight():
        return torch.randn(4)

    def test_first(stepprof, table, weight):
        stepprof(lambda: table + weight, state=(table, weight))

    def test_second(stepprof, table, weight):
        stepprof(lambda: table * weight, state=(table, weight))
"""


def test_the_start_does_not_depend_on_which_tests_are_selected(project):
    project.write(test_it=MODULE_FIXTURE)
    project.measure("--stepprof-save=main")

    result = project.measure("--stepprof-baseline=main", "-k", "second")

    assert result.ret == pytest.ExitCode.OK
    first, second = project.sessions[0]["measurements"]
    assert first["start_state_digest"] == second["start_state_digest"]
    (alone,) = project.sessions[1]["measurements"]
    assert alone["start_state_digest"] == second["start_state_digest"]
    assert project.sessions[1]["comparison"]["tests"][0]["outputs"]["status"] == "equal"


def test_a_body_draws_the_same_numbers_whatever_its_fixtures_draw(project):
    source = """
        import pytest
        import torch

        @pytest.fixture
        def noise():
            return torch.randn({count})

        def test_step(stepprof, noise):
            weight = torch.randn(4)
            stepprof(lambda: weight * 1.0)
    """
    project.write(test_it=source.format(count=1))
    project.measure("--stepprof-save=main")
    project.write(test_it=source.format(count=5))
    project.measure("--stepprof-baseline=main")
    assert project.sessions[1]["comparison"]["tests"][0]["outputs"]["status"] == "equal"


def test_the_fixture_has_to_be_an_argument(project):
    project.write(
        test_it="""
        import torch

        def test_step(request):
            request.getfixturevalue("stepprof")(lambda: torch.ones(2))
        """
    )
    result = project.measure()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "stepprof came through request.getfixturevalue; expected it as an argument" in project.text(result)


RESEEDING = """
    import random
    import numpy

    def pytest_runtest_setup(item):
        random.seed()
        numpy.random.seed()

    def pytest_runtest_call(item):
        random.seed()
        numpy.random.seed()
"""


def test_another_plugin_that_seeds_each_test_anew_does_not_change_what_a_test_draws(project):
    project.write(
        conftest=RESEEDING,
        test_it="""
            import random
            import numpy
            import pytest

            @pytest.fixture
            def drawn():
                return random.random() + numpy.random.random()

            def test_step(stepprof, drawn):
                own = random.random() + numpy.random.random()
                stepprof(lambda: [drawn, own])
        """,
    )
    project.measure("--stepprof-save=main")

    result = project.run("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    assert "1 of 1 result checked against baseline 'main': 1 equal" in project.text(result)
