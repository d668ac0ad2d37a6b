"""Is a damaged store ever believed? Random damage to a real one, and what the checksums of its rows cost.

    python benchmarks/damaged_stores.py              # 200 damages, a minute or two
    python benchmarks/damaged_stores.py --rows 20400 # and the time to write, open and read so many answers

The store is that of `lesion ablate bundled:llama-base --task primer:arithmetic --items 40`, copied and damaged anew
each time in one of the ways of `damaged_stores_ways.py`: bits, digits and pages of the file, rows and cells through
SQLite, the write-ahead log. Every copy is then read as `lesion report` reads it:

    refused    an error names the file and what to do
    unchanged  all tables read as before the damage
    asked      answers are gone, and what is there reads as before: the next run asks them again
    silent     anything else: something wrong is believed. The bar is 0.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from damaged_stores_ways import ways
from lesion import ablate
from lesion.core.row import StoredAnswer
from lesion.core.store import Store
from lesion.errors import LesionError
from lesion.statistics.paired import wilson

Outcome = Literal["refused", "unchanged", "asked", "silent"]
RESULTS = Path(__file__).parent / "results" / "damaged_stores.json"


def tables(folder: Path) -> dict[str, Any]:
    """All that is stored, as plain values: answers by key, the others in their order."""
    with Store.read(folder) as store:
        answers = {record["key"]: repr(record) for record in store.answers().to_dict("records")}
        others = [repr(frame.to_dict("records")) for frame in (store.items(), store.models())]
        return {"answers": answers, "others": others, "study": store.study}


def outcome(folder: Path, before: dict[str, Any]) -> Outcome:
    """What becomes of a damaged store."""
    try:
        after = tables(folder)
    except LesionError:
        return "refused"
    if after == before:
        return "unchanged"
    same = all(before["answers"].get(key) == record for key, record in after["answers"].items())
    others = {key: value for key, value in after.items() if key != "answers"}
    return "asked" if same and others == {key: before[key] for key in others} else "silent"


def campaign(folder: Path, count: int) -> dict[str, Any]:
    """So many damages of the store of a folder, the ways in turn."""
    before = tables(folder)
    tally: dict[str, Counter[str]] = {way: Counter() for way in ways}
    names = list(ways)
    with tempfile.TemporaryDirectory() as place:
        for seed in range(count):
            copy = Path(shutil.copytree(folder, Path(place) / str(seed)))
            way = names[seed % len(names)]
            ways[way](copy / "answers.sqlite", seed)
            tally[way][outcome(copy, before)] += 1
            shutil.rmtree(copy)
    total = sum(tally.values(), Counter())
    low, high = wilson(total["silent"], count)
    return {
        "answers": len(before["answers"]),
        "damages": count,
        "total": dict(total),
        "silent_share": [low, high],
        "ways": {way: dict(counts) for way, counts in tally.items()},
    }


def cost(rows: int) -> dict[str, float]:
    """Processor seconds to write, open and read so many answers of two kilobytes, and the megabytes of the file."""
    text = "She sold 38 apples and then 119 more, so 38 + 119 = 157. " * 35
    items = rows // 29
    made = [
        StoredAnswer(
            model="f" * 64, model_name="m", edit=f"{edit}×0", task="t", item=str(item), decoding="greedy",
            prompt_style="raw", text=text, tokens=500, finish="stop", correct=True, parsed="157",
            question="How many apples did she sell? " * 8, gold="157", engine="transformers, float32, cpu",
        )
        for item in range(items) for edit in range(29)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        folder, timed = Path(place) / "store", {}
        with Store.open(folder, "a" * 64, 'items = 1\nmodels = ["m"]\n') as store:
            start = time.process_time()
            for first in range(0, len(made), 200):
                store.write(made[first : first + 200])
            timed["write"] = time.process_time() - start
        start = time.process_time()
        with Store.read(folder) as store:
            timed["open"] = time.process_time() - start
            start = time.process_time()
            assert len(store.answers()) == len(made)
            timed["read"] = time.process_time() - start
        timed["megabytes"] = (folder / "answers.sqlite").stat().st_size / 1e6
    return {"rows": len(made), **{name: round(value, 3) for name, value in timed.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--study", help="folder of a finished study, whose store is damaged instead; it stays whole")
    parser.add_argument("--rows", type=int, default=0, help="time a store of so many answers; 0 leaves this out")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    told: dict[str, Any] = {"machine": platform.machine(), "python": platform.python_version()}
    if options.damages:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(options.study or Path(place) / "study")
            if options.study is None:
                ablate("bundled:llama-base", "primer:arithmetic", items=40, out=folder)
            told |= campaign(folder, options.damages)
    if options.rows:
        told["cost"] = cost(options.rows)
    print(json.dumps(told, indent=1))
    if options.write:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
