"""The gallery: small studies of the bundled models, whose report pages the site shows as they are.

`python docs/gallery.py` runs them into build/gallery, where a second run finds them, and copies their pages to
docs/gallery. `make docs` does so first; without it, the page says how.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
STUDIES = DOCS.parent / "build" / "gallery"
PAGES = DOCS / "gallery"
BASE, SKILL = "bundled:llama-base", "primer:arithmetic"


@dataclass(frozen=True)
class Shown:
    """A page of the gallery: its name, what it answers, the command that makes it, and the same in Python."""

    name: str
    question: str
    command: str
    run: Callable[[Any, Path], Any]


SHOWN = (
    Shown(
        "layers",
        "Which blocks does arithmetic depend on, in a base model and two models trained from it?",
        "lesion ablate bundled:llama-base bundled:llama-instruct bundled:llama-rlvr --task primer:arithmetic"
        " --items 30 --out layers",
        lambda lesion, out: lesion.ablate(
            [BASE, "bundled:llama-instruct", "bundled:llama-rlvr"], tasks=SKILL, items=30, out=out
        ),
    ),
    Shown(
        "isolation",
        "Which weights does arithmetic need that recall and reading do not?",
        "lesion isolate bundled:llama-base --skill primer:arithmetic --control primer:atlas --control primer:reading"
        " --share 0.01,0.05 --samples 40 --out isolation",
        lambda lesion, out: lesion.isolate(
            BASE, SKILL, ["primer:atlas", "primer:reading"], share=[0.01, 0.05], samples=40, out=out
        ),
    ),
    Shown(
        "edits",
        "What do two blocks and an MLP cost, beside the same change elsewhere?",
        "lesion evaluate bundled:llama-base --edit 2x0 --edit 3x0 --edit 5.mlpx0.5 --task primer:arithmetic"
        " --task primer:atlas --items 20 --out edits",
        lambda lesion, out: lesion.evaluate(
            BASE, ["2x0", "3x0", "5.mlpx0.5"], [SKILL, "primer:atlas"], items=20, out=out
        ),
    ),
    Shown(
        "truncation",
        "Does removing a part of an MLP matrix's spectrum help?",
        "lesion truncate bundled:llama-base --task 'primer:atlas?form=contrast' --matrices mlp.up --keep 0.5,0.1"
        " --items 100 --out truncation",
        lambda lesion, out: lesion.truncate(
            BASE, "primer:atlas?form=contrast", matrices="mlp.up", keep=[0.5, 0.1], items=100, out=out
        ),
    ),
    Shown(
        "drift",
        "How far do tokens leave their first clusters, layer by layer?",
        "lesion drift bundled:llama-base --task primer:arithmetic --items 20 --clusters 20,10 --out drift",
        lambda lesion, out: lesion.drift(BASE, SKILL, items=20, clusters=[20, 10], out=out),
    ),
)


def page() -> str:
    """The page that links the reports there are."""
    text = [
        "# Gallery\n",
        "Report pages as `lesion` writes them, from small studies of the bundled models. Each is one file that works"
        " offline: point at a number, click a point to see the answers behind it, sort a table. How to read one:"
        " [reading a report](reading-a-report.md).\n",
    ]
    there = [shown for shown in SHOWN if (PAGES / f"{shown.name}.html").is_file()]
    for shown in there:
        text += [f"## {shown.name.capitalize()}\n", f"[{shown.question}](gallery/{shown.name}.html)\n"]
        if (PAGES / f"{shown.name}.png").is_file():
            text.append(f"[![{shown.question}](gallery/{shown.name}.png)](gallery/{shown.name}.html)\n")
        text.append(f"```\n{shown.command}\n```\n")
    if not there:
        text.append("The pages are made by `make docs`, or by `python docs/gallery.py`. They are not here now.\n")
    return "\n".join(text)


def main() -> None:
    """Run what is missing of the studies, and copy their pages and first figures."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import lesion

    PAGES.mkdir(exist_ok=True)
    for shown in SHOWN:
        try:
            result = shown.run(lesion, STUDIES / shown.name)
        except lesion.LesionError:  # answers of an earlier version, or of another study of this name
            shutil.rmtree(STUDIES / shown.name, ignore_errors=True)
            result = shown.run(lesion, STUDIES / shown.name)
        shutil.copyfile(result.report(), PAGES / f"{shown.name}.html")
        with contextlib.suppress(lesion.UsageError):  # some pages have tables alone
            result.plot().save(str(PAGES / f"{shown.name}.png"))
        print(f"docs/gallery/{shown.name}.html")


if __name__ == "__main__":
    main()
