"""Verify: every kind of edit on a model and an engine, compared token for token with the weights changed by hand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pandas as pd

from lesion.arguments import several, validated
from lesion.edits.cuts import refuse_both
from lesion.edits.edit import (
    BASELINE,
    Edit,
    EditLike,
    Scale,
    ScaleAttention,
    ScaleBlock,
    ScaleMlp,
    ScaleParameters,
    Single,
    Truncate,
    composed,
    parts,
    with_factor,
)
from lesion.edits.files.artefact import edit_for
from lesion.edits.files.as_weights import as_weights
from lesion.edits.files.checkpoint import apply
from lesion.edits.place import Unit
from lesion.edits.units import NUMBERED_EDITS, ScaleMatrix, how_many, part_of
from lesion.engines.config import EngineChoice, opened
from lesion.engines.engine import Decoding, Engine, MakeEngine, Request
from lesion.engines.transformers.engine import way_of
from lesion.errors import LesionError
from lesion.models.anatomy import Block
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model, load
from lesion.models.owner import held
from lesion.progress import Silent, Watcher
from lesion.report.rows import Row, column
from lesion.verification.by_hand import DECODING, EVERYWHERE, PROMPT, NoReferenceError, Positions, Said, say

State = Literal["verified", "exact on the simple way", "refused", "wrong", "not testable"]
TEXTS = ("The capital of France is", "2 + 2 =", "Once upon a time there was a", "A")
"""What is asked; of different lengths, so that a batch is padded or parted."""
TOKENS = 6
"""Of an answer."""
FACTORS = (0.0, 0.5, -4.0, 32.0)
"""Tried in this order until an edit shows: a single head or neuron that is removed may change no token."""


class Verified(Row):
    """What was verified of a kind of edit.

    Attributes:
        what: the kind of edit, or what else was compared.
        answers: how many were compared.
        note: why it was refused or cannot be tested, or what the wrong answers are.
    """

    what: str = column("What", label=True)
    state: State = column("State")
    edit: str = column("Edit")
    answers: int = column("Answers")
    note: str = column("Note")


def prompts_of(model: Model) -> tuple[tuple[int, ...], ...]:
    """The token ids of what is asked; of a tokenizer that knows more tokens than the network, others."""
    known = model.network.get_input_embeddings().num_embeddings
    encoded = (model.tokenizer.encode(text, add_special_tokens=False) for text in TEXTS)
    return tuple(tuple(token % known for token in ids) or (0,) for ids in encoded)


@dataclass(frozen=True)
class _Reference:
    """What a model says by hand to every prompt under an edit, and whether tokens show that it acts while decoding."""

    said: tuple[Said, ...]
    telling: bool


class _Watched:
    """A model with its prompts, and what it says to them by hand, computed once."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.prompts = prompts_of(model)
        self.unedited = self.said(BASELINE)

    def said(self, edit: Edit) -> tuple[Said, ...]:
        """The answers to all prompts."""
        return tuple(say(self.model, prompt, edit, TOKENS) for prompt in self.prompts)

    def reference(self, edit: Edit) -> _Reference:
        """The answers, and whether a fault of an engine would show in them."""
        said = self.said(edit)
        if all(each.agrees(plain.tokens) for each, plain in zip(said, self.unedited, strict=True)):
            return _Reference(said, telling=False)
        try:
            forgotten = (say(self.model, prompt, edit, TOKENS, PROMPT) for prompt in self.prompts)
            telling = any(not each.agrees(other.tokens) for each, other in zip(said, forgotten, strict=True))
        except NoReferenceError:
            telling = True  # of an edit that cannot be made by position
        return _Reference(said, telling)


@validated
def verify(model: Model | str, edits: EditLike = None, engine: str | EngineChoice = "transformers") -> pd.DataFrame:
    """Whether edits act on a model as they say: answers compared, token for token, with weights changed by hand.

    Compared are the unedited model, one edit of every kind at the first block of each build that has it and at the
    last, all answered together, the unedited model once more, and a checkpoint saved with edits and loaded again.

    Args:
        model: a model, or what `lesion.load` takes.
        edits: in place of one of every kind, in any form that `lesion.applied` takes; a list is of several edits, each
            verified alone.
        engine: whose answers are compared.

    Returns:
        A line for each comparison: `what`, `edit`, `state` (`verified`, `exact on the simple way`, `refused`, `wrong`
        or `not testable`), `answers` and `note`.

    Example:
        >>> lesion.verify("bundled:llama-base")

    Raises:
        UsageError: it is no edit, or names a place that the model does not have.
        LesionError: the model cannot be loaded.
    """
    with opened(EngineChoice.of(engine)) as engines:
        loaded = engines.load(model, revision=None, dtype="auto", device="auto") if isinstance(model, str) else model
        given = [] if edits is None else several(edits) or [edits]
        rows = verified(loaded, engines, [edit_for(loaded, edit) for edit in given])
    return pd.DataFrame([row.model_dump() for row in rows])


