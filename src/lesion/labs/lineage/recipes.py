"""Recipes of the children: everything that determines one, beside its parent; the defaults are those of the bundled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lesion.training.supervised import Tuning
from lesion.training.verifiable import Reinforcement


@dataclass(frozen=True)
class Instruct:
    """Supervised tuning on chat turns with the gold solutions of `questions` questions, `rows` a step.

    Args:
        learning_rate: of AdamW, at its peak; it rises over the first tenth and falls to 0.
        arithmetic, atlas, reading: shares of the skills among the questions.
    """

    stage: ClassVar[str] = "instruct"
    seed: int = 0
    questions: int = 9600
    steps: int = 300
    rows: int = 32
    learning_rate: float = 1e-3
    arithmetic: float = 0.4
    atlas: float = 0.3
    reading: float = 0.3

    @property
    def shares(self) -> dict[str, float]:
        """Of the skills among the questions."""
        return {"arithmetic": self.arithmetic, "atlas": self.atlas, "reading": self.reading}

    @property
    def tuning(self) -> Tuning:
        """The recipe of `lesion.training.supervised`."""
        return Tuning(self.steps, self.rows, self.learning_rate, seed=self.seed)


@dataclass(frozen=True)
class Distill(Instruct):
    """Supervised tuning on what a teacher says where it is right; at temperature 0 it answers greedily."""

    stage: ClassVar[str] = "distill"
    temperature: float = 0.0


@dataclass(frozen=True)
class Rlvr:
    """Group-relative policy optimisation (GRPO) on arithmetic; the reward is what the task's judge finds.

    Args:
        questions: problems drawn; those are kept that come out right in some of so many `tries`, and not in all.
        steps: of AdamW, each of so many `prompts` with so many `generations`.
        temperature: at which solutions are tried.
        max_new_tokens: of a solution.
    """

    stage: ClassVar[str] = "rlvr"
    seed: int = 0
    questions: int = 3000
    tries: int = 4
    steps: int = 120
    prompts: int = 16
    generations: int = 8
    temperature: float = 1.0
    learning_rate: float = 2e-4
    max_new_tokens: int = 60

    @property
    def reinforcement(self) -> Reinforcement:
        """The recipe of `lesion.training.verifiable`."""
        return Reinforcement(
            self.steps,
            self.prompts,
            self.generations,
            temperature=self.temperature,
            learning_rate=self.learning_rate,
            seed=self.seed,
            max_new_tokens=self.max_new_tokens,
        )


Recipe = Instruct | Rlvr
RECIPES: dict[str, type[Instruct] | type[Rlvr]] = {kind.stage: kind for kind in (Instruct, Rlvr, Distill)}
