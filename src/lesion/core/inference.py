"""Inference: from models, tasks, items and edits to stored answers; answers that are stored are not computed again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from lesion.core.row import StoredAnswer, answer_key
from lesion.core.study_file import ModelChoice, Questions, TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.engines.engine import Decoding, Engine, MakeEngine, Request, Response
from lesion.engines.factory import load_for
from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.plain import short
from lesion.report.wording import counted
from lesion.tasks.chat import DAY
from lesion.tasks.continuations import encode_choices, encode_contrast, encode_gold, encode_passage
from lesion.tasks.conversation import cuts, dated
from lesion.tasks.harness.task import Harness
from lesion.tasks.harness.tokens import Part
from lesion.tasks.judges.judge import MATH, UNREAD
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.style import Style, opening, parted
from lesion.tasks.task import Answer, Item, Task
from lesion.tasks.wrapped import Gold

# Answers are committed together when they come faster than this many seconds apart.
COMMIT_EVERY = 0.2


@runtime_checkable
class Keeper(Protocol):
    """What keeps answers: a `Store`, or a list of them."""

    def write(self, rows: Iterable[StoredAnswer]) -> int:
        """Keep these answers; how many are new."""
        ...


@dataclass(frozen=True)
class PendingAnswer:
    """One answer to be computed: an item of a task under an edit, and its prompt.

    Attributes:
        style: the prompt style, resolved.
        continuations: token ids that are scored after the prompt; empty where an answer is generated. Of a contrast
            those of the right text and its rivals.
        tokens: of a contrast, the right token and what it is compared with; empty for all others.
        alike: of a contrast, whether the name that stands twice begins with the right token too.
        parts: of a task of lm-evaluation-harness, the requests that make up the answer; the prompt is the first's.
        digest: of all the token ids that are sent (`prompt_digest`).
    """

    task: Task
    choice: TaskChoice
    item: Item
    edit: Edit
    style: str
    decoding: Decoding
    prompt: tuple[int, ...]
    continuations: tuple[tuple[int, ...], ...] = ()
    tokens: tuple[int, ...] = ()
    alike: bool = False
    parts: tuple[Part, ...] = ()
    digest: str = ""

    def requests(self, key: str) -> Iterator[Request]:
        """The requests to an engine: one of this key, or one for every part, numbered behind it."""
        if not self.parts:
            yield Request(key, self.prompt, self.edit, self.decoding, self.continuations, self.tokens)
        for place, part in enumerate(self.parts):
            yield Request(f"{key}/{place}", part.prompt, self.edit, self.decoding, part.choices)


def load_chosen(study: Questions, chosen: ModelChoice, make_engine: MakeEngine) -> Model:
    """A model of a study, loaded as what makes its engine wants it."""
    return load_for(
        make_engine, chosen.source, revision=chosen.revision, dtype=study.dtype_of(chosen), device=study.device
    )


def basis(study: Questions) -> str:
    """What all answers in one folder share: the study's own `basis`, and how answers are sampled where they are."""
    if study.decoding.temperature == 0:
        return study.basis()
    return hashlib.sha256(f"{study.basis()} {SAMPLING}".encode("ascii")).hexdigest()


def item_digest(task: Task, item: Item) -> str:
    """SHA-256 (64 hex digits) of all that decides how an answer to an item is judged, and of what stands before it."""
    reads = [task.kind, item.gold, item.aliases, item.choices, item.solution, item.shots, dict(item.metadata)]
    if as_mathematics(task, item):
        reads.append(MATH)
    return hashlib.sha256(json.dumps(reads, sort_keys=True, default=str).encode("ascii")).hexdigest()


def as_mathematics(task: Task, item: Item) -> bool:
    """Whether an answer to an item is generated and judged as mathematics."""
    return task.kind == "generate" and "math" in (getattr(task, "judged_by", ""), item.metadata.get("judge"))


def prompt_digest(
    prompt: Sequence[int], continuations: Sequence[Sequence[int]], tokens: Sequence[int], parts: Sequence[Part]
) -> str:
    """SHA-256 (64 hex digits) of all token ids that ask an item of a model: the fields of a `PendingAnswer`.

    Whatever decides the ids is in it: tokenizer, chat template, special tokens, solved examples, prefixes.
    """
    ids = [prompt, continuations, tokens, [(part.prompt, part.choices) for part in parts]]
    return hashlib.sha256(json.dumps(ids).encode("ascii")).hexdigest()


