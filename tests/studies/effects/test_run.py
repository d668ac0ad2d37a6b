"""Studies of effects from end to end: what they leave, resume and growth, the layer study beside them, refusals."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from oracle import Listener, Oracle

import architectures_zoo as zoo
import lesion as library
from commandline import lesion, questions, refused, write
from lesion.core.cells import CELLS
from lesion.models.load import wrap
from lesion.studies.ablation.study import METHOD as ABLATION
from lesion.studies.ablation.study import Study
from tiny import model, tokenizer

BUNDLED = ("effects", "bundled:llama-base", "--task", "primer:arithmetic", "--unit", "block")


def test_heads_have_maps_and_rows_of_their_own(tmp_path):
    llama, task = model("llama"), str(questions(tmp_path / "sums.jsonl", 3))
    result = library.effects(llama, task, unit=["head"], out=tmp_path / "out")
    blocks, heads = len(llama.anatomy.blocks), llama.network.config.num_attention_heads
    assert result.table_full[["layer", "head"]].to_numpy().tolist() == [
        [b, h] for b in range(blocks) for h in range(heads)
    ]
    result.report()
    assert {"effects-heads.svg", "lens.svg"} <= {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert set(result.tables["classes"]["head"]) == set(range(heads))


def test_blocks_that_lack_a_branch_are_left_out_of_its_unit_and_a_note_says_so(tmp_path):
    """Of blocks that are one branch each, what a block adds is what its branch adds."""
    listener, task = Listener(), str(questions(tmp_path / "sums.jsonl", 3))
    hybrid = wrap(zoo.made("nemotron_h"), tokenizer(), "tiny:hybrid")
    table = library.effects(hybrid, task, unit=["attention", "block", "mlp"], watcher=listener).table_full
    assert table.groupby("unit")["layer"].unique().map(list).to_dict() == {
        "attention": [0, 2], "block": [0, 1, 2, 3], "mlp": [1, 3]
    }  # fmt: skip
    assert [note.partition(": ")[2].replace("\xa0", " ") for note in listener.notes if "not measured" in note] == [
        "attention of blocks 1 and 3 not measured, since none is known there.",
        "mlp of blocks 0 and 2 not measured, since none is known there.",
    ]
    blocks, branches = table[table["unit"] == "block"], table[table["unit"] != "block"].sort_values("layer")
    assert branches["total"].tolist() == pytest.approx(blocks["total"].tolist(), rel=1e-3)
    assert set(library.effects(wrap(zoo.made("mamba2"), tokenizer(), "tiny:states"), task).table_full["unit"]) == {
        "block",
        "attention",
    }


def test_what_no_item_can_show_is_refused_before_the_first(tmp_path):
    experts, listener = wrap(zoo.made("beam"), tokenizer(), "tiny:beam"), Listener()
    with pytest.raises(library.LesionError, match=r"^Attention and MLP of block 0 of tiny:beam do not add up"):
        library.effects(experts, str(questions(tmp_path / "sums.jsonl", 3)), watcher=listener)
    assert not listener.begun


def test_a_cell_that_was_changed_is_measured_again_with_a_note(tmp_path):
    llama, task = model("llama"), str(questions(tmp_path / "sums.jsonl", 4))
    first = library.effects(llama, task, out=tmp_path / "out")
    assert (first.evaluated, first.planned) == (4, 4)
    file = next((tmp_path / "out" / CELLS).iterdir())
    file.write_text(file.read_text().replace('"logit":', '"logit":1'))
    listener = Listener()
    second = library.effects(llama, task, out=tmp_path / "out", watcher=listener)
    assert second.evaluated == 1
    assert [note for note in listener.notes if "kept cells are not as they were written" in note]
    pd.testing.assert_frame_equal(first.table_full, second.table_full, rtol=1e-3)


def test_a_contrast_is_measured_against_its_tempting_token():
    result = library.effects("bundled:llama-base", "primer:atlas?form=contrast", items=2, unit="block")
    (task,) = result.summary.tasks
    assert (task.reference, task.tokens) == ("tempting", 2)
    assert set(result.tables["lens"]["layer"]) == set(range(9))
    assert result.tables["screens"].empty


@pytest.fixture
def layers(tmp_path) -> Path:
    """A layer study of the tiny Llama whose answers are right by a digest, on a task of sums."""
    write(tmp_path / "sums.jsonl", [{"id": f"{n}", "prompt": f"{n} + {n} =", "answer": "right"} for n in range(30)])
    study = Study.make(models=["tiny:llama"], tasks=[str(tmp_path / "sums.jsonl")], items="all")
    folder = tmp_path / "layers"
    result = ABLATION.run(study, folder, models={"tiny:llama": model("llama")}, make_engine=Oracle())
    result.summary.write(folder)
    return folder


def test_screens_are_compared_with_the_drops_of_a_layer_study(layers, tmp_path):
    listener = Listener()
    task = str(tmp_path / "sums.jsonl")
    result = library.effects(model("llama"), task, items=5, study=layers, unit=["block", "mlp"], watcher=listener)
    assert list(result.tables["screens"]["screen"]) == ["direct", "loss", "influence"]
    assert set(result.tables["screens"]["unit"]) == {"block"}  # the layer study switched whole blocks off
    (note,) = (note for note in listener.notes if "no comparison with the drops" in note)
    assert "with the mlp of every block switched off" in note
    assert (result.tables["screens"]["items"] == 30).all()
    known = result.tables["screens"]["rho"].dropna()
    assert known.between(-1, 1).all()
    assert any("drops of accuracy" in sentence for sentence in result.findings) or known.empty


def test_drops_of_other_weights_models_and_tasks_are_refused(layers, tmp_path):
    task = str(tmp_path / "sums.jsonl")
    other = model("llama")
    other.network.lm_head.weight[0, 0] += 1
    other = wrap(other.network, other.tokenizer, "tiny:llama")
    with pytest.raises(library.UsageError, match="about other weights that were called tiny:llama too"):
        library.effects(other, task, items=2, study=layers)
    with pytest.raises(library.UsageError, match=r"is about tiny:llama, not about tiny:gpt2"):
        library.effects(model("gpt2"), task, items=2, study=layers)
    with pytest.raises(library.UsageError, match="and none of this study's tasks"):
        library.effects(model("llama"), "primer:arithmetic", items=2, study=layers)


def test_what_cannot_be_meant_is_refused_in_a_sentence(capsys, tmp_path):
    (tmp_path / "prose.txt").write_text("some running text\n")
    out = ("--out", tmp_path / "out")
    text = lesion(capsys, "effects", "bundled:llama-base", "--task", f"text:{tmp_path / 'prose.txt'}", *out)
    refused(text, 2, "no token of it is the right one")
    refused(lesion(capsys, *BUNDLED[:4], "--unit", "neuron", *out), 2, "block, attention, mlp or head")
    refused(lesion(capsys, *BUNDLED, "--study", tmp_path, *out), 2, "is the folder of a finished layer study")
    refused(lesion(capsys, *BUNDLED, "--engine", "vllm", *out), 2, "--engine")
    assert not (tmp_path / "out").exists()