def verified(
    model: Model,
    make_engine: MakeEngine,
    edits: Sequence[Edit] = (),
    watcher: Watcher | None = None,
    kinds_of_edit: Collection[str] = (),
) -> tuple[Verified, ...]:
    """As `verify`, of a loaded model and of the engines that something makes; of some kinds of edit alone, without a
    saved checkpoint.
    """
    with held(model, "a verification", edits=True):
        watched, before = _Watched(model), fingerprint(model.network)
        kinds = [(_kind(edit), edit) for edit in edits] or [
            (kind, edit) for kind, edit in _kinds(model) if kind in kinds_of_edit or not kinds_of_edit
        ]
        chosen: list[tuple[str, Edit, _Reference | str]] = [
            ("unedited", BASELINE, _Reference(watched.unedited, telling=any(said.sure for said in watched.unedited)))
        ]
        watcher = watcher or Silent()
        watcher.begin(model.name, len(kinds), 0, "edits by hand")
        for what, edit in kinds:
            chosen.append((what, *_telling(watched, edit, fixed=bool(edits))))
            watcher.answered(1)
    engine = make_engine(model, "auto")
    answers = _answers(engine, watched, list(dict.fromkeys(edit for _, edit, _ in chosen)))
    way: State = "verified" if way_of(model).fast else "exact on the simple way"
    rows = [_row(watched, what, edit, reference, answers[edit], way) for what, edit, reference in chosen]
    again = _answers(engine, watched, [BASELINE])[BASELINE]
    rows.append(_row(watched, "restored", BASELINE, chosen[0][2], again, way))
    if fingerprint(model.network) != before:
        rows[-1] = rows[-1].model_copy(update={"state": "wrong", "note": "the weights are not what they were"})
    if kinds_of_edit:
        return tuple(rows)
    acting = [edit for (_, edit, _), row in zip(chosen[1:], rows[1:], strict=False) if row.state == way]
    return (*rows, _exported(watched, acting, way))


def _kinds(model: Model) -> Iterator[tuple[str, Edit]]:
    """One edit of every kind that a model has, at the first block of each build that has it, and the last."""
    blocks = model.anatomy.blocks
    yield from (("block", ScaleBlock(layer)) for layer in _telling_layers(blocks))
    for branch in (ScaleAttention, ScaleMlp):
        there = [block for block in blocks if getattr(block, branch.unit) is not None]
        yield from ((branch.unit, branch(layer)) for layer in _telling_layers(there))
    for unit, scale in NUMBERED_EDITS.items():
        counts = {block.index: _count(model, unit, block.index) for block in blocks}
        for layer in _telling_layers([block for block in blocks if counts[block.index]]):
            yield unit, scale(layer, counts[layer] - 1)
    with_matrices = [block for block in blocks if block.matrices]
    for layer in _telling_layers(with_matrices):
        name = next(iter(blocks[layer].matrices))
        yield "matrix", ScaleMatrix(layer, name)
        yield "truncation", Truncate(f"{layer}.{name}", 0.25)


def _telling_layers(blocks: Sequence[Block]) -> list[int]:
    """The first block of each build, such as one with linear attention, and the last of all."""
    first: dict[tuple[str, ...], int] = {}
    for block in blocks:
        first.setdefault(tuple(type(module).__name__ for module in block.module.modules()), block.index)
    return sorted({*first.values(), *(block.index for block in blocks[-1:])})


def _count(model: Model, unit: Unit, layer: int) -> int:
    try:
        return how_many(unit, layer, model.anatomy)
    except LesionError:
        return 0


def _kind(edit: Edit) -> str:
    return ", ".join(dict.fromkeys(str(getattr(part, "unit", type(part).__name__.lower())) for part in parts(edit)))


def _telling(watched: _Watched, edit: Edit, *, fixed: bool) -> tuple[Edit, _Reference | str]:
    """The edit with a factor under which an engine's fault shows, and what is said by hand; or why nothing is."""
    tried = [edit]
    if isinstance(edit, Truncate) and not fixed:
        tried = [edit, replace(edit, keep=0.0)]
    elif not fixed:
        tried = [with_factor(edit, factor) for factor in FACTORS]
    first: _Reference | None = None
    for each in tried:
        try:
            reference = watched.reference(each)
        except NoReferenceError as reason:
            return edit, str(reason)
        if reference.telling:
            return each, reference
        first = first or reference
    assert first is not None  # there is one at least
    return tried[0], first


Answers = tuple[tuple[int, ...], ...]


def _answers(engine: Engine, watched: _Watched, edits: Sequence[Edit]) -> Mapping[Edit, Answers | str]:
    """Of every edit the tokens said to every prompt, all answered together; or why it was refused."""
    refused: dict[Edit, str] = {}
    while True:
        there = [edit for edit in edits if edit not in refused]
        requests = [
            Request(f"{number} {place}", prompt, edit, Decoding(max_new_tokens=TOKENS))
            for place, prompt in enumerate(watched.prompts)
            for number, edit in enumerate(there)
        ]
        try:
            said = {response.key: response.token_ids for response in engine.answer(requests)}
        except LesionError as error:
            if len(there) == 1:
                return {**refused, there[0]: str(error)}
            for edit in there:  # which of them it was
                if isinstance(alone := _answers(engine, watched, [edit])[edit], str):
                    refused[edit] = alone
            if len(refused) == len(edits) - len(there):
                raise
            continue
        places = range(len(watched.prompts))
        return {**refused, **{e: tuple(said[f"{n} {place}"] for place in places) for n, e in enumerate(there)}}


