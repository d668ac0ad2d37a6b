"""An isolation study from its file to its numbers, and recalled from its folder."""

from pathlib import Path

import pytest
import torch
from oracle import Listener, Oracle

import lesion.studies.isolation.selections as observations
from commandline import write
from lesion.edits.edit import Compose, ScaleParameters
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.topk import Magnitude
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.report import wording
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.isolation.run import asked_skill
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy
from lesion.studies.isolation.summary import recall_isolation
from runs import run_evaluation, run_isolation
from tiny import model, tiny, tokenizer

ITEMS = 6


def task(file: Path, text: str, count: int = 10) -> Path:
    rows = ({"id": f"{n}", "prompt": text.format(n=n, m=n * 7 % 10), "answer": "right"} for n in range(count))
    return write(file, rows)


@pytest.fixture
def data(tmp_path) -> tuple[Path, Path]:
    return task(tmp_path / "skill.jsonl", "{n} + {m} ="), task(tmp_path / "control.jsonl", "a fox ran {m}{n} miles,")


def study(data: tuple[Path, Path], **values) -> IsolationStudy:
    skill, control = map(str, data)
    told = {"model": "tiny:llama", "skill": skill, "controls": control, "samples": 3, "share": 0.2, "name": "s"}
    asks = {"tasks": [skill, control], "items": ITEMS, "random_controls": 2, "decoding": {"max_new_tokens": 3}}
    return IsolationStudy.make(**{**told, **asks, **values})


def evaluation(data: tuple[Path, ...], **values) -> EvaluationStudy:
    told = {"model": "tiny:llama", "items": ITEMS, "decoding": {"max_new_tokens": 3}}
    return EvaluationStudy.make(tasks=[str(file) for file in data], **{**told, **values})


def test_a_study_ends_with_selections_answers_and_the_numbers_of_both(llama, data, tmp_path):
    oracle, listener = Oracle(), Listener()
    outcome = run_isolation(study(data), tmp_path / "out", watcher=listener, model=llama, make_engine=oracle)
    assert (outcome.evaluated, outcome.planned) == (2 * 4 * ITEMS, 2 * 4 * ITEMS)
    (selection,) = outcome.summary.isolation.selections
    (own,) = (entry for entry in outcome.summary.evaluation.edits if entry.random_of is None)
    assert (own.digest, own.selected, own.keep) == (selection.digest, selection.selected, 0.2)
    assert own.edit == f"{selection.label}@{selection.digest}×0"
    assert [(task.name, task.role) for task in outcome.summary.evaluation.tasks] == [
        (str(data[0]), "skill"),
        (str(data[1]), "control"),
    ]
    assert outcome.summary.study.name == "s"
    assert (tmp_path / "out/summary.json").read_text() == outcome.summary.text()
    assert IsolationSummary.model_validate_json(outcome.summary.text()) == outcome.summary


def test_without_tasks_nothing_is_asked_and_the_folder_remembers_the_study(llama, data, tmp_path):
    oracle = Oracle()
    what = study(data, tasks=[], title="Only selections", seed=4)
    outcome = run_isolation(what, tmp_path / "out", model=llama, make_engine=oracle)
    assert (oracle.asked, outcome.evaluated, outcome.planned) == ([], 0, 0)
    assert not (tmp_path / "out" / "answers.sqlite").exists()
    summary = recall_isolation(tmp_path / "out")
    assert summary == outcome.summary
    assert (summary.study, summary.evaluation) == (what, None)


def test_further_shares_and_factors_are_all_that_is_asked_in_a_folder_that_has_some(llama, data, tmp_path):
    run_isolation(study(data), tmp_path / "out", model=llama, make_engine=Oracle())
    oracle = Oracle()
    more = study(data, share=[0.2, 0.4], factor=[0.0, 1.5])
    outcome = run_isolation(more, tmp_path / "out", model=llama, make_engine=oracle)
    assert "baseline" not in oracle.edits
    # Two shares × two factors, each with two random controls; a quarter was there. Boosts have rivals.
    planned = outcome.summary.evaluation.edits
    assert len(oracle.edits) == 3 * 3 + sum(edit.rival_of is not None for edit in planned)
    whole = run_isolation(more, tmp_path / "whole", model=llama, make_engine=Oracle())
    assert outcome.summary == whole.summary


