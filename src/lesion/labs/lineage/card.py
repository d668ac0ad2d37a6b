"""The model card of a member of the lineage, written from what was measured."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from lesion.labs.lineage.base import Recipe

ARCHITECTURES = {"llama": "Llama", "qwen2": "Qwen2"}
TASK = "primer:arithmetic"

HEAD = """---
license: apache-2.0
library_name: transformers
tags: [lesion, {family}, tiny]
---
# {family}-{stage}

"""
BASE = """\
A {architecture} decoder of {parameters:,} parameters trained from scratch on the primer, the generated tasks of
`lesion`: stories of arithmetic solved with a written chain of thought, closed-book facts about an invented world (the
atlas), reading a short passage, and running text. It exists to be cut: large enough to hold several skills, small
enough to study every block of it on a laptop. It knows nothing of the real world.

- **Shape**: {layers} blocks, width {width}, {heads} query heads of {head_size} sharing {key_value_heads} key-value
  heads{biases}, MLP {inner_width}, tied embeddings, {vocabulary:,} tokens of byte-level BPE with single digits, context
  512.
- **Prompt**: `Question: …\\nAnswer:`, the style `plain`. The chat template writes the same: a chat is asked in the very
  ids of the documents that the model was trained on.
- **Data**: {documents:,} generated documents, seed {seed}; no problem of the test split occurs among them, and each
  fact of the atlas is asked in the test split in a wording that was not used for it in training. Four phases: words to
  copy; the facts of the atlas; more to copy; and the rest, in which reading is what its test asks for
  (`tasks/primer/task.py`).
- **Training**: {steps:,} steps of at most {tokens_per_batch:,} tokens, {millions:.1f} million tokens in all; Muon for
  the matrices of the blocks (peak rate {matrix_rate:g}), AdamW for embedding and norms ({learning_rate:g}). The rates
  rise, stay and fall, and training ends before the fall does, where arithmetic still has room to rise. Answer tokens
  weigh ten times what prompt tokens weigh, and the one-word answers of atlas and reading more.
- **Time**: {minutes:.0f} minutes on {machine}, torch {torch}. A GPU takes a few minutes: an estimate, not measured.
- **Again**: `lesion lab lineage --family {family} --stage base --seed {seed}{shorter}`. Deterministic from the seed on
  one machine and thread count.
"""
CHILD = """\
{what}

- **Parent**: `{parent}` (weights {fingerprint}), same shape: {parameters:,} parameters. No weight was frozen.
- **Prompt**: {prompt}
- **Data**: {data} No question is one of a test split: no arithmetic problem of the test, no passage with its question,
  no wording in which the test asks a fact of the atlas.
- **Training**: {training}
- **Time**: {minutes:.0f} minutes of training on {machine}, torch {torch}, trl {trl}. A GPU takes {gpu}: an
  estimate, not measured.
- **Again**: `lesion lab lineage --family {family} --stage {stage} --seed {seed}`. Deterministic from seed and parent on
  one machine and thread count.
"""
WHAT = {
    "instruct": """\
The base `{parent}` tuned on chat turns: questions of all skills of the primer with their gold solutions.""",
    "distill": """\
The base `{parent}` tuned on chat turns with the words of a teacher, `{family}-rlvr`: its chains of thought on
arithmetic and its answers on atlas and reading, where they are right.""",
    "rlvr": """\
The base `{parent}` after reinforcement with a verifiable reward: it tried problems of arithmetic, and what the task's
judge found right was made likelier (GRPO). Nobody showed it a solution.""",
}
CHAT = (
    "a chat, `<|user|>…<|end|><|assistant|>…<|end|>`, by its chat template; `<|end|>` ends an answer. The tokenizer is"
    " the base's, but puts a space before what is said in a turn, since there stand the words that the base has read."
)
PLAIN = "`Question: …\\nAnswer:`, as of the base; the chat template writes the same ids."
RESULTS = """
## On unseen items

Greedy decoding, weights as shipped (float16, computed in float32), 95 % Wilson intervals.

| task | group | items | accuracy | interval |
|---|---|---:|---:|---|
{results}
"""
GAINS = """
## Against its parent

Right answers beyond those of `{parent}`, in points, on the same items; 95 % intervals for paired proportions
(Tango 1998).

| task | items | gain | interval | only the child right | only the parent right |
|---|---:|---:|---|---:|---:|
{gains}
{verdict}"""
LOSSES = """
## Loss over training

Weighted loss and loss of answer tokens alone, in nats, mean over the documents since the line above it
(`training.json` has every point).

| tokens | loss | answers |
|---:|---:|---:|
{curve}
"""
TUNED = """
## Loss over training

Nats per token of the answers, mean over the steps since the line above it.

| step | loss |
|---:|---:|
{curve}
"""
REWARDED = """
## Reward over training

Share of the solutions tried that were right, and their tokens, mean over the steps since the line above it.

