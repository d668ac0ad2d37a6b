"""The search for a truncation, what it costs: lesion's against the published way, on a CPU or a GPU.

    python benchmarks/truncation.py                     # the bundled model, and one of Qwen2.5-0.5B's shape
    python benchmarks/truncation.py --models bundled:llama-base --rounds 5
    python benchmarks/truncation.py --models SmolLM2.gguf --threads 1
    python benchmarks/truncation.py --quick             # a smoke test
    python benchmarks/truncation.py --device cuda

The search is the published one (Sharma et al. 2023): one matrix, the MLP's input, of every block × 14 keeps, judged by
likelihood on validation items. Four contestants, in turns, in one process run:

    full        lesion's full table: every cell, every validation item (`lesion truncate` without a screen)
    screened    the same with a screen by some of the items and early elimination of hopeless cells; its best edit is
                compared with the full table's
    randomised  the published way (`truncation_published.py`), decomposing by `torch.svd_lowrank`
    svd         the published way, decomposing by `torch.linalg.svd`

The random model is asked for what it says under a planted truncation, which is thus the best edit there is; the bundled
one for facts, in a frame in which it knows some of them; any other for those of the task `facts`.
Both of lesion's are whole runs of a study: a store of all
answers, statistics and the test items of what is told. The published way evaluates the validation items, and no more.
Of the large shape it is run for some cells, drawn by a seed, and scaled to all: decomposing by keep, evaluating by the
mean. Its log-probabilities are compared with lesion's, cell by cell. Decomposing and evaluating are told apart, since
with more items the second grows and the first does not.
Where other programs disturb the machine, use `--threads 1` and read CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from lesion.core.store import Store
from lesion.edits import spectra
from lesion.edits.edit import Truncate
from lesion.edits.lowrank import Factors
from lesion.models.load import Model
from lesion.studies.truncation.study import KEEP, METHOD, TruncationStudy
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode
from sweep import machine
from truncation_models import BUNDLED, SHAPE, Workload, loaded, random_qwen
from truncation_published import How, Question, Seconds, Told, cell, clock, fastest

MATRIX = "mlp.up"
ERROR = 0.05  # the chance of giving up a cell wrongly
HOWS: tuple[How, ...] = ("randomised", "svd")


@dataclass(frozen=True)
class Size:
    """How much is measured of a model.

    Attributes:
        items: validation items; a quarter as many are test items.
        length: tokens of a prompt of the random model.
        screen: items of the screen.
        best, drawn: cells that go on from the screen, and others drawn by the seed.
        cells: of the published way; None for all.
        rounds: how often everything is measured.
    """

    items: int
    length: int
    screen: int
    best: int
    drawn: int
    cells: int | None
    rounds: int


SIZES = {BUNDLED: Size(128, 0, 16, 8, 4, None, 3), SHAPE: Size(32, 16, 4, 8, 4, 14, 1)}
OTHER = Size(32, 0, 8, 8, 4, 14, 1)
QUICK = Size(16, 0, 8, 4, 2, 6, 1)


@dataclass
class Search:
    """One run of lesion's search.

    Attributes:
        seconds: of all of it.
        decomposing: decompositions and thin factors.
        best: the best edit on validation items.
        better: whether it is better than the unedited model.
        accuracy: of the best edit on validation items.
        cells: different cells of the grid.
        answers: how many were asked for.
        golds: mean log-probability of the right token on validation items, by edit, where all were asked.
    """

    seconds: Seconds
    decomposing: Seconds
    best: str
    better: bool
    accuracy: float
    cells: int
    answers: int
    golds: dict[str, float]


Measured = dict[str, dict[str, list[Told]]]


@contextmanager
def timed_factors(model: Model) -> Iterator[list[Seconds]]:
    """Collects the seconds that lesion spends on decompositions and what is made of them."""
    seconds: list[Seconds] = []
    plain = Factors.of

    def timed(self: Factors, *given: Any) -> Any:
        began = clock(model)
        try:
            return plain(self, *given)
        finally:
            seconds.append(clock(model) - began)

    Factors.of = timed  # type: ignore[method-assign, assignment]
    try:
        yield seconds
    finally:
        Factors.of = plain  # type: ignore[method-assign]


def study_of(work: Workload, size: Size, screened: bool) -> TruncationStudy:
    """The search as a study."""
    how: dict[str, Any] = {"screen": "none"}
    if screened:
        screen = {"items": size.screen, "best": size.best, "random": size.drawn}
        how = {"screen": screen, "eliminate": ERROR}
    return TruncationStudy.make(
        model=work.model.name, tasks=[f"jsonl:{work.file}"], items="all", matrices=[MATRIX], keep=list(KEEP),
        validation=size.items / len(work.questions), **how,
    )  # fmt: skip


def search(work: Workload, size: Size, screened: bool) -> Search:
    """A whole run of lesion's search; nothing is decomposed before it."""
    spectra._OF_NETWORK.pop(work.model.network, None)
    validation = {item for item, _ in validated(work, size)}
    with tempfile.TemporaryDirectory(prefix="lesion-benchmark-") as folder, timed_factors(work.model) as factors:
        study = study_of(work, size, screened)
        began = clock(work.model)
        summary = METHOD.run(study, Path(folder), models={study.model.name: work.model}).summary
        seconds = clock(work.model) - began
        with Store.read(folder) as store:
            answers = store.answers()
    golds: dict[str, float] = {}
    for edit, rows in answers[answers["item"].isin(validation)].groupby("edit"):
        if len(rows) == len(validation):
            golds[str(edit)] = math.fsum(scores[0] for scores in rows["scores"]) / len(rows)
    assert summary.best is not None
    best = summary.by_edit[summary.best]
    return Search(
        seconds, sum(factors, Seconds()), best.edit, summary.chosen is not None, best.score or math.nan,
        len(summary.cells), len(answers), golds,
    )  # fmt: skip


