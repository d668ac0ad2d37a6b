"""Charts drawn: one Altair chart as a picture on a page, as an interactive specification, as SVG and as PNG.

Vega-Lite is drawn by `vl-convert`, which needs neither a browser nor the network. The same specification is drawn
on the page by the bundle of Vega that `vl-convert` carries, under a content-security policy without `unsafe-eval`.
"""

from __future__ import annotations

import functools
import json
import os
import re
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
    return _rounded(drawn)


def _rounded(value: Any) -> Any:
    """The specification with numbers of six significant digits: no eye sees more, and a page is smaller.

    Characters that act instead of being seen are escaped: SVG has no place for them.
    """
    if isinstance(value, str):
        return layout(value)
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def svg(specified: dict[str, Any]) -> str:
    """A specification as SVG whose colours are CSS variables: for a page that defines them."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(json.dumps(specified), allowed_base_urls=[])
    # Vega writes for scripts and screen readers what a picture with a label does not need.
    drawn = re.sub(r' (?:aria-\w+|role|pointer-events|class)="[^"]*"', "", drawn)
    drawn = re.sub(r'<path d="[^"]*" display="none"/>|<path d="M0,0h0v0h0Z"/>| opacity="1"', "", drawn)
    drawn = re.sub(r' font-family="[^"]*"', "", drawn).replace("<svg ", f'<svg font-family="{theme.FONT}" ', 1)
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", drawn)


def apart(drawn: str, prefix: str) -> str:
    """The SVG with a prefix before the names of its parts: those of several pictures on one page do not clash."""
    return re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{prefix}", drawn)


def svg_file(drawn: str) -> str:
    """The SVG for a file: in the light colours, on their paper."""
    head, tag, rest = drawn.partition(">")
    ground = '<rect width="100%" height="100%" fill="var(--paper)"/>'
    return theme.in_light(f"{head}{tag}{ground}{rest}")


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
    except OSError:
        pass
    script = str(vl_convert.javascript_bundle()).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        replace(place, script)
    except OSError:
        pass  # the next process puts it together again
    return script


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
    return Path(base) / "lesion"
