"""One mean over all tokens against one with the first token apart: what blocks add there, and what IOI keeps.

    python benchmarks/first_token.py --model SmolLM2-135M-Instruct.gguf --task ioi:ioi.json --layers 2,11,28

Told are norms of each block's mean contribution at the first token and at the others, and of 100 items the number
whose right token is the most probable one where the block is replaced by either mean. Texts of the means are not
among the items.
"""

from __future__ import annotations

import argparse

import torch

import lesion
from lesion.core.layers import parse_layers
from lesion.edits.reference import Reference
from lesion.models.load import Model
from lesion.tasks.catalogue import draw
from lesion.tasks.prompts import encode, resolve

ITEMS = 100


def main() -> None:
    """Print a line per block."""
    options = parser().parse_args()
    torch.set_num_threads(1)
    model, task = lesion.load(options.model, dtype="float32"), lesion.find_task(options.task)
    items, style = draw(task, ITEMS, 0), resolve(model, task, None)
    prompts = [encode(model, task, item, style, max_new_tokens=1) for item in items]
    golds = [model.tokenizer(f" {item.gold.strip()}", add_special_tokens=False)["input_ids"][0] for item in items]
    texts = lesion.calibration(model, task, ITEMS)
    apart = lesion.reference(model, texts)
    print(f"unedited: {right(model, prompts, golds)} of {ITEMS}")
    for layer in map(str, parse_layers(options.layers, len(model.anatomy.blocks), model.name)):
        norms = apart.vectors["position"][layer].norm(dim=1)
        kept = []
        for reference in (together(apart, len(texts.texts)), apart):
            with lesion.applied(model, lesion.Replace(layer, "mean", reference)):
                kept.append(right(model, prompts, golds))
        print(
            f"block {layer}: norm {norms[0]:,.0f} at the first token, {norms[1:].median():,.0f} (median) at others;"
            f" right with one mean {kept[0]}, with the first token apart {kept[1]}"
        )


def together(reference: Reference, texts: int) -> Reference:
    """The reference with one mean over all tokens of its texts in the place of two."""
    means = {
        address: (first * texts + others * (reference.tokens - texts))[None] / reference.tokens
        for address, (first, others) in reference.vectors["mean"].items()
    }
    return Reference(reference.model, reference.fingerprint, "one mean", reference.tokens, {"mean": means})


def right(model: Model, prompts: list[tuple[int, ...]], golds: list[int]) -> int:
    """In how many items the right token is the most probable one."""
    with torch.inference_mode():
        said = [int(model.network(torch.tensor([list(prompt)])).logits[0, -1].argmax()) for prompt in prompts]
    return sum(word == gold for word, gold in zip(said, golds, strict=True))


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="bundled:llama-base")
    made.add_argument("--task", default="ioi")
    made.add_argument("--layers", default="all")
    return made


if __name__ == "__main__":
    main()
