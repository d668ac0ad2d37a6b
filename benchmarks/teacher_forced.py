"""What a block does for arithmetic: the right solution before it, which tokens of it does a model miss without a block?

    python benchmarks/teacher_forced.py                 # about a minute on a core

An ablation asks for a whole chain of sums and says right or wrong of its end. Here the model reads question and
solution, and for every token of the solution it is asked whether that token is its first choice. Tokens are told apart
by what they are: digits of the *results* (behind `=`), digits that are *copied* (operands, which stand in the question
or in the sum before, and the answer behind `####`), *operators*, and the rest. So one wrong token spoils no other. The
intervals are percentiles of a bootstrap over items.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lesion
from lesion.models.load import Model, load
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_solved
from lesion.tasks.prompts import encode, resolve
from sweep import machine

TASK = "primer:arithmetic"
CLASSES = ("copied", "results", "operators", "rest")
DRAWS = 2000


def classes(tokens: list[str]) -> list[str]:
    """The class of every token of a solution such as `20*3=60. 60+38=98. #### 98`, digit by digit."""
    found = []
    behind_equals = False
    for token in tokens:
        text = token.strip()
        if text == "=":
            behind_equals = True
        elif text in (".", "####"):
            behind_equals = False
        digit, operator = text.isdecimal(), text in ("+", "-", "*", "/")
        found.append(("results" if behind_equals else "copied") if digit else "operators" if operator else "rest")
    return found


def hits(model: Model, items: int, layer: int | None) -> tuple[np.ndarray, np.ndarray]:
    """[items, classes] tokens whose first choice is right, and how many there are."""
    task = find(TASK)
    style = resolve(model, task, None)
    right, total = np.zeros((2, items, len(CLASSES)))
    for place, item in enumerate(draw(task, items, 0)):
        whole = encode_solved(model, task, item, style)
        start = len(encode(model, task, item, style, max_new_tokens=1))
        ids = torch.tensor([whole])
        with torch.inference_mode():
            if layer is None:
                logits = model.network(input_ids=ids).logits[0]
            else:
                with lesion.applied(model, lesion.ScaleBlock(layer, 0.0)):
                    logits = model.network(input_ids=ids).logits[0]
        said = logits[start - 1 : -1].argmax(-1).tolist()
        solution = list(whole[start:])
        kinds = classes([model.tokenizer.decode([token]) for token in solution])
        for kind, gold, token in zip(kinds, solution, said, strict=True):
            right[place, CLASSES.index(kind)] += gold == token
            total[place, CLASSES.index(kind)] += 1
    return right, total


def main() -> None:
    """Ask, print and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled:llama-base")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.model, dtype="float32", device="cpu")
    drawn = np.random.default_rng(0).integers(options.items, size=(DRAWS, options.items))
    rows: list[dict[str, Any]] = []
    for layer in (None, *range(len(model.anatomy.blocks))):
        right, total = hits(model, options.items, layer)
        share = right.sum(0) / total.sum(0)
        low, high = np.quantile(right[drawn].sum(1) / total[drawn].sum(1), [0.025, 0.975], axis=0)
        row = {
            name: {"right": share[place], "low": low[place], "high": high[place], "tokens": int(total[:, place].sum())}
            for place, name in enumerate(CLASSES)
        }
        rows.append({"block": layer, **row})
        told = (
            f"{name} {100 * one['right']:5.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"
            for name, one in row.items()
        )
        print(f"{'nothing' if layer is None else f'block {layer}':8}", "  ".join(told), flush=True)
    if options.out is not None:
        numbers = {"machine": machine("cpu"), "model": options.model, "items": options.items, "rows": rows}
        options.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
