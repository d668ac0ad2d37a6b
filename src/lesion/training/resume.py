"""Resume: where a training stands, in one safetensors file that is written whole."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor
from torch.optim import Optimizer

from lesion.atomic import replace
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.training.blocks import chosen, require_trl, trained_in_place, training
from lesion.training.schedule import optimizer_of

FILE = "resume.safetensors"
POINTS = 100  # of a curve
Point = dict[str, int | float]
"""What was measured at a step of a training, by name."""


def digest(*parts: object) -> str:
    """16 hexadecimal digits of values that JSON can hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def stored(path: Path) -> dict[str, Any]:
    """What a file says of its training: `identity`, `step` and `points`."""
    try:
        with safe_open(path, "pt") as file:
            state: dict[str, Any] = json.loads(file.metadata()["state"])
        return {key: state[key] for key in ("identity", "step", "points")}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> LesionError:
    return LesionError(
        f"{path} holds no state of a training that can be read ({error}); give another --out, or delete the file to"
        " begin anew."
    )


class Progress:
    """The weights that train, the optimizers' moments, the steps done and what was measured at them.

    Everything else of a training is a function of its seed and the step: the order of the data, the position of the
    schedule, and every random draw, since the generators are seeded anew at each step.

    Args:
        identity: what determines the training, in JSON's types: a file with another identity is refused.
        parameters: those that train, by name.

    Attributes:
        step: how many steps are done.
        points: what was measured on the way.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, object],
        parameters: Mapping[str, Tensor],
        *optimizers: Optimizer,
        file: str = FILE,
    ) -> None:
        self.path = Path(folder) / file
        self.identity = json.loads(json.dumps(identity))
        self.parameters = dict(parameters)
        self.optimizers = optimizers
        self.step = 0
        self.points: list[Any] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
        if self.path.exists():
            self._restore()
        self._began = time.perf_counter() - (self.points[-1].get("seconds", 0.0) if self.points else 0.0)

    @property
    def seconds(self) -> float:
        """How long the training took so far, interruptions left out."""
        return time.perf_counter() - self._began

    def save(self) -> None:
        """Write the file."""
        tensors = {}
        for name, parameter in self.parameters.items():
            tensors[f"weight.{name}"] = parameter.detach()
            for optimizer in self.optimizers:
                tensors |= {f"{key}.{name}": value for key, value in optimizer.state.get(parameter, {}).items()}
        state = {"identity": self.identity, "step": self.step, "points": self.points}
        whole = {key: value.cpu().contiguous() for key, value in tensors.items()}
        try:
            replace(self.path, save(whole, {"state": json.dumps(state)}))
        except (OSError, SafetensorError) as error:
            raise LesionError(
                f"The state of the training could not be written to {self.path}: {error}. Free some space and give the"
                " same command again: it goes on from the last state that was written."
            ) from error

    def _restore(self) -> None:
        state = stored(self.path)
        self._refuse(state["identity"])
        try:
            tensors = load(self.path.read_bytes())
        except (OSError, SafetensorError) as error:
            raise _unreadable(self.path, error) from error
        owner = {p: (each, group) for each in self.optimizers for group in each.param_groups for p in group["params"]}
        moments: dict[str, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            kind, _, name = key.partition(".")
            moments.setdefault(name, {})[kind] = value
        for name, parameter in self.parameters.items():
            kept = moments[name]
            parameter.data.copy_(kept.pop("weight"))
            if kept:
                optimizer, group = owner[parameter]
                # An optimizer that is not fused counts its steps on the CPU.
                optimizer.state[parameter] = {
                    key: value if key == "step" and not group.get("fused") else value.to(parameter.device)
                    for key, value in kept.items()
                }
        self.step, self.points = state["step"], state["points"]

    def _refuse(self, identity: Mapping[str, object]) -> None:
        if identity == self.identity:
            return
        other = sorted(key for key in {*identity, *self.identity} if identity.get(key) != self.identity.get(key))
        raise UsageError(
            f"{self.path} belongs to another training (it differs in: {', '.join(other)}). Give another --out, or"
            " delete that folder to begin anew."
        )


@contextmanager
def resumed(
    model: Model,
    recipe: Any,
    identity: Mapping[str, object],
    out: Path,
    blocks: Collection[int] | None,
    rank: int | None,
    watcher: Watcher,
) -> Iterator[Progress]:
    """A model trained in place, under AdamW and from where the training in a folder stands, until the `with` ends.

    `recipe` is a dataclass with steps, a learning rate and a seed; `identity` is what else determines the training.
    """
    indices = None if blocks is None and rank is None else chosen(model, blocks)
    whole = {
        **identity,
        "recipe": asdict(recipe),
        "blocks": None if indices is None else list(indices),
        "rank": rank,
        "starting weights": fingerprint(model.network),
    }
    with trained_in_place(model), training(model, indices, rank, recipe.seed):
        parameters = {name: p for name, p in model.network.named_parameters() if p.requires_grad}
        progress = Progress(out, whole, parameters, optimizer_of(list(parameters.values()), recipe.learning_rate))
        watcher.begin(model.name, recipe.steps, progress.step, "steps")
        if progress.step < recipe.steps:
            require_trl()
        yield progress


def curve(points: Sequence[Point], about: int = POINTS) -> list[Point]:
    """What was measured at each step as at most about so many points, each over a stretch of equal length.

    `step`, `seconds`, `tokens` and `rate` are those at the end of the stretch, everything else its mean. The last
    stretch may be shorter.
    """
    width = math.ceil(len(points) / about) or 1
    stretches = [points[start : start + width] for start in range(0, len(points), width)]
    return [
        {
            key: last
            if key in ("step", "seconds", "tokens", "rate")
            else round(sum(p[key] for p in part) / len(part), 6)
            for key, last in part[-1].items()
        }
        for part in stretches
    ]
