"""Items of an evaluation against the calibration texts of its edits."""

from importlib import resources
from pathlib import Path

import pytest
from oracle import Oracle

from commandline import write
from lesion.core.apart import Used
from lesion.core.store import Store
from lesion.edits.files.artefact import read_edit
from lesion.models.load import load
from lesion.studies.isolation.run import draw_items
from lesion.studies.isolation.selections import draw_texts
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.tasks.catalogue import draw, find, source
from runs import run_evaluation, run_isolation

STUDIES = sorted(
    file.name.removesuffix(".toml")
    for file in resources.files("lesion.studies.papers").iterdir()
    if file.name.startswith(("isolation-", "demo-isolation"))
    and 'model = "bundled:' in (text := file.read_text("utf-8"))
    and "\ntasks = " in text
)


@pytest.fixture(scope="module")
def bundled():
    return load("bundled:llama-base", device="cpu")


def task(file: Path, text: str, count: int) -> str:
    rows = ({"id": f"{n}", "prompt": text.format(n=n), "answer": "right"} for n in range(count))
    return str(write(file, rows))


@pytest.fixture
def skill(tmp_path) -> str:
    return task(tmp_path / "skill.jsonl", "{n} + 1 =", 20)


@pytest.fixture
def control(tmp_path) -> str:
    return task(tmp_path / "control.jsonl", "a fox ran {n} miles,", 20)


def isolation(skill: str, control: str, samples: int, seed: int = 0, **values) -> IsolationStudy:
    return IsolationStudy.make(
        **{"model": "tiny:llama", "name": "s", "skill": skill, "controls": control, "samples": samples, "seed": seed},
        **{"share": 0.2, "random_controls": 0, "decoding": {"max_new_tokens": 2}, **values},
    )


def evaluation(*tasks: str, items: int, seed: int = 0) -> EvaluationStudy:
    return EvaluationStudy.make(
        model="tiny:llama", tasks=list(tasks), items=items, seed=seed, decoding={"max_new_tokens": 2}
    )


def asked(folder: Path, task: str) -> set[str]:
    with Store.read(folder) as store:
        answers = store.answers(task=task)
    return set(answers["item"])


def texts(file: Path, task: str) -> set[str]:
    (selection,) = (part.selection for part in [read_edit(file).edit])
    return {item for inputs in selection.inputs for one in inputs.provenance if one.data == task for item in one.ids}


def test_items_to_avoid_are_drawn_last_and_the_others_as_ever(skill):
    every = [item.id for item in draw(find(skill), None, 3)]
    avoid = {every[0], every[4]}
    assert [item.id for item in draw(find(skill), 18, 3, avoid)] == [id for id in every if id not in avoid]
    assert [item.id for item in draw(find(skill), 20, 3, avoid)][18:] == [every[0], every[4]]


@pytest.mark.parametrize("seed", [0, 7])
def test_an_evaluation_asks_no_calibration_text_where_there_are_enough_others(llama, skill, control, tmp_path, seed):
    run_isolation(isolation(skill, control, 12), tmp_path / "found", model=llama)
    (file,) = (tmp_path / "found").glob("*.edit")
    # Another seed than that of the texts, under which about 12 of 20 items would be drawn in any case.
    what = evaluation(skill, f"gold:{control}", items=8, seed=seed)
    outcome = run_evaluation(
        what, [read_edit(file)], tmp_path / "told", random_controls=0, model=llama, make_engine=Oracle()
    )
    for name, of in ((skill, skill), (f"gold:{control}", control)):
        assert len(asked(tmp_path / "told", name)) == 8
        assert not asked(tmp_path / "told", name) & texts(file, of)
    assert not [note for note in outcome.summary.notes if "calibration" in note]


def test_where_there_are_too_few_all_others_are_asked_and_it_is_said_how_many_are_not(llama, skill, control, tmp_path):
    study = isolation(skill, control, 15, tasks=[skill, control], items=8)
    outcome = run_isolation(study, tmp_path / "out", model=llama, make_engine=Oracle())
    (file,) = (tmp_path / "out").glob("*.edit")
    for name in (skill, control):
        assert len(asked(tmp_path / "out", name) - texts(file, name)) == 5
        assert any(
            note.startswith(
                f"{name}: 3 of the 8 items that are asked were also calibration texts of the edits. To keep them apart,"
                " ask for at most 5 items, or"
            )
            for note in outcome.summary.notes
        )


def test_a_folder_with_answers_keeps_its_items_when_edits_of_other_texts_come(llama, skill, control, tmp_path):
    files = []
    for seed in (0, 1):
        run_isolation(isolation(skill, control, 8, seed), tmp_path / f"found{seed}", model=llama)
        files += (tmp_path / f"found{seed}").glob("*.edit")
    what, told = evaluation(skill, items=12), tmp_path / "told"
    run_evaluation(what, [read_edit(files[0])], told, random_controls=0, model=llama, make_engine=Oracle())
    first = asked(told, skill)
    assert not first & texts(files[0], skill)
    assert (overlap := len(first & texts(files[1], skill))) > 0  # else this shows nothing
    outcome = run_evaluation(what, [read_edit(files[1])], told, random_controls=0, model=llama, make_engine=Oracle())
    assert asked(told, skill) == first
    assert any(f": {overlap} of the 12 items that are asked" in note for note in outcome.summary.notes)


def test_a_folder_of_other_questions_does_not_lend_its_items(skill, tmp_path):
    (choice,) = evaluation(skill, items=5).tasks
    drawn = draw_items(evaluation(skill, items=5), Used({skill: {"3"}}, ()), tmp_path / "absent")[choice]
    assert [item.id for item in drawn] == [item.id for item in draw(find(skill), 5, 0, {"3"})]


@pytest.mark.parametrize("name", STUDIES)
def test_no_shipped_study_of_a_bundled_model_asks_a_calibration_text(name, bundled, tmp_path):
    study = IsolationStudy.load(name)
    used = {source(data): set(drawn.ids) for data, drawn in draw_texts(study, bundled).items()}
    for choice, items in draw_items(study, Used(used, ()), tmp_path / "absent").items():
        assert not used.get(source(choice.name), set()) & {item.id for item in items}
