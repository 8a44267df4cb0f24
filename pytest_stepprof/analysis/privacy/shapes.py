"""What a text gives away by its looks, wherever it stands: one answer for those who inspect and for those who scrub."""

import re
import unicodedata
from functools import lru_cache

from pytest_stepprof.analysis.labels import holds_credential, holds_secret, refused_label
from pytest_stepprof.record.inspection import RevealedKind

_KIND_OF_REASON: dict[str, RevealedKind] = {
    "it looks like a URL": "network addresses",
    "it looks like an e-mail address": "network addresses",
    "it looks like an IP address": "network addresses",
    "it looks like a host name with a port": "network addresses",
    "it looks like a hardware address": "network addresses",
    "it looks like a memory address": "addresses",
    "it looks like an absolute path": "paths",
    "it looks like a path of a home directory": "paths",
    "it looks like a path to a folder above": "paths",
    "it looks like a network path": "paths",
    "it looks like a token or another secret": "secrets",
}

# To leave out a name costs nothing here, to refuse a label stops a measurement: so these look also inside of words.
_INSIDE_OF_WORDS: tuple[tuple[RevealedKind, re.Pattern[str]], ...] = (
    ("paths", re.compile(r"/(?:data|etc|home|mnt|opt|private|root|scratch|srv|tmp|usr|Users|var)/[^\s/]")),
    ("paths", re.compile(r"\.\.[\\/]+\w")),
    ("network addresses", re.compile(r"(?<![\d.vV])\d+\.\d{1,3}\.\d{1,3}\.\d")),
    ("network addresses", re.compile(r"ip-(?:\d{1,3}-){3}\d{1,3}")),
    ("network addresses", re.compile(r"[\w-]\.[\w-]+\.(?:com|corp|edu|gov|intranet|lan|localdomain|org)(?![\w.])")),
    ("network addresses", re.compile(r"(?:localhost|\w\.(?:com|corp|edu|gov|intranet|lan|local|net|org)):\d\d")),
    ("addresses", re.compile(r"0x[0-9a-f]{6}", re.IGNORECASE)),
    ("secrets", re.compile(r"\w:[^\s/@:]+@\w")),
)
_HOME = re.compile(r"(?:/home/|[/\\:]Users[/\\])([^/\\\s\"':;,]+)")

_VALUE = r"""(?:\\?"[^"]*"?|\\?'[^']*'?|\S+)"""
_SETTING = re.compile(rf"([A-Z][A-Z0-9_]{{2,}}=){_VALUE}")
_NAMED_SECRET = re.compile(
    r"((?:password|passwd|passphrase|secret|token|api_?key|credential)\w*[\"']?\s?[=:]\s?)(?!:|\d+(?!\w))" + _VALUE,
    re.IGNORECASE,
)
_BEARER = re.compile(r"(Bearer )\S{8,}", re.IGNORECASE)
_TOKEN = re.compile(r"(gh[pousr]_|github_pat_|glpat-|hf_|AKIA|AIza|xox[a-z]-)(?=[A-Za-z]*\d)[\w-]{16,}")
_PRIVATE_KEY = re.compile(r"(PRIVATE KEY).+", re.DOTALL)
_CREDENTIALS_IN_URL = re.compile(r"(://)[^/@\s]+(?=@)")
_PASSWORD_AT_HOST = re.compile(r"(\w:)[^\s/@:]+(?=@\w)")
_LONG_WORDS = (re.compile(r"[\w.+=-]{16,}"), re.compile(r"[\w.+=/-]{16,}"))

# rocBLAS names its kernels by their parameters, which look like random text and are none.
_TENSILE_KERNEL = re.compile(r"Cijk_A[a-z]{3}_B[a-z]{3}_[A-Z]\w*")


@lru_cache(maxsize=4096)
def kinds_by_shape(text: str, category: str = "") -> tuple[tuple[RevealedKind, str], ...]:
    """Return what a text, the name of an event of this category or another one, gives away, each with the part.

    Nothing of it may stay in a scrubbed trace.
    """
    if category in ("kernel", "Kernel") and _TENSILE_KERNEL.fullmatch(text):
        return (("secrets", text),) if holds_credential(text) else ()
    plain = text if text.isascii() else _without_disguise(text)
    kinds: dict[RevealedKind, None] = {}
    reason = refused_label(plain)
    if reason is not None:
        kinds[_KIND_OF_REASON.get(reason, "other")] = None
    if holds_secret(plain) or any(pattern.search(plain) for pattern in (_NAMED_SECRET, _BEARER, _TOKEN)):
        kinds["secrets"] = None
    if _SETTING.search(plain):
        kinds["settings of the environment"] = None
    kinds.update((kind, None) for kind, pattern in _INSIDE_OF_WORDS if pattern.search(plain))
    return (*(("user names", user) for user in _HOME.findall(plain)), *((kind, text) for kind in kinds))


def _without_disguise(text: str) -> str:
    """Write wide letters as ordinary ones, and leave out what takes no room."""
    ordinary = unicodedata.normalize("NFKC", text)
    return "".join(character for character in ordinary if unicodedata.category(character) != "Cf")


def masked(text: str) -> str:
    """Hide what would give access, whatever it is shown as: it may be read by others than the owner of the file."""
    for pattern in (_SETTING, _NAMED_SECRET, _BEARER, _PRIVATE_KEY, _CREDENTIALS_IN_URL, _PASSWORD_AT_HOST):
        text = pattern.sub(r"\1***", text)
    for words in _LONG_WORDS:
        text = words.sub(lambda word: _masked_word(word[0]), text)
    return _TOKEN.sub(r"\1***", text)


def _masked_word(word: str) -> str:
    return f"{word[:4]}*** ({len(word)} characters)" if holds_secret(word) else word
