"""What every contestant of `engines.py` is given and gives back, as JSON files between processes.

Imports nothing of lesion, so that a contestant can run in an environment that has only its library and torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

Layer = int | None
"""The block whose contribution is set to 0; None for the unedited model."""


@dataclass(frozen=True)
class Question:
    """One item: the prompt's token ids, and how many new tokens the answer may have."""

    prompt: tuple[int, ...]
    limit: int


@dataclass(frozen=True)
class Job:
    """A sweep: every block of `layers` at 0, and the unedited model, on the same questions, decoded greedily.

    Attributes:
        place: a folder with config, safetensors and tokenizer, already in `dtype`.
        ends: token ids that end an answer; empty when nothing does.
        sizes: batch sizes to choose from, for contestants that need one.
        repeats: how often the whole sweep is timed.
        patience: seconds that one sweep may take by the estimate of the trial; beyond, fewer blocks are asked.
    """

    place: str
    device: str
    dtype: str
    context: int
    layers: tuple[int, ...]
    ends: tuple[int, ...]
    questions: tuple[Question, ...]
    sizes: tuple[int, ...]
    repeats: int
    patience: float

    @property
    def edits(self) -> tuple[Layer, ...]:
        """The unedited model first, then every block."""
        return (None, *self.layers)

    def trimmed(self, tokens: Sequence[int]) -> list[int]:
        """An answer up to the token that ends it, cut at its limit by whoever gave it."""
        stop = min((tokens.index(end) for end in self.ends if end in tokens), default=len(tokens))
        return list(tokens[:stop])

    def batches(self, size: int) -> Iterator[tuple[list[int], list[list[int]], list[list[int]], int]]:
        """Questions in padded batches, long prompts first, those of one limit together.

        Yields the questions' numbers, token ids padded on the left with 0, their masks, and the limit.
        """
        order = sorted(range(len(self.questions)), key=lambda i: (-self.questions[i].limit, -self._length(i)))
        for limit in sorted({question.limit for question in self.questions}, reverse=True):
            chosen = [index for index in order if self.questions[index].limit == limit]
            for start in range(0, len(chosen), size):
                part = chosen[start : start + size]
                width = self._length(part[0])
                yield (
                    part,
                    [[0] * (width - self._length(index)) + list(self.questions[index].prompt) for index in part],
                    [[0] * (width - self._length(index)) + [1] * self._length(index) for index in part],
                    limit,
                )

    def _length(self, index: int) -> int:
        return len(self.questions[index].prompt)

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Job:
        """What `write` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        questions = tuple(Question(tuple(one["prompt"]), one["limit"]) for one in found.pop("questions"))
        tuples = {name: tuple(found[name]) for name in ("layers", "ends", "sizes")}
        return Job(**{**found, **tuples, "questions": questions})


@dataclass
class Answers:
    """Of one sweep.

    Attributes:
        tokens: by (block, question's number), trimmed.
        steps: token steps of decoding, those on finished rows included, and what else a contestant counts.
    """

    tokens: dict[tuple[Layer, int], list[int]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def count(self, **steps: int) -> None:
        """Add to the counts."""
        for name, number in steps.items():
            self.steps[name] = self.steps.get(name, 0) + number


Sweep = Callable[[Sequence[Layer], int], Answers]
"""Answers all questions under the given edits, with the given batch size (0 where the contestant chooses)."""


class Contestant(Protocol):
    """A module `engines_*.py` that takes part."""

    LIBRARIES: tuple[str, ...]
    """Distributions whose versions are recorded, `ONE|OTHER` where it goes by two names; all must be installed."""
    SIZED: bool
    """Whether it needs a batch size."""

    def start(self, job: Job) -> Sweep:
        """Load the model and build what answers."""
        ...


@dataclass
class Outcome:
    """What a contestant's process reports.

    Attributes:
        name: of the contestant.
        startup: seconds from the start of the process until the contestant could answer.
        wall: seconds of every repeat.
        cpu: seconds of processor time of every repeat, child processes included.
        edits: the edits that were asked (fewer than the job's when patience was short).
        answers: per edit, in the order of the questions.
        steps: of the last repeat.
        size: the batch size chosen; 0 where the contestant chooses.
        tried: seconds of the trial by batch size.
        versions: of the libraries.
    """

    name: str
    startup: float
    wall: list[float]
    cpu: list[float]
    edits: list[Layer]
    answers: list[list[list[int]]]
    steps: dict[str, int]
    size: int
    tried: dict[str, float]
    versions: dict[str, str]

    def write(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Outcome:
        """What `write` wrote."""
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Outcome(**found)
