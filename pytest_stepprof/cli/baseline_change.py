"""``stepprof baseline rename-test`` and ``drop``: what a baseline says changes, and no session ever does."""

import argparse
import contextlib

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.cli.chosen import chosen_session, chosen_store
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.directory import Store


def configure_rename(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof baseline rename-test``."""
    parser.description = (
        "Let a baseline call a test by its new name, so that it is compared with what was measured under the old one. "
        "The stored sessions stay as they are."
    )
    parser.set_defaults(run=run_rename)
    parser.add_argument("name", metavar="NAME", help="the baseline's name")
    parser.add_argument("old", metavar="OLD", help="the test's name in the baseline, as `baseline show` shows it")
    parser.add_argument("new", metavar="NEW", help="its name of now, as pytest or a report shows it")


def configure_drop(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof baseline drop``."""
    parser.description = "Forget a baseline, or only some sessions of it. The sessions themselves stay stored."
    parser.set_defaults(run=run_drop)
    parser.add_argument("name", metavar="NAME", help="the baseline's name")
    parser.add_argument("sessions", nargs="*", metavar="SESSION", help="take only these out of it (default: all of it)")


def run_rename(arguments: argparse.Namespace) -> Outcome:
    """Note the new name.

    Raises:
        StoreError: the baseline does not hold the test, or there is no such baseline; names the known ones.
    """
    store = chosen_store(arguments)
    new = _key_of_now(store, arguments.new)
    held = store.rename_test(arguments.name, arguments.old, new)
    sessions = counted(held, "session")
    return Outcome(printable(f"baseline '{arguments.name}': {arguments.old} is {new} from now on, in {sessions} of it"))


def run_drop(arguments: argparse.Namespace) -> Outcome:
    """Take the whole baseline away, or the sessions that are named.

    Raises:
        StoreError: there is no such baseline, or it does not hold such a session.
    """
    store = chosen_store(arguments)
    if not arguments.sessions:
        dropped = store.drop_baseline(arguments.name)
        told = f"the baseline '{arguments.name}' is gone"
    else:
        dropped = tuple(dict.fromkeys(arguments.sessions))
        for session_id in dropped:
            store.drop_from_baseline(arguments.name, session_id)
        told = f"taken out of the baseline '{arguments.name}'"
    return Outcome("\n".join([f"{told}; what was measured stays stored:", *(f"  {name}" for name in dropped)]))


def _key_of_now(store: Store, name: str) -> str:
    """Turn pytest's name of a test into its key where the newest session has measured it; else it stays as it is."""
    with contextlib.suppress(StoreError):  # a store whose sessions cannot be read: the baseline's will say so
        newest, _ = chosen_session(store, None)
        for measurement in newest.measurements:
            if name in (measurement.test.key, measurement.test.node_id):
                return measurement.test.key
    return name
