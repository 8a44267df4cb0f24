"""``stepprof show``: the report of a stored session, as it was judged then."""

import argparse

from pytest_stepprof.cli.chosen import add_session_argument, chosen_session, chosen_store
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.report.build import build_report


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof show``."""
    parser.set_defaults(run=run)
    add_session_argument(parser)
    add_format_options(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Show a session with the comparison that was stored in it. The exit code says nothing about its verdicts."""
    store = chosen_store(arguments)
    session, remarks = chosen_session(store, arguments.session)
    document = build_report(session, session.comparison, verbosity=arguments.verbose, stored_at=str(store.directory))
    return Outcome(render(document, markdown=arguments.markdown), remarks)
