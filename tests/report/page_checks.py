"""What tests of pages share: texts that would act on a page, its elements, and that it refers to nothing outside."""

import base64
import html.parser
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree

import pandas as pd
from made import form, records, valid

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- <script>",
    "</style><style>*{display:none}",
    "]]>\u2028\u2029 &lt; {{ 7 * 7 }} {% raw %}",
    "\0 \ud800 \x1b[31m",
    '\'" onmouseover=alert(1) x="',
]


class Elements(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the text of script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        self._open = tag if tag in self.inside else ""
        if self._open:
            self.inside[tag].append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            self.inside[self._open][-1] += data


def assert_asks_for_nothing(text: str) -> Elements:
    """The page refers to nothing outside itself and has no style but its sheet; its elements.

    It has two script elements, its own script and its answers, and with charts two more: specifications and Vega.
    """
    elements = Elements(text)
    for tag, attributes in elements.found:
        assert "style" not in attributes, tag
        for name in ("src", "href", "action", "srcset", "data"):
            value = attributes.get(name)
            assert not value or value.startswith(("#", "data:")), (tag, value)
    charts = any(attributes.get("id") == "charts" for _, attributes in elements.found)
    assert len(elements.inside["script"]) == (4 if charts else 2)
    return elements


def inflated(text: str, name: str) -> str:
    """What a page carries compressed: its answers (`data`), its charts or Vega (`vega`)."""
    inside = text.split(f'<script type="text/plain" id="{name}">')[1].split("</script>")[0]
    return zlib.decompress(base64.b64decode(inside, validate=True)).decode("utf-8")


def marks(picture: str) -> list[dict[str, str]]:
    """The attributes of every path, line and text of an SVG, with those of the groups that it is in."""

    def within(element: ElementTree.Element, outer: dict[str, str]) -> Iterator[dict[str, str]]:
        attributes = outer | element.attrib
        if not element.tag.endswith(("}svg", "}g")):
            yield attributes
        for part in element:
            yield from within(part, attributes)

    return list(within(ElementTree.fromstring(picture), {}))


def hostile_study():
    models, tasks = tuple(HOSTILE[:2]), (HOSTILE[2], HOSTILE[6])
    summary, (answers, items) = form(models, tasks), records(models, tasks)
    summary["study"] |= {"title": HOSTILE[0], "name": HOSTILE[1]}
    summary |= {"version": HOSTILE[3], "engine": HOSTILE[1], "notes": [*HOSTILE[:5], HOSTILE[6]]}
    many = (HOSTILE * len(answers))[: len(answers)]
    strings = pd.Series(many, dtype=object)  # the string type of pandas refuses lone surrogates
    answers = answers.assign(text=strings, parsed=strings)
    many = [text.replace("\ud800", "\ufffd") for text in many]
    items = items.assign(question=many[: len(items)], gold=many[: len(items)], group=many[: len(items)])
    names = {item: f"{item}{text}" for item, text in zip(items["item"], many, strict=False)}
    items, answers = (frame.assign(item=frame["item"].map(names)) for frame in (items, answers))
    return valid(summary), answers, items


def colours_of(png: bytes) -> int:
    """How many different bytes the rows of a PNG hold, filtered as they lie there: of a plain ground, hardly any."""
    parts, place = b"", 8
    while place < len(png):
        size, kind = int.from_bytes(png[place : place + 4]), png[place + 4 : place + 8]
        parts += png[place + 8 : place + 8 + size] if kind == b"IDAT" else b""
        place += 12 + size
    return len(set(zlib.decompress(parts)))
