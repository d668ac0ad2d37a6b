"""The report of the memory lab: one self-contained page, and `summary.json` beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.labs.memory import charts as memory_charts
from lesion.labs.memory import findings as memory_prose
from lesion.labs.memory import size_findings as memory_sizes
from lesion.labs.memory import tables as memory_tables
from lesion.labs.memory.charts import MEASURES, TRIGGERS
from lesion.report import browser, line_charts, scales, wording
from lesion.report.files import finite, plain_json, rendered, writing
from lesion.report.line_charts import BOTTOM, LEFT, RIGHT, TOP, Curve
from lesion.report.scales import Scale

NARROW = (400, 290)  # width and height of a chart in SVG units
ROUNDING = 1e-15


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html` and `summary.json` into a folder, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: what `lesion.labs.memory.lab.run_memory` returns, or `summary.json` read back.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the folder cannot be written.
    """
    text = page(summary)
    with writing(Path(folder), "memory", figures=False) as place:
        replace(place / "summary.json", plain_json(summary))
        replace(place / "report.html", text)
    return Path(folder) / "report.html"


def page(summary: Mapping[str, Any]) -> str:
    """The text of `report.html`: no request leaves it."""
    sizes = summary["sizes"]
    rows = summary["truncated"]
    return rendered(
        "memory.html.jinja",
        dict(browser.NOTHING),
        title=f"An associative memory of {summary['recipe']['classes']} classes with noise {summary['noise']:g}",
        version="",
        findings=memory_prose.findings(summary),
        recipe=[(str(name), str(finite(value))) for name, value in summary["recipe"].items()],
        notes=summary.get("notes") or [],
        training=_training(summary),
        truncations=_truncations(rows),
        rows=memory_tables.told_once(rows),
        rank=max(row["rank"] for row in rows),
        kept=memory_tables.kept,
        sizes=[_along(sizes, kind) for kind in ("orthonormal", "gaussian")] if sizes else [],
        noises=sorted({row["noise"] for row in sizes}),
        lines=memory_sizes.lines(sizes),
        places=memory_sizes.places,
        cuts=memory_sizes.CUTS,
        marks=memory_sizes.MARKS,
        slopes=_slopes(summary["first_step"]),
        first_step=summary["first_step"],
        triggers=TRIGGERS,
        signals=memory_charts.SIGNALS,
        number=memory_tables.number,
        level=_level,
    )


def _level(value: float) -> str:
    """A gradient in two digits; what is only rounding is 0."""
    return wording.figures(value, 2).replace("-", wording.MINUS) if abs(value) > ROUNDING else "0"


def _steps(curves: Sequence[Curve], size: tuple[int, int]) -> Scale:
    return scales.ratios([point.x for curve in curves for point in curve.points], LEFT, size[0] - RIGHT)


def _heights(curves: Sequence[Curve]) -> list[float]:
    found = []
    for curve in curves:
        for point in curve.points:
            found += [value for value in (point.y, point.low, point.high) if value is not None]
    return found


def _training(summary: Mapping[str, Any]) -> dict[str, Any]:
    spectrum = memory_charts.spectrum(summary["training"])
    learned = memory_charts.probabilities(summary["training"])
    return {
        "legend": line_charts.legend([*spectrum, *learned]),
        "panels": [
            (
                "Spectrum of W",
                line_charts.chart(
                    "Singular values over training", spectrum, _steps(spectrum, NARROW),
                    line_charts.upwards(_heights(spectrum), NARROW), ("step", "singular value"), NARROW,
                ),
            ),
            (
                "What the full memory predicts",
                line_charts.chart(
                    "Probabilities over training", learned, _steps(learned, NARROW),
                    scales.shares(_heights(learned), NARROW[1] - BOTTOM, TOP, closer=False),
                    ("step", "mean probability, %"), NARROW, summary["noise"],
                ),
            ),
        ],
    }  # fmt: skip


def _truncations(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    panels = []
    rank = max(row["rank"] for row in rows)
    nothing = next(row for row in rows if row["control"] == "deletion")
    stride = next(s for s in (1, 2, 4, 5, 10, 20, 50, 100) if rank / s <= 8)
    ticks = tuple((float(k), str(k)) for k in range(0, rank + 1, stride))
    x = Scale(-0.02 * rank, 1.02 * rank, LEFT, NARROW[0] - RIGHT, ticks) if rank else scales.numbers([0.0], LEFT, 300.0)
    for measure, name in MEASURES.items():
        curves = memory_charts.truncation(rows, measure)
        if measure == "clean_loss":
            y = line_charts.upwards(_heights(curves), NARROW)
        else:
            y = scales.shares(_heights(curves), NARROW[1] - BOTTOM, TOP, closer=False)
        drawn = line_charts.chart(
            f"{name} against the components kept", curves, x, y, ("components kept", name), NARROW, nothing[measure]
        )
        panels.append((name, drawn))
    return {"legend": line_charts.legend(memory_charts.truncation(rows, "p_noise")), "panels": panels}


def _along(rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    noises = sorted({row["noise"] for row in rows})
    by_noise = {noise: memory_charts.along_training(rows, noise, kind) for noise in noises}
    every = [curve for curves in by_noise.values() for curve in curves]
    heights = [max(value, 0.02) for value in _heights(every)]  # what is less stands at the foot
    y = scales.ratios(heights, NARROW[1] - BOTTOM, TOP)
    axes = ("step", "σ of the noise over the largest other σ")
    return {
        "kind": kind,
        "legend": line_charts.legend(by_noise[noises[0]]),
        "panels": [
            (
                f"α = {noise:g}",
                line_charts.chart(
                    f"Where the noise lies over training at α = {noise:g}", curves, _steps(every, NARROW), y, axes,
                    NARROW, 1.0,
                ),
            )
            for noise, curves in by_noise.items()
        ],
    }  # fmt: skip


def _slopes(first_step: Mapping[str, Any]) -> dict[str, Any]:
    by_trigger = {trigger: memory_charts.signals(first_step, trigger) for trigger in TRIGGERS}
    every = [curve for curves in by_trigger.values() for curve in curves]
    heights = [point.y for curve in every for point in curve.points]
    sizes = sorted({float(point["vocabulary"]) for point in first_step["points"]})
    x = scales.ratios(sizes, LEFT, NARROW[0] - RIGHT, "count")
    y = scales.ratios(heights, NARROW[1] - BOTTOM, TOP)
    axes = ("vocabulary V", "gradient, signal")
    return {
        "legend": line_charts.legend(every),
        "panels": [
            (wording.short(name, 60), line_charts.chart(name, by_trigger[trigger], x, y, axes, NARROW))
            for trigger, name in TRIGGERS.items()
        ],
    }
