"""The report of a truncation search: one self-contained page, and the tables beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lesion.atomic import replace
from lesion.core.cost import beside
from lesion.report import browser, scales, wording
from lesion.report.files import finite, plain_json, rendered, spreadsheet, writing
from lesion.report.wording import signed
from lesion.studies.truncation import charts as truncation_charts
from lesion.studies.truncation import curves as truncation_curves
from lesion.studies.truncation import figures as truncation_figures
from lesion.studies.truncation import findings as truncation_prose
from lesion.studies.truncation import maps as truncation_maps
from lesion.studies.truncation import spectra as truncation_spectra
from lesion.studies.truncation import tables as truncation_tables
from lesion.studies.truncation.cells import Along, Cell, Search, Tokens, found
from lesion.studies.truncation.charts import BOTTOM, SIZES, TOP, Curve, around_zero
from lesion.studies.truncation.tables import text_tables as text_tables

MOST_ROWS = 1500
"""The table in the page has at most so many cells, the best first; `cells.csv` has them all."""
UNTOLD = ("title", "approximate")
"""Entries of the study that the page tells elsewhere."""


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html`, `summary.json`, the tables as CSV and the maps of the objective as PNG, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: what a truncation search found, or its `summary.json` read back.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary does not have the form that a search writes, or the folder cannot be written.
    """
    text = page(beside(summary, folder))
    tables = truncation_tables.csv(summary)
    search = found(summary)
    drawn = {
        f"map-{index}.png" if index else "map.png": truncation_figures.heat(search, figure)
        for index, figure in enumerate(_of_objective(search))
    }
    with writing(Path(folder), "truncation") as place:
        for name, png in drawn.items():
            replace(place / "figures" / name, png)
        for name, table in tables.items():
            replace(place / name, spreadsheet(table))
        replace(place / "summary.json", plain_json(summary))
        html = place / "report.html"
        replace(html, text)
    return html


def page(summary: Mapping[str, Any]) -> str:
    """The text of `report.html`: no request leaves it; texts of models and tasks are never parsed.

    Raises:
        LesionError: the summary does not have the form that a search writes.
    """
    search = found(summary)
    figures = truncation_maps.figures(search)
    return rendered(
        "truncation.html.jinja",
        dict(browser.NOTHING),
        title=search.study.get("title") or _title(search),
        version=search.study.get("version") or "",
        level=f"{100 * search.level:g}{wording.SPACE}%",
        approximate=wording.approximate(search.study),
        search=search,
        findings=truncation_prose.findings(search),
        figures=figures,
        undrawn=[one.name for one in truncation_maps.measures(search)[len(figures) :]],
        eliminated=any(cell.eliminated is not None for cell in search.cells),
        collapsed=truncation_maps.collapsed(search.cells),
        unasked=any(not cell.outcomes and cell.eliminated is None for cell in search.cells),
        asked=_asked(search),
        spectra=_spectra(search),
        path=[truncation_curves.path(search, size) for size in SIZES] if _drawable(search) else None,
        path_legend=truncation_curves.path_legend(search),
        tokens=_tokens(search),
        revisions=_revisions(search),
        token_rows=search.tokens,
        rows=_rows(search)[:MOST_ROWS],
        details=_details(search),
        change=truncation_maps.change,
        state=_state,
        score=truncation_curves.score,
        level_of=truncation_maps.level,
        nats=truncation_maps.nats,
        nats_interval=truncation_maps.nats_interval,
        said=truncation_maps.label,
        signed=signed,
        Measure=truncation_maps.Measure,
    )


def _of_objective(search: Search) -> list[truncation_maps.Figure]:
    kinds = ("screen", "gold" if search.by_gold else "accuracy")
    return [figure for figure in truncation_maps.figures(search) if figure.measure.kind in kinds and figure.maps]


def _title(search: Search) -> str:
    """The title of a study that has none of its own."""
    tasks = wording.listed([task.name for task in search.tasks])
    model = search.model.get("name") or "a model"
    return f"Truncations of {model}" + (f" for {tasks}" if tasks else "")


def _asked(search: Search) -> list[tuple[str, str]]:
    """What was searched, by name, for the table at the head."""
    entry = search.search
    layers = [int(layer) for layer in entry.get("layers") or ()]
    merged = int(entry.get("merged") or 0)
    told = [
        ("matrices", ", ".join(map(str, entry.get("matrices") or ()))),
        ("layers", wording.layer_runs(layers)),
        ("keep", ", ".join(wording.keep(float(keep)) for keep in entry.get("keep") or ()) + " of the rank"),
        ("sides", ", ".join(map(str, entry.get("sides") or ()))),
        ("chosen by", "log-probability of gold answers" if search.by_gold else "accuracy"),
        (
            "cells",
            f"{int(entry.get('cells') or len(search.cells)):,}"
            + (f", and {merged:,} more that keep the same as another" if merged else ""),
        ),
        ("asked in full", _asked_in_full(search)),
        ("chosen on", _items(search, "validation_items")),
        ("told on", _items(search, "test_items")),
    ]
    return [(name, value) for name, value in told if value.strip()]


def _asked_in_full(search: Search) -> str:
    full, gone = search.complete, search.given_up
    if not full and not gone:
        return ""
    return wording.counted(full, "cell") + (f", and {gone:,} more given up early" if gone else "")