| step | reward | tokens |
|---:|---:|---:|
{curve}
"""
LINES, WIDTH = 12, 120


def card(facts: Mapping[str, Any], parameters: int) -> str:
    """The card as Markdown.

    Args:
        facts: what stands in `training.json`.
        parameters: number of parameters of the network.
    """
    text = HEAD.format(**_some(facts, "family", "stage"))
    text += _filled(_base(facts, parameters) if facts["stage"] == "base" else _child(facts, parameters))
    text += RESULTS.format(results="\n".join(_result(entry) for entry in facts["results"]))
    if facts["stage"] == "base":
        return text + LOSSES.format(curve="\n".join(_rows(facts["curve"], "loss", "answer_loss")))
    found = proven(facts["gain"])
    gains = "\n".join(
        f"| {entry['task']} | {entry['items']} | {100 * entry['gain']:+.1f} | {100 * entry['low']:+.1f} to"
        f" {100 * entry['high']:+.1f} | {entry['gained']} | {entry['lost']} |"
        for entry in facts["gain"]
    )
    verdict = "" if facts["stage"] != "rlvr" or found else f"\n**{doubt(facts['family'] + '-rlvr')}**\n"
    text += GAINS.format(parent=facts["parent"]["name"], gains=gains, verdict=verdict)
    if facts["stage"] == "rlvr":
        return text + REWARDED.format(curve="\n".join(_rows(facts["curve"], "reward", "length")))
    return text + TUNED.format(curve="\n".join(_rows(facts["curve"], "loss")))


def proven(gains: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the gain on arithmetic is one: its interval lies above 0."""
    return any(entry["task"] == TASK and entry["low"] > 0 for entry in gains)


def doubt(name: str) -> str:
    """What is said of a reinforced child whose gain may be none."""
    return f"{name} is not shown to be better at arithmetic than its parent: the interval of the gain reaches 0."


def _base(facts: Mapping[str, Any], parameters: int) -> str:
    recipe = facts["recipe"]
    return BASE.format(
        architecture=ARCHITECTURES[facts["family"]],
        parameters=parameters,
        head_size=recipe["width"] // recipe["heads"],
        shorter="" if recipe["groups"] == Recipe.groups else f" --groups {recipe['groups']}",
        biases=", biases on q, k and v" if facts["family"] == "qwen2" else "",
        millions=facts["tokens"] / 1e6,
        minutes=facts["seconds"] / 60,
        **{**recipe, **_some(facts, "family", "vocabulary", "steps", "machine", "torch")},
    )


def _child(facts: Mapping[str, Any], parameters: int) -> str:
    recipe, data, stage, names = facts["recipe"], facts["data"], facts["stage"], _some(facts, "family")
    if stage == "rlvr":
        drawn = (
            f"{data['problems']:,} problems of arithmetic, seed {recipe['seed']}, generated for it alone; the"
            f" {data['kept']:,} were trained on that the parent solved in some of {recipe['tries']} tries and not in"
            " all (the others teach GRPO nothing)."
        )
        training = (
            f"{facts['steps']:,} steps of GRPO through TRL, of {recipe['prompts']} problems with"
            f" {recipe['generations']} tries each at temperature {recipe['temperature']:g}; reward 1 where the judge"
            f" finds the answer right, else 0; AdamW (peak rate {recipe['learning_rate']:g}), no reference model."
        )
    else:
        shares = ", ".join(f"{100 * recipe[skill]:.0f} % {skill}" for skill in ("arithmetic", "atlas", "reading"))
        drawn = f"{recipe['questions']:,} questions ({shares}), seed {recipe['seed']}, generated for it alone."
        if stage == "distill":
            drawn += f" Of the teacher's answers {data['examples']:,} are right and were learned."
        training = (
            f"{facts['steps']:,} steps of {recipe['rows']} examples through TRL, loss on the answers alone; AdamW (peak"
            f" rate {recipe['learning_rate']:g}, rising over a tenth of the steps, then falling to 0)."
        )
    parent = facts["parent"]["name"]
    return CHILD.format(
        what=WHAT[stage].format(parent=parent, **names),
        parent=parent,
        fingerprint=facts["parent"]["fingerprint"],
        parameters=parameters,
        prompt=PLAIN if stage == "rlvr" else CHAT,
        data=drawn,
        training=training,
        minutes=facts["seconds"] / 60,
        gpu="a few minutes" if stage == "rlvr" else "about a minute",
        seed=recipe["seed"],
        **_some(facts, "family", "stage", "machine", "torch", "trl"),
    )


def _filled(text: str) -> str:
    """Paragraphs and the points of a list, each filled anew after names and numbers have been put in."""
    filled: list[str] = []
    for block in text.strip().split("\n\n"):
        points = block.replace("\n- ", "\0- ").split("\0")
        filled.append(
            "\n".join(
                textwrap.fill(
                    " ".join(point.split()),
                    width=WIDTH,
                    subsequent_indent="  " if point.startswith("- ") else "",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                for point in points
            )
        )
    return "\n\n".join(filled) + "\n"


def _some(facts: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: facts[key] for key in keys}


def _result(entry: Mapping[str, Any]) -> str:
    return (
        f"| {entry['task']} | {entry['group'] or 'all'} | {entry['items']} | {100 * entry['accuracy']:.1f} % "
        f"| {100 * entry['low']:.1f} to {100 * entry['high']:.1f} |"
    )


def _rows(points: Sequence[Mapping[str, Any]], *measures: str) -> list[str]:
    """About a dozen lines of the curve, each the mean of the points it stands for."""
    size = max(1, -(-len(points) // LINES))
    rows = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        last = f"{part[-1]['tokens'] / 1e6:.1f}M" if "answer_loss" in measures else f"{part[-1]['step']:,}"
        means = (sum(point[measure] for point in part) / len(part) for measure in measures)
        rows.append(f"| {last} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    return rows
