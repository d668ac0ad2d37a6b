"""Charts drawn: one Altair chart as a picture on a page, as an interactive specification, as SVG and as PNG.

Vega-Lite is drawn by `vl-convert`, which needs neither a browser nor the network. The same specification is drawn
on the page by the bundle of Vega that `vl-convert` carries, under a content-security policy without `unsafe-eval`.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lesion.atomic import replace
from lesion.plain import layout
from lesion.report import theme

if TYPE_CHECKING:
    import altair as alt

SCALE = 2.0
"""Pixels of a PNG per pixel of the chart."""


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as Vega-Lite with the house's configuration; its data lie within it."""
    import altair as alt

    with alt.data_transformers.enable("default", max_rows=None):
        drawn: dict[str, Any] = chart.to_dict(validate=False)
    drawn.pop("$schema", None)
    drawn["config"] = theme.config()
    return _drawable(drawn)


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


def svg(specified: dict[str, Any]) -> str:
    """A specification as SVG whose colours are CSS variables: for a page that defines them."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(json.dumps(specified), allowed_base_urls=[])
    return _in_tags(drawn, _smaller).replace("<svg ", f'<svg font-family="{theme.FONT}" ', 1)


def _smaller(tag: str) -> str:
    """A tag of Vega's without what a picture with a label does not need, its numbers to a hundredth of a pixel."""
    if re.fullmatch(r'<path (?:[^>]* )?d="[^"]*"[^>]* display="none"/>', tag):
        return ""
    tag = re.sub(r' (?:aria-\w+|role|pointer-events|class|font-family)="[^"]*"| opacity="1"', "", tag)
    tag = "" if tag == '<path d="M0,0h0v0h0Z"/>' else tag
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)


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


@functools.cache
def bundle() -> str:
    """The script that draws Vega-Lite on a page: Vega, Vega-Lite and vega-embed, 0.9 MB.

    To put it together takes seconds, so that it is kept in the user's cache.
    """
    import vl_convert

    place = _cache() / f"vega-{vl_convert.__version__}.js"
    try:
        return place.read_text("utf-8")
    except (OSError, UnicodeError):
        pass
    script = str(vl_convert.javascript_bundle()).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace(place, script)
    except OSError:
        pass  # the next process puts it together again
    return script


def _cache() -> Path:
    given = os.environ.get("LESION_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "lesion"
