"""Stand-ins for what a study meets: an engine that knows all answers, a listener, and made-up sums of a model."""

import hashlib

import torch

from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.engines.engine import Response
from lesion.progress import Silent
from lesion.tasks.task import Answer


class Oracle:
    """An engine whose answers are right or wrong by a digest of prompt and edit. It notes what it is asked.

    With `lives` it dies instead of giving one answer more than that.
    """

    def __init__(self, lives: int | None = None, death: BaseException | None = None) -> None:
        self.lives = lives
        self.death = death or RuntimeError("the engine died")
        self.asked: list = []

    def __call__(self, model, batch_size):
        return self

    def answer(self, requests):
        for request in requests:
            if self.lives is not None and len(self.asked) == self.lives:
                raise self.death
            self.asked.append(request)
            yield Response(request.key, self.say(request))

    def say(self, request) -> Answer:
        digest = hashlib.sha256(repr((request.prompt, str(request.edit))).encode()).digest()
        scores = tuple(-1.0 - len(tokens) * (digest[2] + place) / 256 for place, tokens in enumerate(request.choices))
        text = ("right", "wrong")[digest[0] % 2]
        return Answer("" if scores else text, 0 if scores else 3, ("stop", "length")[digest[1] % 2], scores)

    @property
    def edits(self) -> list[str]:
        """The edits that were asked for, each once, in the order in which they first came."""
        return list(dict.fromkeys(str(request.edit) for request in self.asked))


class Listener:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.count = 0
        self.notes: list[str] = []

    def begin(self, model, total, stored, what="answers"):
        self.begun.append((model, total, stored))

    def answered(self, count):
        self.count += count

    def note(self, text):
        self.notes.append(text)


class Interrupts(Silent):
    """A person who stops the training after so many steps."""

    def __init__(self, after):
        self.left = after

    def answered(self, count):
        self.left -= count
        if self.left < 0:
            raise KeyboardInterrupt


def observed(model, seed: int, data: str | None = None, ids: tuple[str, ...] = ("a",)) -> Inputs:
    """Made-up sums of every matrix input of a model."""
    generator = torch.Generator().manual_seed(seed)
    sums = {}
    for address, matrix in model.anatomy.scored.items():
        norms = torch.rand(matrix.shape[1], generator=generator) + 0.1
        sums[address] = InputSums(norms, norms**2, 100)
    told = Provenance(model.name, model.fingerprint, data or f"data{seed}", 0, 0, False, ids, 0, "raw")
    return Inputs(sums, {address: address for address in sums}, len(ids), 100, (told,))
