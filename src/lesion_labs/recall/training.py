"""Training a model of the recall laboratory: plain SGD or Adam, measured on the way, and resumable bit for bit."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from lesion.errors import LesionError, UsageError
from lesion.progress import Silent, Watcher
from lesion.training.resume import Progress, stored
from lesion_labs.recall.data import Batch, Source
from lesion_labs.recall.language import Language
from lesion_labs.recall.measurement import Examination, measure
from lesion_labs.recall.model import Weights, forward, shapes
from lesion_labs.recall.recipe import Recipe, deviation, untrained
from lesion_labs.recall.result import Point

STATE = "training.safetensors"
SAVED_EVERY = 20.0  # seconds; what was done since is done again after an interruption


def loss(weights: Weights, batch: Batch) -> Tensor:
    """Mean cross-entropy over all questions of a batch, in nats; 0 where there is none."""
    logits = forward(weights, batch.tokens, batch.questions).logits
    return F.cross_entropy(logits, batch.targets[batch.questions], reduction="sum") / max(1, len(logits))


def measured_steps(steps: int) -> list[int]:
    """At how many steps done everything is measured: 0, about eight to a decade, every twentieth part, and the last."""
    spaced = {round(10 ** (power / 8)) for power in range(8 * 10) if round(10 ** (power / 8)) <= steps}
    return sorted({0, steps} | spaced | {round(part * steps / 20) for part in range(20)})


def train(
    recipe: Recipe,
    language: Language,
    folder: Path,
    *,
    device: str = "cpu",
    watcher: Watcher | None = None,
    name: str = "recall",
) -> tuple[dict[str, Tensor], list[Point], Examination]:
    """Train, or go on where a training of the same recipe in `folder`, which exists, stopped.

    An interrupted training ends with the same bits as an uninterrupted one: a batch is a function of its step, and the
    state holds all that the optimiser remembers.

    Returns:
        The weights, what was measured over training, and what it was measured on.
    """
    watcher = watcher or Silent()
    examination = Examination.of(recipe, language, device)
    refuse_another(folder / STATE, recipe)
    weights = {name: tensor.to(device) for name, tensor in untrained(recipe).items()}
    trained = {name: weights[name].requires_grad_() for name in shapes(recipe.feed_forward, recipe.width)}
    optimiser = _optimiser(recipe, list(trained.values()))
    progress = Progress(folder, recipe.model_dump(), trained, optimiser, file=STATE)
    curve = [Point.model_validate(point) for point in progress.points]
    due = set(measured_steps(recipe.steps))
    batches = Source(recipe, language, device).batches("training", progress.step, recipe.steps, recipe.batch)
    watcher.begin(name, recipe.steps, progress.step, what="steps")
    saved = time.monotonic()
    while True:
        step = progress.step
        if step in due and (not curve or curve[-1].step < step):
            if not examination.traces(weights)[1].logits.isfinite().all():
                raise LesionError(
                    f"At step {step} the loss is not a number any more; train again with a smaller learning rate, "
                    f"or with less width than {recipe.width}."
                )
            curve.append(measure(weights, examination, step))
            progress.points.append(curve[-1].model_dump(mode="json"))
        if step == recipe.steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step)
        optimiser.zero_grad(set_to_none=True)
        loss(weights, next(batches)).backward()
        optimiser.step()
        progress.step += 1
        watcher.answered(1)
        if time.monotonic() - saved > SAVED_EVERY:
            progress.save()
            saved = time.monotonic()
    progress.save()
    return {name: tensor.detach() for name, tensor in weights.items()}, curve, examination


def _optimiser(recipe: Recipe, trained: list[Tensor]) -> torch.optim.Optimizer:
    if recipe.optimiser == "adam":
        return torch.optim.Adam(trained, lr=recipe.learning_rate)
    return torch.optim.SGD(trained, lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def refuse_another(path: Path, recipe: Recipe) -> None:
    """Refuse the stored state of a training of another recipe."""
    difference = deviation(stored(path)["identity"], recipe) if path.exists() else ""
    if difference:
        raise UsageError(
            f"{path.parent} holds a training of another recipe ({difference}); give another folder with --out, or"
            " delete that one."
        )
