"""Earlier answers: those that a folder holds stand beside new ones only if they were given to the same prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from lesion.core.inference import PendingAnswer
from lesion.core.row import answer_key, storable
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.tokenizer import latest_change
from lesion.plain import short
from lesion.report.wording import counted
from lesion.tasks.conversation import dated
from lesion.tasks.style import Style

_CLOCK_SLACK = 1.0
"""Seconds that the time of a folder may lie before that of a file: the former is kept in whole seconds."""
_ADVICE = "Give another folder with --out, or put the files back that changed."


def refuse_other_prompts(store: Store, chosen: ModelChoice, model: Model, cells: Iterable[PendingAnswer]) -> bool:
    """Refuse to go on where stored answers to an item were given to another prompt than the one that is sent now.

    Answers of a version of lesion that kept no prompts get the digest of the present one where the model's files show
    that it is the same: they are older than the folder.

    Returns:
        Whether stored answers got digests, so that some of the cells have answers now.
    """
    asked = {(cell.choice.name, cell.item.id): cell for cell in cells}
    stored = store.answered(model.fingerprint) if asked else {}
    others: Counter[str] = Counter()
    examples: dict[str, str] = {}
    keys: dict[str, str] = {}
    styles: set[str] = set()
    for (task, item), cell in asked.items():
        for key, edit, decoding, style in stored.get((storable(task), storable(item)), ()):
            parts = (model.fingerprint, edit, task, item, decoding, style)
            present = answer_key(*parts, cell.digest)
            if key == answer_key(*parts, ""):
                keys[key] = present
                styles.add(style)
            elif key != present:
                others[task] += 1
                examples.setdefault(task, item)
                break
    if others:
        words = [f"{counted(count, 'item')} of {task}" for task, count in others.items()]
        task, item = next(iter(examples.items()))
        raise LesionError(
            f"{store.folder} holds answers of {model.name} to other prompts than those that are sent now"
            f" ({'; '.join(words)}; item {short(item, 60)} of {task} for one): its chat template, its tokenizer or the"
            f" solved examples have changed since, and answers to both would be mixed. {_ADVICE}"
        )
    clocked = any(dated(model, Style.parse(style)) for style in styles)
    if keys and (clocked or not _unchanged(chosen, store.made)):
        raise LesionError(
            f"{store.folder} was begun by a version of lesion that kept no prompts, and whether {model.name} would be"
            " sent the same ones now cannot be known (files of its tokenizer are newer than the folder, are not there,"
            " or its chat template writes the date). Give another folder with --out."
        )
    store.rename(keys)
    return bool(keys)


def refuse_other_spelling(store: Store, model: Model, before: str | None, now: str) -> None:
    """Refuse to go on where answers of a model were read or ended otherwise than they are now."""
    if before not in (None, now) and store.answered(model.fingerprint):
        raise LesionError(
            f"{store.folder} holds answers of {model.name} that another tokenizer read: since then, the text of a token"
            f" or the tokens that end an answer have changed (tokenizer.json, eos_token). {_ADVICE}"
        )


def _unchanged(chosen: ModelChoice, made: datetime) -> bool:
    """Whether no file that decides the prompts of a model has changed since a moment, as far as files show."""
    try:
        latest = latest_change(str(chosen.source), chosen.revision)
    except (UsageError, LesionError, OSError):
        return False
    return latest is not None and latest <= made.timestamp() + _CLOCK_SLACK