def test_a_study_whose_engine_died_can_be_recalled_and_goes_on_to_the_same_summary(llama, data, tmp_path):
    whole = run_isolation(study(data), tmp_path / "whole", model=llama, make_engine=Oracle())
    with pytest.raises(RuntimeError, match="the engine died"):
        run_isolation(study(data), tmp_path / "out", model=llama, make_engine=Oracle(5))
    recalled = recall_isolation(tmp_path / "out")
    assert recalled.isolation == whole.summary.isolation
    assert len(recalled.evaluation.edits) == 3
    oracle = Oracle()
    rest = run_isolation(study(data), tmp_path / "out", model=llama, make_engine=oracle)
    assert len(oracle.asked) == 2 * 4 * ITEMS - 5
    assert rest.summary == whole.summary
    assert (tmp_path / "out/summary.json").read_bytes() == (tmp_path / "whole/summary.json").read_bytes()


def test_items_that_edits_were_made_from_and_that_are_asked_are_noted(llama, data, tmp_path):
    outcome = run_isolation(study(data, samples=10), tmp_path / "out", model=llama, make_engine=Oracle())
    for file in data:
        assert (
            f"{file}: {ITEMS} of the {ITEMS} items that are asked were also calibration texts of the edits. To keep"
            " them apart, isolate with fewer texts (--samples)." in outcome.summary.notes
        )


def test_a_wrong_task_is_told_before_anything_is_observed(llama, data, tmp_path, monkeypatch):
    monkeypatch.setattr(observations, "observe", lambda *_, **__: pytest.fail("observed"))
    with pytest.raises(UsageError, match="no task 'gsm9k'"):
        run_isolation(study(data, tasks=["gsm9k"]), tmp_path / "out", model=llama)
    assert not (tmp_path / "out").exists()


def test_a_factor_that_moves_nothing_is_refused_before_anything_is_asked(data, tmp_path):
    half = wrap(tiny("llama").to(torch.bfloat16), tokenizer(), "tiny:llama")
    oracle = Oracle()
    with pytest.raises(LesionError, match="at least 99 %"):
        run_isolation(study(data, factor=1.001), tmp_path / "out", model=half, make_engine=oracle)
    assert oracle.asked == []


def test_an_evaluation_needs_no_summary_to_be_recalled(llama, data, edits, tmp_path):
    outcome = asked(llama, data, edits, tmp_path / "out")
    for damage in (None, "{"):
        (tmp_path / "out/summary.json").unlink()
        if damage is not None:
            (tmp_path / "out/summary.json").write_text(damage)
        assert recall_isolation(tmp_path / "out") == outcome.summary
        asked(llama, data, edits, tmp_path / "out")


# What follows: evaluating edits from files.


@pytest.fixture
def edits(llama, data, tmp_path) -> list[Path]:
    """Of MathNeuro and Wanda."""
    what = study(data, methods=["mathneuro", "wanda"], tasks=[])
    folder = run_isolation(what, tmp_path / "found", model=llama).folder
    return [folder / "mathneuro-0.2.edit", folder / "wanda-0.2.edit"]


def asked(llama, data, files, folder: Path, engine=None, what=None, **settings):
    opened = [read_edit(file) for file in files]
    return run_evaluation(
        what or evaluation(data), opened, folder, model=llama, make_engine=engine or Oracle(), **settings
    )


