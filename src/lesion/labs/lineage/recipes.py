"""Recipes of the children: everything that determines one, beside its parent; the defaults are those of the bundled."""

from __future__ import annotations

from dataclasses import dataclass

from lesion.training.supervised import Tuning
from lesion.training.verifiable import Reinforcement

ARITHMETIC, ATLAS, READING = 0.4, 0.3, 0.3
"""Shares of the skills among the questions that the tuned children learn from."""


@dataclass(frozen=True)
class Instruct:
    """Supervised tuning on chat turns with the gold solutions.

    Args:
        seed: of the questions and of their order.
        questions: how many are drawn, of all skills together.
        steps: of the optimizer.
        rows: questions in a step.
        learning_rate: of AdamW, at its peak; it rises over the first tenth and falls to 0.
        arithmetic, atlas, reading: shares of the skills among the questions.
    """

    seed: int = 0
    questions: int = 9600
    steps: int = 300
    rows: int = 32
    learning_rate: float = 1e-3
    arithmetic: float = ARITHMETIC
    atlas: float = ATLAS
    reading: float = READING

    @property
    def shares(self) -> dict[str, float]:
        """Of the skills among the questions."""
        return {"arithmetic": self.arithmetic, "atlas": self.atlas, "reading": self.reading}

    @property
    def tuning(self) -> Tuning:
        """What is asked of `lesion.training.supervised`."""
        return Tuning(self.steps, self.rows, self.learning_rate, seed=self.seed)


@dataclass(frozen=True)
class Distill(Instruct):
    """Supervised tuning on what a teacher says: its chains of thought and its one-word answers, where they are right.

    Args:
        temperature: at which the teacher answers; 0: greedily.
    """

    temperature: float = 0.0


@dataclass(frozen=True)
class Rlvr:
    """Group-relative policy optimisation (GRPO) on arithmetic; the reward is what the task's judge finds.

    Args:
        seed: of the problems, of which of them are taken in each step, and of what is tried.
        questions: how many problems are drawn; those are kept that come out right sometimes, and not always.
        tries: of each problem, to see whether it does.
        steps: of the optimizer.
        prompts: problems in a step.
        generations: solutions that are tried of each problem.
        temperature: at which they are tried.
        learning_rate: of AdamW, at its peak.
        max_new_tokens: tokens that a solution may have.
    """

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
        """What is asked of `lesion.training.verifiable`."""
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
RECIPES: dict[str, type[Instruct] | type[Rlvr]] = {"instruct": Instruct, "rlvr": Rlvr, "distill": Distill}
"""By stage."""