def _items(search: Search, part: str) -> str:
    kind = part.partition("_")[0]
    return ", ".join(f"{wording.counted(getattr(task, part), f'{kind} item')} of {task.name}" for task in search.tasks)


def _spectra(search: Search) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "legend": truncation_spectra.legend(search, of),
            "drawn": [truncation_spectra.chart(search, of, size) for size in SIZES],
        }
        for name, of in truncation_spectra.panels(search)
    ]


def _drawable(search: Search) -> bool:
    return sum(step.after is not None for step in search.path) > 1


def _tokens(search: Search) -> list[dict[str, Any]]:
    """Before and after on the model that was searched: per task a panel of probabilities and one of margins."""
    found = []
    for task, of_task in _by_task(truncation_prose.main_tokens(search)).items():
        edits = list(dict.fromkeys(one.edit for one in of_task))

        def at(one: Tokens, edits: list[str] = edits) -> int:
            return edits.index(one.edit)

        curves = truncation_curves.probabilities(search, of_task, at, by_edit=False)
        margins = truncation_curves.margins(search, of_task, at, by_edit=False)
        names = [search.role(edit) for edit in edits]
        panels = _panels(names, "edit", (), curves, margins)
        legend = truncation_charts.legend(curves)
        found.append({"task": task, "counts": _counts(of_task), "legend": legend, "panels": panels})
    return found


def _revisions(search: Search) -> list[dict[str, Any]]:
    """Per task along the revisions that were asked: accuracy, and of contrasts both tokens and their margin."""
    found = []
    names = [*search.followed, truncation_curves.SEARCHED]
    tokens = _by_task(search.tokens)
    for task in dict.fromkeys([*(one.task for one in search.revisions), *(tokens if search.followed else ())]):
        of_task = tokens.get(task, [])

        def at(one: Tokens) -> int:
            return len(names) - 1 if one.revision is None else names.index(one.revision)

        of_task = sorted(of_task, key=at)
        curves = truncation_curves.probabilities(search, of_task, at, by_edit=True)
        margins = truncation_curves.margins(search, of_task, at, by_edit=True)
        accuracies = truncation_curves.accuracies(search, task, search.followed)
        panels = _panels(names, "revision", accuracies, curves, margins)
        along = [one for one in search.revisions if one.task == task]
        edits = list(dict.fromkeys([*(one.edit for one in along), *(one.edit for one in of_task)]))
        legend = truncation_curves.revisions_legend(search, edits, tokens=bool(of_task))
        found.append({"task": task, "counts": _counts([*along, *of_task]), "legend": legend, "panels": panels})
    return found


def _by_task(of: Sequence[Tokens]) -> dict[str, list[Tokens]]:
    found: dict[str, list[Tokens]] = {}
    for one in of:
        found.setdefault(one.task, []).append(one)
    return found


def _counts(of: Sequence[Tokens | Along]) -> list[int]:
    return sorted({one.items for one in of})


def _panels(
    names: Sequence[str], along: str, accuracies: Sequence[Curve], curves: Sequence[Curve], margins: Sequence[Curve]
) -> list[tuple[str, Sequence[Markup]]]:
    """A heading and a chart, narrow and wide, for each of the three that has curves."""

    def chart(of: Sequence[Curve], unit: str, size: tuple[int, int]) -> Markup:
        values = truncation_charts.heights(of)
        if unit == "margin, nats":
            return truncation_charts.over(names, of, around_zero(values, size), (along, unit), size, 0.0)
        y = scales.shares(values, size[1] - BOTTOM, TOP)
        return truncation_charts.over(names, of, y, (along, unit), size)

    every = (
        ("Accuracy", "accuracy, %", accuracies),
        ("The two tokens", "mean probability, %", curves),
        ("Margin, log p right − log p tempting", "margin, nats", margins),
    )
    return [(name, [chart(of, unit, size) for size in SIZES]) for name, unit, of in every if of]


def _rows(search: Search) -> list[Cell]:
    """The cells of the table: those with a score first, the best of them first."""
    best = search.ranked()
    others = [cell for cell in search.cells if not cell.complete or cell.score is None]
    return [*best, *sorted(others, key=lambda cell: -(cell.screen if cell.screen is not None else float("-inf")))]


def _state(search: Search, cell: Cell) -> str:
    """What became of a cell, in a few words."""
    if cell.edit == search.best:
        return "chosen" if search.chosen else "best, not chosen"
    if cell.eliminated is not None:
        return f"given up after {cell.eliminated:,}"
    if not cell.outcomes:
        return "screened out" if search.screened else "not asked"
    return "one label" if cell.collapsed else "asked in full"


def _details(search: Search) -> list[tuple[str, str]]:
    """The study's and the model's own entries, for whoever wants to repeat it."""
    told = [(str(name), _plain(value)) for name, value in search.study.items() if name not in UNTOLD]
    told += [("model" if name == "name" else str(name), _plain(value)) for name, value in search.model.items()]
    tasks = (
        f"{task.name} ({task.kind}, {wording.counted(task.validation_items, 'validation item')}, "
        f"{wording.counted(task.test_items, 'test item')})"
        for task in search.tasks
    )
    told.append(("tasks", ", ".join(tasks)))
    return told


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else str(finite(value))
