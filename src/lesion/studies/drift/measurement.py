"""Drift: how far tokens leave their first clusters, layer by layer (Nepal et al. 2025, section 5).

At every layer the vectors of the same tokens are clustered anew; the curve is how much the clustering has in common
with that of layer zero. Cosine and CKA with layer zero, which need no clusters, stand beside it. Every run of a model
on its texts under every number of clusters is kept at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, Shaped
from pydantic import Field

from lesion.activations.hidden_states import HiddenStates, hidden_states, sweep
from lesion.core import cells as stored_cells
from lesion.core.inference import pending_cells
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report.values import Number, Value
from lesion.statistics.information import Alignment, cosine, normalised_mutual_information, shuffled
from lesion.statistics.kmeans import Clustering, kmeans
from lesion.studies.drift.result import CLASS, TOKEN, Run
from lesion.studies.drift.study import USUAL, DriftStudy, Information, LayerZero, Normalise
from lesion.studies.drift.token_drift import Occurrences, contingency, primer_lexicon, token_classes
from lesion.tasks.catalogue import canonical, draw
from lesion.tasks.continuations import encode_answer, encode_choices, encode_gold, encode_solved
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.style import opening
from lesion.tasks.task import TRUNCATED, Item, Task
from lesion.tasks.wrapped import Gold

HIGH = 0.975
"""The quantile over shuffles above which a curve is told from its null."""


class Settings(Value):
    """What the paper leaves open; `DriftStudy` says what each choice means.

    Where positions are rotations inside attention, as in Llama and Qwen, all tokens of one id are one point as they
    enter block 0. Cosine and CKA take vectors without `normalise`. `normalisation` is that of the mutual information;
    labels are shuffled `null` times.
    """

    clusters: int = Field(ge=2)
    layer_zero: LayerZero = "embedding"
    normalise: Normalise = "none"
    normalisation: Information = "arithmetic"
    starts: int = Field(default=10, ge=1)
    seed: int = 0
    null: int = Field(default=100, ge=1)


class MeasuredLayer(Value):
    """One layer against the reference layer, in one run.

    Attributes:
        nmi, labels: of its clusters with those of the reference layer, and with each labelling that was given.
        null, null_high: NMI after its labels were shuffled over the tokens, mean and `HIGH` quantile.
        cosine: mean over tokens; cka: linear, centred; None where all vectors of a layer are equal.
    """

    layer: int
    nmi: Number
    null: Number
    null_high: Number
    cosine: Number
    cka: Number
    labels: dict[str, float]


class Measured(Value):
    """One run of one model under one number of clusters.

    Attributes:
        layers: from the reference layer on.
        ceiling: NMI of two clusterings of the reference layer; no later layer can be expected above it.
        assignments: [layers][tokens] the cluster of every token that counts, at every layer of `layers`.
    """

    layers: tuple[MeasuredLayer, ...]
    ceiling: float
    assignments: tuple[tuple[int, ...], ...]

    def at(self, layer: int) -> Int[np.ndarray, " tokens"]:
        """[tokens] the clusters at a layer, by its own number, which is not always its place."""
        return np.asarray(self.assignments[layer - self.layers[0].layer], dtype=np.int64)

    def by_token(self, tokens: Int[np.ndarray, " tokens"], normalisation: str) -> list[float]:
        """At every layer, NMI of the reference clusters with those of the layer, every occurrence of a token in the
        cluster that most occurrences of it are in (the lowest number of several)."""
        kinds, assignments = np.unique(tokens, return_inverse=True)[1], np.asarray(self.assignments, dtype=np.int64)
        usual = (contingency(kinds, each).argmax(axis=1)[kinds] for each in assignments)
        return [normalised_mutual_information(assignments[0], each, normalisation) for each in usual]

    def along(self, measure: str) -> list[float]:
        """A measure at every layer, NaN where it is unknown."""
        values = [getattr(layer, measure) for layer in self.layers]
        return [np.nan if value is None else value for value in values]


def drift(
    states: HiddenStates,
    settings: Settings,
    *,
    where: Bool[np.ndarray, " tokens"] | None = None,
    labels: Mapping[str, Shaped[np.ndarray, " tokens"]] | None = None,
    watcher: Watcher | None = None,
    device: torch.device | str = "cpu",
) -> Measured:
    """Cluster every layer, on a device, and compare the clusters with those of layer zero.

    Memory holds one layer's tokens at a time; layer zero is read again from its file, in pieces, for cosine and CKA.
    `where`: the tokens that count; None: all. `labels` has by name a label for every token of `states`. Fewer distinct
    vectors than clusters are refused.
    """
    where = np.ones(states.tokens, dtype=bool) if where is None else where
    labellings = {name: values[where] for name, values in (labels or {}).items()}
    first = int(settings.layer_zero == "block")
    zero = states.mapped(first) if bool(where.all()) else states.layer(first, where)
    alignment = Alignment(zero)
    reference, again = (_clustered(states, where, settings, first, stream, device) for stream in (0, 1))
    layers, assignments = [], []
    for layer in range(first, states.layers):
        vectors = states.layer(layer, where)
        alike, cka = cosine(zero, vectors), alignment.cka(vectors)
        del vectors
        clustering = reference if layer == first else _clustered(states, where, settings, layer, 0, device)
        null = shuffled(
            reference.labels, clustering.labels, settings.null, _rng(settings, layer, 2), settings.normalisation
        )
        nmi, *others = (
            normalised_mutual_information(other, clustering.labels, settings.normalisation)
            for other in (reference.labels, *labellings.values())
        )
        layers.append(
            MeasuredLayer(
                layer=layer,
                nmi=nmi,
                null=null.mean(),
                null_high=np.quantile(null, HIGH),
                cosine=alike,
                cka=cka,
                labels=dict(zip(labellings, others, strict=True)),
            )
        )
        assignments.append(clustering.labels.tolist())
        if watcher is not None:
            watcher.answered(1)
    return Measured(
        layers=layers,
        ceiling=normalised_mutual_information(reference.labels, again.labels, settings.normalisation),
        assignments=assignments,
    )


def _prepared(vectors: Float32[np.ndarray, "tokens width"], normalise: str) -> Float32[np.ndarray, "tokens width"]:
    """The vectors as they are clustered; changed in place."""
    if normalise == "unit":
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
    elif normalise == "standardise":
        mean = vectors.mean(axis=0, dtype=np.float64)
        vectors -= mean.astype(np.float32)
        # Of what is left, whose mean is 0 but for rounding; a dimension that does not vary stays 0.
        deviation = np.sqrt(np.einsum("ij,ij->j", vectors, vectors, dtype=np.float64) / len(vectors))
        varies = deviation > 1e-6 * np.abs(mean)
        vectors[:, ~varies] = 0
        vectors[:, varies] /= deviation[varies].astype(np.float32)
    return vectors


def _clustered(
    states: HiddenStates,
    where: Bool[np.ndarray, " tokens"],
    settings: Settings,
    layer: int,
    stream: int,
    device: torch.device | str,
) -> Clustering:
    points = torch.from_numpy(_prepared(states.layer(layer, where), settings.normalise))

    def clustered(points: torch.Tensor) -> Clustering:
        return kmeans(
            points,
            settings.clusters,
            starts=settings.starts,
            seed=int(_rng(settings, layer, stream).integers(2**62)),
            overwrite=True,
        )

    try:
        try:
            return clustered(points.to(device))
        except torch.OutOfMemoryError:  # beside the model there is too little room
            return clustered(points)
    except UsageError as error:
        raise LesionError(f"Layer {layer} of {states.name}: {error}") from error


def _rng(settings: Settings, layer: int, stream: int) -> np.random.Generator:
    """Draws of a layer's own: for its clusters (0), for its second clustering (1), for its shuffles (2)."""
    return np.random.default_rng([abs(settings.seed), int(settings.seed < 0), layer, stream])


