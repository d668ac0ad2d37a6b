"""The memory lab: train one memory, watch its spectrum, truncate it, and check the theory over sizes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lesion.labs.memory import orthonormal, sizes, slopes
from lesion.labs.memory.data import mixture, targets
from lesion.labs.memory.folder import LAB, document
from lesion.labs.memory.model import codes, logits
from lesion.labs.memory.recipe import Recipe
from lesion.labs.memory.spectrum import noise_place, spectrum
from lesion.labs.memory.training import descend, measured_steps
from lesion.labs.memory.truncation import measure, truncations
from lesion.progress import Silent, Watcher


def run_memory(recipe: Recipe, watcher: Watcher | None = None) -> dict[str, Any]:
    """Do everything that the lab does with a recipe; the same recipe gives the same numbers on one machine.

    Returns:
        What `summary.json` holds: `recipe`; `full` with the trained memory's measures and where its noise lies;
        `training`, a point per measured step; `truncated`, a row per part of the spectrum and per control
        (`truncation.truncations`); `sizes` (`sizes.sweep`); and `first_step` (`slopes.first_step`).
    """
    watcher = watcher or Silent()
    noise = recipe.noise
    watcher.begin("memory", recipe.steps * (1 + sizes.trainings(recipe)), 0, "steps")
    training, truncated = _one(recipe, watcher)
    of_sizes = sizes.sweep(recipe, watcher)
    watcher.begin("first step", slopes.work(), 0, "batches")
    found = {
        "lab": LAB,
        "noise": noise,
        "recipe": document(recipe),
        "full": training[-1],
        "truncated": truncated,
        "training": training,
        "sizes": of_sizes,
        "first_step": slopes.first_step(noise, recipe.seed, watcher),
    }
    notes = sizes.left_out(recipe)
    if noise == 0:
        notes.append("Without noise nothing has to be forgotten: the common class is only one more wrong answer.")
    if noise == 0.5:
        notes.append("At noise 0.5 the full memory ties between f* and the common class: judge by p and loss.")
    for note in notes:
        watcher.note(note)
    return found | {"notes": notes}


def _one(recipe: Recipe, watcher: Watcher) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Training and truncations of the recipe's own memory."""
    of_codes = codes(recipe)
    to_learn = mixture(recipe.classes, recipe.number, recipe.noise)
    wanted = targets(recipe.classes, recipe.number)
    steps = measured_steps(recipe.steps)
    known = recipe.codes == "orthonormal" and recipe.number % recipe.classes == 0
    three = orthonormal.numbers(recipe.classes, recipe.noise, steps) if known else None
    training: list[dict[str, Any]] = []
    for index, (step, coefficients) in enumerate(descend([of_codes], to_learn[None], steps, watcher)):
        found = spectrum(of_codes, coefficients[0])
        training.append(
            {
                "step": step,
                **measure(logits(of_codes, coefficients[0]), wanted),
                "singular_values": found.values.tolist(),
                "alignment": found.alignment.tolist(),
                "noise": asdict(noise_place(found)),
            }
        )
        if three is not None:
            repeats = recipe.number // recipe.classes
            of_signal, of_noise = orthonormal.singular_values(recipe.classes, repeats, three[index])
            training[-1]["predicted"] = {"signal": of_signal, "noise": of_noise}
    return training, truncations(of_codes, found, wanted, recipe.draws, recipe.seed)
