"""Is a cut so harmful since its weights are large? MathNeuro's cut against random ones matched in count and in |W|.

    python benchmarks/matched_random.py --work matched/      # about ten minutes on a core

The random controls of an isolation are matched in count: as many weights of every matrix. But MathNeuro takes top
shares of |W| · a and so large weights, and large weights drawn at random hurt more than small ones. So beside those
controls this script draws others from the same matrices that are matched in magnitude too: the weights of a matrix are
put into bins of equal size by |W|, and of every bin as many are drawn as the selection has in it, none of them its own.
What is left of a gap between the cut and these controls is not magnitude.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import lesion
from lesion.core.run import Run
from lesion.core.store import Store
from lesion.edits.edit import BASELINE, ScaleParameters, parts
from lesion.edits.files.artefact import read_edit
from lesion.edits.selections.random_control import drawing_keys
from lesion.edits.selections.selection import Selection
from lesion.models.load import Model, load
from lesion.statistics.paired import paired_drop, wilson
from lesion.studies.isolation.evaluation_items import calibrated_on
from lesion.studies.isolation.plan import Candidate, Roles, plan
from lesion.studies.isolation.run import evaluate
from lesion.studies.isolation.study import EvaluationStudy
from sweep import machine

TASK, CONTROLS = "primer:arithmetic", ["primer:atlas", "primer:reading"]
BINS = 200


def matched(selected: NDArray[np.bool_], weight: NDArray[np.float32], seed: int, address: str) -> NDArray[np.bool_]:
    """As many weights of every bin of |W| as are selected, drawn from the others of that bin.

    Where a bin has too few others, what is missing is drawn from the next bin below.

    Args:
        selected: [size] which weights are selected.
        weight: [size] their values.
        seed: of the draw.
        address: of the matrix.

    Returns:
        [size] which weights are drawn.
    """
    order = np.argsort(np.abs(weight), kind="stable")
    keys = drawing_keys(seed, address, weight.size)
    mask = np.zeros(weight.size, dtype=bool)
    missing = 0
    for places in reversed(np.array_split(order, BINS)):
        wanted = missing + int(selected[places].sum())
        others = places[~selected[places]]
        drawn = others[np.argsort(keys[others])[:wanted]]
        mask[drawn] = True
        missing = wanted - drawn.size
    return mask


@dataclass(frozen=True, eq=False)
class Matched(Selection):
    """Weights outside a selection, of every matrix as many of each size as the selection has."""

    like: Selection
    seed: int
    kind: ClassVar[str] = "matched"
    RECIPE: ClassVar[Mapping[str, str]] = {"matched": "like", "seed": "seed"}

    @property
    def label(self) -> str:
        """`matched3-mathneuro-0.05`."""
        return f"matched{self.seed}-{self.like.label}"

    def touches(self, address: str) -> bool:
        """Where the selection does."""
        return self.like.touches(address)

    def mask(self, address: str, weight: Tensor) -> Tensor:
        """See `matched`."""
        selected = self.like.mask(address, weight).numpy().ravel()
        drawn = matched(selected, weight.detach().numpy().ravel(), self.seed, address)
        return torch.from_numpy(drawn).view(weight.shape)


def asked(model: Model, selection: Selection, items: int, seeds: int, folder: Path) -> list[dict[str, Any]]:
    """Accuracy and drop under the cut and under the random cuts of both kinds, all on the same items."""
    tasks = [TASK, *CONTROLS]
    questions = EvaluationStudy.make(model=model.name, tasks=tasks, items=items, dtype="float32", device="cpu")
    entries, edits = plan(model, [Candidate(ScaleParameters(selection))], [0.0], seeds, print)
    others = [Candidate(ScaleParameters(Matched(selection, seed))) for seed in range(seeds)]
    more, made = plan(model, others, [0.0], 0, print)
    evaluate(
        questions,
        questions.model,
        model,
        [*entries, *more],
        {**edits, **made},
        Run.at(folder, "isolation"),
        Roles(used=calibrated_on(edits.values())),
    )
    with Store.read(folder) as store:
        answers = store.answers()
    rows = []
    for task in tasks:
        right = answers[answers["task"] == task].pivot(index="edit", columns="item", values="correct").astype(bool)
        baseline = right.loc[str(BASELINE)].to_numpy()
        for entry in (None, *entries, *more):
            edited = baseline if entry is None else right.loc[entry.edit].to_numpy()
            low, high = wilson(int(edited.sum()), edited.size)
            drop = paired_drop(baseline, edited)
            rows.append(
                {
                    "task": task,
                    "kind": "nothing" if entry is None else _kind(entry.random_of, entry.label),
                    "accuracy": float(edited.mean()),
                    "low": low,
                    "high": high,
                    "drop": drop.value,
                    "drop_low": drop.low,
                    "drop_high": drop.high,
                    # Σ|w| after ÷ before is 0 under a cut of them all; what counts is how much was cut.
                    "selected": None if entry is None else entry.selected,
                }
            )
    return rows


def _kind(random_of: str | None, label: str) -> str:
    if random_of is not None:
        return "matched in count"
    return "matched in count and |W|" if label.startswith("matched") else "cut"


def sizes(model: Model, selection: Selection, seed: int) -> dict[str, float]:
    """Mean |W| of what is selected, of its matched draw, and of all weights."""
    sums = np.zeros((3, 2))
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        masks = (selection.mask(address, weight), Matched(selection, seed).mask(address, weight), weight == weight)
        sums += [[float(weight[mask].abs().sum()), float(mask.sum())] for mask in masks]
    names = ("cut", "matched in count and |W|", "all weights")
    return {name: float(total / count) for name, (total, count) in zip(names, sums, strict=True)}


def main() -> None:
    """Draw, ask, print and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=float, nargs="+", default=[0.01, 0.05])
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, required=True, help="folder of edits and answers; asked once")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load("bundled:llama-base", dtype="float32", device="cpu")
    found = lesion.isolate(
        model, TASK, CONTROLS, keep=options.keep, samples=options.samples, out=options.work / "found"
    )
    runs: list[dict[str, Any]] = []

    for name, file in found.edits.items():
        edit = read_edit(file).fit(model)
        (part,) = parts(edit)
        assert isinstance(part, ScaleParameters)
        rows = asked(model, part.selection, options.items, options.seeds, options.work / f"{name}.answers")
        runs.append({"edit": name, "mean_size": sizes(model, part.selection, 0), "rows": rows})
        print(name, {key: round(value, 4) for key, value in runs[-1]["mean_size"].items()})
        for row in rows:
            print(_line(row), flush=True)
    if options.out is not None:
        numbers = {
            "machine": machine("cpu"),
            "torch": str(torch.__version__),
            **{key: getattr(options, key) for key in ("samples", "items", "seeds")},
            "runs": runs,
        }
        options.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def _line(row: Mapping[str, Any]) -> str:
    a, b, c, d, e, f = (100 * row[key] for key in ("accuracy", "low", "high", "drop", "drop_low", "drop_high"))
    head = f"  {row['task']:18} {row['kind']:26}"
    return f"{head} {a:5.1f} [{b:5.1f},{c:5.1f}]  drop {d:5.1f} [{e:5.1f},{f:5.1f}]"


if __name__ == "__main__":
    main()