@dataclass(frozen=True)
class Texts:
    """What a model reads in one run.

    Attributes:
        items: their ids, in the order drawn.
        ids: of each item, token ids of its prompt and solution, cut at the end of the context; prompts: how many of
            them are the prompt.
        right, truncated: of own solutions.
    """

    run: int
    items: tuple[str, ...]
    ids: tuple[tuple[int, ...], ...]
    prompts: tuple[int, ...]
    right: int | None = None
    truncated: int | None = None

    @property
    def in_prompt(self) -> Bool[np.ndarray, " tokens"]:
        """[tokens] whether each token is of a prompt, text after text."""
        pairs = zip(self.ids, self.prompts, strict=True)
        return np.concatenate([np.arange(len(text)) < prompt for text, prompt in pairs])

    @property
    def flat(self) -> Int[np.ndarray, " tokens"]:
        """[tokens] token ids, text after text."""
        return np.concatenate([np.asarray(text, dtype=np.int64) for text in self.ids])

    @property
    def text_of(self) -> Int[np.ndarray, " tokens"]:
        """[tokens] which text each token is in, from 0."""
        return np.repeat(np.arange(len(self.ids)), [len(text) for text in self.ids])


def run_of(texts: Texts, clustered: Bool[np.ndarray, " tokens"]) -> Run:
    """How much a run read."""
    return Run(
        run=texts.run,
        items=len(texts.items),
        tokens=int(clustered.sum()),
        prompt_tokens=int(texts.in_prompt.sum()),
        solution_tokens=int((~texts.in_prompt).sum()),
        right=texts.right,
        truncated=texts.truncated,
    )


