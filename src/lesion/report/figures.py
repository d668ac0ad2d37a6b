"""Figures as one specification: all panels with their titles and one legend, for a file and for a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lesion.arguments import validated
from lesion.atomic import replace
from lesion.errors import LesionError, UsageError
from lesion.report import drawing, plots, theme
from lesion.report.blocks import Figure
from lesion.report.drawing import Specification

Specified = dict[int, Specification]
"""The specification of every chart of a page, by the chart's identity: each is worked out once."""


def specify(figure: Figure, specified: Specified) -> None:
    """Add the specifications of a figure's charts, without legends of their own where the figure has one."""
    for panel in figure.panels:
        for chart in panel.charts:
            if id(chart) not in specified:
                specified[id(chart)] = drawing.specification(chart)
            if figure.legend:
                _without_legends(specified[id(chart)])


def whole(
    figure: Figure,
    specified: Specified,
    *,
    live: bool = False,
    legend: float | None = None,
    gaps: tuple[int, int, int] = (4, 20, 14),
) -> Specification:
    """All panels of a figure and its legend as one specification.

    Args:
        specified: the specifications of its charts, perhaps among others.
        live: whether numbers are shown on pointing, as in a notebook; else it is a still picture, for a file.
        legend: how wide the legend is; by default as wide as the panels.
        gaps: between charts of a panel, between panels, and above the legend.
    """
    part = _part if live else still
    panels: list[Specification] = []
    every: list[Specification] = []
    for panel in figure.panels:
        own = [specified[id(chart)] for chart in panel.charts]
        # Altair gives equal charts equal names, and in one specification no two parts may have the same.
        own = [_named_apart(chart, f"_{len(every) + number}") for number, chart in enumerate(own)] if live else own
        charts = [part(chart) for chart in own]
        if panel.title:
            charts[0] = {**charts[0], "title": drawing.seen(panel.title)}
        panels.append({"vconcat": charts, "spacing": gaps[0], **_OWN_SCALES} if len(charts) > 1 else charts[0])
        every += own
    several = {"concat": panels, "columns": figure.columns, "spacing": gaps[1], **_OWN_SCALES}
    drawn = panels[0] if len(panels) == 1 else several
    if figure.legend:
        width = legend or min(figure.columns, len(panels)) * (theme.WIDTH + 80)
        every.append(drawing.specification(plots.legend(figure.legend, round(width))))
        drawn = {"vconcat": [drawn, part(every[-1])], "spacing": gaps[2], **_OWN_SCALES}
    data = {name: values for own in every for name, values in own.get("datasets", {}).items()}
    params = [param for own in every for param in own.get("params", ())] if live else []
    return {**drawn, **({"params": params} if params else {}), "datasets": data, "config": theme.config()}


_OWN_SCALES = {
    "resolve": {
        "scale": dict.fromkeys(
            ("color", "fill", "shape", "opacity", "size", "strokeDash", "strokeWidth"), "independent"
        )
    }
}
"""Charts of one file keep their own colours, as they have on the page."""


def _part(specified: Specification) -> Specification:
    """A chart as part of another, whose parameters stand at the top."""
    return {key: value for key, value in specified.items() if key not in ("config", "datasets", "params", "usermeta")}


def _named_apart(specified: Specification, suffix: str) -> Specification:
    """A chart whose parameters, and the views that these belong to, have names with a suffix."""
    params = specified.get("params", ())
    names = {name for param in params for name in (param["name"], *param.get("views", ()))}

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {own: part if own == "datasets" else renamed(part, own) for own, part in value.items()}
        if isinstance(value, list):
            return [renamed(part, key) for part in value]
        return f"{value}{suffix}" if key in ("name", "param", "views") and value in names else value

    renamed_all: Specification = renamed(specified)
    return renamed_all if names else specified


def still(specified: Specification) -> Specification:
    """A chart as part of another, without what follows the pointer."""
    kept = _part(specified)
    if "layer" in kept:
        kept["layer"] = [still(layer) for layer in kept["layer"] if not _unseen(layer)]
    return kept


def _unseen(layer: Specification) -> bool:
    """Whether a layer is there for the pointer alone."""
    if "layer" in layer:
        return all(map(_unseen, layer["layer"]))
    return layer.get("mark", {}).get("opacity") == 0 or _follows_pointer(layer.get("encoding", {}))


def _follows_pointer(encoding: Any) -> bool:
    """Whether an encoding depends on a parameter, which only the pointer sets."""
    if isinstance(encoding, dict):
        return "param" in encoding or any(map(_follows_pointer, encoding.values()))
    return isinstance(encoding, list) and any(map(_follows_pointer, encoding))


def _without_legends(specified: Any) -> None:
    """Remove the legends of all encodings: the figure has one for all its panels."""
    for channel, encoding in specified.get("encoding", {}).items():
        if channel in ("color", "shape", "strokeDash", "opacity", "fill", "size") and "field" in encoding:
            encoding["legend"] = None
    for layer in specified.get("layer", ()):
        _without_legends(layer)


@dataclass(frozen=True)
class Drawing:
    """A figure in the light colours, as a notebook shows it: interactive where it can, else as a picture."""

    specified: Specification

    @classmethod
    def of(cls, figure: Figure) -> Drawing:
        """The figure with the titles of its panels and one legend, as in its files."""
        merged: Specified = {}
        specify(figure, merged)
        specified = whole(figure, merged, live=True)
        specified["config"]["background"] = theme.PAPER
        return cls(json.loads(theme.in_light(json.dumps(specified))))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        """What a notebook chooses from."""
        return {"application/vnd.vegalite.v6+json": self.specified, "image/svg+xml": drawing.svg(self.specified)}

    @validated
    def save(self, path: str | Path) -> Path:
        """Write the figure as PNG, SVG or PDF, whichever the name ends with; the path.

        Raises:
            UsageError: the name ends with none of these.
            LesionError: the file cannot be written.
        """
        path = Path(path)
        kinds: dict[str, Callable[[str], str | bytes]] = {
            ".png": drawing.png_file,
            ".svg": drawing.svg_file,
            ".pdf": drawing.pdf_file,
        }
        if path.suffix.lower() not in kinds:
            raise UsageError(
                f"A figure is saved as PNG, SVG or PDF; give a name that ends with .png, .svg or .pdf, not {path.name}."
            )
        try:
            replace(path, kinds[path.suffix.lower()](drawing.svg(self.specified)))
        except OSError as error:
            raise LesionError(f"{path} cannot be written: {error.strerror or error}.") from error
        return path
