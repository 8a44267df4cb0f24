"""Which reports there are, and how a person asks for one: ``FORMAT`` or ``FORMAT:PATH``."""

from typing import Literal, NamedTuple

Format = Literal["terminal", "markdown", "json", "html", "action-benchmark", "github"]
FORMATS: tuple[Format, ...] = ("terminal", "markdown", "json", "html", "action-benchmark", "github")
_WITHOUT_PATH = ("github",)


class ReportRequest(NamedTuple):
    """One report that was asked for. ``path`` is as it was written, ``None`` without one."""

    format: Format
    path: str | None


def parse_request(text: str) -> ReportRequest:
    """Read ``markdown:out/report.md``. Only the first colon counts, so that a path may hold more of them.

    Raises:
        ValueError: the format is not known, the path is empty, or the format takes none; says what was expected.
    """
    name, colon, path = text.partition(":")
    if name not in FORMATS:
        raise ValueError(f"found {text!r}, expected FORMAT or FORMAT:PATH with one of the formats {', '.join(FORMATS)}")
    if colon and name in _WITHOUT_PATH:
        raise ValueError(f"found {text!r}, expected {name} alone: it writes to where GitHub says")
    if colon and not path.strip():
        raise ValueError(f"found {text!r}, expected a path behind the colon, as in {name}:report.txt")
    return ReportRequest(name, path if colon else None)
