"""What small searches over layouts find, and what remains of it: a search repeated many times over.

    python benchmarks/search_retraction.py --model SmolLM2.gguf --task ioi:ioi.json --pool 200 --test 1000 --out FOLDER

Every candidate answers a pool of items once. A search of n items is then a draw of n from the pool, on which the best
by accuracy is chosen, as published scans do; it is repeated so many times for every n. What was chosen answers the test
items, which no search has seen. Told are the gain on the items that chose, the gain on the test items, and how often
the latter is shown to be one (exact paired test, two-sided .05).
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from lesion.cli.terminal import Bar
from lesion.core.run import Run
from lesion.core.study_file import TaskChoice
from lesion.report.values import Estimate
from lesion.studies.search.search import Candidate, Networks, candidates
from lesion.studies.search.study import SearchStudy
from lesion.tasks.catalogue import find

Right = np.ndarray


def main() -> None:
    """Ask, draw searches, test what they chose; write the numbers."""
    options = parser().parse_args()
    study = SearchStudy.make(
        model=options.model, tasks=[options.task], family=options.family.split(","), items=options.pool + options.test,
        lengths=list(map(int, options.lengths.split(","))), damping=list(map(float, options.damping.split(","))),
        dtype=options.dtype,
    )  # fmt: skip
    tasks = {choice: find(choice.name) for choice in study.tasks}
    with Bar() as bar:
        run = Run.at(options.out, "search", bar)
        drawn = run.drawn(study, tasks)
        model = run.load(study, study.model, finite=True)
        everyone = candidates(study, model.anatomy, range(len(model.anatomy.blocks)))
        ((choice, items),) = drawn.items()
        pool, test = items[: options.pool], items[options.pool :]
        with run.evaluation(study, drawn, tasks=tasks) as evaluation:
            networks = Networks(evaluation, study.model, model)
            networks.evaluate(everyone, tasks, {choice: pool}, "answers on the pool")
            own, right = rights(networks, [None, *everyone], choice, pool)
            searches = [search(own, right, n, seed) for n in options.sizes for seed in range(options.times)]
            winners = [everyone[place] for place in sorted({each["candidate"] for each in searches})]
            networks.evaluate(winners, tasks, {choice: test}, "answers on test items")
            before, after = rights(networks, [None, *winners], choice, test)
    tested = {
        candidate.name: Estimate.dropped(before, own, 0.95).negative
        for candidate, own in zip(winners, after, strict=True)
    }
    for each in searches:
        name = everyone[each.pop("candidate")].name
        gain = tested[name]
        each |= {"candidate": name, "test_gain": gain.value, "low": gain.low, "high": gain.high, "p": gain.p}
    summary = [summed(searches, n) for n in options.sizes]
    write(options.out, searches, {"candidates": len(everyone), "unedited": float(before.mean()), "searches": summary})
    print(json.dumps(summary, indent=1))


def rights(networks: Networks, wanted: list[Candidate | None], choice: TaskChoice, items: Any) -> tuple[Right, Right]:
    """Which items the unedited model and every candidate have right."""
    own, *rest = (networks.answers(each, choice, items).right for each in wanted)
    return own, np.array(rest)


def search(own: Right, right: Right, n: int, seed: int) -> dict[str, Any]:
    """One search of n items of the pool: the best by accuracy there, one of the best where several are."""
    generator = np.random.default_rng([n, seed])
    items = generator.choice(len(own), n, replace=False)
    gains = right[:, items].mean(axis=1) - own[items].mean()
    best = generator.choice(np.flatnonzero(gains >= gains.max() - 1e-12))
    return {"n": n, "search": seed, "candidate": int(best), "gain": float(gains[best])}


def summed(searches: list[dict[str, Any]], n: int) -> dict[str, Any]:
    """What searches of n items found, and what remained."""
    own = [each for each in searches if each["n"] == n]
    return {
        "n": n,
        "searches": len(own),
        "gain where chosen": float(np.mean([each["gain"] for each in own])),
        "gain on test items": float(np.mean([each["test_gain"] for each in own])),
        "shown better": sum(each["low"] > 0 and each["p"] <= 0.05 for each in own),
        "shown worse": sum(each["high"] < 0 and each["p"] <= 0.05 for each in own),
        "different candidates": len(Counter(each["candidate"] for each in own)),
    }


def write(folder: Path, searches: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    """`retraction.csv`, a line per search, and `retraction.json`."""
    with (folder / "retraction.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(searches[0]))
        table.writeheader()
        table.writerows(searches)
    (folder / "retraction.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", default="bundled:llama-base")
    made.add_argument("--task", default="primer:arithmetic")
    made.add_argument("--family", default="repeat")
    made.add_argument("--lengths", default="1,2,3,4,5,6,7,8")
    made.add_argument("--damping", default="1,0.5")
    made.add_argument("--pool", type=int, default=200)
    made.add_argument("--test", type=int, default=1000)
    made.add_argument("--sizes", type=lambda text: list(map(int, text.split(","))), default=[16, 50])
    made.add_argument("--times", type=int, default=20)
    made.add_argument("--dtype", default="auto")
    made.add_argument("--out", type=Path, required=True)
    return made


if __name__ == "__main__":
    main()
