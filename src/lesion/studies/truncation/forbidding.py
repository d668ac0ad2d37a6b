"""The trivial rival of a gain: the unedited model's most frequent wrong first tokens forbidden at decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lesion.core import cells
from lesion.core.cached_answers import CachedAnswers
from lesion.core.inference import pending_cells
from lesion.core.run import Evaluation
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE
from lesion.engines.engine import Request
from lesion.report.values import Value
from lesion.tasks.task import Item, Task

FORBIDDEN = (1, 3, 10)
"""So many of the most frequent wrong first tokens are forbidden."""
KINDS = ("generate", "contrast")
"""Tasks whose answers have a first token."""


class FirstTokens(Value):
    """The first token of the unedited model's answer to each of some prompts; None of an empty answer."""

    tokens: tuple[int | None, ...]


@dataclass(frozen=True)
class Tried:
    """A task with ever more first tokens forbidden.

    Attributes:
        choices: the task as stored answers name it, by how many are forbidden; none where nothing wrong is said, or
            nothing is said, but chosen among texts.
        scores: accuracy of the unedited model on the items that choose how many, first with none forbidden.
    """

    choices: tuple[TaskChoice, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def best(self) -> int:
        """Place of the best score, of equals with the fewest tokens: 0 where none is better than to forbid none."""
        return self.scores.index(max(self.scores))


@dataclass
class Forbidding:
    """Forbids first tokens to an unedited model."""

    evaluation: Evaluation
    cache: CachedAnswers

    def tried(self, choice: TaskChoice, task: Task, items: Sequence[Item]) -> Tried:
        """How the unedited model, whose answers to these items are there, answers them with first tokens forbidden."""
        if task.kind not in KINDS:
            return Tried()
        frequent = self._wrong_first_tokens(choice, task, items)
        numbers = list(dict.fromkeys(min(number, len(frequent)) for number in FORBIDDEN if frequent))
        without = [_without(choice, tuple(frequent[:number])) for number in numbers]
        # All in one round: prompts are shared, whatever is forbidden behind them.
        tasks, asked = dict.fromkeys(without, task), dict.fromkeys(without, items)
        self.cache.ask(tasks, asked)
        self.cache.evaluate(tasks, asked, (), "answers of rivals")
        scores = [float(self.cache.answers(each, items, BASELINE).right.mean()) for each in (choice, *without)]
        return Tried(tuple(without), tuple(scores))

    def texts(self, choice: TaskChoice) -> tuple[str, ...]:
        """The texts of the tokens that a task forbids."""
        return tuple(self.cache.model.tokenizer.decode([token]) for token in choice.forbid or ())

    def _wrong_first_tokens(self, choice: TaskChoice, task: Task, items: Sequence[Item]) -> list[int]:
        """The first tokens of the unedited model's wrong answers to these items, the most frequent first."""
        study, model, folder = self.evaluation.study, self.cache.model, self.evaluation.run.folder
        right = self.cache.answers(choice, items, BASELINE).right
        wrong = {choice: [item for item, is_right in zip(items, right, strict=True) if not is_right]}
        (chosen,) = study.chosen_models
        pending = pending_cells(study, chosen, model, {choice: task}, wrong, ())
        asked = [(cell.prompt, str(cell.decoding)) for cell in pending.values()]
        key = cells.key_of({"first tokens": [model.fingerprint, *asked]})
        first = cells.read(folder, key, FirstTokens)
        if first is None:
            requests = [
                Request(name, cell.prompt, BASELINE, replace(cell.decoding, max_new_tokens=1, thinking_tokens=0))
                for name, cell in pending.items()
            ]
            responses = {response.key: response for response in self.evaluation.engine(model).answer(requests)}
            first = FirstTokens(tokens=tuple(next(iter(responses[name].token_ids), None) for name in pending))
            cells.write(folder, key, first)
        counts = Counter(token for token in first.tokens if token is not None)
        return sorted(counts, key=lambda token: (-counts[token], token))


def _without(choice: TaskChoice, tokens: tuple[int, ...]) -> TaskChoice:
    """The same task where no answer begins with these tokens either."""
    name = f"forbid {','.join(map(str, tokens))}:{choice.name}"
    return choice.model_copy(update={"name": name, "forbid": (*(choice.forbid or ()), *tokens)})