def test_files_give_the_numbers_that_the_study_they_come_from_gives(llama, data, edits, tmp_path):
    from_files = asked(llama, data, edits, tmp_path / "files", random_controls=2)
    what = study(data, methods=["mathneuro", "wanda"])
    whole = run_isolation(what, tmp_path / "study", model=llama, make_engine=Oracle())
    ours, theirs = (outcome.summary.evaluation for outcome in (from_files, whole))
    assert ours.tasks == theirs.tasks
    assert ours.edits == theirs.edits
    assert ours.selectivity == theirs.selectivity


def test_each_file_is_asked_under_its_own_factor_or_under_those_given(llama, data, edits, tmp_path):
    own = save_edit(tmp_path / "boost.edit", ScaleParameters(Magnitude(0.1), 1.25), llama)
    summary = asked(llama, data, [edits[0], own], tmp_path / "own", random_controls=0).summary
    assert [(edit.method, edit.factor) for edit in summary.evaluation.tried] == [
        ("mathneuro", 0.0),
        ("magnitude", 1.25),
    ]
    summary = asked(llama, data, [edits[0], own], tmp_path / "two", random_controls=0, factors=[0.5, 2.0]).summary
    assert [(edit.method, edit.factor) for edit in summary.evaluation.tried] == [
        (method, factor) for method in ("mathneuro", "magnitude") for factor in (0.5, 2.0)
    ]


def test_the_skill_of_an_edit_is_known_from_its_file(llama, data, edits, tmp_path):
    summary = asked(llama, data, edits, tmp_path / "out").summary.evaluation
    assert [task.role for task in summary.tasks] == ["skill", "control"]
    assert summary.edits[0].samples == 3
    elsewhere = asked(llama, data[1:], edits, tmp_path / "else").summary.evaluation
    assert [task.role for task in elsewhere.tasks] == [None]


def test_without_edits_the_baseline_alone_is_asked(llama, data, tmp_path):
    oracle = Oracle()
    outcome = asked(llama, data, [], tmp_path / "out", oracle)
    assert oracle.edits == ["baseline"]
    assert outcome.summary.evaluation.edits == ()
    assert recall_isolation(tmp_path / "out") == outcome.summary


def test_one_file_given_twice_is_asked_once(llama, data, edits, tmp_path):
    oracle = Oracle()
    asked(llama, data, [edits[0], edits[0]], tmp_path / "out", oracle, random_controls=1)
    assert len(oracle.edits) == 3


def test_an_evaluation_into_the_folder_of_its_isolation_keeps_the_numbers_of_both(llama, data, edits):
    outcome = asked(llama, data, edits, edits[0].parent)
    assert [one.method for one in outcome.summary.isolation.selections] == ["mathneuro", "wanda"]
    assert recall_isolation(edits[0].parent) == outcome.summary


def test_choosing_on_validation_items_is_part_of_the_numbers(llama, data, edits, tmp_path):
    outcome = asked(llama, data, edits, tmp_path / "out", factors=[0.0, 0.5], validation=0.5)
    choice = outcome.summary.evaluation.choice
    assert (choice.skill, choice.validation_items, choice.test_items) == (str(data[0]), 3, 3)
    assert len(choice.candidates) == 4


def test_an_edit_made_for_another_model_is_refused_unless_forced(data, edits, tmp_path):
    network = tiny("llama")
    with torch.no_grad():
        network.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    other = wrap(network, tokenizer(), "tiny:llama")
    oracle = Oracle()
    with pytest.raises(LesionError, match=r"made for tiny:llama .*other weights.*--force"):
        asked(other, data, edits, tmp_path / "out", oracle)
    assert oracle.asked == []
    outcome = asked(other, data, edits[:1], tmp_path / "out", oracle, force=True, random_controls=0)
    assert outcome.evaluated == 2 * 2 * ITEMS


