"""Earlier answers: those that a folder holds stand beside new ones only if they were given to the same prompts."""

from __future__ import annotations

from collections.abc import Iterable

from lesion.core.inference import PendingAnswer
from lesion.core.row import answer_key, storable
from lesion.core.store import Store
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.plain import short
from lesion.report.wording import counted

_ADVICE = "Give another folder with --out, or put the files back that changed."


def refuse_other_prompts(store: Store, model: Model, cells: Iterable[PendingAnswer]) -> None:
    """Refuse to go on where stored answers to an item were given to another prompt than the one that is sent now."""
    asked = {(cell.choice.name, cell.item.id): cell for cell in cells}
    stored = store.answered(model.fingerprint) if asked else {}
    others: dict[str, list[str]] = {}
    for (task, item), cell in asked.items():
        for key, edit, decoding, style in stored.get((storable(task), storable(item)), ()):
            if key != answer_key(model.fingerprint, edit, task, item, decoding, style, cell.digest):
                others.setdefault(task, []).append(item)
                break
    if others:
        words = [f"{counted(len(items), 'item')} of {task}" for task, items in others.items()]
        task, (item, *_) = next(iter(others.items()))
        raise LesionError(
            f"{store.folder} holds answers of {model.name} to other prompts than those that are sent now"
            f" ({'; '.join(words)}; item {short(item, 60)} of {task} for one): its chat template, its tokenizer or the"
            f" solved examples have changed since, and answers to both would be mixed. {_ADVICE}"
        )


def refuse_other_spelling(store: Store, model: Model, before: str | None, now: str) -> None:
    """Refuse to go on where answers of a model were read or ended otherwise than they are now."""
    if before not in (None, now) and store.answered(model.fingerprint):
        raise LesionError(
            f"{store.folder} holds answers of {model.name} that another tokenizer read: since then, the text of a token"
            f" or the tokens that end an answer have changed (tokenizer.json, eos_token). {_ADVICE}"
        )
