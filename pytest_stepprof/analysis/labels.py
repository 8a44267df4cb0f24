"""Names from outside: which profiler labels must not be stored, and how text is made safe to print.

The refusal is a net with a stated mesh, not a proof: it knows the shapes that are listed here. Reasons never repeat
the label, because a reason is printed and stored.
"""

import ipaddress
import math
import re
import unicodedata
from collections import Counter

_WORD_START = r"(?<![\w.~/\\-])"

# What a label looks like -> a pattern that is enough to say so.
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a URL", re.compile(r"[\w+.-]://\S")),
    ("an e-mail address", re.compile(r"[\w.+-]@[\w-]+\.[\w-]")),
    ("a memory address", re.compile(r"(?<!\d)0x[0-9a-f]{6,}", re.IGNORECASE)),
    ("a hardware address", re.compile(r"(?<![\w:-])[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4}(?![\w:-])", re.I)),
    ("an absolute path", re.compile(_WORD_START + r"/[\w.@%+~-]+/[\w.@%+~-]*")),
    (
        "an absolute path",
        re.compile(r"(?<![A-Za-z0-9~/\\])/(?:bin|data|etc|home|mnt|opt|private|root|srv|tmp|usr|Users|var)(?![\w-])"),
    ),
    ("an absolute path", re.compile(r"/(?:home|Users)/[^\s/]")),
    ("a path to a folder above", re.compile(r"(?<![\w.])\.\.[\\/]+[\w.~-]")),
    ("a path of a home directory", re.compile(r"(?<![\w~])~[\w.-]*/\S")),
    ("an absolute path", re.compile(r"(?<![A-Za-z0-9])[A-Za-z]:[\\/](?=\S)")),
    ("a network path", re.compile(r"(?<!\\)\\\\[^\\\s]+\\")),
)

# Documented beginnings of credentials; the rest is long enough not to be a word.
_CREDENTIALS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}"
    r"|sk-(?:[a-z0-9]+-)*(?=[A-Za-z_-]*\d)[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|xox[a-z]-[A-Za-z0-9-]{10,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}"
    r"|(?:npm|dop_v1|pypi)[_-](?=[a-z]*[A-Z0-9])[\w-]{30,}"
    r"|Bearer [\w.~+/-]{8,}"
    r")"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY"
    # A setting whose name says what it is; a number, as in MAX_TOKEN=128, is none.
    r"|(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|API_?KEY|(?:ACCESS|PRIVATE|SECRET)_KEY)\s?=\s?(?!\d+(?!\w))\S"
)
_HEX = re.compile(r"(?<![A-Za-z0-9])[0-9a-fA-F]{32,}(?![A-Za-z0-9])")
_UUID = re.compile(r"(?<!\w)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{32,}={0,2}")
_LOWER_AND_DIGITS = re.compile(r"(?<![A-Za-z0-9])[a-z0-9]{32,}(?![A-Za-z0-9])")

_IPV4 = re.compile(r"(?<![A-Za-z0-9.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\w)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:.]{2,45}(?![\w:])")
_HOST_AND_PORT = re.compile(
    r"(?<![\w.-])(?:(localhost)|(?:[A-Za-z0-9-]+\.)+([A-Za-z][A-Za-z0-9-]*)):(\d{2,5})(?!\w|\.\w)"
)
_SOURCE_SUFFIXES = frozenset({"c", "cc", "cpp", "cu", "cuh", "cxx", "h", "hpp", "ipynb", "py", "pyi", "pyx", "rs"})
_DOMAIN_ENDINGS = frozenset(
    {"ai", "arpa", "cloud", "com", "corp", "de", "dev", "edu", "eu", "gov", "home", "internal", "intranet", "io", "lan"}
    | {"local", "localdomain", "net", "org", "uk"}
)

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def refused_label(name: str) -> str | None:
    """Say why a label must not be stored (``it looks like an IP address``), or ``None`` when it may be.

    Looked for: addresses (IP, URL, e-mail, host with port, hardware, memory), credentials (known beginnings, settings
    like ``API_KEY=...``, long random strings) and absolute paths. Found by shape, so a name like ``/a/b`` is refused,
    and a password that stands alone, or a host's name without a domain and a port, is not.
    """
    for what, pattern in _SHAPES:
        if pattern.search(name):
            return f"it looks like {what}"
    if _holds_ip_address(name):
        return "it looks like an IP address"
    if any(_is_host_and_port(*match.groups()) for match in _HOST_AND_PORT.finditer(name)):
        return "it looks like a host name with a port"
    if holds_secret(name):
        return "it looks like a token or another secret"
    return None


def holds_secret(name: str) -> bool:
    """Say whether a text holds a credential, or what is random enough to be one."""
    return holds_credential(name) or _UUID.search(name) is not None or _holds_random_text(name)


def holds_credential(name: str) -> bool:
    """Say whether a text holds what is known to give access, whatever else in it only looks random."""
    return _CREDENTIALS.search(name) is not None


def printable(text: str) -> str:
    r"""Escape what would steer a terminal or hide text: ``\xNN`` below 256, ``\uNNNN`` above.

    Escaped are control characters (so also terminal sequences and line ends), line and paragraph separators,
    controls of writing direction, and lone surrogates. Everything else is left alone, backslashes too, so that
    doing it twice changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE_CATEGORIES and character not in _BIDI_CONTROLS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _holds_ip_address(name: str) -> bool:
    candidates = (*_IPV4.findall(name), *(match.group().rstrip(".") for match in _IPV6.finditer(name)))
    return any(_is_ip_address(candidate) for candidate in candidates)


def _is_ip_address(candidate: str) -> bool:
    """Leave out IPv6 ranges that nobody may use: ``c10::add`` and the slice ``1::2`` parse as addresses, too."""
    try:
        address = ipaddress.ip_address(candidate)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    return address.is_loopback or not (address.is_reserved or address.is_unspecified or address.is_site_local)


def _is_host_and_port(local: str | None, ending: str | None, port: str) -> bool:
    """``encoder.layer:64`` and ``train.py:120`` are no hosts: ask for a domain's ending or a port above 1023."""
    if local is not None or ending is None:
        return True
    return ending.lower() in _DOMAIN_ENDINGS or (ending not in _SOURCE_SUFFIXES and int(port) >= 1024)


def _holds_random_text(name: str) -> bool:
    if any(_entropy_bits(text) >= 2.0 for text in _HEX.findall(name)):
        return True
    if any(_is_random_base64(text) for text in _BASE64.findall(name)):
        return True
    return any(len(re.findall(r"\d+", text)) >= 5 for text in _LOWER_AND_DIGITS.findall(name))


def _is_random_base64(text: str) -> bool:
    """All three kinds of characters, many different ones, and few in lower-case runs as long as words have them.

    In random base64 about 15 % of the characters stand in lower-case runs of three or more; in identifiers made of
    words, like ``ScaledDotProductFlashAttentionForCpuBackward0``, far more than 30 %.
    """
    mixed = all(re.search(kind, text) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    in_words = sum(len(word) for word in re.findall(r"[a-z]{3,}", text))
    return mixed and _entropy_bits(text) >= 4.0 and in_words < 0.3 * len(text)


def _entropy_bits(text: str) -> float:
    """Shannon entropy per character, from the characters' own frequencies."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
