"""Resume: where a training stands, in one safetensors file that is written whole."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from lesion.atomic import replace
from lesion.errors import LesionError, UsageError

FILE = "resume.safetensors"
POINTS = 100  # of a curve


def digest(*parts: Any) -> str:
    """16 hexadecimal digits of values that JSON can hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Progress:
    """The weights that train, the optimizer's moments, the steps done and what was measured at each.

    Everything else of a training is a function of its seed and the step: the order of the data, the position of the
    schedule, and every random draw, since the generators are seeded anew at each step. So these are all that is kept.

    Args:
        folder: where the file lies; made when absent.
        identity: what determines the training, in JSON's types: a file with another identity is refused.
        parameters: those that train, by name.
        optimizer: theirs.

    Attributes:
        step: how many steps are done.
        points: what was measured at each step, in JSON's types.

    Raises:
        LesionError: the folder cannot be made, or the file cannot be read.
        UsageError: the file belongs to another training.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        parameters: Mapping[str, nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.path = Path(folder) / FILE
        self.identity = json.loads(json.dumps(identity))
        self.parameters = dict(parameters)
        self.optimizer = optimizer
        self.step = 0
        self.points: list[dict[str, Any]] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another --out.") from error
        if self.path.exists():
            self._restore()
        self._began = time.perf_counter() - (self.points[-1]["seconds"] if self.points else 0.0)

    @property
    def seconds(self) -> float:
        """How long the training took so far, interruptions left out."""
        return time.perf_counter() - self._began

    def save(self) -> None:
        """Write the file.

        Raises:
            LesionError: it cannot be written; the one before it is still there.
        """
        tensors = {}
        for name, parameter in self.parameters.items():
            tensors[f"weight.{name}"] = parameter.detach()
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}.{name}"] = value
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
        try:
            with safe_open(self.path, "pt") as file:
                state = json.loads(file.metadata()["state"])
                self._refuse(state["identity"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise LesionError(
                f"{self.path} holds no state of a training that can be read ({error}); give another --out, or delete"
                " the file to begin anew."
            ) from error
        moments: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in tensors.items():
            kind, _, name = key.partition(".")
            moments.setdefault(name, {})[kind] = value
        for name, parameter in self.parameters.items():
            kept = moments[name]
            parameter.data.copy_(kept.pop("weight"))
            if kept:
                self.optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in kept.items()}
        self.step, self.points = state["step"], state["points"]

    def _refuse(self, identity: Mapping[str, Any]) -> None:
        if identity == self.identity:
            return
        other = sorted(key for key in {*identity, *self.identity} if identity.get(key) != self.identity.get(key))
        raise UsageError(
            f"{self.path} belongs to another training (it differs in: {', '.join(other)}). Give another --out, or"
            " delete that folder to begin anew."
        )


def curve(points: Sequence[Mapping[str, Any]], about: int = POINTS) -> list[dict[str, Any]]:
    """What was measured at each step as no more than about so many points, each over a stretch of equal length.

    `step` and `seconds` are those at the end of the stretch, as are `tokens`, which only grow, and the learning `rate`;
    everything else is the mean over the stretch. The last stretch may be shorter.
    """
    if not points:
        return []
    width = math.ceil(len(points) / about)
    found = []
    for start in range(0, len(points), width):
        part = points[start : start + width]
        last = dict(part[-1])
        for key in last.keys() - {"step", "seconds", "tokens", "rate"}:
            last[key] = round(sum(point[key] for point in part) / len(part), 6)
        found.append(last)
    return found
