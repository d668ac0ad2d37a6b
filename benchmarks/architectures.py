"""What lesion does with a tiny network of every decoder of transformers: a table of states.

    python benchmarks/architectures.py [TYPE ...] [--out docs/results/architectures.md]

Four prompts of three lengths, six tokens each. `baseline`, `block` (every block × 0 and × 0.5) and `branch` (every
attention and MLP × 0) are compared token for token with what the network's own greedy `generate` says to each prompt
alone, under hooks written here. `drift` compares the hidden states of every layer with those of each text alone.
States: exact, refused (in lesion's words), wrong; – where a network shows no branch; no config where transformers
cannot build a tiny one. `show` says which way the network answers.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from lesion.activations.hidden_states import hidden_states
from lesion.cli.description import describe
from lesion.edits.edit import BASELINE, Edit, Scale, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.errors import LesionError
from lesion.models.load import Model, wrap

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the tiny networks of the tests
tiny: Any = import_module("tiny")
zoo: Any = import_module("zoo")

TOKENS = 6
COLUMNS = ("show", "baseline", "block", "branch", "drift")


def prompts() -> list[tuple[int, ...]]:
    """Token ids longer than the windows and chunks of the zoo, and shorter."""
    generator = torch.Generator().manual_seed(3)
    return [tuple(torch.randint(3, 64, (length,), generator=generator).tolist()) for length in (13, 13, 7, 3)]


@contextmanager
def scaled(model: Model, edit: Scale) -> Iterator[None]:
    """A place multiplied by a hook that has nothing of lesion's."""
    block = model.anatomy.blocks[edit.layer]

    def contribution(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        stream, whole = args[0] if args else kwargs["hidden_states"], _first(output)
        return _with_first(output, stream + edit.factor * (whole - stream) if edit.factor else stream)

    def branch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        return _with_first(output, _first(output) * edit.factor)

    part = {"attention": block.attention, "mlp": block.mlp}.get(edit.unit)
    if part is None:
        handles = [block.module.register_forward_hook(contribution, with_kwargs=True)]
    else:
        handles = [module.register_forward_hook(branch, with_kwargs=True) for module in part.tails]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first(output: Any) -> Tensor:
    stream: Tensor = output[0] if isinstance(output, tuple | list) else output
    return stream


def _with_first(output: Any, stream: Tensor) -> Any:
    return type(output)([stream, *output[1:]]) if isinstance(output, tuple | list) else stream


def greedy(model: Model, prompt: Sequence[int]) -> tuple[int, ...]:
    """What the network's own `generate` says to one prompt."""
    ids = torch.tensor([prompt])
    settings = transformers.GenerationConfig(max_new_tokens=TOKENS, eos_token_id=2, pad_token_id=0, do_sample=False)
    said = model.network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return tuple(said[0, len(prompt) :].tolist())


def answers(model: Model, edits: Sequence[Edit]) -> str:
    """The state of edits: their answers against those of `greedy`."""
    if not edits:
        return "–"
    requests = [Request(f"{number} {e}", p, e, Decoding(TOKENS)) for number, p in enumerate(prompts()) for e in edits]
    said = {response.key: response.token_ids for response in TransformersEngine(model).answer(requests)}
    for request in requests:
        with scaled(model, request.edit) if isinstance(request.edit, Scale) else nullcontext():
            if said[request.key] != greedy(model, request.prompt):
                return f"wrong: {request.key}"
    return "exact"


def drift(model: Model) -> str:
    """The state of hidden states, several texts in a batch, against those of each text alone."""
    texts = prompts()
    with hidden_states(model, texts) as states:
        for place, text in enumerate(texts):
            seen: list[Tensor] = []
            blocks = [block.module for block in model.anatomy.blocks]
            handles = [
                blocks[0].register_forward_pre_hook(_collect_input(seen), with_kwargs=True),
                *(block.register_forward_hook(_collect_output(seen)) for block in blocks),
            ]
            model.network(torch.tensor([text]), use_cache=False)
            for handle in handles:
                handle.remove()
            for layer, stream in enumerate(seen):
                own = torch.tensor(states.layer(layer, states.text_of == place))
                # Several streams lie before rows and tokens, or behind them.
                alone = stream[:, 0].movedim(0, 1) if len(stream) > 1 else stream[0]
                if not torch.allclose(own, alone.flatten(1), rtol=1e-4, atol=1e-4):
                    return f"wrong: layer {layer}"
    return "exact"


def _collect_input(seen: list[Tensor]) -> Callable[..., None]:
    return lambda module, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"])


def _collect_output(seen: list[Tensor]) -> Callable[..., None]:
    return lambda module, args, output: seen.append(_first(output))


def state(measure: Callable[[], str]) -> str:
    """What was measured, or lesion's refusal; what lesion did not foresee counts as wrong."""
    try:
        return measure()
    except LesionError as error:
        return f"refused: {error}"
    except Exception as error:  # whatever it is
        return f"wrong: {type(error).__name__}: {error}"


def row(kind: str) -> dict[str, str]:
    """The states of a type."""
    try:
        network = zoo.made(kind)
    except Exception as error:  # transformers' own; some types need packages or a way of building that differs
        return {"type": kind, "way": f"no config: {type(error).__name__}"}
    try:
        model = wrap(network, tiny.tokenizer(), kind)
    except LesionError as error:
        return {"type": kind, "way": "", **dict.fromkeys(COLUMNS, "refused"), "show": f"refused: {error}"}
    every = range(len(model.anatomy.blocks))
    branches: list[Edit] = [ScaleAttention(block.index) for block in model.anatomy.blocks if block.attention]
    branches += [ScaleMlp(block.index) for block in model.anatomy.blocks if block.mlp]
    return {
        "type": kind,
        "show": state(lambda: "exact" if describe(model) else ""),
        "way": state(lambda: str(way_of(model).kind.name.lower())),
        "baseline": state(lambda: answers(model, [BASELINE])),
        "block": state(lambda: answers(model, [ScaleBlock(layer, f) for layer in every for f in (0.0, 0.5)])),
        "branch": state(lambda: answers(model, branches)),
        "drift": state(lambda: drift(model)),
    }


def table(rows: Sequence[dict[str, str]]) -> str:
    """Markdown: a line for every type, and the refusals in full."""
    heads = ("type", "way", *COLUMNS)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(each.get(head, "").partition(":")[0] for head in heads) + " |" for each in rows]
    said = [
        f"- {each['type']}, {head}: {' '.join(each[head].partition(': ')[2].split())}"
        for each in rows
        for head in COLUMNS
        if ":" in each.get(head, "")
    ]
    return "\n".join([*lines, "", *said])


@torch.no_grad()
def main() -> None:
    """Print a line for every type as it is done, then the counts; write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", default=zoo.NAMES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    rows = []
    for kind in options.types:
        rows.append(row(kind))
        print(*rows[-1].values(), sep=" | ", flush=True)
    for column in COLUMNS:
        print(column, dict(Counter(each[column].partition(":")[0] for each in rows if column in each)))
    if options.out:
        options.out.write_text(table(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
