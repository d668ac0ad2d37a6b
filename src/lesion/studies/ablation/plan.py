"""Plan: hypotheses written down before any answer is there, and what came of them.

A plan is `hypotheses.json` in the study's folder: hypotheses, models, items, seed and rules, with a SHA-256. A study
whose hypotheses are other ones is refused there. Only the tests of the plan are corrected for each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lesion import atomic
from lesion.edits.place import address
from lesion.errors import LesionError, UsageError
from lesion.files import read_object
from lesion.statistics import critical, power
from lesion.statistics.critical import SHARE
from lesion.statistics.paired import ALPHA, holm
from lesion.statistics.spared import SPARED
from lesion.studies.ablation.result import AblationSummary, Outcome, Planned, Prospect
from lesion.studies.ablation.study import Study

FILE = "hypotheses.json"
RULE = (
    f"critical: an exact paired test rejects a loss of {100 * SHARE:g} % of the baseline's accuracy or less (where"
    " answers are chosen: of what it has above chance); spared:"
    f" one rejects a loss of {100 * SPARED:g} % or more; p Holm-corrected over the plan's tests, at most {ALPHA:g}"
)
ASSUMED = (1.0, 0.75, 0.5, 0.25)
"""Accuracies of the unedited model for which a power is told."""
FORM = "lesion plan"
DIGITS = 12


def content(study: Study, models: Sequence[str] | None = None) -> dict[str, Any]:
    """What a plan fixes; `models`: those of the plan that is there, of a study that has more by now."""
    tasks = {each.task for each in study.hypotheses}
    items = {choice.name: study.items_of(choice) for choice in study.tasks if choice.name in tasks}
    return {
        "hypotheses": [each.model_dump(mode="json") for each in study.hypotheses],
        "models": [chosen.name for chosen in study.models] if models is None else list(models),
        "items": items,
        "seed": study.seed,
        "prompts": {choice.name: choice.prompt_style for choice in study.tasks if choice.name in tasks},
        "decoding": study.decoding.model_dump(mode="json"),
        "rule": RULE,
    }


def digest(of: dict[str, Any]) -> str:
    """The SHA-256 of what a plan fixes, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode("ascii")).hexdigest()


def register(folder: Path, study: Study, answers: int) -> str | None:
    """Write the plan of a study into its folder, or hold the study to the plan that is there (`hold`).

    Args:
        answers: how many answers to the tasks of the hypotheses are there already.

    Returns:
        A note for the person; None where there is nothing to say.
    """
    if hold(folder, study) or not study.hypotheses:
        return None
    fixed = content(study)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    expected = [each.model_dump(mode="json") for each in prospects(study)]
    document = {"form": FORM, "made": made, "sha256": digest(fixed), "answers": answers, "content": fixed}
    document["prospects"] = expected
    atomic.keep(folder / FILE, json.dumps(document, indent=1) + "\n")
    if answers:
        return (
            f"The hypotheses were written down with {answers:,} answers to their tasks in the folder already, which the"
            " report says; for a plan give an empty folder."
        )
    number = len(study.hypotheses)
    return f"Planned before any answer, in {FILE}: {number} hypotheses, SHA-256 {digest(fixed)[:DIGITS]}."


def hold(folder: Path, study: Study) -> bool:
    """Whether a folder has a plan, to which a study is held."""
    known = read(folder)
    if known is not None:
        now = content(study, known["content"]["models"])
        missing = set(known["content"]["models"]) - {chosen.name for chosen in study.models}
        if digest(now) != known["sha256"] or missing:
            raise LesionError(
                f"{folder / FILE} was made on {known['made']}, and this study has {_difference(known['content'], now)}"
                f"{' and not all of its models' if missing else ''}. A plan holds what was expected before the answers"
                " came: run the study as planned, or evaluate the new hypotheses in another folder (--out)."
            )
    return known is not None


