"""A layer study made from how many items are right under each edit: always the first ones."""

from collections.abc import Mapping, Sequence

import pandas as pd

from lesion.report import wording
from lesion.report.claims import Claim
from lesion.studies.ablation.result import AblationSummary, Material
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise
from lesion.studies.ablation.sweep import PlaceEdit, text_of

ITEMS = 100


def counted(edits: Sequence[PlaceEdit], right: Mapping[str, Sequence[int]], models: Sequence[str] = ("m",)) -> Material:
    """Tasks of which so many items are right: unedited, then under each edit."""
    rows = [
        {
            "model_name": model, "task": task, "edit": edit, "item": f"i{item}", "correct": item < count,
            "finish": "stop", "parsed": "1", "scores": (), "ranks": (), "text": "1", "tokens": 1, "engine": "e",
        }
        for model in models
        for task, counts in right.items()
        for edit, count in zip(["baseline", *(text_of(edit, task) for edit in edits)], counts, strict=True)
        for item in range(ITEMS)
    ]  # fmt: skip
    answers = pd.DataFrame(rows)
    items = pd.DataFrame([{"task": task, "item": f"i{item}"} for task in right for item in range(ITEMS)])
    items["gold"] = "1"
    study = Study.make(models=list(models), tasks=list(right), items=ITEMS)
    summary: AblationSummary = summarise(study, dict.fromkeys(models, edits), answers, items)
    return Material(summary, answers, items)


def sentences(claims: Sequence[Claim]) -> list[str]:
    """What is claimed, a sentence each, with plain spaces."""
    return [sentence.replace(wording.SPACE, " ") for claim in claims for sentence in claim.sentences]
