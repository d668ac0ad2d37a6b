"""Charts of the invariance: the variants of a family on one plot per task, by block or by relative depth."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from markupsafe import Markup

from lesion.report import charts, line_charts, scales
from lesion.report.line_charts import Curve, Point
from lesion.report.scales import Scale
from lesion.report.trials import number
from lesion.report.views import View

Entry = Mapping[str, Any]
NARROW, WIDE = (400, 270), (640, 300)  # widths and heights in SVG units, on a phone or beside others, and with room
DEPTHS = tuple((i / 4, f"{25 * i}") for i in range(5))


def depths_differ(family: Entry) -> bool:
    """Whether the finished models have different numbers of blocks."""
    return len({m.get("blocks") for m in family["members"] if m.get("step") is None and m.get("blocks")}) > 1


def curves(family: Entry, view: View, names: Mapping[str, str], level: float) -> list[dict[str, Any]]:
    """Per task the accuracy of all variants against the block cut; after Nepal et al. (2025, Figures 1, 2 and 5)."""
    if len(view.labels) < 2:
        return []
    found = []
    for task in family["tasks"]:
        of_task = view.panels.get(task["task"])
        if not of_task:
            continue
        if depths_differ(family):
            drawn = [by_depth(task, view, names, size) for size in (NARROW, WIDE)]
        else:
            frames = [charts.Frame(view.layers, *size) for size in (NARROW, WIDE)]
            drawn = [charts.panel(view, task["task"], frame, level) for frame in frames]
        found.append({"task": task["task"], "items": task.get("items") or of_task[0].items, "drawn": drawn})
    return found


def by_depth(task: Entry, view: View, names: Mapping[str, str], size: tuple[int, int]) -> Markup:
    """Models of different depth on one axis: accuracy against the depth of the cut, 0 the first block, 100 the last."""
    found = depth_curves(task, view, names)
    x = Scale(-0.02, 1.02, line_charts.LEFT, size[0] - line_charts.RIGHT, DEPTHS)
    y = scales.shares([0.0, 1.0], size[1] - line_charts.BOTTOM, line_charts.TOP, closer=False)
    name = f"Accuracy on {task['task']} against the depth of the block that is cut"
    return line_charts.chart(name, found, x, y, ("depth of the block, % of the model", "accuracy, %"), size)


def depth_curves(task: Entry, view: View, names: Mapping[str, str]) -> list[Curve]:
    """A curve per finished model, with intervals; blocks whose depth is not known are left out."""
    found = []
    for curve in task["curves"]:
        label = names.get(curve["model"], "")
        if label not in view.labels:
            continue
        columns = (map(number, curve[key]) for key in ("depth", "accuracy", "accuracy_low", "accuracy_high"))
        points = [
            Point(depth, value, low, high)
            for depth, value, low, high in zip(*columns, strict=True)
            if depth is not None and value is not None
        ]
        found.append(Curve(label, view.labels.index(label), tuple(points), "marked"))
    return found


def legend(view: View) -> list[tuple[Markup, str]]:
    """A picture and a name per variant."""
    return [(charts.swatch(view, label), label) for label in view.labels]


def unlike(name: str, taken: Container[str]) -> str:
    """The name as a PNG file that is not taken yet; of equal ones the later get a number."""
    file, count = f"{name}.png", 2
    while file in taken:
        file, count = f"{name}-{count}.png", count + 1
    return file