def refuse_not_evaluated(study: Study, model: str, places: Collection[str]) -> None:
    """Refuse hypotheses about places that a study does not evaluate; `places`: the addresses of a model's edits."""
    for each in study.hypotheses:
        if each.place not in places:
            raise UsageError(
                f"A hypothesis is about {each.place}, which this study does not evaluate in {model}; add its block to"
                " edits.layers, or name one that the model has."
            )


def _difference(there: dict[str, Any], here: dict[str, Any]) -> str:
    parts = [
        key for key in ("hypotheses", "items", "prompts", "decoding", "seed", "rule") if there.get(key) != here[key]
    ]
    return f"other {' and '.join(parts)}" if parts else "the same tests"


def read(folder: Path) -> dict[str, Any] | None:
    """The plan of a folder; None where there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    document = read_object(path)
    try:
        whole = document["form"] == FORM and digest(document["content"]) == document["sha256"]
        whole = whole and isinstance(document["made"], str) and isinstance(document["answers"], int)
        whole = whole and isinstance(document["content"]["models"], list)
        [Prospect.model_validate(each) for each in document["prospects"]]
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise LesionError(
            f"{path} is no plan, or was changed after it was made: what it holds does not have the SHA-256 that it"
            " states. Put it back as it was; without it the study is one without a plan."
        )
    return document


def planned(folder: Path, summary: AblationSummary) -> Planned | None:
    """What came of the plan of a folder; None where there is none."""
    document = read(folder)
    if document is None:
        return None
    cells = {
        (model, result.task, address(cell.layer, cell.unit, cell.part), cell.factor): (result, cell)
        for model, result in summary.results
        for cell in result.cells
    }
    content = document["content"]
    about = [{"model": model, **each} for each in content["hypotheses"] for model in content["models"]]
    measured = [cells.get((each["model"], each["task"], each["place"], each["factor"])) for each in about]
    p = {
        place: own
        for place, (each, pair) in enumerate(zip(about, measured, strict=True))
        if pair is not None and (own := getattr(pair[1], f"p_{each['expect']}")) is not None
    }
    corrected = dict(zip(p, holm(p.values(), len(about)), strict=True))
    outcomes = []
    for place, (each, pair) in enumerate(zip(about, measured, strict=True)):
        values: dict[str, Any] = {}
        if pair is not None and place in p:
            result, cell = pair
            loss = power.detectable(each["expect"], result.right, len(about), result.items, result.guessing)
            values = {"drop": cell.drop, "p": p[place], "p_corrected": corrected[place], "right": result.right}
            values |= {"detectable": loss, "confirmed": critical.critical(corrected[place])}
        outcomes.append(Outcome(**each, **values))
    return Planned(
        made=document["made"],
        digest=document["sha256"][:DIGITS],
        answers=document["answers"],
        outcomes=tuple(outcomes),
        prospects=tuple(Prospect.model_validate(each) for each in document["prospects"]),
    )


def prospects(study: Study) -> list[Prospect]:
    """What the planned tests can find, by task, expectation and assumed accuracy, before anything is evaluated.

    Of a task that is asked in full no number of items is known, and there are none.
    """
    if not study.hypotheses:
        raise UsageError(
            "This study has no hypotheses. Write what you expect into it, for example [[hypotheses]] with task ="
            " 'gsm8k', place = '13' and expect = 'critical' (or 'spared')."
        )
    tests = len(study.hypotheses) * len(study.models)
    every = []
    for choice in study.tasks:
        items = study.items_of(choice)
        if items is None:
            continue
        for expect in dict.fromkeys(each.expect for each in study.hypotheses if each.task == choice.name):
            loss = power.LOSS[expect]
            every += [
                Prospect(
                    task=choice.name, expect=expect, items=items, tests=tests, baseline=share, loss=loss,
                    power=power.power(expect, items, share, loss, tests),
                    detectable=power.detectable(expect, round(share * items), tests),
                    needed=power.items_needed(expect, share, loss, tests),
                )
                for share in ASSUMED
            ]  # fmt: skip
    return every
