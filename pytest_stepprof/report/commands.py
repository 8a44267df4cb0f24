"""Text that a runner of jobs must not take for a command.

GitHub's runner reads what a step prints: a line that begins with ``::``, blanks aside, and ``##[`` anywhere (Azure's
reads ``##vso[``) are commands that set variables, hide words or open groups. A report holds names and reasons that
anybody wrote.
"""

import re

_COMMAND = re.compile(r"^((?:[^\S\n]|\x1b\[[0-9;]*m)*):(?=:)|#(?=#(?:vso)?\[)", re.MULTILINE | re.IGNORECASE)


def without_commands(text: str) -> str:
    r"""Return the text with the first character of each command shown as an escape, as other controls are.

    That character is written ``\x3a`` or ``\x23``, so that a reader sees what stood there.
    """
    return _COMMAND.sub(lambda found: f"{found[1]}\\x3a" if found[1] is not None else "\\x23", text)