def test_a_file_of_several_selections_is_one_edit_with_random_weights_for_each(llama, data, tmp_path):
    both = Compose((ScaleParameters(Magnitude(0.1), 0.5), ScaleParameters(Magnitude(0.2), 0.25)))
    file = save_edit(tmp_path / "both.edit", both, llama)
    evaluation = asked(llama, data, [file], tmp_path / "out", random_controls=2).summary.evaluation
    (edit,) = evaluation.tried
    assert (edit.factor, edit.keep, edit.achieved, len(edit.randoms)) == (None, None, None, 2)
    for seed, control in enumerate(edit.randoms):
        assert [part.split("@")[0] for part in control.split(" + ")] == [
            f"random{seed}-magnitude-0.1",
            f"random{seed}-magnitude-0.2",
        ]
    assert all(task.effects[edit.edit].random.draws == 2 for task in evaluation.tasks)
    whole = asked(llama, data, [file], tmp_path / "whole", random_controls=0, factors=(0.0,)).summary.evaluation
    assert [each.factor for each in whole.edits] == [0.0]
    assert [each.name for each in whole.edits] == [each.edit for each in whole.edits]  # the factors stand in the text


def test_selections_from_different_numbers_of_texts_are_told_apart_by_name(llama, data, tmp_path):
    what = study(data, samples=[3, 4], random_controls=0)
    evaluation = run_isolation(what, tmp_path / "out", model=llama, make_engine=Oracle()).summary.evaluation
    names = [evaluation.name_of(edit.edit).replace(wording.SPACE, " ") for edit in evaluation.tried]
    assert names == ["MathNeuro, share 20 %, ×0, 3 texts", "MathNeuro, share 20 %, ×0, 4 texts"]


TEXTS = ("2×0", "0-1.mlp×0.5", "1.mlp.up top 0.25", "0×0 + 1.mlp.up top 0.25")


def test_places_and_spectra_are_evaluated_beside_the_same_change_elsewhere(llama, data, tmp_path):
    engine = Oracle()
    what = evaluation(data, edits=TEXTS, random_controls=2)
    summary = run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=engine).summary
    evaluated = summary.evaluation
    assert [(edit.edit, edit.name.replace(wording.SPACE, " "), edit.factor) for edit in evaluated.tried] == [
        ("2×0", "block 2, ×0", 0.0),
        ("0.mlp×0.5 + 1.mlp×0.5", "MLP of blocks 0 and 1, ×0.5", 0.5),
        ("1.mlp.up top 0.25", "1.mlp.up top 0.25", None),
        ("0×0 + 1.mlp.up top 0.25", "0×0 + 1.mlp.up top 0.25", None),
    ]
    # Three blocks: one block has two others; of pairs there are two others.
    controls = {edit.edit: set(edit.randoms) for edit in evaluated.tried}
    assert controls["2×0"] == {"0×0", "1×0"}
    assert controls["1.mlp.up top 0.25"] == {"0.mlp.up top 0.25", "2.mlp.up top 0.25"}
    sizes = {edit.edit: edit.selected for edit in evaluated.tried}
    matrices = llama.anatomy.scored
    assert sizes["2×0"] == sum(m.shape[0] * m.shape[1] for a, m in matrices.items() if a.startswith("2."))
    assert sizes["1.mlp.up top 0.25"] == matrices["1.mlp.up"].shape[0] * matrices["1.mlp.up"].shape[1]
    asked_for = {str(request.edit) for request in engine.asked}
    assert asked_for == {"baseline", *(edit.edit for edit in evaluated.edits)}
    for task in evaluated.tasks:
        for edit in evaluated.tried:
            assert task.effects[edit.edit].random.draws == len(edit.randoms)
    # Recalled, and read again from the folder, it is the same.
    assert recall_isolation(tmp_path / "out") == summary


def test_an_edit_that_is_the_control_of_another_is_tried_as_any(llama, data, tmp_path):
    what = evaluation(data, edits=("2×0", "0×0"), random_controls=2)
    first = run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=Oracle()).summary.evaluation
    assert [edit.edit for edit in first.tried] == ["2×0", "0×0"]
    assert "0×0" in first.tried[0].randoms
    assert len(first.edits) == len({edit.edit for edit in first.edits})
    # In whatever order they come, also in two runs: what was a control before is an edit of its own then.
    for number, edits in enumerate((("2×0",), ("0×0",), ("2×0",))):
        what = evaluation(data, edits=edits, random_controls=2)
        later = run_evaluation(what, None, tmp_path / "later", model=llama, make_engine=Oracle()).summary.evaluation
        assert {edit.edit for edit in later.tried} == ({"2×0"} if number == 0 else {"2×0", "0×0"})


