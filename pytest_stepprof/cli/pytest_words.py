"""Commands that run pytest: what stands behind ``--`` is pytest's."""

from collections.abc import Sequence

_RUN_PYTEST = (("ab",), ("baseline", "record"))


def split_off(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the line of a command that runs pytest at ``--``, which argparse cannot do; leave all others whole."""
    own = list(words[: words.index("--")]) if "--" in words else list(words)
    runs_pytest = any(all(word in own for word in command) for command in _RUN_PYTEST)
    return (own, list(words[len(own) + 1 :])) if runs_pytest else (list(words), [])
