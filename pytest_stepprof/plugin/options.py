"""Every option in one table: command line, marker keyword and ini come from the same row.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_stepprof.analysis.byte_sizes import parse_bytes, parse_memory_tolerance
from pytest_stepprof.errors import UsageError
from pytest_stepprof.plugin import fail_on
from pytest_stepprof.plugin.counter_rules import GATE_MODES, NO_RULES, counter_rules
from pytest_stepprof.plugin.path_tolerances import NO_TOLERANCES, path_tolerances


@dataclass(frozen=True)
class Option:
    """One setting. ``parse`` turns text into the value or raises ``ValueError`` with what was expected.

    A default that is text is parsed like any other. ``judges`` marks the fail rules, for which the marker wins over the
    command line. ``takes_objects`` says that ``parse`` gets a marker's value as it is, and not its text.
    """

    name: str
    parse: Callable[[Any], Any]
    default: Any
    help: str
    metavar: str = "VALUE"
    judges: bool = False
    takes_objects: bool = False

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return "--stepprof-" + self.name.replace("_", "-")

    @property
    def ini(self) -> str:
        """The option in an ini file."""
        return "stepprof_" + self.name

    @property
    def dest(self) -> str:
        """The attribute that argparse fills."""
        return "stepprof_" + self.name


def whole(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser for whole numbers from ``minimum``, to ``maximum`` where there is one."""
    wanted = f"{minimum} or more" if maximum is None else f"{minimum} to {maximum}"

    def parse(text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or int(text) < minimum or int(text) > (maximum or int(text)):
            raise ValueError(f"expected a whole number, {wanted}")
        return int(text)

    return parse


def number(text: str) -> float:
    """Parse a finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("expected a number, 0 or more")
    return value


def seconds(text: str) -> float:
    """Parse seconds above 0, with or without the unit."""
    value = number(text.removesuffix("s"))
    if value == 0:
        raise ValueError("expected seconds above 0")
    return value


def share(text: str) -> float:
    """Parse a share, as ``1%`` or ``0.01``, between 0 and 1."""
    percent = text.endswith("%")
    value = number(text.removesuffix("%")) / (100 if percent else 1)
    if value >= 1:
        raise ValueError("expected a share such as 1% or 0.01")
    return value


def error_rate(text: str) -> float:
    """Parse a one-sided level: above 0 and below one half."""
    value = share(text)
    if not 0 < value < 0.5:
        raise ValueError("expected a share above 0 and below 50%, such as 1%")
    return value


def switch(text: str) -> bool:
    """Parse yes or no."""
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if text.lower() not in words:
        raise ValueError("expected yes or no")
    return words[text.lower()]


def gate(text: str) -> str:
    """Parse the mode of a gate."""
    if text not in GATE_MODES:
        raise ValueError(f"expected one of {', '.join(GATE_MODES)}")
    return text


MEASURE_OPTIONS = (
    Option("device", str, "auto", "device under test: auto, cpu, cuda[:N], xpu or mps", "DEVICE"),
    Option("warmup_steps", whole(1), 5, "warm-up steps before the window and before each run", "N"),
    Option("window_wait_steps", whole(0), 1, "steps of the profiler's window before its warm-up", "N"),
    Option("window_warmup_steps", whole(0), 1, "steps that the profiler sees and throws away", "N"),
    Option("window_active_steps", whole(1), 2, "steps that the profiler records", "N"),
    Option("runs", whole(1), 5, "unprofiled runs, each from the same state", "N"),
    Option("steps_per_run", whole(1), None, "steps of a run (default: as many as fill --stepprof-run-time)", "N"),
    Option("run_time", seconds, 0.5, "seconds that a run fills, with at least 5 samples", "SECONDS"),
    Option("budget", seconds, 10.0, "seconds a test is planned to take; steps, warm-up and runs go down", "SECONDS"),
    Option("shapes", switch, False, "record operator shapes in the window (slows it down)", "YES|NO"),
    Option("stacks", switch, False, "record Python stacks in the window (slows it down much)", "YES|NO"),
    Option("memory", switch, False, "take a second, short window that records allocations", "YES|NO"),
    Option("modules", switch, False, "label every module's forward pass in the window (slows it down)", "YES|NO"),
    Option("trace", switch, False, "keep the window's trace, scrubbed, in a new file of the store", "YES|NO"),
    Option(
        "outputs_limit", parse_bytes, "64MiB", "bytes of a test's result to store; of a larger one a sample", "SIZE"
    ),
    Option("seed", whole(0, 2**32 - 1), 20240229, "seed of all random sources before a test's fixtures run", "N"),
)
JUDGE_OPTIONS = (
    Option("tolerance", share, 0.01, "slowdown that is never called a regression", "SHARE", judges=True),
    Option("limit", share, 0.05, "slowdown below which time is called not regressed", "SHARE", judges=True),
    Option("level", error_rate, 0.01, "false-alarm rate of the session, shared by its tests", "SHARE", judges=True),
    Option("outputs", gate, "fail", "what a changed result does", "fail|warn|off", judges=True),
    Option("counters", gate, "fail", "what more operators, copies or launches do", "fail|warn|off", judges=True),
    Option(
        "counter_rules",
        counter_rules,
        NO_RULES,
        "what a change does by counter, * stands for any text, the last match counts: PATTERN=MODE, PATTERN=MODE",
        "TEXT",
        judges=True,
        takes_objects=True,
    ),
    Option("memory_growth", gate, "fail", "what a higher peak of memory does", "fail|warn|off", judges=True),
    Option(
        "memory_tolerance",
        parse_memory_tolerance,
        "10%+8MiB",
        "growth of a peak that is accepted: a share, a size, or both",
        "SHARE+SIZE",
        judges=True,
    ),
    Option("time", gate, "fail", "what a slowdown does", "fail|warn|off", judges=True),
    Option("rtol", number, None, "relative tolerance of outputs (default: by dtype)", "X", judges=True),
    Option("atol", number, None, "absolute tolerance of outputs (default: by dtype)", "X", judges=True),
    Option(
        "output_tolerances",
        path_tolerances,
        NO_TOLERANCES,
        "tolerances of outputs by path, in which * stands for any text: PATTERN: rtol=X atol=Y; ...",
        "TEXT",
        judges=True,
        takes_objects=True,
    ),
)
TEST_OPTIONS = MEASURE_OPTIONS + JUDGE_OPTIONS
DECLARATIONS = (
    *("question", "unit", "samples_per_step", "includes_read", "represents", "regions"),
    *("check_steps", "check_parameters"),
)
"""What a marker may say about the step beside the options; the call's own argument wins over it."""

BY_NAME = {option.name: option for option in TEST_OPTIONS}


def add_options(parser: pytest.Parser) -> None:
    """Add the command line's options and their ini counterparts."""
    group = parser.getgroup("stepprof", "profiled performance tests of PyTorch steps")
    group.addoption("--stepprof", action="store_true", help="measure the tests that use the stepprof fixture")
    group.addoption("--stepprof-baseline", metavar="NAME", help="compare with the baseline NAME")
    group.addoption("--stepprof-save", metavar="NAME", help="add this session to the baseline NAME if it passes")
    group.addoption(
        "--stepprof-update-outputs", action="store_true", help="accept changed results with --stepprof-save"
    )
    group.addoption(
        "--stepprof-strict", action="store_true", help="what cannot be judged, is new or is missing fails, too"
    )
    fail_on.add_options(group, parser)
    group.addoption(
        "--stepprof-report",
        action="append",
        metavar="FORMAT:PATH",
        help="write a report, repeatable: markdown, html, json, terminal, action-benchmark, in whose PATH {session} "
        "stands for the session; or github, without PATH: the job's summary and annotations",
    )
    group.addoption("--stepprof-dir", metavar="DIR", help="where sessions are stored (default: .stepprof in rootdir)")
    parser.addini("stepprof_dir", "where sessions are stored (default: .stepprof in rootdir)")
    for option in TEST_OPTIONS:
        default = "no" if option.default is False else option.default
        text = f"{option.help} [{default}]" if default is not None else option.help
        group.addoption(option.flag, dest=option.dest, default=None, metavar=option.metavar, help=_percent_safe(text))
        parser.addini(option.ini, option.help, default=None)


def _percent_safe(text: str) -> str:
    return text.replace("%", "%%")


def resolve(config: pytest.Config, marker: Mapping[str, Any]) -> dict[str, Any]:
    """Return every test option's value: command line over marker over ini over default.

    For the rules that decide about failing, the marker is the closer one and wins over the command line.

    Raises:
        UsageError: a value cannot be understood, or the marker has a keyword that is not an option.
    """
    known = sorted({*BY_NAME, *DECLARATIONS, fail_on.KEYWORD})
    unknown = sorted(set(marker) - set(known))
    if unknown:
        raise UsageError(f"@pytest.mark.stepprof has the unknown keyword {unknown[0]!r}; known: {', '.join(known)}.")
    return {option.name: _value(config, marker, option) for option in TEST_OPTIONS}


def check(config: pytest.Config) -> None:
    """Refuse values of command line and ini that cannot be understood before anything runs.

    Raises:
        UsageError: a value cannot be understood.
    """
    for option in TEST_OPTIONS:
        for value, source in ((config.getoption(option.dest), option.flag), _from_ini(config, option)):
            if value is not None:
                _parsed(option, value, source)
    fail_on.check(config)


def _value(config: pytest.Config, marker: Mapping[str, Any], option: Option) -> Any:
    from_command_line = (config.getoption(option.dest), option.flag)
    from_marker = (marker.get(option.name), f"@pytest.mark.stepprof({option.name}=...)")
    closest = (from_marker, from_command_line) if option.judges else (from_command_line, from_marker)
    for value, source in (*closest, _from_ini(config, option)):
        if value is not None:
            return _parsed(option, value, source)
    return option.parse(option.default) if isinstance(option.default, str) else option.default


def _from_ini(config: pytest.Config, option: Option) -> tuple[str | None, str]:
    return config.getini(option.ini) or None, f"the ini option {option.ini}"


def _parsed(option: Option, value: Any, source: str) -> Any:
    try:
        return option.parse(value if option.takes_objects else str(value))
    except ValueError as error:
        raise UsageError(f"{source} is {value!r}; {error}.") from None
