"""Records as JSON on standard output. JSON has no NaN: a number that is not finite is null."""

from collections.abc import Mapping


def as_json(parts: Mapping[str, object]) -> str:
    """Write records by name, indented, the fields of each in their order."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(parts), indent=2).decode()
