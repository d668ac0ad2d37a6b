"""Items of a study kept apart from another share no value with anything that one asks or shows, whatever the seed."""

import pytest

from commandline import write
from lesion.core.apart import Used, chosen_and_tested, draw_apart
from lesion.core.study_file import Questions
from lesion.errors import UsageError
from lesion.studies.isolation.run import draw_items
from lesion.studies.isolation.selections import draw_texts
from lesion.studies.isolation.study import IsolationStudy
from lesion.tasks.catalogue import calibration_items, draw, find
from lesion.tasks.item_clusters import shown, value
from lesion.tasks.task import Item
from tiny import model

TASK = "arithmetic:add?shots=2&sets=4"


def test_no_value_is_shared_with_what_the_other_study_asks_or_solves_in_its_prompts(tmp_path):
    other = tmp_path / "first.toml"
    other.write_text(f'tasks = [{{name = "{TASK}", items = 200}}, "ioi"]\nitems = 60\nseed = 0\n')
    study = Questions.make(tasks=[TASK, "ioi"], items=800, seed=1, apart=str(other))
    before = {
        name: [shown(name, item) for item in draw(find(name), count, 0)] for name, count in ((TASK, 200), ("ioi", 60))
    }
    alone = Questions.make(tasks=[TASK, "ioi"], items=800, seed=1)
    for choice in study.tasks:
        task = find(choice.name)
        values = frozenset().union(*before[choice.name])
        items = draw_apart(study, choice, task)[:800]
        assert not values & {value(choice.name, item) for item in items}
        # Without it some come back; the others keep their order.
        unkept = draw_apart(alone, choice, task)
        assert values & {value(choice.name, item) for item in unkept}
        assert items == [item for item in unkept if value(choice.name, item) not in values][:800]


@pytest.mark.parametrize(
    ("task", "questions"),
    [("arithmetic:add", ["12 + 34 =", "1 + 2 =", "34 + 12 =", "5 + 6 ="]), ("q.jsonl", ["A b?", "c?", "a  B?", "d?"])],
)
def test_what_chose_an_edit_does_not_test_it_in_another_order_case_or_copy(task, questions):
    items = [Item(str(place), question, "") for place, question in enumerate(questions)]
    assert chosen_and_tested(task, items, 0.5) == ([0, 1], [3])
    assert chosen_and_tested(task, items[:1] * 4, 0.5) == ([0, 1], [])


def test_a_study_with_nothing_left_to_draw_or_without_tasks_is_refused(tmp_path):
    data = write(tmp_path / "q.jsonl", [{"id": "a", "prompt": "What?", "answer": "x"}])
    other = tmp_path / "first.toml"
    other.write_text(f'tasks = ["{data}"]\n')
    study = Questions.make(tasks=[str(data)], apart=[str(other)], seed=3)
    with pytest.raises(UsageError, match=r"All 1 items of .* were asked or shown by"):
        draw_apart(study, study.tasks[0], find(str(data)))
    (empty := tmp_path / "none.toml").write_text('kind = "drift"\n')
    with pytest.raises(UsageError, match="has no tasks"):
        draw_apart(study.model_copy(update={"apart": (str(empty),)}), study.tasks[0], find(str(data)))
    (other := tmp_path / "round.toml").write_text(f'tasks = ["{data}"]\napart = "{other}"\n')
    with pytest.raises(UsageError, match="goes in a circle"):
        draw_apart(study.model_copy(update={"apart": (str(other),)}), study.tasks[0], find(str(data)))


def test_what_another_study_keeps_apart_from_is_kept_apart_from_too(tmp_path):
    first, second, third = (tmp_path / f"{name}.toml" for name in "abc")
    text = 'tasks = ["arithmetic:add?digits=1&shots=0"]\nitems = 15\nseed = 0\n'
    first.write_text(text)
    second.write_text(f'{text}apart = ["{first}"]\n')
    third.write_text(f'{text}apart = ["{second}"]\n')
    values = []
    for file in (first, second, third):
        study = Questions.parse(file.read_text())
        choice = study.tasks[0]
        items = draw_apart(study, choice, find(choice.name))[:15]
        values.append({value(choice.name, item) for item in items})
    assert not values[0] & values[1]
    assert not values[2] & (values[0] | values[1])


def test_the_texts_that_an_isolation_is_calibrated_on_and_the_items_that_it_asks_are_kept_apart_from(tmp_path):
    name = "arithmetic:add?digits=2&shots=1"
    other = IsolationStudy.make(
        model="bundled:llama-base", skill=name, controls="primer:atlas", tasks=[name], samples=30, seed=4
    )
    (file := tmp_path / "first.toml").write_text(other.to_toml())
    run = draw_texts(other, model("llama"))[name]
    calibrated = [item for item in calibration_items(find(name)) if item.id in run.ids]
    used = Used.make({name: set(run.ids)})
    asked = draw_items(other, used, tmp_path / "absent")[other.tasks[0]]
    study = Questions.make(tasks=[name], seed=9, apart=str(file))
    drawn = {value(name, item) for item in draw_apart(study, study.tasks[0], find(name))}
    assert len(calibrated) == 30
    assert drawn
    assert not drawn & frozenset().union(*(shown(name, item) for item in (*calibrated, *asked)))