@pytest.mark.parametrize(
    ("edit", "settings", "says"),
    [
        ("banana", {}, "'banana' is not an edit; write ADDRESS×FACTOR"),
        ("9×0", {}, "blocks 0 to 2"),
        ("0-9×0", {}, "blocks 0 to 2"),
        ("1.mlp.upp top 0.5", {}, "there is no matrix '1.mlp.upp'"),
        ("1.mlp.up top 0.5", {"factors": (0.5,)}, "a truncation and has no factor; leave --factor out"),
        ("none.edit", {}, r"There is no file none\.edit"),
        ("a@0123456789abcdef×0", {}, "save it with lesion.save_edit and give the .edit file"),
    ],
)
def test_what_is_no_edit_of_the_model_is_refused_before_an_answer_is_asked(llama, data, tmp_path, edit, settings, says):
    engine, what = Oracle(), evaluation(data, edits=(edit,))
    with pytest.raises(UsageError, match=says):
        run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=engine, **settings)
    assert engine.asked == []


def test_one_change_in_two_spellings_is_one_edit(llama, data, tmp_path):
    what = evaluation(data, edits=("0×0 + 1×0", "1×0+0×0", "0-1x0"), random_controls=0)
    evaluated = run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=Oracle()).summary.evaluation
    assert [edit.edit for edit in evaluated.tried] == ["0×0 + 1×0"]


def test_the_skill_may_be_named_and_must_be_a_task(llama, data, tmp_path):
    skill, control = map(str, data)
    what = evaluation(data, edits=("2×0",), skill=skill, validation=0.5, random_controls=1)
    evaluated = run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=Oracle()).summary.evaluation
    assert {task.name: task.role for task in evaluated.tasks} == {skill: "skill", control: "control"}
    assert evaluated.choice is not None
    with pytest.raises(UsageError, match=r"primer:atlas is the skill, so it must be one of the tasks"):
        run_evaluation(evaluation(data, skill="primer:atlas"), None, tmp_path / "other", model=llama)
    unnamed = run_evaluation(
        evaluation(data, edits=("2×0",), validation=0.5), None, tmp_path / "none", model=llama, make_engine=Oracle()
    )
    assert any("known to be the skill (--skill)" in note for note in unnamed.summary.notes)


def test_the_baseline_given_as_an_edit_is_said_to_be_there_anyway(llama, data, tmp_path):
    listener = Listener()
    what = evaluation(data, edits=("baseline", "1×2+1×0.5", "0-2×0"), random_controls=1)
    run_evaluation(what, None, tmp_path / "out", model=llama, make_engine=Oracle(), watcher=listener)
    notes = "\n".join(listener.notes)
    assert "baseline changes nothing: the unedited model is evaluated anyway" in notes
    assert "1×2 + 1×0.5 changes nothing" in notes
    assert "0 random controls matched in count, not 1: there are no more places" in notes


