"""Screens: how well cheap measures of a place foretell the drops of accuracy that a layer study found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import rankdata

from lesion.core.store import Store
from lesion.edits.edit import BASELINE, Scale
from lesion.edits.place import Unit
from lesion.errors import UsageError
from lesion.report.values import Estimate
from lesion.statistics.agreement import permutation_p, profile, rank_correlation
from lesion.studies.ablation.result import read_finished
from lesion.studies.ablation.sweep import complete
from lesion.studies.effects.result import Screen, ScreenAgreement
from lesion.studies.effects.study import EffectsStudy
from lesion.tasks.catalogue import canonical


@dataclass(frozen=True)
class Drops:
    """The answers of a layer study.

    Attributes:
        folder: of the study, as typed.
        fingerprints: of its models, by name.
        answers: as `Store.answers` gives them.
        items: by model and canonical task, the ids of the items that the baseline answered.
    """

    folder: str
    fingerprints: Mapping[str, str]
    answers: pd.DataFrame
    tasks: Mapping[str, tuple[str, ...]]

    def refuse_another(self, model: str, fingerprint: str) -> None:
        """Refuse drops of other weights under the same name."""
        if self.fingerprints.get(model, fingerprint) != fingerprint:
            raise UsageError(
                f"The layer study in {self.folder} is about other weights that were called {model} too; give a study of"
                " this very model with --study, or leave it out."
            )

    def right(self, model: str, task: str, edits: Sequence[Scale]) -> np.ndarray | None:
        """[edits + 1, items] right answers: unedited, then under each edit; None if not all are there."""
        name = next((own for own in self.tasks.get(model, ()) if canonical(own) == canonical(task)), None)
        own = self.answers[(self.answers["model_name"] == model) & (self.answers["task"] == name)]
        baseline = own[own["edit"] == str(BASELINE)]["item"].tolist()
        frames = complete(own, baseline)
        names = [str(BASELINE), *map(str, edits)]
        if not baseline or any(name not in frames for name in names):
            return None
        return np.stack([frames[name]["correct"].to_numpy(dtype=bool) for name in names])


def notes_on_gaps(drops: Drops, study: EffectsStudy, model: str, edits: Sequence[Scale]) -> Iterator[str]:
    """For every task and unit that the layer study has not evaluated in full, why its drops are not compared with."""
    for choice in study.tasks:
        for unit in study.unit:
            if drops.right(model, choice.name, [edit for edit in edits if edit.unit == unit]) is None:
                what = f"every {unit}" if unit in ("block", "head") else f"the {unit} of every block"
                yield (
                    f"{model}, {choice.name}: no comparison with the drops of {drops.folder}, which does not have all"
                    f" answers with {what} switched off; run it with --layers all for this task and unit."
                )


def read_drops(study: EffectsStudy) -> Drops:
    """The answers of the layer study that a study of effects names."""
    folder = str(study.study)
    names = [chosen.name for chosen in study.models]
    summary = read_finished(folder, names)
    tasks = {model.model: tuple(task.task for task in model.tasks) for model in summary.models if model.model in names}
    known = {canonical(task) for own in tasks.values() for task in own}
    if not known & {canonical(choice.name) for choice in study.tasks}:
        raise UsageError(
            f"The layer study in {folder} asked {', '.join(sorted(known))}, and none of this study's tasks; name one of"
            " them with --task, or leave --study out."
        )
    with Store.read(folder) as store:
        models = store.models()
        fingerprints = dict(zip(models["name"], models["fingerprint"], strict=True))
        return Drops(folder, fingerprints, store.answers(), tasks)


def agreement(
    screen: Screen,
    unit: Unit,
    values: Float[np.ndarray, " places"],
    drawn: Float[np.ndarray, "draws places"],
    right: np.ndarray,
    level: float,
    seed: int,
) -> ScreenAgreement:
    """Spearman's ρ of a screen with the drops of accuracy."""
    drops = profile(right, range(len(values)), seed)
    rho = rank_correlation(values, drops.drops, drawn, drops.drawn, level)
    p = permutation_p(rankdata(values), drops.ranks, seed) if math.isfinite(rho.value) else None
    return ScreenAgreement(
        screen=screen,
        unit=unit,
        places=len(values),
        items=right.shape[1],
        tied=len(values) - len(np.unique(drops.drops)),
        rho=Estimate.of(rho, p),
    )