def draw_runs(study: DriftStudy, task: Task) -> list[list[Item]]:
    """The items of every run, the same for all models.

    Every run is a draw of its own from all items and depends on the seed and its number alone, so that further runs
    leave earlier ones as they are. An item may be in two runs; a task with fewer items than a run asks for gives all.
    """
    return [draw(task, study.items, seed_of(study, f"items {run}")) for run in range(study.runs)]


def seed_of(study: DriftStudy, purpose: str) -> int:
    """A seed for one purpose, from the study's: 31 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(f"{study.seed}:{purpose}".encode()).digest()[:4], "big") >> 1


def speaks(study: DriftStudy, task: Task) -> bool:
    """Whether a model generates solutions: running text has none."""
    return study.solution == "own" and task.kind != "score"


Solution = Mapping[Hashable, Any]
"""A stored own solution, by the columns of `Store.answers`."""


def own_solutions(chosen: ModelChoice, model: Model, evaluation: Evaluation) -> dict[str, Solution]:
    """Have a model answer every item once, greedily, as far as the store does not have its answer; answers by item."""
    with evaluation.run.watcher.preparing():
        evaluation.evaluate(chosen, model, (), what="own solutions")
    evaluation.release()
    cells = pending_cells(evaluation.study, chosen, model, evaluation.tasks, evaluation.items, (), stored=())
    answers = evaluation.store.answers(model=chosen.name).set_index("key").to_dict("index")
    return {cell.item.id: answers[key] for key, cell in cells.items()}


def read_texts(
    study: DriftStudy,
    chosen: ModelChoice,
    model: Model,
    task: Task,
    runs: Sequence[Sequence[Item]],
    solutions: Mapping[str, Solution] | None,
) -> list[Texts]:
    """The texts of every run as a model reads them.

    `solutions` are the model's own, by item. Such a solution is the stored text, encoded after the prompt as it was
    generated: of items with choices the chosen one, of contrasts the most probable token.
    """
    style = resolve(model, task, study.questions().prompt_style_of(chosen, study.task))
    results = []
    for number, items in enumerate(runs):
        answers = [] if solutions is None else [solutions[item.id] for item in items]
        ids, prompts = [], []
        for place, item in enumerate(items):
            prompt, solution = _read(study, model, task, item, style, str(answers[place]["text"]) if answers else "")
            text = (*prompt, *solution)[: model.context]
            if not text:
                raise LesionError(f"Item {item.id} of {task.name} has no tokens for {model.name}; leave it out.")
            ids.append(text)
            prompts.append(min(len(prompt), len(text)))
        own: dict[str, int] = {}
        if answers:
            own["right"] = sum(bool(answer["correct"]) for answer in answers)
            own["truncated"] = sum(answer["finish"] in TRUNCATED for answer in answers)
        results.append(Texts(number, tuple(item.id for item in items), tuple(ids), tuple(prompts), **own))
    return results


def _read(
    study: DriftStudy, model: Model, task: Task, item: Item, style: str, answer: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if task.kind == "score":
        if study.part == "solution":
            raise UsageError(f"{task.name} is running text without solutions; choose --part prompt or both.")
        return encode_solved(model, task, item, style), ()
    if study.solution == "gold":
        return encode_gold(model, Gold(task), item, style)
    prompt = encode(model, task, item, style, max_new_tokens=1)
    if not answer:
        return prompt, ()
    if task.kind == "generate":
        return prompt, encode_answer(model, task, item, answer.removeprefix(opening(model.tokenizer, prompt)), style)
    (solution,) = encode_choices(model, task, replace(item, choices=(answer,)), style)
    return prompt, solution


STATES = "states"
"""Where hidden states lie in the folder of a study while they are clustered."""


@contextmanager
def spooling(folder: Path) -> Iterator[None]:
    """Remove the hidden states of a killed run at the beginning and those of this one at its end."""
    sweep(folder / STATES)
    try:
        yield
    finally:
        sweep(folder / STATES)


def in_part(study: DriftStudy, texts: Texts) -> Bool[np.ndarray, " tokens"]:
    """[tokens] whether each is of the part that is clustered."""
    prompt = texts.in_prompt
    return {"prompt": prompt, "solution": ~prompt}.get(study.part, np.ones_like(prompt))


def labels_of(study: DriftStudy, model: Model, texts: Texts) -> dict[str, Shaped[np.ndarray, " tokens"]]:
    """What clusters are compared with besides those of the reference layer: classes of tokens, and the tokens."""
    lexicon = primer_lexicon() if "primer:" in canonical(study.task.name) else None
    return {CLASS: token_classes(model.tokenizer, texts.flat, texts.text_of, lexicon=lexicon), TOKEN: texts.flat}


def fitted(
    study: DriftStudy, chosen: ModelChoice, model: Model, texts: Sequence[Texts], folder: Path
) -> tuple[DriftStudy, list[str]]:
    """The study with a number of clusters that every run has tokens for, and a note where these are fewer than usual.

    Where none is said it is the paper's, or half of the fewest different tokens of a run, which leaves clusters of
    several tokens. Too many are refused before any run is measured.
    """
    different = {run.run: count for run, count in zip(texts, _different(study, model, texts, folder), strict=True)}
    fewest, run = min((count, run) for run, count in different.items())
    if study.clusters is not None:
        if max(study.clusters) <= fewest:
            return study, []
        part = "" if study.part == "both" else f" of the {study.part}s"
        raise UsageError(
            f"{max(study.clusters)} clusters were asked for, and run {run} has {fewest} different tokens{part} of"
            f" {chosen.name}; ask for fewer with --clusters, for more --items"
            f"{', or for --layer-zero block' if study.layer_zero == 'embedding' else ''}."
        )
    if fewest >= USUAL:
        return study.model_copy(update={"clusters": (USUAL,)}), []
    clusters = max(2, fewest // 2)
    note = (
        f"{model.name}: {clusters} clusters instead of {USUAL}, since a run has {fewest} different tokens; ask for more"
        " --items, or say --clusters."
    )
    return study.model_copy(update={"clusters": (clusters,)}), [note]


def _different(study: DriftStudy, model: Model, texts: Sequence[Texts], folder: Path) -> Iterator[int]:
    """Of each run, how many of its tokens the reference layer tells apart: by the token, by its place too where
    positions are added to tokens, and after block 0 by all that stands before it.
    """
    embedded, placed = study.layer_zero == "embedding", False
    if embedded:  # whether a token at two places is two vectors as it enters block 0
        with hidden_states(model, [(texts[0].ids[0][0],) * 2], folder=folder / STATES) as states:
            placed = not np.array_equal(*states.layer(0))
    for run in texts:
        seen: list[Hashable] = []
        for text in run.ids:
            before: Hashable = None
            for place, token in enumerate(text):
                before = hash((before, token))
                seen.append(before if not embedded else (place, token) if placed else token)
        yield len({key for key, wanted in zip(seen, in_part(study, run), strict=True) if wanted})


def occurrences_of(
    study: DriftStudy, texts: Texts, measured: Measured, classes: Shaped[np.ndarray, " tokens"], layers: tuple[int, int]
) -> Occurrences:
    """The tokens of a run that were clustered, with their clusters at two layers."""
    where = in_part(study, texts)
    return Occurrences(
        texts.flat[where],
        classes[where],
        measured.at(layers[0]),
        measured.at(layers[1]),
        texts.text_of[where],
        np.concatenate([np.arange(len(text)) for text in texts.ids])[where],
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
    """Every run under every number of clusters; cells that the folder has, with their checksum, are not measured again.

    `texts` and `labels` (`labels_of`) are those of every run.

    Returns:
        By number of clusters, the cell of every run; and how many cells were measured now.
    """
    settings: dict[tuple[int, int], Settings] = {}
    keys: dict[tuple[int, int], str] = {}
    for run, label in zip(texts, labels, strict=True):
        for clusters in study.clusters or ():
            settings[run.run, clusters] = own = Settings(
                clusters=clusters,
                layer_zero=study.layer_zero,
                normalise=study.normalise,
                normalisation=study.nmi,
                starts=study.starts,
                seed=seed_of(study, f"clusters {run.run}"),
            )
            parts = {"model": model.fingerprint, "texts": run.ids, "settings": own.model_dump(), "labels": list(label)}
            keys[run.run, clusters] = stored_cells.key_of(parts, [in_part(study, run), *label.values()])
    cells = stored_cells.read_all(folder, keys, Measured, watcher.note, chosen.name)
    missing = keys.keys() - cells.keys()
    if missing:
        layers = len(model.anatomy.blocks) + 1 - study.reference
        watcher.begin(chosen.name, len(keys) * layers, len(cells) * layers, "layers clustered")
    for run, label in zip(texts, labels, strict=True):
        wanted = [clusters for clusters in study.clusters or () if (run.run, clusters) in missing]
        if not wanted:
            continue
        where = in_part(study, run)
        with hidden_states(model, run.ids, folder=folder / STATES) as states:
            for clusters in wanted:
                at = run.run, clusters
                cells[at] = drift(states, settings[at], where=where, labels=label, watcher=watcher, device=model.device)
                stored_cells.write(folder, keys[at], cells[at])
    return {clusters: [cells[run.run, clusters] for run in texts] for clusters in study.clusters or ()}, len(missing)
