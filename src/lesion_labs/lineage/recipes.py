"""Recipes of the children: everything that determines one, beside its parent; the defaults are those of the bundled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lesion.training.supervised import Tuning
from lesion.training.verifiable import Reinforcement


@dataclass(frozen=True)
class Instruct(Tuning):
    """Supervised tuning on chat turns with the gold solutions of `questions` questions.

    Args:
        arithmetic, atlas, reading: shares of the skills among the questions.
    """

    stage: ClassVar[str] = "instruct"
    steps: int = 300
    questions: int = 9600
    arithmetic: float = 0.4
    atlas: float = 0.3
    reading: float = 0.3

    @property
    def shares(self) -> dict[str, float]:
        """Of the skills among the questions."""
        return {"arithmetic": self.arithmetic, "atlas": self.atlas, "reading": self.reading}


@dataclass(frozen=True)
class Distill(Instruct):
    """Supervised tuning on what a teacher says where it is right; at temperature 0 it answers greedily."""

    stage: ClassVar[str] = "distill"
    temperature: float = 0.0


@dataclass(frozen=True)
class Rlvr(Reinforcement):
    """Group-relative policy optimisation (GRPO) on arithmetic; the reward is what the task's judge finds.

    Args:
        questions: problems drawn; those are kept that come out right in some of so many `tries`, and not in all.
    """

    stage: ClassVar[str] = "rlvr"
    steps: int = 120
    learning_rate: float = 2e-4
    max_new_tokens: int = 60
    questions: int = 3000
    tries: int = 4


Recipe = Instruct | Rlvr
RECIPES: dict[str, type[Instruct] | type[Rlvr]] = {kind.stage: kind for kind in (Instruct, Rlvr, Distill)}
