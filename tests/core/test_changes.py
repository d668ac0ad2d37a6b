"""Items that an edit broke or repaired, against a count over the stored answers."""

import pandas as pd
import pytest

import lesion
from lesion.core.changes import COLUMNS, changed

SELECTION = "mathneuro-0.05@d2b64890d32a1510×0"
EDITS = ("baseline", "3×0", "0×0 + 1×0", "3.mlp.up top 0.5", SELECTION)
TASKS, MODELS, ITEMS = ("adding", "naming"), ("base", "tuned"), 4


def right(model: str, task: str, edit: str, item: int) -> bool:
    return hash((MODELS.index(model), TASKS.index(task), EDITS.index(edit), item)) % 3 > 0


@pytest.fixture(scope="module")
def answers():
    rows = [
        {"model": f"finger{model}", "model_name": model, "edit": edit, "task": task, "item": str(item)}
        | {"decoding": "greedy", "prompt_style": "raw", "text": f"{edit} says", "question": "?", "gold": "!"}
        | {"correct": right(model, task, edit, item)}
        for model in MODELS
        for task in TASKS
        for edit in EDITS
        for item in range(ITEMS)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def expected(edit: str, became: bool) -> set[tuple[str, str, str]]:
    return {
        (model, task, str(item))
        for model in MODELS
        for task in TASKS
        for item in range(ITEMS)
        if right(model, task, edit, item) is became and right(model, task, "baseline", item) is not became
    }


@pytest.mark.parametrize("became", [True, False])
@pytest.mark.parametrize(
    ("given", "edit"),
    [
        ("3×0", "3×0"), (" 3x0 ", "3×0"), (lesion.ScaleBlock(3), "3×0"), (["1x0", "0x0"], "0×0 + 1×0"),
        ("0-1×0", "0×0 + 1×0"), (lesion.Truncate("3.mlp.up", 0.5), "3.mlp.up top 0.5"), (SELECTION, SELECTION),
        ("mathneuro-0.05", SELECTION),
    ],
)  # fmt: skip
def test_exactly_those_that_changed_are_there(answers, given, edit, became):
    frame = changed(answers, given, right=became)
    assert tuple(frame.columns) == COLUMNS
    assert set(zip(frame["model"], frame["task"], frame["item"], strict=True)) == expected(edit, became)
    assert len(frame) == len(expected(edit, became)) > 0
    assert set(frame["answer_before"]) == {"baseline says"}
    assert set(frame["answer_after"]) == {f"{edit} says"}


def test_one_task_and_one_model(answers):
    frame = changed(answers, "3×0", right=False, task="adding", model="tuned")
    wanted = {entry for entry in expected("3×0", False) if entry[:2] == ("tuned", "adding")}
    assert set(zip(frame["model"], frame["task"], frame["item"], strict=True)) == wanted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edit": "5×0"}, "has no edit '5×0'; it has (?=.*3×0)(?=.*0×0 . 1×0)"),
        ({"edit": "wanda-0.1@0123456789abcdef×0"}, "has no edit 'wanda-0.1@0123456789abcdef×0'; it has "),
        ({"edit": "banana"}, "'banana' is not an edit"),
        ({"edit": "3×0", "task": "nameing"}, "has no task 'nameing'.*naming"),
        ({"edit": "3×0", "model": "x"}, "has no model 'x'.*it has .*tuned"),
    ],
)
def test_what_the_study_does_not_have_is_refused_by_what_it_has(answers, options, message):
    edit = options.pop("edit")
    with pytest.raises(lesion.UsageError, match=message):
        changed(answers, edit, right=False, **options)
