"""Where nothing can be critical, the person is told once, as soon as the baseline is known."""

from dataclasses import replace

import pytest

from lesion.core.row import Asked, StoredAnswer
from lesion.core.store import Store
from lesion.edits.edit import ScaleBlock
from lesion.studies.ablation.floor_warning import Reach
from lesion.tasks.task import Item

ITEMS = [f"i{number}" for number in range(20)]
EDITS = [ScaleBlock(layer) for layer in range(8)]
ROW = StoredAnswer(
    model="fingerprint", model_name="m", edit="baseline", task="t", item="", decoding="greedy", prompt_style="raw",
    text="", tokens=1, finish="stop", correct=False, parsed=None, scores=(), ranks=(), group="", question="", gold="",
    engine="",
)  # fmt: skip


def write(store: Store, reach: Reach, batch: list[StoredAnswer]) -> None:
    """Store rows as a run does: `reach` sees them once they are stored."""

    def stored():
        store.write(batch)
        yield batch

    assert list(reach.watch(stored())) == [batch]


def rows(right: int, edit: str = "baseline") -> list[StoredAnswer]:
    return [replace(ROW, item=item, edit=edit, correct=number < right) for number, item in enumerate(ITEMS)]


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path, "hash", 'name = "made"') as opened:
        opened.add_model("fingerprint", "m")
        opened.add_items("t", [Asked(Item(id=item, question="", gold="")) for item in ITEMS])
        yield opened


def test_a_baseline_with_too_few_right_answers_is_told_once_it_is_complete_and_before_the_rest(store):
    warnings: list[str] = []
    reach = Reach(store, "m", {"t": ITEMS}, EDITS, warnings.append)
    write(store, reach, rows(12)[:19])
    write(store, reach, rows(0, edit=str(EDITS[0])))
    assert warnings == []
    write(store, reach, rows(12)[19:])
    assert len(warnings) == 1
    assert "12 of 20" in warnings[0]
    write(store, reach, rows(12, edit=str(EDITS[1])))
    assert len(warnings) == 1


def test_thirteen_of_twenty_are_enough_for_eight_blocks(store):
    warnings: list[str] = []
    write(store, Reach(store, "m", {"t": ITEMS}, EDITS, warnings.append), rows(13))
    assert warnings == []


def test_too_few_items_for_any_accuracy_are_told_before_anything_is_asked(store):
    warnings: list[str] = []
    reach = Reach(store, "m", {"t": ITEMS[:12]}, EDITS, warnings.append)
    assert len(warnings) == 1
    assert "There are 12 items, and 13 right answers are needed" in warnings[0]
    write(store, reach, rows(12)[:12])
    assert len(warnings) == 1


def test_a_study_that_goes_on_is_told_before_anything_is_asked(store):
    store.write(rows(3))
    warnings: list[str] = []
    Reach(store, "m", {"t": ITEMS}, EDITS, warnings.append)
    assert len(warnings) == 1


def test_a_baseline_that_is_nearly_never_right_is_told_long_before_it_is_complete(tmp_path):
    items = [f"i{number}" for number in range(200)]
    with Store.open(tmp_path, "hash", 'name = "made"') as store:
        store.add_model("fingerprint", "m")
        store.add_items("t", [Asked(Item(id=item, question="", gold="")) for item in items])
        warnings: list[str] = []
        reach = Reach(store, "m", {"t": items}, EDITS, warnings.append)
        for item in items:
            write(store, reach, [replace(ROW, item=item)])
        # By Wilson's formula with z² = 3.84: after k wrong answers the upper limit is z² / (k + z²), below 13 of 200.
        assert "0 of 56 items right so far" in warnings[0]
        assert len(warnings) == 1


def test_an_accuracy_near_guessing_is_told_once_with_the_smallest_drop_that_can_show_and_a_ceiling_is_not(tmp_path):
    items = [f"i{number}" for number in range(100)]
    with Store.open(tmp_path, "hash", 'name = "made"') as store:
        store.add_model("fingerprint", "m")
        tasks = {"easy": items, "guessed": items}
        for task in tasks:
            store.add_items(task, [Asked(Item(id=item, question="", gold="")) for item in items])
        warnings: list[str] = []
        reach = Reach(store, "m", tasks, EDITS, warnings.append, {"guessed": 0.5})
        for number, item in enumerate(items):
            batch = [replace(ROW, item=item, task="easy", correct=True)]
            write(store, reach, [*batch, replace(ROW, item=item, task="guessed", correct=number % 2 == 0)])
    (guessed,) = warnings
    assert "m, guessed: likely to be near guessing. The unedited model has 15 of 30 items right so far" in guessed
    assert "100 items show a drop from 11.2 points on (80 % power, no item repaired, 8 places are tested)" in guessed
