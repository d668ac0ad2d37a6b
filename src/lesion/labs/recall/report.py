"""The report of the recall laboratory: one self-contained page beside `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.labs.recall import charts as recall_charts
from lesion.labs.recall import findings as recall_prose
from lesion.labs.recall import groups as recall_groups
from lesion.labs.recall import tables as recall_tables
from lesion.labs.recall.rows import by_matrix, central
from lesion.plain import quoted, visible
from lesion.report import browser, wording
from lesion.report.files import finite, rendered, writing


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html` of a training or of a study into a folder, whole.

    Args:
        folder: made if it is not there.
        summary: what `lesion.labs.recall.run.run` or `.study.run_recall` returned.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the folder cannot be written.
    """
    made = study_page if summary["kind"] == "recall-sweep" else page
    text = made(summary)
    with writing(Path(folder), summary["kind"], figures=False) as place:
        replace(place / "report.html", text)
    return Path(folder) / "report.html"


def page(summary: Mapping[str, Any]) -> str:
    """The text of a training's `report.html`: no request leaves it."""
    recipe = summary["recipe"]
    cuts = by_matrix(summary)
    phases, panels = recall_charts.training(summary)
    return rendered(
        "recall.html.jinja",
        dict(browser.NOTHING),
        title=f"Noisy in-context recall with α = {recipe['noise']:g}",
        version=summary.get("version", ""),
        findings=recall_prose.findings(summary),
        summary=summary,
        table=summary["training"][-1]["table"],
        phases=phases,
        panels=panels,
        central=[
            (
                cuts[name],
                recall_charts.truncations(cuts[name], summary["full"]),
                recall_charts.truncation_legend(cuts[name]),
            )
            for name in central(list(cuts))
        ],
        cuts=list(cuts.values()),
        lines=recall_tables.lines,
        columns=recall_tables.COLUMNS,
        keys=recall_tables.COLUMN_KEYS,
        recipe=[(name.replace("_", " "), _plain(value)) for name, value in _used(recipe).items()],
        language=_language(summary["language"]),
    )


def study_page(summary: Mapping[str, Any]) -> str:
    """The text of a study's `report.html`: no request leaves it."""
    groups, study = summary["groups"], summary["study"]
    return rendered(
        "recall_study.html.jinja",
        dict(browser.NOTHING),
        title=visible(study.get("title") or "Noisy in-context recall"),
        version=summary.get("version", ""),
        findings=[recall_groups.finding(group) for group in groups],
        noise=recall_groups.noise_panel(groups),
        truncation_legend=recall_groups.truncation_legend(),
        drawn=[(recall_groups.name(group), recall_groups.truncation_panels(group)) for group in groups],
        groups=groups,
        name=recall_groups.name,
        told=recall_groups.told,
        columns=recall_tables.COLUMNS,
        keys=recall_tables.COLUMN_KEYS,
        details=[(name.replace("_", " "), _plain(value)) for name, value in study.items()],
    )


def _used(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What of a recipe its training used: Adam has neither this momentum nor a weight decay."""
    unused = ("momentum", "weight_decay") if recipe["optimiser"] == "adam" else ()
    return {name: value for name, value in recipe.items() if name not in unused}


def _language(told: Mapping[str, Any]) -> str:
    """Where the tables come from, and which tokens q and τ are; characters stand in quotes, a space is seen then."""
    trigger, noise = (
        quoted(token) if isinstance(token, str) else str(token) for token in (told["trigger"], told["noise_token"])
    )
    return f"{told['source']}; q is {trigger} ({wording.percent(told['trigger_share'])} of all tokens), τ is {noise}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "–" if value is None else visible(str(finite(value)))
