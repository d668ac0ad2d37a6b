"""Replaced contributions in a layer study: each task under its own reference, which the folder keeps."""

import shutil

import pytest
from oracle import Listener

import lesion
from commandline import undrawn
from lesion.activations.contributions import _sampled
from lesion.edits.reference import read_reference
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.ablation import references as references_of_lesion
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.references import FOLDER
from lesion.studies.ablation.study import EditPlan, Study
from lesion.studies.ablation.sweep import read, referring, sweep, text_of
from lesion.tasks.catalogue import calibration_items, draw
from lesion.tasks.prompts import encode, resolve
from runs import run_ablation as run
from tiny import model

MODEL = "bundled:llama-base"
PRIMER = "primer:arithmetic"
TASKS = ("arithmetic:add?digits=1&shots=2&sets=2", "arithmetic:subtract?digits=1&shots=2&sets=2")


KINDS = ("mean", "position", "resample", "resample 1")


def study(*tasks: str, **values) -> Study:
    edits = {"layers": "0,3", "replace": ["mean", "resample", "position"], "draws": 2}
    return Study.make(models=[MODEL], tasks=list(tasks), **{"items": 6, "edits": edits, **values})


@pytest.fixture(scope="module")
def network() -> Model:
    return lesion.load(MODEL)


@pytest.fixture(scope="module")
def listener() -> Listener:
    return Listener()


@pytest.fixture(scope="module")
def first(network, listener, tmp_path_factory):
    return run(study(TASKS[0]), tmp_path_factory.mktemp("kinds"), models={MODEL: network}, watcher=listener)


@pytest.fixture(scope="module")
def done(first, network):
    """Another task in the folder of the first one."""
    return run(study(*TASKS), first.folder, models={MODEL: network})


def references(folder) -> dict:
    made: dict = {}
    for of in map(read_reference, (folder / FOLDER).iterdir()):
        task = next(task for task in TASKS if task in of.label)
        made.setdefault(task, {}).update(dict.fromkeys(of.vectors, of))
    return made


def test_a_sweep_has_the_kinds_of_replacement_behind_the_factors_of_each_unit():
    plan = EditPlan(replace=["resample", "mean"], draws=3)
    assert plan.kinds == ("resample", "resample 1", "resample 2", "mean")
    swept = sweep(model("llama").anatomy, ["block", "mlp"], [1], [0.0], ["mean", "resample 1", "position"])
    digests = {"sums": {"contributions": "0" * 16, "aligned": "1" * 16}}
    swept = [referring(edit, digests) for edit in swept]
    assert [str(edit) for edit in swept] == [
        *("1×0", "1→mean", "1→resample 1", "1→position"),
        *("1.mlp×0", "1.mlp→mean", "1.mlp→resample 1", "1.mlp→position"),
    ]
    assert [(edit.layer, edit.unit, edit.factor) for edit in swept][-2] == (1, "mlp", "resample 1")
    assert text_of(swept[2], "sums") == f"1→resample 1@{'1' * 16}"
    assert text_of(swept[3], "sums") == f"1→position@{'1' * 16}"
    assert [read(str(edit), digests) for edit in swept] == swept


def answered(network, name, item, edit) -> str:
    found = lesion.find_task(name)
    decoding = Decoding(max_new_tokens=found.max_new_tokens, stop=found.stop)
    prompt = encode(network, found, item, resolve(network, found, None), max_new_tokens=1)
    with lesion.applied(network, edit):
        (response,) = TransformersEngine(network, 1).answer([Request("", prompt, decoding=decoding)])
    return response.answer.text


def test_the_mean_of_every_task_is_over_its_own_texts(done, network):
    by_task = references(done.folder)
    assert by_task[TASKS[0]]["mean"] != by_task[TASKS[1]]["mean"]
    for task in TASKS:
        answers = done.answers[done.answers["task"] == task]
        edit = lesion.Replace("3", "mean", by_task[task]["mean"])
        stored = answers[answers["edit"] == str(edit)].set_index("item")["text"].to_dict()
        assert stored == {item.id: answered(network, task, item, edit) for item in draw(lesion.find_task(task), 6, 0)}


