"""The parts of a drawn chart: its layers by their mark, their data, and what encodes a field."""

from typing import Any

import pandas as pd

from lesion.report import drawing

CELLS = pd.DataFrame(
    [
        {"x": 0, "y": "a: b.c", "value": 0.5, "text": "50", "tip": "half", "marked": True, "edit": "0×0"},
        {"x": 1, "y": "a: b.c", "value": -0.25, "text": "−25", "tip": "less", "marked": False, "edit": "1×0"},
        {"x": 0, "y": "d", "value": None, "text": "", "tip": "not measured yet", "marked": False, "edit": None},
    ]
)


def drawn(chart) -> dict[str, Any]:
    return drawing.specification(chart)


def layers(chart) -> dict[str, dict[str, Any]]:
    """The layers of a chart by their mark."""
    return {layer["mark"]["type"]: layer for layer in drawn(chart)["layer"]}


def rows(chart, layer: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of a layer."""
    specified = drawn(chart)
    return specified["datasets"][layer.get("data", specified.get("data"))["name"]]
