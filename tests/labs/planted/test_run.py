"""`lesion lab planted`: a folder that says where its skill lies, made once."""

import json
from dataclasses import replace

import pytest
import torch

import lesion as library
from commandline import lesion, refused
from lesion.errors import LesionError, UsageError
from lesion_labs.kinds import PLANTED
from lesion_labs.planted.recipe import CONTROLS, ID, SKILL, SKILLS, VALUES, Recipe
from lesion_labs.planted.run import MODEL, make
from lesion_labs.planted.truth import CARD, MASKS, read_masks, read_truth

SMALL = {"blocks": 3, "width": 32, "heads": 2, "key_value_heads": 1, "inner": 16, "steps": 1, "rank": 2, "neurons": 3}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return make(tmp_path_factory.mktemp("planted"), Recipe("compiled"))


def test_the_card_states_the_truth_and_reads_back(compiled):
    truth = read_truth(compiled)
    first, second = truth.blocks
    assert (truth.kind, truth.seed, truth.skill, truth.controls) == ("compiled", 0, SKILL, CONTROLS)
    assert truth.branches == (f"{first}.attention", f"{second}.mlp")
    assert all(head.startswith(f"{first}.attention.head.") and head in truth.statement for head in truth.heads)
    assert truth.accuracy == dict.fromkeys(SKILLS, 1.0)
    assert truth.before is None
    masks = read_masks(compiled)
    assert set(masks) == set(truth.matrices)
    assert sum(int(mask.sum()) for mask in masks.values()) == truth.weights
    model = library.load(str(compiled / MODEL))
    for address, mask in masks.items():
        weight = model.anatomy.matrix(address).read()
        assert mask.shape == weight.shape
        assert torch.equal(mask, weight != 0)


@pytest.mark.parametrize("kind", [kind for kind in PLANTED if kind != "compiled"])
def test_every_kind_is_an_ordinary_checkpoint_whose_addresses_exist(kind, tmp_path):
    folder = make(tmp_path, Recipe(kind, seed=1, **SMALL))
    truth, model = read_truth(folder), library.load(str(folder / MODEL), dtype="float32")
    assert truth.statement.endswith(".")
    assert (truth.before is None) == (kind in ("routed", "noise", "joint", "shuffled"))
    for address in truth.matrices:
        model.anatomy.matrix(address)
    for address, mask in read_masks(folder).items():
        assert mask.shape == model.anatomy.matrix(address).read().shape
    assert bool(truth.blocks or truth.matrices or truth.weights) == (kind not in ("joint", "shuffled"))


def test_layer_ablation_names_the_compiled_blocks_and_no_others(compiled):
    task = f"jsonl:{compiled / SKILL}.jsonl"
    table = library.ablate(str(compiled / MODEL), task, items=24, dtype="float32", progress=False).table_full
    assert tuple(table.loc[table["critical"].astype(bool), "layer"]) == read_truth(compiled).blocks


def test_task_files_have_all_items_and_each_value_as_often(compiled):
    for skill in SKILLS:
        rows = [json.loads(line) for line in (compiled / f"{skill}.jsonl").read_text().splitlines()]
        answers = [row["answer"] for row in rows]
        assert len({row["prompt"] for row in rows}) == 64
        assert {answers.count(value) for value in VALUES} == {8}
        assert all(tuple(row["choices"]) == VALUES for row in rows)


def test_a_finished_model_is_not_made_again_and_another_recipe_is_refused(compiled, tmp_path):
    files = {path: path.stat().st_mtime_ns for path in compiled.rglob("*")}
    make(compiled.parent, Recipe("compiled"))
    assert {path: path.stat().st_mtime_ns for path in compiled.rglob("*")} == files
    with pytest.raises(UsageError, match=r"another recipe.*--out"):
        make(compiled.parent, replace(Recipe("compiled"), inner=96))


def test_the_same_seed_makes_the_same_weights(tmp_path):
    recipe = Recipe("routed", seed=2, **{**SMALL, "steps": 2})
    folders = [make(tmp_path / name, recipe) for name in ("a", "b")]
    first, second = ((folder / MODEL / "model.safetensors").read_bytes() for folder in folders)
    assert first == second


def test_folders_without_a_whole_truth_are_refused(compiled, tmp_path):
    with pytest.raises(UsageError, match=r"has no planted\.json.*lesion lab planted"):
        read_truth(tmp_path)
    (tmp_path / CARD).write_text("{}")
    with pytest.raises(LesionError, match="is damaged"):
        read_truth(tmp_path)
    (tmp_path / CARD).write_bytes((compiled / CARD).read_bytes())
    (tmp_path / MASKS).write_bytes(b"cut short")
    with pytest.raises(LesionError, match=r"cannot be read.*run the same command again"):
        read_masks(tmp_path)


def test_the_command_makes_one_model_and_refuses_what_it_cannot(capsys, tmp_path):
    done = lesion(capsys, "lab", "planted", "--kind", "compiled", "--seed", 1, "--out", tmp_path)
    assert done.code == 0
    assert done.out.strip() == str(tmp_path / "compiled-1")
    assert read_truth(tmp_path / "compiled-1").seed == 1
    refused(lesion(capsys, "lab", "planted", "--kind", "blok"), 2, "'blok'", "nearest: block", "compiled")
    refused(lesion(capsys, "lab", "planted", "--seed", -1), 2, "'--seed'")
    (tmp_path / "file").write_text("in the way")
    refused(lesion(capsys, "lab", "planted", "--kind", "compiled", "--out", tmp_path / "file"), 1, "file")


def test_items_with_their_answers_have_no_unknown_word(compiled):
    model = library.load(str(compiled / MODEL))
    for skill in SKILLS:
        texts = library.calibration(model, library.find_task(f"jsonl:{compiled / skill}.jsonl"), 64).texts
        assert {len(text) for text in texts} == {6}
        assert not any(ID["<unk>"] in text for text in texts)
