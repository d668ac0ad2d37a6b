"""What the tests of tunings share: sums that a tiny model can be asked and taught, and a small study of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lesion.studies.tuning.study import TuningStudy
from lesion.tasks import catalogue
from lesion.tasks.task import Answer, Item, Verdict


@dataclass(frozen=True)
class Sums:
    """`a+b=` for numbers below ten: 60 items that are asked, and the other 40 to train on."""

    name: str = "sums"
    kind: str = "generate"
    max_new_tokens: int = 3
    stop: tuple[str, ...] = ()
    style: str = "raw"
    trains: bool = True

    def load(self) -> Sequence[Item]:
        return [item for number, item in enumerate(self._every()) if number % 5 < 3]

    def calibration(self) -> Sequence[Item]:
        # As of the atlas: without others, the items that are asked.
        return [item for number, item in enumerate(self._every()) if number % 5 >= 3] if self.trains else self.load()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        return Verdict(answer.text.strip() == item.gold, answer.text.strip() or None)

    @staticmethod
    def _every() -> list[Item]:
        return [Item(f"{a}+{b}", f"{a}+{b}=", str(a + b)) for a in range(10) for b in range(10)]


@dataclass(frozen=True)
class Letters(Sums):
    """As `Sums`, but right is what has two letters up to m: what a model with random weights says now and then."""

    name: str = "letters"
    max_new_tokens: int = 4

    def judge(self, item: Item, answer: Answer) -> Verdict:
        return Verdict(sum("a" <= letter <= "m" for letter in answer.text) > 1, answer.text or None)


TASKS = {
    "sums": Sums(), "control": Sums("control"), "closed": Sums("closed", trains=False), "letters": Letters(),
    "choices": Sums("choices", kind="choose"),
}  # fmt: skip


def known(name: str):
    """The tasks of this file by name, all others from the catalogue."""
    return TASKS.get(name) or catalogue.find(name)


def teach(patch: pytest.MonkeyPatch) -> None:
    """Let studies find the tasks of this file."""
    for place in ("studies.tuning.training", "studies.ablation.run", "core.run", "core.preflight"):
        patch.setattr(f"lesion.{place}.find", known)


def study(**values) -> TuningStudy:
    """A study of the tiny llama, three blocks, on sums, as small as can be."""
    small = {
        "model": "tiny:llama", "task": "sums", "arms": ["critical", "random"], "budget": 1, "steps": 3, "rows": 4,
        "learning_rates": [0.01], "seeds": [0, 1], "items": 20, "ablation_items": 6, "validation_items": 5,
        "control_items": 10,
    }  # fmt: skip
    return TuningStudy.make(**{**small, **values})


class Deadly:
    """A watcher under which the run dies when so many things were done."""

    def __init__(self, after: int, death: BaseException | None = None) -> None:
        self.left = after
        self.death = death or KeyboardInterrupt()
        self.begun: list[tuple[str, int, int, str]] = []
        self.notes: list[str] = []

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        self.begun.append((model, total, stored, what))

    def answered(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise self.death

    def note(self, text: str) -> None:
        self.notes.append(text)


def files(folder: Path) -> list[str]:
    """The names of all files in a folder, without locks."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "lock")
