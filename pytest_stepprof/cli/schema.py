"""``stepprof schema``: what the JSON of a report, a stored session or a comparison of two commits holds."""

import argparse

from pytest_stepprof.cli.outcome import Outcome

_KINDS = ("report", "session", "ab")
_MEANINGS = (
    "report: --report json of compare and show, and pytest --stepprof-report=json:PATH; session: a file of "
    ".stepprof/sessions; ab: stepprof ab --report json"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof schema``."""
    parser.description = f"Print the JSON Schema (draft 2020-12) of one kind of record. {_MEANINGS}."
    parser.set_defaults(run=run)
    parser.add_argument("kind", nargs="?", choices=_KINDS, default="report", help="what to describe (report)")


def run(arguments: argparse.Namespace) -> Outcome:
    """Print the schema of what this version writes."""
    import msgspec

    from pytest_stepprof.report.json_report import report_schema

    text = msgspec.json.format(msgspec.json.encode(report_schema(arguments.kind)), indent=2).decode()
    return Outcome(text, is_data=True)
