"""Which types of decoder say the same in recorded steps: tiny networks of all that answer in the fast way, on a CPU.

    python benchmarks/recorded_types.py
    python benchmarks/recorded_types.py laguna lfm2        # these types alone

A step is recorded as a graph of torch's operations, which stand for the kernels of a CUDA graph, and replayed. Compared
are the tokens of four prompts under three edits, with those of hooks on every pass and with the same steps run anew;
with `--fused` also those of steps that torch's compiler has traced and rewritten, run without compiled kernels.
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter

import torch
from torch.fx.experimental.proxy_tensor import make_fx

import architectures_zoo as zoo
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.engines.transformers.recorded import COMPILER, Record, Step, _unrecordable, fused, masks_of
from lesion.models.load import Model, wrap

LENGTHS, ANSWER = (3, 9, 14, 5), 12
HOOKS, ANEW, REPLAYED, FUSED = "hooks", "steps run anew", "replayed steps", "fused steps"


def record(step: Step) -> Step:
    """A graph of the operations of a step."""
    step()

    def run(nothing: torch.Tensor) -> torch.Tensor:
        step()
        return nothing

    nothing = torch.zeros(1)
    graph = make_fx(run)(nothing)
    return lambda: graph(nothing)


def answers(model: Model, how: str) -> dict[str, tuple[int, ...]]:
    """The tokens of every request, by its key."""
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(3, 60) for _ in range(length)) for length in LENGTHS]
    edits = (BASELINE, ScaleBlock(0), ScaleBlock(2, 0.5))
    requests = [Request(f"{n} {e}", p, e, Decoding(ANSWER)) for n, p in enumerate(prompts) for e in edits]
    recorders: dict[str, Record | None] = {ANEW: None, REPLAYED: record, FUSED: fused}
    recorder = None if how == HOOKS else lambda: recorders[how]
    return {each.key: each.token_ids for each in TransformersEngine(model, 8, recorder).answer(requests)}


def main() -> None:
    """Print every type that differs or keeps hooks, and the counts."""
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    kinds, ways = sys.argv[1:], [ANEW, REPLAYED]
    if "--fused" in kinds:
        kinds.remove("--fused")
        ways.append(FUSED)
        COMPILER.clear()
        COMPILER.update(backend="aot_eager")
    for kind in kinds or zoo.NAMES:
        try:
            model = wrap(zoo.made(kind), zoo.tokenizer(), kind)
        except Exception:  # types that the zoo has no tiny network of
            continue
        if not way_of(model).fast:
            continue
        counts["types of the fast way"] += 1
        if isinstance(masks := masks_of(model), str):
            print(f"{kind}: hooks on every pass, since {masks}")
            continue
        by_hooks = answers(model, HOOKS)
        for how in ways:
            differing = sum(by_hooks[key] != tokens for key, tokens in answers(model, how).items())
            if how == FUSED and (why := _unrecordable.pop(model.network, "")):
                print(f"{kind}: not fused, since {why.splitlines()[0][:300]}")
                continue
            counts[f"same in {how}"] += not differing
            if differing:
                print(f"{kind}: {differing} of {len(by_hooks)} answers differ in {how}")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
