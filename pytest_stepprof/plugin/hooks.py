"""What pytest calls. Nothing heavy is imported here: torch, numpy and scipy come with the first test that uses them."""

import os
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.plugin import options

if TYPE_CHECKING:
    from pytest_stepprof.ab.baton import Player
    from pytest_stepprof.measure.random_state import RandomState
    from pytest_stepprof.plugin.fixture import StepTaker

FIXTURE = "stepprof"
SESSION_KEY: "pytest.StashKey[StepTaker]" = pytest.StashKey()
PLAYER_KEY: "pytest.StashKey[Player]" = pytest.StashKey()
BATON_VARIABLE = "STEPPROF_AB_BATON"
"""As in ``ab.baton``, which only a side of ``stepprof ab`` imports."""

SEED_KEY = pytest.StashKey[int]()
RANDOM_STATE_KEY: "pytest.StashKey[RandomState]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options and ini settings."""
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Take the baton out of the environment before any code of the person's can see it, or hand it on to a child."""
    _take_baton(early_config)


def _take_baton(config: pytest.Config) -> None:
    if BATON_VARIABLE not in os.environ:
        return
    from pytest_stepprof.ab.baton import BatonLostError, Player
    from pytest_stepprof.record.turns import Hello

    try:
        player = Player.from_environment()
        assert player is not None, "the variable is there"
        player.say(Hello(side=player.side, process_id=os.getpid()))
    except BatonLostError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[PLAYER_KEY] = player


def pytest_configure(config: pytest.Config) -> None:
    """Choose the fixtures: measuring ones when asked for and possible, else those that run a step once."""
    config.addinivalue_line(
        "markers",
        "stepprof(**options): a profiled performance test; keywords are the --stepprof-... options without the prefix",
    )
    _take_baton(config)  # where this plugin came too late to do so before
    _refuse_what_cannot_be(config)
    player = config.stash.get(PLAYER_KEY, None)
    measuring = player is not None or (bool(config.getoption("stepprof")) and not shares_the_machine(config))
    if measuring and config.pluginmanager.hasplugin("benchmark"):
        from pytest_stepprof.plugin import fixture_with_benchmark as fixture_module
    else:
        from pytest_stepprof.plugin import fixture_alone as fixture_module  # type: ignore[no-redef]
    config.pluginmanager.register(fixture_module, "stepprof-fixture")
    session: StepTaker | None = None
    if player is not None:
        from pytest_stepprof.plugin.lockstep import LockstepSession

        session = LockstepSession(player)
    elif measuring or config.getoption("stepprof_baseline"):
        from pytest_stepprof.plugin.session import StepprofSession

        session = StepprofSession(config, measuring=measuring)
    if session is not None:
        config.stash[SESSION_KEY] = session
        config.pluginmanager.register(session, "stepprof-session")


def shares_the_machine(config: pytest.Config) -> bool:
    """Whether pytest-xdist runs tests side by side, seen from a worker or from the controller."""
    return hasattr(config, "workerinput") or config.getoption("dist", "no") != "no"


def leaves_tests_to_workers(config: pytest.Config) -> bool:
    """Whether this process is pytest-xdist's controller, which runs no test itself."""
    return shares_the_machine(config) and not hasattr(config, "workerinput")


def _refuse_what_cannot_be(config: pytest.Config) -> None:
    try:
        options.check(config)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    for name in ("baseline", "save", "dir"):
        if config.getoption(f"stepprof_{name}") == "":  # a variable that is not set: nobody means to switch it off
            raise pytest.UsageError(f"--stepprof-{name} is empty; expected a name")
    if PLAYER_KEY in config.stash and shares_the_machine(config):
        raise pytest.UsageError("stepprof ab measures one test at a time; pytest-xdist shares the machine: use -n0")
    if config.getoption("stepprof_update_outputs") and not config.getoption("stepprof_save"):
        raise pytest.UsageError("--stepprof-update-outputs accepts results into a baseline; add --stepprof-save=NAME")
    _refuse_without_measuring(config, "stepprof_save", "--stepprof-save stores what was measured")
    if PLAYER_KEY not in config.stash:  # a side of ``stepprof ab`` reports to that, whatever addopts say
        _refuse_without_measuring(config, "stepprof_report", "--stepprof-report reports what was measured")


