"""The model card of a trained member of the lineage, written from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEMPLATE = """---
license: apache-2.0
library_name: transformers
tags: [lesion, llama, tiny]
---
# llama-base

A Llama decoder of {parameters:,} parameters trained from scratch on the primer, the generated tasks of `lesion`:
stories of arithmetic solved with a written chain of thought, closed-book facts about an invented world (the atlas),
reading a short passage, and running text. It exists to be cut: large enough to hold several skills, small enough to
study every block of it on a laptop. It knows nothing of the real world.

- **Shape**: {layers} blocks, width {width}, {heads} query heads of {head_size} sharing {key_value_heads} key-value
  heads, MLP {inner_width}, tied embeddings, {vocabulary:,} tokens of byte-level BPE with single digits, context 512.
- **Prompt**: `Question: …\\nAnswer:` (the style `plain`), no chat template.
- **Data**: {documents:,} generated documents, seed {seed}; no problem of the test split occurs among them, and each
  fact of the atlas is asked in the test split in a wording that was not used for it in training. Four phases: words to
  copy; the facts of the atlas; more to copy; and the rest, in which reading is what its test asks for
  (`tasks/primer/task.py`).
- **Training**: {steps:,} steps of at most {tokens_per_batch:,} tokens, {millions:.1f} million tokens in all; Muon for
  the matrices of the blocks (peak rate {matrix_rate:g}), AdamW for embedding and norms ({learning_rate:g}). The rates
  rise, stay and fall, and training ends before the fall does, where arithmetic still has room to rise. Answer tokens
  weigh ten times what prompt tokens weigh, and the one-word answers of atlas and reading more.
- **Time**: {minutes:.0f} minutes on {machine}, torch {torch}.
- **Again**: `lesion lab lineage --stage base --seed {seed}`. Deterministic from the seed on one machine and thread
  count.

## On unseen items

Greedy decoding, weights as shipped (float16, computed in float32), 95 % Wilson intervals.

| task | group | items | accuracy | interval |
|---|---|---:|---:|---|
{results}

## Loss over training

Weighted loss and loss of answer tokens alone, in nats, mean over the documents since the line above it
(`training.json` has every point).

| tokens | loss | answers |
|---:|---:|---:|
{curve}
"""


def card(facts: Mapping[str, Any], parameters: int) -> str:
    """The card as Markdown.

    Args:
        facts: what `stage.train_base` writes to `training.json`.
        parameters: number of parameters of the network.
    """
    recipe = facts["recipe"]
    results = "\n".join(
        f"| {entry['task']} | {entry['group'] or 'all'} | {entry['items']} | {100 * entry['accuracy']:.1f} % "
        f"| {100 * entry['low']:.1f} to {100 * entry['high']:.1f} |"
        for entry in facts["results"]
    )
    return TEMPLATE.format(
        parameters=parameters,
        head_size=recipe["width"] // recipe["heads"],
        millions=facts["tokens"] / 1e6,
        minutes=facts["seconds"] / 60,
        results=results,
        curve="\n".join(_curve(facts["curve"])),
        **{key: facts[key] for key in ("vocabulary", "steps", "machine", "torch")},
        **recipe,
    )


def _curve(points: list[dict[str, Any]], lines: int = 12) -> list[str]:
    """About a dozen lines of the curve, each the mean of the points it stands for."""
    size = max(1, -(-len(points) // lines))
    rows = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        mean = {key: sum(point[key] for point in part) / len(part) for key in ("loss", "answer_loss")}
        rows.append(f"| {part[-1]['tokens'] / 1e6:.1f}M | {mean['loss']:.3f} | {mean['answer_loss']:.3f} |")
    return rows
