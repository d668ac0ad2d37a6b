"""Reading a layer study from its folder, as far as it has got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lesion.core.inference import room_notes
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.report.wording import counted
from lesion.studies.ablation.invariance.families import families
from lesion.studies.ablation.invariance.summary import invariance
from lesion.studies.ablation.plan import planned
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise, text_limits
from lesion.studies.ablation.sweep import PlaceEdit, read, text_of

NAMED = 4
"""So many edits are named in a note."""


def recall(folder: Path) -> tuple[Study, AblationSummary, pd.DataFrame, pd.DataFrame]:
    """The study of a folder as far as it has got: the study, its summary, its answers and its items.

    Loads no model and works while another process writes.
    """
    plan: dict[str, Sequence[PlaceEdit]] = {}
    with Store.read(folder) as store:
        study = Study.parse(store.study[1], "The stored study")
        known = {row["name"]: row["metadata"] for row in store.models().to_dict("records")}
        for chosen in study.models:
            about = known.get(chosen.name, {})
            plan[chosen.name] = [read(text, about.get("references", {})) for text in about.get("edits", [])]
        return study, *summarised(study, plan, store)


def _answers_and_items(
    study: Study, plan: Mapping[str, Sequence[PlaceEdit]], store: Store
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The answers of the models and edits that are planned, those under other edits of these models, and the items."""
    items = store.items()
    of_tasks = items["task"].isin([choice.name for choice in study.tasks])  # none that only a screen looks at
    answers = store.answers()
    names = [choice.name for choice in study.tasks]
    wanted = {(model, text_of(edit, task)) for model, edits in plan.items() for edit in edits for task in names}
    wanted |= {(model, str(BASELINE)) for model in plan}
    places = zip(answers["model_name"], answers["edit"], strict=True)
    planned = np.array([place in wanted for place in places], dtype=bool)
    others = answers[~planned & answers["model_name"].isin(list(plan)) & answers["task"].isin(names)]
    return answers[planned].reset_index(drop=True), others, items[of_tasks].reset_index(drop=True)


def _tried(
    others: pd.DataFrame, items: pd.DataFrame, plan: Mapping[str, Sequence[PlaceEdit]]
) -> dict[tuple[str, str], list[PlaceEdit]]:
    """By model and task, the edits of a kind of the study, beside its own, under which all its items are answered."""
    sizes = Counter(items["task"])
    kinds = {model: {(edit.unit, edit.factor) for edit in edits} for model, edits in plan.items()}
    tried: dict[tuple[str, str], list[PlaceEdit]] = {}
    counts = Counter(zip(others["model_name"], others["task"], others["edit"], strict=True))
    for (model, task, text), count in counts.items():
        edit = read(text.partition("@")[0], {})  # without the digest of a reference, of which every task has its own
        if count >= sizes[task] and (edit.unit, edit.factor) in kinds[model]:
            tried.setdefault((model, task), []).append(edit)
    return tried


def summarised(
    study: Study, plan: Mapping[str, Sequence[PlaceEdit]], store: Store
) -> tuple[AblationSummary, pd.DataFrame, pd.DataFrame]:
    """The numbers of the answers so far, also of models of one family together; the answers; the items."""
    answers, others, items = _answers_and_items(study, plan, store)
    tried = {} if study.stop is not None else _tried(others, items, plan)
    known = {row["name"]: row["metadata"] for row in store.models().to_dict("records")}
    chances = {task: share for metadata in known.values() for task, share in metadata.get("guessing", {}).items()}
    without_chat = {model: metadata.get("without_chat", ()) for model, metadata in known.items()}
    summary = summarise(study, plan, answers, items, chances, without_chat, tried)
    names = {choice.name for choice in study.tasks}
    notes = [metadata["complaint"] for metadata in known.values() if "complaint" in metadata]
    if edits := list(dict.fromkeys(str(edit) for of_task in tried.values() for edit in of_task)):
        some = f"{', '.join(edits[:NAMED])}{', …' if len(edits) > NAMED else ''}"
        notes.append(
            f"The folder has answers under {counted(len(edits), 'edit')} that this study does not ask for ({some})."
            " They are not shown, and the correction of p counts them."
        )
    for model, metadata in known.items():
        of_tasks = {task: room for task, room in metadata.get("rooms", {}).items() if task in names}
        notes += room_notes(model, metadata.get("context", 0), of_tasks)
    notes += [
        note
        for model in summary.models
        for text in model.texts
        for note in text_limits(model.model, text, known.get(model.model, {}).get("vocabulary"))
    ]
    notes += summary.notes
    summary = summary.model_copy(update={"planned": planned(store.folder, summary)})
    shared = None
    if study.stop is None:
        blocks = {name: metadata["blocks"] for name, metadata in known.items() if "blocks" in metadata}
        distances = {name: metadata["distance"] for name, metadata in known.items() if "distance" in metadata}
        shared = invariance(study, summary, answers, items, blocks, distances)
    elif families(study.models, {}):
        notes.append(
            "Models of one family are compared on full tables only, since cells stop after different items: run the"
            " same study without stopping into the same folder."
        )
    return summary.model_copy(update={"notes": tuple(notes), "invariance": shared}), answers, items
