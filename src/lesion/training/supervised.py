"""Supervised tuning: a model learns what should be said after prompts, through TRL's SFTTrainer (see `trainers.py`).

The collator is our own: examples are token ids already, so no template, tokenizer or packing is at work.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.progress import Silent, Watcher
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task
from lesion.training.blocks import enough_memory
from lesion.training.resume import Point, Progress, curve, digest, resumed
from lesion.training.schedule import order, schedule_of

IGNORED = -100  # the label of a token that is not learned, as transformers has it


@dataclass(frozen=True)
class Example:
    """Token ids of a prompt and of its completion (answer and end token), on which the loss is; neither is empty."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def end_token(model: Model) -> int:
    """The token that ends an answer: the first at which the model stops, or that of its tokenizer."""
    ends = model.network.generation_config.eos_token_id
    end = next(iter(ends), None) if isinstance(ends, list) else ends
    end = model.tokenizer.eos_token_id if end is None else end
    if end is None:
        raise LesionError(
            f"{model.name} has no token that ends an answer; name one as eos_token_id in its generation_config.json."
        )
    return int(end)


def example(model: Model, task: Task, item: Item, text: str, style: str | None = None) -> Example:
    """An item with a text as its answer: a solution, or a teacher's words.

    The prompt is that of `lesion.tasks.prompts.encode`; the text, without white space around it, follows it as a choice
    would (`encode_choices`), with the model's end token behind it.
    """
    words = text.strip()
    if not words:
        raise LesionError(f"Item {item.id} of {task.name} has no answer that could be learned; leave it out.")
    (completion,) = encode_choices(model, task, replace(item, choices=(words,)), style)
    completion = (*completion, end_token(model))
    prompt = encode(model, task, item, style, max_new_tokens=0)
    if len(prompt) + len(completion) > model.context:
        raise LesionError(
            f"Item {item.id} of {task.name} is too long for {model.name}: its prompt has {len(prompt):,} tokens and its"
            f" answer {len(completion):,}, and the context has {model.context:,}. Leave the item out."
        )
    return Example(prompt, completion)


def examples(model: Model, task: Task, items: Sequence[Item], style: str | None = None) -> list[Example]:
    """Items with their gold choice where there are choices, else their solution or gold answer."""
    return [
        example(model, task, item, item.gold if item.choices else item.solution or item.gold, style) for item in items
    ]


EVERY = 50  # steps between two states
WARMUP = 0.1  # share of the steps over which the learning rate rises; then it falls to 0


@dataclass(frozen=True)
class Tuning:
    """How a model is tuned: `rows` examples in each of the `steps` of AdamW.

    Args:
        learning_rate: at its peak; it rises over the first tenth of the steps and falls to 0.
        seed: of the order of the examples, and of an adapter's first weights.
    """

    steps: int
    rows: int = 32
    learning_rate: float = 1e-3
    seed: int = 0


def supervise(
    model: Model,
    examples: Sequence[Example],
    tuning: Tuning,
    out: Path,
    *,
    watcher: Watcher | None = None,
    blocks: Collection[int] | None = None,
    rank: int | None = None,
    every: int = EVERY,
) -> list[Point]:
    """Tune a model on examples, in place, or go on where an interrupted training in `out` stopped.

    The network is left in eval mode and without gradients, also after an error. `model.fingerprint` is that of the
    weights before; `lesion.models.load.wrap` makes a model with the new one. With the same weights, examples and
    recipe, an interrupted training ends in the same weights, bit for bit, on one machine with one number of threads. A
    finished training is put in place from its file.

    Args:
        examples: at least one; the loss is on their completions alone.
        out: where the state lies, `resume.safetensors`; made when absent.
        blocks: only the parameters of these blocks train; None: all parameters of the model, embeddings too.
        rank: train a low-rank adapter (LoRA, Hu et al. 2022; product scaled by 2, no dropout) of this rank on all
            linear layers of `blocks` (None: of all blocks), and add it to the weights at the end.
        every: steps between two states that are written.

    Returns:
        The curve, at most a hundred points: `step`, `loss` (mean over the stretch since the last point, in nats per
            completion token), `rate` (the learning rate), `tokens` (of completions so far), `seconds` (so far).
    """
    if not examples:
        raise UsageError("There are no examples to learn; a training needs at least one.")
    watcher = watcher or Silent()
    examples_digest = digest([[example.prompt, example.completion] for example in examples])
    identity = {"training": "supervised", "examples": examples_digest}
    with resumed(model, tuning, identity, out, blocks, rank, watcher) as progress:
        if progress.step < tuning.steps:
            with quiet(), enough_memory(f"{tuning.rows} rows"):
                _train(model, examples, tuning, progress, watcher, every)
    return curve(progress.points)


def _train(
    model: Model, examples: Sequence[Example], tuning: Tuning, progress: Progress, watcher: Watcher, every: int
) -> None:
    from datasets import Dataset
    from trl import SFTConfig

    from lesion.training.trainers import Step, Supervised, prepare, settings

    positions = order(len(examples), tuning.rows, tuning.steps, tuning.seed, progress.step)
    (optimizer,) = progress.optimizers
    trainer = Supervised(
        model=model.network,
        args=SFTConfig(
            **settings(model, progress.path.parent, tuning.rows, tuning.steps - progress.step),
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
        ),
        train_dataset=Dataset.from_dict({"example": positions}),
        data_collator=lambda chosen: batch([examples[row["example"]] for row in chosen], padding(model)),
        processing_class=model.tokenizer,
        optimizers=(optimizer, schedule_of(optimizer, progress.step, tuning.steps, WARMUP)),
    )
    prepare(trainer, Step(progress, tuning.seed, trainer.measured, every, watcher))
    trainer.train()


def batch(examples: Sequence[Example], padding: int) -> dict[str, Int[Tensor, "rows length"]]:
    """Examples as rows, padded on the right: `input_ids`, `attention_mask` and `labels`, each [rows, length]."""
    length = max(len(example.prompt) + len(example.completion) for example in examples)
    ids = np.full((len(examples), length), padding, dtype=np.int64)
    labels = np.full_like(ids, IGNORED)
    mask = np.zeros_like(ids)
    for row, example in enumerate(examples):
        begun, ended = len(example.prompt), len(example.prompt) + len(example.completion)
        ids[row, :ended] = (*example.prompt, *example.completion)
        labels[row, begun:ended] = example.completion
        mask[row, :ended] = 1
    arrays = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def padding(model: Model) -> int:
    """The token of padded places: the tokenizer's, or any where it has none."""
    token = model.tokenizer.pad_token_id
    known = token is not None and 0 <= token < model.network.get_input_embeddings().num_embeddings
    return int(token) if known else 0
