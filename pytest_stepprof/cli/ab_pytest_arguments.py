"""What may not stand among pytest's arguments, behind ``--``: what would undo a comparison, said before it begins."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from pytest_stepprof.errors import UsageError

_TAKEN = {
    "--stepprof-dir": "each side has a folder of its own, and `stepprof ab --save DIR` keeps both",
    "--stepprof-seed": "each round draws one for both sides, all of them from `stepprof ab --seed N`",
    "--stepprof-baseline": "head is compared with base",
    "--stepprof-save": "a comparison adds to no baseline, `pytest --stepprof` does",
    "--stepprof-update-outputs": "a comparison adds to no baseline, `pytest --stepprof` does",
}
_NEUTRAL = {
    **dict.fromkeys(("-n", "--numprocesses"), "0"),
    "--dist": "no",
    **dict.fromkeys(("-d", "-f", "--tx", "--looponfail"), ""),
}
"""The options of pytest-xdist that share the tests among processes, with the value that does not (none: empty)."""
_SHORT = re.compile(r"(?P<option>-[dfn])=?(?P<value>.*)", re.DOTALL)
_BUNDLED = re.compile(r"-[hlqsvx]+(?=[dfn])")
"""Pytest's own letters without a value, in front of one of the above: ``-xn2`` is ``-x -n2``."""


def check_pytest_arguments(words: Sequence[str], root: Path | None) -> None:
    """Refuse options that ``stepprof ab`` has to set itself, and paths that would be the same for both sides.

    ``root`` is the repository's folder, ``None`` where it is not the one that is measured.

    Raises:
        UsageError: names the word.
    """
    if root is not None:
        _refuse_own_paths(words, root)
    for option, value in _options(words):
        if option in _TAKEN:
            raise UsageError(f"found {option} among pytest's arguments, expected no such option: {_TAKEN[option]}.")
        if option in _NEUTRAL and (not _NEUTRAL[option] or value != _NEUTRAL[option]):
            raise UsageError(
                f"found {option} among pytest's arguments, expected no sharing of tests among processes "
                "(pytest-xdist): one test is measured at a time. What a project's own options ask for is ignored."
            )


def _refuse_own_paths(words: Sequence[str], root: Path) -> None:
    """An absolute path into the user's folder would make both sides run the tests that lie there."""
    for word in words:
        place = Path(word.partition("::")[0])
        if place.is_absolute() and place.resolve().is_relative_to(root):
            raise UsageError(f"found the absolute path {word}, expected a relative one: each side has its own files.")


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each option with its value, or with the next word where it has none of its own; pytest abbreviates none."""
    before_paths = list(words[: words.index("--")] if "--" in words else words)
    for word, following in pairwise([*before_paths, ""]):
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            yield option, value if equals else following
        elif (short := _SHORT.fullmatch(_BUNDLED.sub("-", word))) is not None:
            yield short["option"], short["value"] or following