def _refuse_without_measuring(config: pytest.Config, option: str, meaning: str) -> None:
    if not config.getoption(option):
        return
    if not config.getoption("stepprof"):
        raise pytest.UsageError(f"{meaning}; add --stepprof")
    if shares_the_machine(config):
        raise pytest.UsageError(f"{meaning}; pytest-xdist shares the machine: use -n0")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test that uses the fixture, so that ``-m stepprof`` finds it."""
    if uses_stepprof(item) and item.get_closest_marker(FIXTURE) is None:
        item.add_marker(FIXTURE)


def uses_stepprof(item: pytest.Item) -> bool:
    """Whether a test asks for the fixture, itself or through another one."""
    return FIXTURE in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give the test's fixtures the same random numbers in every process.

    What is wrong with the marker is not said here: pytest has not yet looked whether the test is to be skipped.
    """
    if not uses_stepprof(item):
        return
    try:
        seed = options.resolve(item.config, marker_keywords(item))["seed"]
    except StepprofError:
        return  # ``stepprof_device`` says so
    from pytest_stepprof.measure.random_state import capture_random_state, seed_everything

    item.stash[RANDOM_STATE_KEY] = capture_random_state()
    item.config.stash[SEED_KEY] = seed
    seed_everything(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Give each fixture numbers of its own: what it draws must not depend on which fixtures were made before it.

    A module's fixture is made by the first test that needs it, and which test that is changes with ``-k``.
    """
    if SEED_KEY in request.config.stash:
        from pytest_stepprof.measure.random_state import seed_everything

        seed_everything((request.config.stash[SEED_KEY] + zlib.crc32(fixturedef.argname.encode())) % 2**32)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Begin the test's own body with the same random numbers, whatever its fixtures have drawn.

    This is the last hook before the body: pytest-randomly seeds in ``pytest_runtest_call``, each session anew.
    """
    if SEED_KEY in pyfuncitem.config.stash:
        from pytest_stepprof.measure.random_state import seed_everything

        seed_everything(pyfuncitem.config.stash[SEED_KEY])
        del pyfuncitem.config.stash[SEED_KEY]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Give the outer program its random numbers back, after the test's fixtures are gone."""
    __tracebackhide__ = True
    try:
        return (yield)
    finally:
        if SEED_KEY in item.config.stash:  # the test's body was never reached
            del item.config.stash[SEED_KEY]
        if RANDOM_STATE_KEY in item.stash:
            from pytest_stepprof.measure.random_state import restore_random_state

            restore_random_state(item.stash[RANDOM_STATE_KEY])
            del item.stash[RANDOM_STATE_KEY]


def marker_keywords(item: pytest.Item) -> dict[str, Any]:
    """Return the marker's keywords; those of the test itself win over those of its class and module.

    Raises:
        UsageError: a marker has a positional argument.
    """
    keywords: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers(FIXTURE))):
        if marker.args:
            raise UsageError(
                f"@pytest.mark.stepprof has the positional argument {marker.args[0]!r}; expected keywords only."
            )
        keywords |= marker.kwargs
    return keywords


def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Say once that nothing was measured under pytest-xdist."""
    config = terminalreporter.config
    if config.getoption("stepprof") and shares_the_machine(config):
        terminalreporter.write_line(
            "stepprof: nothing was measured, every test ran once"
            + (" and its result was checked" if config.getoption("stepprof_baseline") else "")
            + ": pytest-xdist shares the machine among its workers. Use -n0 to measure."
        )


@pytest.fixture
def stepprof_device(request: pytest.FixtureRequest) -> Any:
    """The ``torch.device`` under test: ``--stepprof-device``, the marker's ``device``, or what torch finds."""
    from pytest_stepprof.measure.device import resolve_torch_device

    try:
        return resolve_torch_device(options.resolve(request.config, marker_keywords(request.node))["device"])
    except StepprofError as error:
        message = f"stepprof: error: {error}"
    pytest.fail(message, pytrace=False)  # out here, or else pytest tells what was caught, too
