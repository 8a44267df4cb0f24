"""What matplotlib writes, made fit to stand in a page: the page's colours and fonts, no numbers beyond a tenth."""

import re
from collections.abc import Mapping
from xml.etree import ElementTree

from pytest_stepprof.analysis.labels import printable

COLOURS: Mapping[str, str] = {
    name: f"#0b0a{number:02x}"
    for number, name in enumerate(("ink", "muted", "line", "before", "after", "good", "bad", "attention"), 1)
}
"""Stand for the page's colours while matplotlib draws: they become ``var(--name)``, which light and dark differ in."""

_VARIABLES = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
_COLOUR = re.compile("|".join(_VARIABLES))
_NUMBER = re.compile(r"-?\d+\.\d+")
_DOT = re.compile(r"M (\S+ \S+) L \1(?=\s|$)")
_FONT = re.compile(r"font:[^;]*?([\d.]+)px[^;]*")
_FONT_FAMILY = re.compile(r"font-family:[^;]*;?\s*")
_GEOMETRY = ("d", "x", "y", "width", "height", "transform")
_DROPPED = ("metadata", "style", "defs")


def inline_svg(written: str, *, title: str, description: str, texts: Mapping[str, str] | None = None) -> str:
    """Return an SVG document of matplotlib's as an element for a page.

    ``title`` and ``description`` are read out in place of the picture. ``texts`` maps what was drawn as a text to what
    shall stand there: nothing from outside goes through matplotlib. The element has no identities, so that several
    stand in one page; what is drawn with markers or clipped to axes would need them, and is lost.
    """
    root = ElementTree.fromstring(written)  # noqa: S314 # matplotlib has just written it
    view = root.attrib["viewBox"]
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) in _DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _tidy(element)
        if element.text is not None and texts and element.text in texts:
            element.text = printable(texts[element.text])
    _drop_empty(root)
    root.attrib.clear()
    root.attrib.update({"class": "plot", "viewBox": view, "role": "img", "aria-label": printable(description)})
    told = ElementTree.Element("title")
    told.text = printable(title)
    root.insert(0, told)
    return ElementTree.tostring(root, encoding="unicode")


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def _tidy(element: ElementTree.Element) -> None:
    """Keep what is seen, without namespaces, and in as few characters as it takes."""
    element.tag = _local(element.tag)
    attributes = dict(element.attrib)
    element.attrib.clear()
    for name, value in attributes.items():
        if name == "style":
            element.set(name, _restyled(value))
        elif name in _GEOMETRY and not value.startswith("rotate(-0 "):
            element.set(name, _compact(value))
    element.text = (element.text or "").strip() or None
    element.tail = None


def _compact(value: str) -> str:
    rounded = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), " ".join(value.split()))
    return re.sub(r" ?([MLz]) ?", r"\1", _DOT.sub(r"M \1h0", rounded))


def _restyled(value: str) -> str:
    coloured = _COLOUR.sub(lambda found: _VARIABLES[found[0]], value)
    return _FONT.sub(r"font-size: \1px", _FONT_FAMILY.sub("", coloured)).strip()


def _drop_empty(element: ElementTree.Element) -> None:
    """Leave out groups that hold nothing, and put what stands alone in a group in its place."""
    children = list(element)
    for place, child in enumerate(children):
        _drop_empty(child)
        if child.tag == "g" and len(child) <= 1 and not child.attrib:
            children[place : place + 1] = list(child) or [_NOTHING]
    element[:] = [child for child in children if child is not _NOTHING]


_NOTHING = ElementTree.Element("nothing")