def pending_cells(
    study: Questions,
    chosen: ModelChoice,
    model: Model,
    tasks: Mapping[TaskChoice, Task],
    drawn: Mapping[TaskChoice, Sequence[Item]],
    edits: Sequence[Edit],
    stored: Container[str] = (),
) -> dict[str, PendingAnswer]:
    """The cells of a model whose keys are not among the stored ones, by their key."""
    cells: dict[str, PendingAnswer] = {}
    everything: list[tuple[Edit, str]] = [(edit, str(edit)) for edit in (BASELINE, *edits)]
    for choice, task in tasks.items():
        style = resolve(model, task, study.prompt_style_of(chosen, choice))
        decoding = Decoding(
            max_new_tokens=study.max_new_tokens_of(choice) or task.max_new_tokens,
            stop=study.stop_of(choice, task),
            temperature=study.decoding.temperature,
            top_p=study.decoding.top_p,
            seed=study.seed,
            stop_loops=study.decoding.stop_loops or 0,
            thinking_tokens=(study.decoding.thinking_tokens or 0) if task.kind == "generate" else 0,
            forbidden=choice.forbid or (),
        )
        how = str(decoding)
        for item in drawn[choice]:
            parts = task.parts(model, item, style, decoding.max_new_tokens) if isinstance(task, Harness) else ()
            put = (parts[0].prompt, (), (), False) if parts else _encoded(model, task, item, style)
            digest = prompt_digest(*put[:3], parts)
            for edit, text in everything:
                key = answer_key(model.fingerprint, text, choice.name, item.id, how, style, digest)
                if key not in stored:
                    cells[key] = PendingAnswer(task, choice, item, edit, style, decoding, *put, parts, digest)
    return cells


def _encoded(
    model: Model, task: Task, item: Item, style: str
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...], bool]:
    """The last fields of a cell: prompt; what is scored after it, choices, gold answer or passage; tokens, `alike`."""
    if isinstance(task, Gold):
        prompt, continuation = encode_gold(model, task, item, style)
        return prompt, (continuation,), (), False
    if task.kind == "score":
        before, passage = encode_passage(model, task, item)
        return before, (passage,), (), False
    if task.kind == "contrast":
        contrast = encode_contrast(model, task, item, style)
        return contrast.prompt, contrast.whole, contrast.tokens, contrast.alike
    # Room for one token is enough: an answer that meets the end of the context is a truncated one.
    prompt = encode(model, task, item, style, max_new_tokens=1)
    return prompt, encode_choices(model, task, item, style) if item.choices else (), (), False


def prompt_notes(model: Model, cells: Collection[PendingAnswer]) -> Iterator[str]:
    """A note for each task whose prompts are cut at the context, hold characters that the tokenizer does not know, or
    repeat each other, for each with items of two names that begin with the same token, and for chat templates that
    write the date.
    """
    for style in dict.fromkeys(cell.style for cell in cells):
        if dated(model, Style.parse(style)):
            yield (
                f"The chat template of {model.name} writes the date into prompts; it is {DAY:%d %B %Y} in all of them,"
                " whenever they are sent, so that answers of several days belong together."
            )
        longest = max((cell for cell in cells if cell.style == style), key=lambda cell: len(cell.item.question))
        if cuts(model, longest.item, Style.parse(style)):
            yield (
                f"The chat template of {model.name} cuts questions: item {short(longest.item.id, 60)} of"
                f" {longest.choice.name}, the longest, is not sent as a whole."
            )
    stands_for_unknown = getattr(model.tokenizer, "unk_token_id", None)
    unknown = _items_by_task(cell for cell in cells if stands_for_unknown in cell.prompt)
    cut = _items_by_task(cell for cell in cells if any(part.cut for part in cell.parts))
    contrasts = _items_by_task(cell for cell in cells if cell.tokens)
    alike = _items_by_task(cell for cell in cells if cell.alike)
    prompts: dict[str, dict[str, tuple[object, ...]]] = {}
    for cell in cells:
        if not cell.parts:
            asked = cell.continuations if cell.task.kind == "score" else cell.item.choices
            prompts.setdefault(cell.choice.name, {})[cell.item.id] = (cell.prompt, cell.item.gold, *asked)
    for task, questions in prompts.items():
        different = len(set(questions.values()))
        if different < len(questions):
            yield (
                f"{task}: {len(questions):,} items have {different:,} different questions; one asked twice counts"
                " twice, and intervals come out too narrow."
            )
    for task, items in unknown.items():
        yield (
            f"{task}: {len(items):,} prompts hold characters that the tokenizer of {model.name} does not know and reads"
            f" as '{model.tokenizer.unk_token}'; a low accuracy may come from that."
        )
    for task, items in cut.items():
        yield (
            f"{task}: the prompt is longer than the context of {model.name} ({model.context} tokens) leaves room for in"
            f" {len(items)} of the items; its beginning is left out, as lm-evaluation-harness does."
        )
    for task, items in alike.items():
        yield (
            f"{task}: in {len(items)} of {len(contrasts[task])} items the right name and the one that stands twice"
            f" begin with the same token of {model.name}; right there means either of them."
        )


def _items_by_task(cells: Iterable[PendingAnswer]) -> dict[str, set[str]]:
    items: dict[str, set[str]] = {}
    for cell in cells:
        items.setdefault(cell.choice.name, set()).add(cell.item.id)
    return items


Room = tuple[int, int]
"""Tokens that a model's context leaves for the answer to the longest prompt of a task, and the limit of an answer."""