def test_positions_and_draws_of_an_item_are_those_of_texts_behind_its_own_solved_problems(done, network):
    for name in TASKS:
        answers = done.answers[done.answers["task"] == name]
        edits = set(answers["edit"])
        assert {edit.partition("@")[0] for edit in edits} == {
            "baseline", "0×0", "3×0", *(f"{layer}→{kind}" for layer in (0, 3) for kind in KINDS)
        }  # fmt: skip
        task = lesion.find_task(name)
        for item in draw(task, 6, 0):
            texts = lesion.aligned(task, item)[:50]
            calibration = lesion.calibration(network, task, len(texts), items=texts)
            reference = lesion.reference(network, calibration, kinds=("position", "resample"), draws=3, vectors=1)
            # The texts of the draws in their order; the item itself is passed over.
            lengths = [len(text) for text in calibration.texts]
            order = _sampled(lengths, 3, 1, 0)
            others = [
                draw_ for draw_, place in enumerate(order)
                if next(text for text in texts if text.id == calibration.ids[place]).question != item.question
            ]  # fmt: skip
            for edit, text in (
                (lesion.Replace("3", "position", reference), "3→position"),
                (lesion.Replace("3", "resample", reference, others[0]), "3→resample"),
                (lesion.Replace("3", "resample", reference, others[1]), "3→resample 1"),
            ):
                (stored,) = answers[answers["edit"].str.startswith(f"{text}@") & (answers["item"] == item.id)]["text"]
                assert stored == answered(network, name, item, edit)


def test_texts_that_are_read_for_references_are_counted(first, listener):
    task = lesion.find_task(TASKS[0])
    frames = {tuple((text.shots, text.question) for text in lesion.aligned(task, item)) for item in draw(task, 6, 0)}
    of_frames = sum(len(frame[:50]) for frame in frames)
    assert of_frames in [total for _, total, _ in listener.begun]
    assert listener.count == sum(total - stored for _, total, stored in listener.begun)


def test_a_task_without_aligned_texts_is_refused_before_anything_is_observed(network, tmp_path):
    for kind in ("position", "resample"):
        edits = {"layers": "3", "replace": ["mean", kind]}
        with pytest.raises(UsageError, match="primer:atlas has no texts that are aligned with its items"):
            run(study(TASKS[0], "primer:atlas", edits=edits), tmp_path / kind, models={MODEL: network})
        assert not (tmp_path / kind / FOLDER).exists()


def test_a_second_run_evaluates_nothing_and_keeps_the_references(done, network):
    before = {path: path.stat().st_mtime_ns for path in (done.folder / FOLDER).iterdir()}
    again = run(study(*TASKS), done.folder, models={MODEL: network})
    assert again.evaluated == 0
    assert again.summary == done.summary
    assert {path: path.stat().st_mtime_ns for path in (done.folder / FOLDER).iterdir()} == before


def test_the_folder_is_read_back_without_a_model(done):
    _, summary, _, _ = recall(done.folder)
    assert summary == done.summary
    factors = {cell.factor for _, result in summary.results for cell in result.cells}
    assert factors == {0.0, "mean", "resample", "resample 1", "position"}


def test_another_task_in_the_folder_leaves_the_first_ones_answers(first, done):
    assert done.evaluated == first.evaluated
    assert done.summary.models[0].tasks[0] == first.summary.models[0].tasks[0]


def test_an_optimum_is_a_reference_of_each_place_and_fitted_once(network, tmp_path, monkeypatch):
    monkeypatch.setattr(references_of_lesion, "STEPS", 2)
    monkeypatch.setattr(references_of_lesion, "TEXTS", 15)
    edits = {"layers": "3", "replace": ["optimal"]}
    one = run(study(TASKS[0], edits=edits), tmp_path / "out", models={MODEL: network})
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / FOLDER).iterdir()}
    assert len(kept) == 2  # of block 3, and the contributions with which it begins
    two = run(study(TASKS[0], edits={**edits, "layers": "3,6"}), tmp_path / "out", models={MODEL: network})
    of_place = {
        address: of
        for of in map(read_reference, (tmp_path / "out" / FOLDER).iterdir())
        for address in of.vectors.get("optimal", {})
    }
    assert {str(edit) for edit in two.answers["edit"]} == {
        "baseline", "3×0", "6×0", *(f"{place}→optimal@{of_place[place].digest}" for place in ("3", "6"))
    }  # fmt: skip
    assert two.evaluated == one.evaluated - 6  # the baseline and block 3 are not evaluated again
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())


