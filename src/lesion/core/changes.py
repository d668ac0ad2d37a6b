"""Items that an edit broke or repaired: answers under it beside those of the unedited model to the same questions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from numbers import Integral

import pandas as pd

from lesion.edits.edit import BASELINE, EditLike, ReadEdit, as_edit, path_of
from lesion.edits.files.artefact import EditFile, read_edit
from lesion.edits.text import parse, simplified
from lesion.errors import UsageError, nearest
from lesion.plain import short, some

SAME = ["model_name", "task", "item", "decoding", "prompt_style"]
"""What an answer and the one that it is compared with have in common."""
COLUMNS = ("model", "task", "item", "question", "gold", "answer_before", "answer_after")
MOST_NAMED = 12
_SELECTION = re.compile(r"(?P<label>[^@+]+)@[0-9a-f]{16}×\S+")


def changed(
    answers: pd.DataFrame, edit: EditLike, *, right: bool, task: str | None = None, model: str | None = None
) -> pd.DataFrame:
    """The items whose answer an edit made wrong, or right.

    `edit` is a value, its text form, the path of an `.edit` file or what `read_edit` gave; the number of a block stands
    for that block at 0. Returned is one row per item with the columns of `COLUMNS`, in the order of the study.
    """
    for column, chosen in (("task", task), ("model_name", model)):
        if chosen is not None:
            answers = answers[answers[column] == _one_of(answers[column].unique().tolist(), chosen, column)]
    if isinstance(edit, Integral):  # of Python or of a column of a table
        edit = f"{int(edit)}×0"
    text = _stored(edit, [each for each in answers["edit"].unique() if each != str(BASELINE)])
    before = answers.loc[answers["edit"] == str(BASELINE), [*SAME, "text", "correct"]]
    after = answers[answers["edit"] == text]
    pairs = after.merge(before, on=SAME, suffixes=("_after", "_before"))
    pairs = pairs[(pairs["correct_after"] == right) & (pairs["correct_before"] != right)]
    names = {"model_name": "model", "text_before": "answer_before", "text_after": "answer_after"}
    columns = list(COLUMNS)
    return pairs.drop(columns="model").rename(columns=names)[columns].reset_index(drop=True)


def _one_of(known: Sequence[str], chosen: str, column: str) -> str:
    if chosen not in known:
        what = column.removesuffix("_name")
        raise UsageError(
            f"The study has no {what} '{short(chosen)}'{nearest(chosen, known)}; it has {', '.join(known)}."
        )
    return chosen


def _stored(edit: EditLike, known: Sequence[str]) -> str:
    """The text under which a study has the answers of an edit."""
    if not known:
        raise UsageError("This study compares no edits with an unedited model.")
    wanted = {edit.strip()} if isinstance(edit, str) else set()
    labels = [text for text in known if isinstance(edit, str) and _label(text) == edit.strip()]
    file = path_of(edit)
    if len(labels) == 1:
        wanted.add(labels[0])
    elif isinstance(edit, EditFile) or file is not None:
        wanted.add(str(edit.edit if isinstance(edit, EditFile) else read_edit(file or "").edit))
    elif not wanted & set(known):
        wanted |= _spellings(edit)
    text = next((text for text in known if text in wanted), None)
    text = text or next((text for text in known if wanted & _spellings(text)), None)
    if text is None:
        typed = short(str(edit.path if isinstance(edit, ReadEdit) else edit))
        raise UsageError(f"The study has no edit '{typed}'; it has {some(known, MOST_NAMED)}.")
    return text


def _spellings(edit: EditLike) -> set[str]:
    """The text of an edit as it is and with every place named once; none of text that names a selection of weights."""
    if isinstance(edit, str) and "@" in edit:
        return set()
    meant = parse(edit) if isinstance(edit, str) else as_edit(edit)
    return {str(meant), str(simplified(meant))}


def _label(text: str) -> str:
    """The label of an edit of one selection, `mathneuro-0.05`; its text where it has none."""
    match = _SELECTION.fullmatch(text)
    return text if match is None else match["label"]
