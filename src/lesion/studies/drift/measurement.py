"""Measuring for a drift study: every run of a model under every number of clusters, kept as soon as it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Shaped

from lesion.activations.hidden_states import hidden_states, sweep
from lesion.core.study_file import ModelChoice
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.drift import cells as drift_cells
from lesion.studies.drift.cells import Measured, MeasuredLayer
from lesion.studies.drift.clustering import Drift, Settings, drift
from lesion.studies.drift.study import DriftStudy
from lesion.studies.drift.texts import Texts, seed_of
from lesion.studies.drift.token_classes import primer_lexicon, token_classes
from lesion.studies.drift.token_drift import Occurrences
from lesion.tasks.catalogue import canonical
from lesion.tasks.task import Task

CLASS, TOKEN = "token class", "token"
"""What clusters are compared with beside those of the reference layer."""
STATES = "states"
"""Where hidden states lie in the folder of a study while they are clustered."""
SHUFFLES = 100
"""So many shuffles are the null of a layer in every run; its mean and its 97.5 % quantile are told."""


@contextmanager
def spooling(folder: Path) -> Iterator[None]:
    """Hidden states of a killed run go at the beginning, those of this one at its end; the folder is locked by then."""
    sweep(folder / STATES)
    try:
        yield
    finally:
        sweep(folder / STATES)


def in_part(study: DriftStudy, texts: Texts) -> Bool[np.ndarray, " tokens"]:
    """[tokens] Whether each token is of the part that is clustered."""
    prompt = texts.in_prompt
    return {"prompt": prompt, "solution": ~prompt}.get(study.part, np.ones(len(prompt), dtype=bool))


def labels_of(study: DriftStudy, task: Task, model: Model, texts: Texts) -> dict[str, Shaped[np.ndarray, " tokens"]]:
    """What the clusters are compared with beside those of the reference layer: classes of tokens, and the tokens."""
    text_of = np.repeat(np.arange(len(texts.ids)), [len(text) for text in texts.ids])
    lexicon = primer_lexicon() if "primer:" in canonical(study.task.name) else None
    return {CLASS: token_classes(model.tokenizer, texts.flat, text_of, lexicon=lexicon), TOKEN: texts.flat}


def _placeless(model: Model, token: int, folder: Path) -> bool:
    """Whether what enters block 0 is the token alone, wherever it stands, as where positions are rotations."""
    with hidden_states(model, [(token, token)], folder=folder / STATES) as states:
        first, second = states.layer(0)
    return bool(np.array_equal(first, second))


def refuse_few(study: DriftStudy, chosen: ModelChoice, model: Model, texts: Sequence[Texts], folder: Path) -> None:
    """Said before any run is measured, so that no hours are lost to the last one.

    Raises:
        UsageError: a run has fewer tokens than clusters, or fewer that the embedding tells apart.
    """
    most = max(study.clusters)
    placeless = study.layer_zero == "embedding" and _placeless(model, texts[0].ids[0][0], folder)
    for run in texts:
        mask = in_part(study, run)
        tokens, distinct = int(mask.sum()), len(np.unique(run.flat[mask]))
        part = "" if study.part == "both" else f" of the {study.part}s"
        if tokens < most:
            raise UsageError(
                f"{most} clusters were asked for, and run {run.run} has {tokens} tokens{part} of {chosen.name}; ask for"
                f" fewer with --clusters, or for more --items."
            )
        if placeless and distinct < most:
            raise UsageError(
                f"{most} clusters were asked for, and run {run.run} has {distinct} different tokens{part} of"
                f" {chosen.name}, which are all that the embedding tells apart; ask for fewer with --clusters, for more"
                f" --items, or for --layer-zero block."
            )


def _settings(study: DriftStudy, run: int, clusters: int) -> Settings:
    return Settings(
        clusters=clusters,
        layer_zero=study.layer_zero,
        normalise=study.normalise,
        normalisation=study.nmi,
        starts=study.starts,
        seed=seed_of(study, f"clusters {run}"),
        null=SHUFFLES,
        part=study.part,
    )


def _measured(made: Drift, clusters: int) -> Measured:
    """What a cell keeps of a drift."""
    names = ("nmi", "null", "null_high", "cosine", "cka", "inertia")
    return Measured(
        clusters=clusters,
        layers=[
            MeasuredLayer(
                layer=layer.layer,
                labels={name: float(value) for name, value in layer.labels.items()},
                **{name: getattr(layer, name) for name in names},
            )
            for layer in made.layers
        ],
        ceiling=made.ceiling,
        distinct=made.distinct,
        assignments=[tuple(map(int, layer)) for layer in made.assignments],
    )


def occurrences_of(
    study: DriftStudy,
    texts: Texts,
    measured: Measured,
    classes: Shaped[np.ndarray, " tokens"],
    layers: tuple[int, int],
) -> Occurrences:
    """The tokens of a run that were clustered, with their clusters at two layers."""
    where = in_part(study, texts)
    lengths = [len(text) for text in texts.ids]
    return Occurrences(
        texts.flat[where],
        classes[where],
        measured.at(layers[0]),
        measured.at(layers[1]),
        np.repeat(np.arange(len(lengths)), lengths)[where],
        np.concatenate([np.arange(length) for length in lengths])[where],
        texts.ids,
        texts.items,
    )


def measure(
    study: DriftStudy,
    chosen: ModelChoice,
    model: Model,
    texts: Sequence[Texts],
    labels: Sequence[Mapping[str, np.ndarray]],
    folder: Path,
    watcher: Watcher,
) -> tuple[dict[int, list[Measured]], int]:
    """Every run under every number of clusters; what the folder has is not measured again.

    Args:
        study: how states are clustered.
        chosen: the model, as the study names it.
        model: whose states.
        texts: of every run.
        labels: of every run, from `labels_of`.
        folder: of the study: cells are kept there, and states while they are clustered (`spooling`).
        watcher: is told how it goes, layer by layer.

    Returns:
        By number of clusters, the cell of every run; and how many cells were measured now.

    Raises:
        LesionError: a state is not finite, a layer has too few different vectors, or a cell cannot be written.
    """
    layers = len(model.anatomy.blocks) + (1 if study.layer_zero == "embedding" else 0)
    keys: dict[tuple[int, int], str] = {}
    cells: dict[tuple[int, int], Measured] = {}
    for run, label in zip(texts, labels, strict=True):
        for clusters in study.clusters:
            settings = _settings(study, run.run, clusters)
            parts = {
                "model": model.fingerprint,
                "texts": run.ids,
                "prompts": run.prompts,
                "settings": asdict(settings),
                "labels": list(label),
            }
            key = drift_cells.key_of(parts, list(label.values()))
            keys[run.run, clusters] = key
            stored = drift_cells.read(folder, key)
            if stored is not None:
                cells[run.run, clusters] = stored
    missing = len(keys) - len(cells)
    if missing:
        watcher.begin(chosen.name, len(keys) * layers, len(cells) * layers, "layers clustered")
    for run, label in zip(texts, labels, strict=True):
        wanted = [clusters for clusters in study.clusters if (run.run, clusters) not in cells]
        if not wanted:
            continue
        with hidden_states(model, run.ids, folder=folder / STATES, prompt_tokens=run.prompts) as states:
            for clusters in wanted:
                counted = _Counted(watcher)
                settings = _settings(study, run.run, clusters)
                measured = _measured(drift(states, settings, labels=label, watcher=counted), clusters)
                drift_cells.write(folder, keys[run.run, clusters], measured)
                cells[run.run, clusters] = measured
                watcher.answered(layers - counted.count)
    return {k: [cells[run.run, k] for run in texts] for k in study.clusters}, missing


class _Counted:
    """Passes on what is done, within a piece of work that has begun already; no more of it than there is."""

    def __init__(self, outer: Watcher) -> None:
        self.outer, self.count = outer, 0

    def begin(self, model: str, asked: int, stored: int, what: str = "answers") -> None:
        """Nothing: the whole has begun."""

    def answered(self, count: int) -> None:
        self.count += count
        self.outer.answered(count)

    def note(self, text: str) -> None:
        self.outer.note(text)
