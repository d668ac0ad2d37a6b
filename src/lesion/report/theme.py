"""The house style of charts: colours by role, which the page draws light or dark, and the configuration of Vega-Lite.

A chart names colours by role, as CSS does (`var(--soft)`). On the page the style sheet gives them their value, so that
a chart follows the reader's light or dark mode; in a file they are the light ones of the same style sheet.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

STYLE_SHEET = Path(__file__).parent / "page.css"
PAPER, INK, SOFT, LINE, SHADE = (f"var(--{name})" for name in ("paper", "ink", "soft", "line", "shade"))
LOSS, GAIN, SHARE = (f"var(--{name})" for name in ("loss", "gain", "share"))
TONES = tuple(f"var(--t{index})" for index in range(8))
"""Colours of series, in order; distinguishable by readers with the common colour-vision deficiencies."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
"""Marks of series, in the same order: no series is told from another by its colour alone."""
WIDTH, HEIGHT = 520, 260
"""Of a chart in a file, in pixels before scaling; on the page a chart is as wide as its panel."""
SMALL = 250
"""The width of a chart's picture in a figure of small panels."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"


def tone(index: int) -> str:
    """The colour of a series by its number; after the last they begin anew."""
    return TONES[index % len(TONES)]


def config() -> dict[str, Any]:
    """The configuration of Vega-Lite that every chart of the project has."""
    axis = {
        "labelColor": SOFT,
        "titleColor": SOFT,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11.5,
        "gridColor": LINE,
        "domain": False,
        "ticks": False,
        "labelPadding": 5,
        "titlePadding": 8,
    }
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": WIDTH, "discreteWidth": WIDTH, "continuousHeight": HEIGHT},
        "axis": axis,
        "axisX": {"grid": False, "labelFlush": False},
        # Charts that stand above one another in a panel have their plots in line.
        "axisY": {"minExtent": 58, "maxExtent": 58, "tickCount": 5},
        "range": {"category": list(TONES), "symbol": list(SHAPES)},
        "legend": {"labelColor": INK, "titleColor": SOFT, "orient": "bottom", "columns": 3, "labelLimit": 260},
        "title": {"color": INK, "fontSize": 13, "anchor": "start", "frame": "group", "offset": 8},
        "line": {"strokeWidth": 1.8},
        "point": {"size": 34, "filled": True, "opacity": 1},
        "rule": {"color": SOFT},
        "text": {"color": INK, "fontSize": 11},
    }


@functools.cache
def light() -> dict[str, str]:
    """The light colours by name (`soft`), as the style sheet has them."""
    root = STYLE_SHEET.read_text("utf-8").partition(":root {")[2].partition("}")[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", root))


def in_light(text: str) -> str:
    """A text (a tag of SVG) in which every colour by role is the light one."""
    return re.sub(r"var\(--(\w+)\)", lambda match: light().get(match[1], match[0]), text)