def test_heads_are_replaced_one_by_one_from_a_reference_of_their_own(network, tmp_path, monkeypatch):
    monkeypatch.setattr(references_of_lesion, "STEPS", 1)
    monkeypatch.setattr(references_of_lesion, "TEXTS", 15)
    edits = {"layers": "3", "unit": ["mlp", "head"], "replace": ["mean", "optimal"]}
    done = run(study(TASKS[0], edits=edits, items=3), tmp_path / "out", models={MODEL: network})
    count = network.anatomy.heads(3).count
    names = ["3.mlp", *(f"3.attention.head.{head}" for head in range(count))]
    kinds = ("mean", "optimal")
    made = list(map(read_reference, (done.folder / FOLDER).iterdir()))
    # Means of branches and of heads, and an optimum of each place.
    assert len(made) == 2 + len(names)
    texts = {
        (name, kind): str(lesion.Replace(name, kind, of))
        for of in made
        for kind in kinds
        for name in set(names) & set(of.vectors.get(kind, {}))
    }
    assert set(done.answers["edit"]) == {"baseline", *(f"{name}×0" for name in names), *texts.values()}
    assert len(texts) == 2 * len(names)
    parts = done.tables["parts"]
    assert [*parts["factor"]] == [factor for factor in (0.0, *kinds) for _ in range(count)]
    assert [*parts["part"]] == [*range(count)] * 3
    assert set(parts["tests"]) == {count}
    _, summary, _, _ = recall(done.folder)
    assert summary == done.summary
    again = run(study(TASKS[0], edits=edits, items=3), done.folder, models={MODEL: network})
    assert again.evaluated == 0
    with undrawn():
        assert again.report().is_file()
    # Stored answers are those under the edit of the reference that the folder keeps.
    part = next(of for of in made if f"3.attention.head.{count - 1}" in of.vectors.get("mean", {}))
    edit = lesion.Replace(f"3.attention.head.{count - 1}", "mean", part)
    alone = {item.id: answered(network, TASKS[0], item, edit) for item in draw(lesion.find_task(TASKS[0]), 3, 0)}
    stored = done.answers[done.answers["edit"] == str(edit)].set_index("item")["text"].to_dict()
    assert stored == alone


def test_other_parts_of_a_block_are_not_replaced():
    for unit in ("group", "neuron", "expert", "matrix"):
        with pytest.raises(UsageError, match=f"replace is of blocks, attention, MLP and heads, not of the unit {unit}"):
            study(TASKS[0], edits={"unit": ["head", unit], "replace": "mean"})


def test_an_optimum_is_not_fitted_on_what_is_evaluated(network, tmp_path, monkeypatch):
    few = calibration_items(lesion.find_task(PRIMER))[:8]
    monkeypatch.setattr(references_of_lesion, "calibration_items", lambda task: few)
    with pytest.raises(UsageError, match=r"at least 10 items that are not evaluated, and primer:arithmetic has \d of"):
        run(study(PRIMER, edits={"layers": "3", "replace": "optimal"}), tmp_path / "out", models={MODEL: network})


def test_a_damaged_reference_is_refused_with_what_to_do(done, network, tmp_path):
    out = shutil.copytree(done.folder, tmp_path / "out")
    path = next((out / FOLDER).iterdir())
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(LesionError, match=r"Delete it"):
        run(study(*TASKS), out, models={MODEL: network})


def test_draws_without_resample_are_refused():
    with pytest.raises(UsageError, match="draws is of resample"):
        study(TASKS[0], edits={"replace": "mean", "draws": 2})
    with pytest.raises(UsageError, match="replace"):
        study(TASKS[0], edits={"replace": "median"})
