"""Any text as the name of a baseline, and a folder name that is safe on every disk."""

import hashlib
import re
import unicodedata

from pytest_stepprof.errors import UsageError

_SLUG_LENGTH = 40
_DIGEST_LENGTH = 16
_REFUSED_CATEGORIES = {
    "Cc": "a control character",
    "Cs": "half a surrogate pair",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}


def checked_name(name: str) -> str:
    """``name`` itself.

    Raises:
        UsageError: it is blank, or holds a character that would break the line it is printed on.
    """
    if not name.strip():
        raise UsageError(f"a baseline needs a name, got {name!r}: give any text, such as main")
    for character in name:
        what = _REFUSED_CATEGORIES.get(unicodedata.category(character))
        if what is not None:
            raise UsageError(f"the baseline name {name!a} holds {what} ({character!a}): leave it out")
    return name


def folder_name(name: str) -> str:
    """A readable slug and a digest of the exact name: lower case ASCII, at most 57 characters.

    Names that differ in case, or in a character the slug cannot show, differ in the digest; names that Windows
    reserves are none with a digest behind them.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", checked_name(name).lower()).strip("-")[:_SLUG_LENGTH].rstrip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{slug}-{digest}" if slug else digest
