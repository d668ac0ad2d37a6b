"""`lesion run --list`: the studies shipped with the package, with what they ask and how large they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lesion.core.study_file import Questions, StudyFile, shipped
from lesion.errors import LesionError
from lesion.plain import plain

_TIME = re.compile(
    r"((?:About |Under )?[a-z -]*(?:minutes?|hour)[a-z ]*?) on (?:a|one|two)(?: free)? CPU cores?", re.IGNORECASE
)
_GPU = re.compile(r"One GPU with ([0-9]+ GB) or more")


def lines() -> Iterator[str]:
    """The table, a line a study."""
    from lesion.registry import faults, load_study, method_of

    yield _line("study", "kind", "models", "items", "needs", "question")
    for name, file in shipped().items():
        try:
            study = load_study(name)
        except LesionError as error:  # the file of another package, whose method cannot be used
            yield _line(name, "–", "–", "–", "–", plain(str(error)))
            continue
        models = len(getattr(study, "models", ())) or int(hasattr(study, "model"))
        kind = method_of(study).kind or "layers"
        yield _line(name, kind, str(models or "–"), items(study), needs(file), plain(study.title or ""))
    yield ""
    yield "items: of all tasks; every model is asked each of them once unedited and once for every edit."
    yield "lesion run NAME --show prints a study; lesion run NAME --out DIR runs it."
    for fault in faults():
        yield f"note: {fault}"


def _line(name: str, kind: str, models: str, count: str, needed: str, question: str) -> str:
    return f"{name:36} {kind:10} {models:>6}  {count:>6}  {needed:28}  {question}".rstrip()


def items(study: StudyFile) -> str:
    """How many items a study asks, over all tasks, or all runs of a drift study; a dash where it asks none."""
    if isinstance(study, Questions):
        counts = [study.items_of(task) for task in study.tasks]
        return "all" if None in counts else f"{sum(filter(None, counts)):,}" if counts else "–"
    count = getattr(study, "items", None)
    return "–" if count is None else f"{getattr(study, 'runs', 1) * count:,}"


def needs(file: Path) -> str:
    """The time or the hardware that the comment at the head of a study file states; a dash where it states none."""
    head = [line.lstrip("# ") for line in file.read_text("utf-8").splitlines() if line.startswith("#")]
    comment = " ".join(" ".join(head).split())
    if gpu := _GPU.search(comment):
        return f"a GPU, {gpu[1]}"
    return " ".join(time[1].split()).lower() if (time := _TIME.search(comment)) else "–"
