"""Training a model of the recall laboratory: plain SGD or Adam, measured on the way, and resumable bit for bit."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor
from torch.nn import functional as F

from lesion.atomic import replace
from lesion.core.values import Value
from lesion.errors import LesionError, UsageError
from lesion.labs.recall.data import Batch, Source
from lesion.labs.recall.language import Language
from lesion.labs.recall.measurement import Examination, measure
from lesion.labs.recall.model import Weights, forward, initial, shapes
from lesion.labs.recall.recipe import Recipe, differences
from lesion.labs.recall.result import Point
from lesion.progress import Silent, Watcher

STATE = "training.safetensors"
SAVED_EVERY = 20.0  # seconds; what was done since is done again after an interruption


class State(Value):
    """What is kept of a training beside its tensors: steps done, and what was measured until then."""

    recipe: Recipe
    step: int
    curve: tuple[Point, ...]


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

    Raises:
        LesionError: the folder holds another training, cannot be written, or the loss is not finite any more.
    """
    watcher = watcher or Silent()
    examination = Examination.of(recipe, language, device)
    start = initial(recipe.feed_forward, recipe.vocabulary, recipe.length, recipe.width, recipe.seed)
    weights = {name: tensor.to(device) for name, tensor in start.items()}
    trained = {name: weights[name].requires_grad_() for name in shapes(recipe.feed_forward, recipe.width)}
    optimiser = _optimiser(recipe, list(trained.values()))
    step, curve = _resumed(recipe, folder / STATE, trained, optimiser)
    due = set(measured_steps(recipe.steps))
    batches = Source(recipe.task(language), recipe.seed, device).batches("training", step, recipe.steps, recipe.batch)
    watcher.begin(name, recipe.steps, step, what="steps")
    saved = time.monotonic()
    while True:
        if step in due and (not curve or curve[-1].step < step):
            if not examination.traces(weights)[1].logits.isfinite().all():
                raise LesionError(
                    f"At step {step} the loss is not a number any more; train again with a smaller learning rate, "
                    f"or with less width than {recipe.width}."
                )
            curve.append(measure(weights, examination, step))
        if step == recipe.steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(step)
        optimiser.zero_grad(set_to_none=True)
        loss(weights, next(batches)).backward()
        optimiser.step()
        step += 1
        watcher.answered(1)
        if time.monotonic() - saved > SAVED_EVERY:
            _save(recipe, folder / STATE, trained, optimiser, step, curve)
            saved = time.monotonic()
    _save(recipe, folder / STATE, trained, optimiser, step, curve)
    return {name: tensor.detach() for name, tensor in weights.items()}, curve, examination


def _optimiser(recipe: Recipe, trained: list[Tensor]) -> torch.optim.Optimizer:
    if recipe.optimiser == "adam":
        return torch.optim.Adam(trained, lr=recipe.learning_rate)
    return torch.optim.SGD(trained, lr=recipe.learning_rate, momentum=recipe.momentum, weight_decay=recipe.weight_decay)


def _save(
    recipe: Recipe,
    path: Path,
    trained: dict[str, Tensor],
    optimiser: torch.optim.Optimizer,
    step: int,
    curve: list[Point],
) -> None:
    tensors = {f"weight/{name}": tensor.detach() for name, tensor in trained.items()}
    for name, tensor in trained.items():
        kept = optimiser.state.get(tensor, {})
        tensors |= {f"{key}/{name}": value for key, value in kept.items() if isinstance(value, Tensor)}
    state = State(recipe=recipe, step=step, curve=tuple(curve)).model_dump_json()
    try:
        replace(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, {"state": state}))
    except OSError as error:
        raise LesionError(
            f"The state of the training could not be written to {path.parent}: {error.strerror or error}. Free some "
            "space and give the same command again: it goes on from the last state that was written."
        ) from error


def refuse_another(path: Path, recipe: Recipe) -> State | None:
    """The stored state of the training of a recipe; None where there is none.

    Raises:
        UsageError: it is of another recipe.
        LesionError: it cannot be read.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            state = State.model_validate_json(file.metadata()["state"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, UsageError) as error:
        raise _unreadable(path, error) from error
    if state.recipe != recipe:
        raise UsageError(
            f"{path.parent} holds a training of another recipe ({differences(state.recipe, recipe)}); "
            "give another folder with --out, or delete that one."
        )
    return state


def _unreadable(path: Path, error: Exception) -> LesionError:
    why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
    return LesionError(f"{path} cannot be read ({why}); delete it, or give another folder with --out.")


def _resumed(
    recipe: Recipe, path: Path, trained: dict[str, Tensor], optimiser: torch.optim.Optimizer
) -> tuple[int, list[Point]]:
    """Steps done and what was measured in a file, if there is one; its tensors are put back."""
    state = refuse_another(path, recipe)
    if state is None:
        return 0, []
    try:
        tensors = load(path.read_bytes())
    except (OSError, SafetensorError, ValueError) as error:
        raise _unreadable(path, error) from error
    for name, tensor in trained.items():
        tensor.data.copy_(tensors[f"weight/{name}"])
        kept = {key.partition("/")[0]: value for key, value in tensors.items() if key.partition("/")[2] == name}
        # Adam keeps its count of steps on the CPU, everything else lies beside the weights.
        optimiser.state[tensor] = {
            key: value if key == "step" else value.to(tensor.device) for key, value in kept.items() if key != "weight"
        }
    return state.step, list(state.curve)
