"""Refusals: what no truncation search can use, said before anything is evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lesion.core.cached_answers import gold_of, gold_tasks
from lesion.core.inference import pending_cells
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.errors import UsageError
from lesion.models.load import Model, configuration
from lesion.studies.truncation.study import TruncationStudy
from lesion.tasks.task import Item, Task

# What a config calls the shape of a network, and what we call it.
SHAPE = {
    "num_hidden_layers": "{} blocks",
    "hidden_size": "width {}",
    "intermediate_size": "inner width {}",
    "num_attention_heads": "{} heads",
}


def refuse_few(drawn: Mapping[TaskChoice, Sequence[Item]]) -> None:
    """At least two items are needed: one to choose an edit on, one to test it on."""
    for choice, items in drawn.items():
        if len(items) < 2:
            raise UsageError(
                f"{choice.name} has {len(items)} item: an edit is chosen on some items and tested on others: give two"
                f" at least."
            )


def refuse_unfit_items(
    study: TruncationStudy, model: Model, tasks: Mapping[TaskChoice, Task], drawn: Mapping[TaskChoice, Sequence[Item]]
) -> None:
    """Encode every item that may be needed, also in the last round, so that what is wrong with one is said now."""
    golds = gold_tasks(
        {
            choice: task
            for choice, task in tasks.items()
            if task.kind == "generate" or (task.kind != "contrast" and not isinstance(study.screen, str))
        }
    )
    items = {**drawn, **{gold_of(choice): items for choice, items in drawn.items()}}
    pending_cells(study, study.model, model, {**tasks, **golds}, items, ())


def refuse_other_config(model: Model, name: str, chosen: ModelChoice) -> None:
    """A checkpoint whose config speaks of another shape; its weights are not read."""
    theirs = configuration(chosen.source, revision=chosen.revision).get_text_config(decoder=True)
    own = model.network.config.get_text_config(decoder=True)
    for attribute, word in SHAPE.items():
        here, there = getattr(own, attribute, None), getattr(theirs, attribute, None)
        if here != there and isinstance(here, int) and isinstance(there, int):
            raise _another(chosen.name, word.format(there), name, word.format(here))


def refuse_other_shape(model: Model, name: str, there: Model, checkpoint: str) -> None:
    """A checkpoint whose matrices are others, whatever its config says."""
    own, theirs = ({a: matrix.shape for a, matrix in each.anatomy.matrices.items()} for each in (model, there))
    for address in (*own, *theirs):
        here, other = own.get(address), theirs.get(address)
        if here != other:
            words = [
                f"no {address}" if shape is None else f"{address} of {shape[0]} × {shape[1]}" for shape in (other, here)
            ]
            raise _another(checkpoint, words[0], name, words[1])


def _another(checkpoint: str, there: str, name: str, here: str) -> UsageError:
    return UsageError(
        f"{checkpoint} has {there}, and {name} has {here}: an edit of one is none of the other. Leave it out of"
        f" --revisions, which are checkpoints of one training."
    )