def _isolated(what: IsolationStudy, llama, folder: Path):
    return run_isolation(what, folder, model=llama, make_engine=Oracle())


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 9}, r"seed: 0 there, 9 here"),
        ({"samples": [4]}, r"samples: 3 there, 4 here"),
        ({"repeats": 2}, r"repeats: 1 there, 2 here"),
    ],
)
def test_a_folder_takes_no_second_isolation_of_other_texts(llama, data, tmp_path, other, told):
    _isolated(study(data, tasks=[]), llama, tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(LesionError, match=rf"holds another isolation \({told}\)"):
        _isolated(study(data, tasks=[], **other), llama, tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_nor_one_of_data_that_has_changed_or_of_another_model(llama, data, tmp_path):
    _isolated(study(data, tasks=[]), llama, tmp_path / "out")
    with pytest.raises(LesionError, match="holds another isolation"):
        _isolated(study(data, tasks=[]), model("qwen2"), tmp_path / "out")
    task(data[0], "{m} times {n} =")
    with pytest.raises(LesionError, match="the same draws of data that has changed since"):
        _isolated(study(data, tasks=[]), llama, tmp_path / "out")


def test_but_it_takes_further_shares_and_methods(llama, data, tmp_path):
    _isolated(study(data, tasks=[]), llama, tmp_path / "out")
    again = _isolated(study(data, tasks=[], share=[0.1], methods=["wanda"]), llama, tmp_path / "out")
    assert [one.file for one in again.summary.isolation.selections] == ["wanda-0.1.edit"]
    assert {file.name for file in (tmp_path / "out").glob("*.edit")} == {"mathneuro-0.2.edit", "wanda-0.1.edit"}


def test_edits_that_the_folder_did_not_isolate_are_noted(llama, data, tmp_path):
    _isolated(study(data, tasks=[]), llama, tmp_path / "out")
    _isolated(study(data, tasks=[], seed=5), llama, tmp_path / "other")
    foreign = read_edit(tmp_path / "other" / "mathneuro-0.2.edit")
    own = read_edit(tmp_path / "out" / "mathneuro-0.2.edit")
    for file, noted in ((own, False), (foreign, True)):
        outcome = run_evaluation(
            evaluation(data), [file], tmp_path / "out", random_controls=1, model=llama, make_engine=Oracle()
        )
        assert (
            any("Not among the selections that were isolated in this folder" in n for n in outcome.summary.notes)
            == noted
        )


def test_the_skill_and_what_was_seen_are_known_under_every_way_to_type_a_file(llama, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = study(data, tasks=[], samples=8)
    file = read_edit(tmp_path / "out" / "mathneuro-0.2.edit") if _isolated(told, llama, tmp_path / "out") else None
    asked = EvaluationStudy.make(
        model="tiny:llama", items=ITEMS, tasks=["./skill.jsonl"], decoding={"max_new_tokens": 3}
    )
    outcome = run_evaluation(asked, [file], tmp_path / "e", random_controls=1, model=llama, make_engine=Oracle())
    assert outcome.summary.evaluation.tasks[0].role == "skill"
    assert any(n.startswith("./skill.jsonl: 4 of the 6 items") for n in outcome.summary.notes)
    with pytest.raises(UsageError, match="cannot be its own control"):
        IsolationStudy.make(model="m", skill="skill.jsonl", controls=["./skill.jsonl"])


def test_a_selection_made_anew_on_other_weights_is_noted(llama, data, tmp_path):
    _isolated(study(data, tasks=[]), llama, tmp_path / "out")
    file = read_edit(tmp_path / "out" / "mathneuro-0.2.edit")
    network = tiny("llama")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    other = wrap(network, tokenizer(), "tiny:other")
    outcome = run_evaluation(
        evaluation(data, model="tiny:other"),
        [file],
        tmp_path / "e",
        random_controls=1,
        force=True,
        model=other,
        make_engine=Oracle(),
    )
    assert any("its selection was made anew on the weights of tiny:other" in n for n in outcome.summary.notes)


@pytest.mark.parametrize(
    ("tasks", "skill"),
    [
        (["ioi", "arithmetic:add?digits=1", "arithmetic:add?digits=2"], "arithmetic:add?digits=2"),
        (["ioi", "arithmetic:words", "arithmetic:add?digits=1"], "arithmetic:add?digits=1"),
        (["ioi", "arithmetic:words"], "arithmetic:add"),
    ],
)
def test_the_skill_that_is_asked_is_the_calibrated_task_or_else_that_task_with_other_options(tasks, skill):
    told = IsolationStudy.make(model="m", skill="arithmetic:add", controls=["facts"], tasks=tasks)
    assert asked_skill(told) == skill
