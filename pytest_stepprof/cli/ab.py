"""``stepprof ab``: head against base, decided here and now, in rounds of fresh processes that take turns."""

import argparse

from pytest_stepprof.cli import ab_self_check
from pytest_stepprof.cli.ab_arguments import add_arguments, check_arguments, check_self_check, given, in_words
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof ab``; what stands behind ``--`` is pytest's."""
    parser.set_defaults(run=run)
    add_arguments(parser)
    ab_self_check.configure(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Measure and judge, or judge again what was kept. What that takes (scipy) is imported only then.

    Raises:
        UsageError: an argument is wrong, or would be ignored.
    """
    if arguments.self_check:
        check_self_check(arguments)
        return ab_self_check.run(arguments)
    only_there = given(arguments, ab_self_check.configure)
    if only_there:
        raise UsageError(f"found {in_words(only_there)} without --self-check, expected both or neither.")
    if arguments.saved is not None:
        check_arguments(arguments, None)
        from pytest_stepprof.cli.ab_judged import saved_outcome

        return saved_outcome(arguments)
    from pytest_stepprof.cli.ab_measured import measured_outcome

    return measured_outcome(arguments)
