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
BLACK, FULL_INK, FULL_PAPER = (f"var(--{name})" for name in ("black", "fullink", "fullpaper"))
"""Of texts on colours that `INK` does not stand out from: the first is the same on light and dark pages, the second is
black and the third white on light pages, the other way round on dark ones."""
TONES = tuple(f"var(--t{index})" for index in range(8))
"""Colours of series, in order; distinguishable by readers with the common colour-vision deficiencies."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
"""Marks of series, in the same order: no series is told from another by its colour alone."""
WIDTH, HEIGHT = 520, 260
"""Of a chart in a file, in pixels before scaling; on the page a chart is as wide as its panel."""
TEXT = 12
"""The size of all text in a chart, in pixels: no chart is drawn smaller than it is."""
SMALL = 250
"""The width of a chart's picture in a figure of small panels."""
HALF_PAGE = 400
"""The width of other pictures on a page, until a script draws them as wide as their panel."""
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
        "labelFontSize": TEXT,
        "titleFontSize": TEXT,
        "gridColor": LINE,
        "domain": False,
        "ticks": False,
        "labelPadding": 5,
        "titlePadding": 8,
    }
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": WIDTH, "continuousHeight": HEIGHT, "discreteWidth": WIDTH},
        "axis": axis,
        "axisX": {"grid": False, "labelFlush": False},
        "axisQuantitative": {"labelLimit": 0},  # a label that has a limit is measured three times, and drawn as slowly
        # Charts that stand above one another in a panel have their plots in line.
        "axisY": {"minExtent": 58, "maxExtent": 58, "tickCount": 5},
        "range": {"category": list(TONES), "symbol": list(SHAPES)},
        "legend": {
            "labelColor": INK,
            "titleColor": SOFT,
            "orient": "bottom",
            "columns": 3,
            "labelLimit": 320,
            "labelFontSize": TEXT,
        },
        "title": {"color": INK, "fontSize": 13, "anchor": "start", "frame": "group", "offset": 8},
        "line": {"strokeWidth": 1.8},
        "point": {"size": 34, "filled": True, "opacity": 1},
        "rule": {"color": SOFT},
        "text": {"color": INK, "fontSize": TEXT},
    }


@functools.cache
def light() -> dict[str, str]:
    """The light colours by name (`soft`), as the style sheet has them."""
    return _colours(STYLE_SHEET.read_text("utf-8"))


def _colours(sheet: str) -> dict[str, str]:
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", sheet.partition(":root {")[2].partition("}")[0]))


_UP_TO = {
    LOSS: ((0.59, INK), (0.72, FULL_INK), (1.0, BLACK)),
    GAIN: ((0.56, INK), (0.68, FULL_INK), (0.9, BLACK), (1.0, FULL_PAPER)),
    SHARE: ((0.74, INK), (0.9, FULL_INK), (1.0, BLACK)),
}
"""The colour of a text on a colour by role that is laid over `SHADE`, with the strength up to which it can be read on
light and on dark pages: with a contrast of 4.5 at least (WCAG 2.2, success criterion 1.4.3)."""


def text_on(colour: str, strength: float) -> str:
    """The colour of a text on a colour by role of a strength in 0…1."""
    return next(text for most, text in _UP_TO[colour] if strength <= most)


def in_light(text: str) -> str:
    """A text (a tag of SVG) in which every colour by role is the light one."""
    return re.sub(r"var\(--(\w+)\)", lambda match: light().get(match[1], match[0]), text)
