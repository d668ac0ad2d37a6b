"""Items of a study kept apart from another share no value with anything that one asks or shows, whatever the seed."""

from __future__ import annotations

import pytest

from commandline import write
from lesion.core.apart import draw_apart
from lesion.core.study_file import Questions
from lesion.errors import UsageError
from lesion.tasks.catalogue import draw, find
from lesion.tasks.values import shown, value

TASK = "arithmetic:add?shots=2&sets=4"


def test_no_value_is_shared_with_what_the_other_study_asks_or_solves_in_its_prompts(tmp_path):
    other = tmp_path / "first.toml"
    other.write_text(f'kind = "isolation"\ntasks = [{{name = "{TASK}", items = 200}}, "ioi"]\nitems = 60\nseed = 0\n')
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
