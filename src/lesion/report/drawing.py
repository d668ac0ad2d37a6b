"""Charts drawn: one Altair chart as a picture on a page, as an interactive specification, as SVG, PNG and PDF.

Vega-Lite is drawn by `vl-convert`, which needs neither a browser nor the network. The same specification is drawn
on the page by the bundle of Vega that `vl-convert` carries, under a content-security policy without `unsafe-eval`.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pandas as pd

from lesion.atomic import replace
from lesion.files import cache_folder
from lesion.plain import layout
from lesion.report import theme

if TYPE_CHECKING:
    import altair as alt

Specification = dict[str, Any]
"""A chart in Vega-Lite: JSON."""
SCALE = 2.0
"""Pixels of a PNG per pixel of the chart."""


def specification(chart: alt.TopLevelMixin) -> Specification:
    """The chart as Vega-Lite with the house's configuration; its data lie within it."""
    import altair as alt

    alt.data_transformers.register(_VALUES, _values)
    with alt.data_transformers.enable(_VALUES):
        drawn: Specification = chart.to_dict(validate=False)
    drawn.pop("$schema", None)
    drawn["config"] = theme.config()
    return _drawable(drawn)


_VALUES = "lesion"
"""Under which Altair knows `_values`."""


def _values(data: Any) -> Any:
    """The rows of a data frame as Altair's own `to_values` gives them, which takes several times as long."""
    import altair as alt

    if not isinstance(data, pd.DataFrame):
        return alt.to_values(data)
    columns = [[_plain(value) for value in data.iloc[:, place].tolist()] for place in range(data.shape[1])]
    names = list(map(str, data.columns))
    return {"values": [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]}


def _plain(value: Any) -> Any:
    """A value of a data frame as JSON has it; what is missing or not finite is None."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if isinstance(value, type(pd.NA) | type(pd.NaT)) else value


def _drawable(value: Any) -> Any:
    """The specification as it can be drawn.

    Numbers have six significant digits: no eye sees more, and a page is smaller. Texts are as `seen` gives them.
    """
    if isinstance(value, dict):
        return {key: _drawable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_drawable(part) for part in value]
    if isinstance(value, str):
        return seen(value)
    return float(f"{value:.6g}") if isinstance(value, float) else value


def seen(text: str) -> str:
    """A text as a chart shows it: what is not seen, or XML cannot hold, is written as an escape."""
    return text if text.isascii() and text.isprintable() else layout(text.translate(_NO_XML))


_NO_XML = {0xFFFE: 0xFFFD, 0xFFFF: 0xFFFD}


def svg(specified: Specification) -> str:
    """A specification as SVG whose colours are CSS variables: for a page that defines them."""
    import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(json.dumps(specified), allowed_base_urls=[]))
    _lighten(root)
    root.set("font-family", theme.FONT)
    ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
    return ElementTree.tostring(root, encoding="unicode")


_UNUSED = re.compile(r"aria-\w+|role|pointer-events|class|font-family")
_DEFAULTS = {"opacity": "1", "transform": "translate(0,0)", "font-weight": "normal", "x2": "0", "y2": "0"}
_SHARED = ("fill", "stroke", "stroke-width", "stroke-dasharray", "text-anchor", "font-size", "font-weight")


def _lighten(element: ElementTree.Element) -> None:
    """Remove what nobody sees, round to tenths of a pixel, and write once what the parts of a group have in common."""
    for name, value in list(element.attrib.items()):
        if _UNUSED.fullmatch(name) or _DEFAULTS.get(name) == value:
            del element.attrib[name]
        else:
            element.set(name, _rounded(value, 1 if name in ("d", "transform") else 2))
    if element.tag.endswith("}defs"):
        return
    painted = [paint for paint in ("fill", "stroke") if paint in element.attrib]
    if len(painted) == 1 and element.tag.endswith("}path") and element.get("opacity", "0") != "0":
        # The same to the eye; for the opacity of a whole element, a PNG is drawn on a layer of its own.
        element.set(f"{painted[0]}-opacity", element.attrib.pop("opacity"))
    parts: list[ElementTree.Element] = []
    for part in element:
        _lighten(part)
        if _seen(part):
            parts += part if part.tag.endswith("}g") and not part.attrib else [part]
    element[:] = parts
    for name in _SHARED if element.tag.endswith("}g") and len(parts) > 1 else ():
        values = [part.get(name, "") for part in parts]
        if all(values):
            element.set(name, max(values, key=values.count))
            for part in parts:
                if part.get(name) == element.get(name):
                    del part.attrib[name]


def _rounded(text: str, digits: int) -> str:
    return re.sub(r"-?\d+\.\d+", lambda number: f"{round(float(number[0]), digits):g}", text)


def _seen(part: ElementTree.Element) -> bool:
    """Whether a part is visible; Vega draws its marks into a group without fill and stroke."""
    if part.get("display") == "none" or part.get("opacity") == "0":
        return False
    if part.tag.endswith("}g"):
        return len(part) > 0
    return not part.tag.endswith(("}path", "}rect", "}line")) or "fill" in part.attrib or "stroke" in part.attrib


def _in_tags(drawn: str, change: Callable[[str], str]) -> str:
    """The SVG with every tag changed, and the texts between them as they are; in neither stands `<` or `>`."""
    return re.sub("<[^>]*>", lambda tag: change(tag[0]), drawn)


def apart(drawn: str, prefix: str) -> str:
    """The SVG with a prefix before the names of its parts: those of several pictures on one page do not clash."""
    return _in_tags(drawn, lambda tag: re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{prefix}", tag))


def svg_file(drawn: str) -> str:
    """The SVG for a file: in the light colours, on their paper."""
    head, tag, rest = drawn.partition(">")
    ground = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return _in_tags(f"{head}{tag}{ground}{rest}", theme.in_light)


def png_file(drawn: str) -> bytes:
    """The SVG as PNG in the light colours."""
    import vl_convert

    picture: bytes = vl_convert.svg_to_png(svg_file(drawn), scale=SCALE)
    return picture


def pdf_file(drawn: str) -> bytes:
    """The SVG as PDF in the light colours; lines and letters stay such."""
    import vl_convert

    page: bytes = vl_convert.svg_to_pdf(svg_file(drawn))
    return page


@functools.cache
def bundle() -> str:
    """The script that draws Vega-Lite on a page: Vega, Vega-Lite and vega-embed, 0.9 MB.

    To put it together takes seconds, so that it is kept in the user's cache.
    """
    import vl_convert

    place = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        return place.read_text("utf-8")
    except (OSError, UnicodeError):
        pass
    script = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]  # its stub asks for what has a default
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace(place, script)
    except OSError:
        pass  # the next process puts it together again
    return script