def _row(
    watched: _Watched, what: str, edit: Edit, reference: _Reference | str, answers: Answers | str, way: State
) -> Verified:
    if isinstance(answers, str):
        return Verified(what=what, edit=str(edit), state="refused", answers=0, note=answers)
    if isinstance(reference, str):
        return Verified(what=what, edit=str(edit), state="not testable", answers=0, note=reference)
    wrong = [
        place
        for place, (each, tokens) in enumerate(zip(reference.said, answers, strict=True))
        if not each.agrees(tokens)
    ]
    count = len(answers)
    if wrong:
        note = _diagnosis(watched, edit, answers, wrong)
        return Verified(what=what, edit=str(edit), state="wrong", answers=count, note=note)
    if not reference.telling:
        note = "no token differs from those of the unedited model, or of one edited in the prompt alone"
        if edit == BASELINE:
            note = "at the first token of every answer, two tokens are as good as equally probable"
        return Verified(what=what, edit=str(edit), state="not testable", answers=count, note=note)
    return Verified(what=what, edit=str(edit), state=way, answers=count, note="")


def _diagnosis(watched: _Watched, edit: Edit, answers: Answers, wrong: Sequence[int]) -> str:
    count = len(answers)
    if edit == BASELINE:
        return f"{len(wrong)} of {count} answers are not those of plain decoding"
    here = f"{len(wrong)} of {count} answers are"
    suspects: dict[str, tuple[Edit, Positions]] = {
        "those of the unedited model: the edit does not act on every row": (BASELINE, EVERYWHERE),
        "those of an edit that acts in the prompt alone, and not while decoding": (edit, PROMPT),
        "those of an edit that acts while decoding alone: keys and values of the prompt are the unedited model's": (
            edit, DECODING
        ),
    }  # fmt: skip
    for other in _neighbours(watched.model, edit):
        suspects[f"those of {other}"] = other, EVERYWHERE
    for what, (other, positions) in suspects.items():
        try:
            said = (say(watched.model, watched.prompts[place], other, TOKENS, positions) for place in wrong)
            if all(each.sure and each.agrees(answers[place]) for each, place in zip(said, wrong, strict=True)):
                return f"{here} {what}"
        except (NoReferenceError, LesionError):  # the neighbour is of another build, without such a part
            continue
    return f"{here} those of no edit that was tried"


def _neighbours(model: Model, edit: Edit) -> Iterator[Edit]:
    if not isinstance(edit, Scale):
        return
    if edit.unit in NUMBERED_EDITS:
        for number in range(min(how_many(edit.unit, edit.layer, model.anatomy), 16)):
            if number != part_of(edit):
                yield replace(edit, **{edit.unit: number})
    for layer in (edit.layer - 1, edit.layer + 1):
        if 0 <= layer < len(model.anatomy.blocks):
            yield replace(edit, layer=layer)


def _exported(watched: _Watched, edits: Sequence[Edit], way: State) -> Verified:
    """Whether a checkpoint saved under edits and loaded again says what is said by hand under them."""
    model, written, weights = watched.model, list[Edit](), list[Single]()
    for edit in [*[edit for edit in edits if isinstance(edit, ScaleBlock)][-1:], *reversed(edits)]:
        try:
            changes = [*weights, *parts(as_weights(edit, model))]
            scaled = (part for part in changes if isinstance(part, ScaleParameters))
            refuse_both(scaled, (part for part in changes if isinstance(part, Truncate)), model.name)
        except LesionError:
            continue
        if not any(_nested(edit, other) for other in written):  # a whole block and a head of it do not go together
            written.append(edit)
            weights = changes
    together, origin = composed(written) if written else BASELINE, model.origin
    row = Verified(what="saved", edit=str(together), state="not testable", answers=0, note="")
    if origin is None or not written:
        why = "the model was made in memory" if origin is None else "no edit can be written into a checkpoint"
        return row.model_copy(update={"note": why})
    with TemporaryDirectory() as folder:
        out = Path(folder) / "saved"
        try:
            apply(origin.source, written, out, revision=origin.revision)
            saved = load(out, dtype=origin.dtype, device=str(model.device))
        except LesionError as error:
            return row.model_copy(update={"state": "refused", "note": str(error)})
        said = tuple(say(saved, prompt, BASELINE, TOKENS).tokens for prompt in watched.prompts)
    return _row(watched, row.what, together, watched.reference(together), said, way)


def _nested(edit: Edit, other: Edit) -> bool:
    there = [[f"{part.address}." for part in parts(each)] for each in (edit, other)]  # type: ignore[union-attr]
    return any(one.startswith(two) or two.startswith(one) for one in there[0] for two in there[1])