def rooms(model: Model, cells: Iterable[PendingAnswer]) -> dict[str, Room]:
    """The room of each task in which the context leaves less than the limit."""
    left: dict[str, Room] = {}
    for cell in cells:
        # The last token of an answer needs no position.
        room = model.context - len(cell.prompt) + 1
        limit = cell.decoding.max_new_tokens
        if cell.task.kind == "generate" and room < limit:
            left[cell.choice.name] = min((room, limit), left.get(cell.choice.name, (room, limit)))
    return left


def room_notes(model: str, context: int, left: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """A note for each task whose answers may meet the end of the context before their limit (`rooms`)."""
    for task, (room, limit) in left.items():
        yield (
            f"{task}: behind its longest prompt the context of {model} ({context:,} tokens) has room for"
            f" {counted(room, 'token')}, and --max-new-tokens is {limit:,}; an answer would count as truncated if it"
            " got so long."
        )


def answer_cells(
    engine: Engine, model: Model, name: str, cells: Mapping[str, PendingAnswer], store: Keeper
) -> Iterator[list[StoredAnswer]]:
    """Answer every cell and store the answers as they come; yields the rows that were stored together."""
    waiting: list[StoredAnswer] = []
    last = time.monotonic()
    responses = engine.answer([request for key, cell in cells.items() for request in cell.requests(key)])
    try:
        for cell, response in _gathered(cells, responses):
            waiting.append(_row(model, name, cell, response))
            if time.monotonic() - last >= COMMIT_EVERY:
                yield _flush(store, waiting)
                last = time.monotonic()
    finally:
        # Also when interrupted: what has been answered is kept.
        rows = _flush(store, waiting)
    if rows:
        yield rows


def _gathered(
    cells: Mapping[str, PendingAnswer], responses: Iterable[Response]
) -> Iterator[tuple[PendingAnswer, Response]]:
    """Each cell with its response; those to the parts of a cell as one, once they are all there."""
    waiting: dict[str, dict[int, Response]] = {}
    for response in responses:
        if response.key in cells:
            yield cells[response.key], response
            continue
        key, _, place = response.key.rpartition("/")
        cell, there = cells[key], waiting.setdefault(key, {})
        there[int(place)] = response
        if len(there) < len(cell.parts) or not isinstance(cell.task, Harness):
            continue
        del waiting[key]
        answers = [there[index].answer for index in range(len(cell.parts))]
        yield cell, replace(response, key=key, answer=cell.task.joined(cell.item, cell.parts, answers))


def _flush(store: Keeper, waiting: list[StoredAnswer]) -> list[StoredAnswer]:
    rows = waiting.copy()
    if rows:
        store.write(rows)
        waiting.clear()
    return rows


def _row(model: Model, name: str, cell: PendingAnswer, response: Response) -> StoredAnswer:
    answer = _chosen(cell, response.answer)
    final: str | None = answer.text
    if cell.task.kind == "generate":  # with the tag that the prompt ends in, trace and final answer can be told apart
        answer = replace(answer, text=opening(model.tokenizer, cell.prompt) + answer.text)
        _, final = parted(answer.text)
    verdict = UNREAD if final is None else cell.task.judge(cell.item, replace(answer, text=final))
    if answer.finish == "nonfinite":
        verdict = replace(verdict, correct=False)
    return StoredAnswer(
        model=model.fingerprint,
        model_name=name,
        edit=str(cell.edit),
        task=cell.choice.name,
        item=cell.item.id,
        decoding=str(cell.decoding),
        prompt_style=cell.style,
        text=answer.text,
        tokens=answer.tokens,
        finish=answer.finish,
        correct=verdict.correct,
        parsed=verdict.parsed,
        scores=answer.scores,
        ranks=answer.ranks,
        group=cell.item.group,
        question=cell.item.question,
        gold=cell.item.gold,
        engine=response.engine,
        prompt=cell.digest,
    )


def _chosen(cell: PendingAnswer, answer: Answer) -> Answer:
    """The answer to a choice as the text of the choice, spelt as the item spells it; to a passage, its score alone."""
    if cell.parts:  # joined by the task
        return answer
    if cell.tokens:
        counts, wanted = (len(answer.scores), len(answer.ranks)), len(cell.tokens)
        if answer.finish != "nonfinite" and counts != (wanted + len(cell.continuations), wanted):
            raise LesionError(
                f"The engine gave {counts[0]} scores and {counts[1]} ranks for {wanted} tokens and"
                f" {len(cell.continuations)} texts of {cell.item.id}."
            )
        return answer
    if cell.task.kind == "score":  # as many tokens whatever became of it: a broken edit reads the same text
        answer = replace(answer, text="", tokens=len(cell.continuations[0]))
    if not cell.continuations or answer.finish == "nonfinite":
        return answer
    if len(answer.scores) != len(cell.continuations):
        raise LesionError(
            f"The engine gave {len(answer.scores)} scores for {len(cell.continuations)} choices of {cell.item.id}."
        )
    if cell.task.kind == "score":
        return answer
    best = max(range(len(answer.scores)), key=answer.scores.__getitem__)
    return replace(answer, text=cell.item.choices[best])