def validated(work: Workload, size: Size) -> list[tuple[str, Question]]:
    """The validation items of the study, in its order."""
    drawn = draw(find(f"jsonl:{work.file}"), None, 0)
    return [(item.id, work.questions[item.id]) for item in islice(drawn, size.items)]


def measured_cells(model: Model, size: Size) -> list[Truncate]:
    """The cells of the published way, in an order of a seed's making; where it is some of them, every keep in turn."""
    layers = range(len(model.anatomy.blocks))
    rng = random.Random(0)
    if size.cells is None:
        cells = [Truncate(f"{layer}.{MATRIX}", keep) for layer in layers for keep in KEEP]
        rng.shuffle(cells)
        return cells
    keeps = [KEEP[index % len(KEEP)] for index in range(size.cells)]
    rng.shuffle(keeps)
    return [Truncate(f"{rng.choice(layers)}.{MATRIX}", keep) for keep in keeps]


def compare(work: Workload, size: Size) -> dict[str, Any]:
    """Everything about one model: contestants in turns, then the table."""
    model = work.model
    questions = [question for _, question in validated(work, size)]
    batch = fastest(model, questions, sorted({min(count, len(questions)) for count in (8, 32, 128)}))
    cells = measured_cells(model, size)
    told: Measured = {how: defaultdict(list) for how in HOWS}
    searches: dict[str, list[Search]] = {"full": [], "screened": []}
    warm = Truncate(f"0.{MATRIX}", 0.5)
    for how in HOWS:
        cell(model, warm, questions[:batch], batch, how)
    task = find(f"jsonl:{work.file}")
    if any(encode(model, task, item) != work.questions[item.id].prompt for item in task.load()):
        raise SystemExit("The contestants do not get the same prompts; mend the benchmark.")

    def published(part: Sequence[Truncate]) -> None:
        for index, edit in enumerate(part):
            # The exact decomposition takes the same time for every keep: a third of the cells tells it.
            for how in HOWS if size.cells is None or index % 3 == 0 else HOWS[:1]:
                told[how][str(edit)].append(cell(model, edit, questions, batch, how))

    third = -(-len(cells) // 3)
    for _ in range(size.rounds):
        published(cells[:third])
        searches["full"].append(search(work, size, False))
        published(cells[third : 2 * third])
        searches["screened"].append(search(work, size, True))
        published(cells[2 * third :])
    return table(work, size, batch, told, searches)


def table(work: Workload, size: Size, batch: int, told: Measured, searches: dict[str, list[Search]]) -> dict[str, Any]:
    """The numbers of one model, printed and given back."""
    blocks = len(work.model.anatomy.blocks)
    cells = blocks * len(KEEP)
    full, screened = searches["full"][0], searches["screened"][0]
    tokens = sum(len(question.prompt) for _, question in validated(work, size)) / size.items
    say(
        f"  {blocks} blocks × {len(KEEP)} keeps = {cells} cells of {MATRIX} ({full.cells} different), {size.items}"
        f" validation items of {tokens:.1f} tokens; the published way on {len(told['randomised'])} of the cells, batch"
        f" {batch}"
    )
    spent: dict[str, tuple[Seconds, Seconds]] = {}  # decomposing, and all else
    for name, found in searches.items():
        middle = sorted(found, key=lambda one: one.seconds.cpu)[len(found) // 2]
        spent[name] = (middle.decomposing, middle.seconds - middle.decomposing)
    evaluating = _mean(one.evaluating for how in HOWS for found in told[how].values() for one in found) * cells
    for how in HOWS:
        spent[how] = (sum((_decomposing(told[how], keep) * blocks for keep in KEEP), Seconds()), evaluating)
    answers = {"full": full.answers, "screened": screened.answers}
    rows: dict[str, dict[str, float]] = {}
    say(f"  {'':12} {'seconds':>8} {'CPU':>8} {'decomposing':>12} {'answers':>8} {'CPU × full':>11} {'× screened':>11}")
    for name, (apart, rest) in spent.items():
        whole = apart + rest
        rows[name] = {
            "seconds": whole.wall, "cpu_seconds": whole.cpu, "decomposing_cpu_seconds": apart.cpu,
            "evaluating_cpu_seconds": rest.cpu, "share_decomposing": apart.cpu / whole.cpu,
            "answers": answers.get(name, cells * size.items),
            "cpu_ratio_to_full": whole.cpu / sum(spent["full"], Seconds()).cpu,
            "cpu_ratio_to_screened": whole.cpu / sum(spent["screened"], Seconds()).cpu,
            "wall_ratio_to_full": whole.wall / sum(spent["full"], Seconds()).wall,
            "wall_ratio_to_screened": whole.wall / sum(spent["screened"], Seconds()).wall,
        }  # fmt: skip
        row = rows[name]
        say(
            f"  {name:12} {whole.wall:8.1f} {whole.cpu:8.1f} {100 * row['share_decomposing']:10.1f} %"
            f" {row['answers']:8,.0f} {row['cpu_ratio_to_full']:11.2f} {row['cpu_ratio_to_screened']:11.2f}"
        )
    without = evaluating.cpu / spent["full"][1].cpu
    say(f"  evaluating alone, CPU seconds, published ÷ full table: {without:.2f}")
    differences = [abs(told["svd"][edit][0].gold - full.golds[edit]) for edit in told["svd"] if edit in full.golds]
    best = {name: sorted({one.best for one in found}) for name, found in searches.items()}
    same = best["full"] == best["screened"]
    say(
        f"  best edit of the full table {', '.join(best['full'])} (accuracy {full.accuracy:.3f}), of the screened"
        f" search {', '.join(best['screened'])}: {'the same' if same else 'NOT THE SAME'}"
    )
    if size.cells is None:
        best["svd"] = [_best(told["svd"], work.model)]
        say(f"  best cell of the published way with the exact decomposition: {best['svd'][0]}")
    say(
        f"  mean log-probabilities of {len(differences)} cells differ from the published way's by"
        f" {max(differences):.1e} at most"
    )
    return {
        "cells": cells, "different_cells": full.cells, "validation_items": size.items, "tokens_per_item": tokens,
        "published_cells": {how: len(told[how]) for how in HOWS}, "published_batch": batch, "size": asdict(size),
        "contestants": rows, "evaluating_ratio": without, "best": best, "same_best": same,
        "better_than_unedited": full.better, "accuracy_of_best": full.accuracy, "largest_difference": max(differences),
        "rounds": {name: [asdict(one.seconds) for one in found] for name, found in searches.items()},
    }  # fmt: skip


def _decomposing(told: dict[str, list[Told]], keep: float) -> Seconds:
    """One decomposition for a keep: the mean of cells with it, else of all."""
    of_keep = [one.decomposing for edit, found in told.items() if edit.endswith(f" {keep:g}") for one in found]
    return _mean(of_keep or [one.decomposing for found in told.values() for one in found])


def _mean(found: Iterable[Seconds]) -> Seconds:
    every = list(found)
    return sum(every, Seconds()) * (1 / len(every))


def _best(told: dict[str, list[Told]], model: Model) -> str:
    """The cell with the greatest accuracy, of equals that with the greatest log-probability."""
    return max(told, key=lambda edit: (told[edit][0].accuracy, told[edit][0].gold))


def say(text: str) -> None:
    """Print now."""
    print(text, flush=True)


def main() -> None:
    """Run the search on the models that were asked for, and write the numbers where it was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=f"{BUNDLED},{SHAPE}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--items", type=int, help="validation items in place of each model's own number")
    parser.add_argument("--length", type=int, help="tokens of a prompt of the random model")
    parser.add_argument("--screen", type=int, help="items of the screen")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few items, the bundled model only")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON; models in it already are kept")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    os.environ[spectra.LIMIT] = "0"  # decompositions kept on disk by an earlier run would not be paid for
    names = [BUNDLED] if options.quick else options.models.split(",")
    facts: dict[str, Any] = {
        "machine": machine(options.device), "cores": os.cpu_count(), "threads": options.threads,
        "torch": torch.__version__, "dtype": "float32", "load_before": os.getloadavg()[0], "models": {},
    }  # fmt: skip
    if options.out is not None and options.out.exists():
        facts["models"] = json.loads(options.out.read_text(encoding="utf-8"))["models"]
    say(f"{machine(options.device)}, torch {torch.__version__}, float32, load {os.getloadavg()[0]:.2f}")
    for name in names:
        given = {key: getattr(options, key) for key in ("items", "length", "screen", "rounds") if getattr(options, key)}
        size = Size(**{**asdict(QUICK if options.quick else SIZES.get(name, OTHER)), **given})
        with tempfile.TemporaryDirectory(prefix="lesion-benchmark-") as folder:
            items = size.items + size.items // 4
            if name == SHAPE:
                work = random_qwen(Path(folder), items, size.length, options.device)
            else:
                work = loaded(name, Path(folder), items, options.device)
            say(f"\n{work.model.name}, load {os.getloadavg()[0]:.2f}")
            before = os.getloadavg()[0]
            numbers = compare(work, size)
            facts["models"][work.model.name] = {**numbers, "load": [before, os.getloadavg()[0]]}
            del work
        if options.out is not None:  # what is known so far: a long run that is stopped is not lost
            options.out.write_text(
                json.dumps({**facts, "load_after": os.getloadavg()[0]}, indent=1) + "\n", encoding="utf-8"
            )
    say(f"\nload {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
