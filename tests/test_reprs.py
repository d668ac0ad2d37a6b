"""What `repr` shows of public objects: what it is, on one line, in at most 300 characters."""

from pathlib import Path

import pandas as pd
import pytest
import torch

import lesion
from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.reprs import LONGEST, brief, described
from lesion.tasks.task import Answer, Item
from tiny import model

MANY = 500


@pytest.fixture(scope="module")
def tiny_model():
    return model("llama")


@pytest.fixture(scope="module")
def inputs():
    sums = {f"{layer}.mlp.up": InputSums(torch.ones(64), None, 10) for layer in range(MANY)}
    origin = Provenance("m", "0", "primer:arithmetic", 0, 0, False, ("1",), 0, "raw")
    return Inputs(sums, {key: key for key in sums}, 100, 3000, (origin,))


def test_a_model_says_what_it_is(tiny_model):
    blocks = len(tiny_model.anatomy.blocks)
    assert repr(tiny_model).startswith(f"Model('{tiny_model.name}', llama, {blocks} blocks, ")
    assert repr(tiny_model).endswith("k parameters, float32 on cpu)")


def test_every_object_of_a_model_and_every_edit_is_short(tiny_model, inputs, tmp_path):
    selection = lesion.MathNeuro(inputs, (inputs,), 0.05) | lesion.Wanda(inputs, 0.1)
    magnitude = lesion.ScaleParameters(lesion.Magnitude(0.01), 0.5)
    file = lesion.read_edit(lesion.save_edit(tmp_path / "m.edit", magnitude, tiny_model))
    long = lesion.Compose([lesion.ScaleBlock(layer) for layer in range(MANY)])
    item = Item("1", "why? " * MANY, "because", metadata={"a": "b" * MANY})
    block = tiny_model.anatomy.blocks[0]
    objects = (tiny_model, tiny_model.anatomy, block, block.mlp, inputs, selection, file, long, item)
    for each in (*objects, lesion.ScaleParameters(selection), lesion.find_task("primer:atlas"), Answer("x" * MANY)):
        assert "\n" not in repr(each)
        assert 10 < len(repr(each)) <= LONGEST, each
    assert repr(magnitude) == "ScaleParameters(Magnitude(keep=0.01), factor=0.5)"
    assert "primer:arithmetic" in repr(lesion.ScaleParameters(lesion.MathNeuro(inputs, (inputs,), 0.05)))
    assert repr(long).startswith(f"Compose({MANY} edits: 0×0 + 1×0")
    assert lesion.parse(str(long)) == long


def test_edits_of_places_read_as_they_are_written():
    for edit in (lesion.ScaleBlock(3, 0.5), lesion.Truncate("3.mlp.up", 0.1), lesion.Compose((lesion.ScaleMlp(1),))):
        assert eval(repr(edit), vars(lesion) | {name: getattr(lesion, name) for name in lesion.__all__}) == edit


def test_a_result_says_its_verdict_and_findings_stand_for_themselves(tiny_model, tmp_path):
    lesion.ablate(tiny_model, "primer:atlas", items=3, layers=[0, 1], max_new_tokens=2, out=tmp_path)
    result = lesion.result(tmp_path)
    assert repr(result).startswith(f"AblationResult('{tmp_path}': ")
    assert len(repr(result)) <= LONGEST
    assert result.findings[0].startswith(result.verdict)
    assert result.verdict.startswith("What is critical cannot be told for atlas (0 of 3 right, 10 are needed).")
    assert "\N{NO-BREAK SPACE}" not in "".join(result.findings)
    assert result.findings == [claim.text.replace("\N{NO-BREAK SPACE}", " ") for claim in result.claims]
    assert len(repr(result.summary)) <= LONGEST
    assert repr(result.summary).startswith("AblationSummary(kind='layers'")
    assert "items=3, " in repr(result.summary.study)


def test_answers_changes_and_table_of_a_result_that_was_read_back(tiny_model, tmp_path):
    lesion.ablate(tiny_model, "primer:atlas", items=3, layers=[0, 1], max_new_tokens=2, out=tmp_path / "study")
    result = lesion.result(tmp_path / "study")
    assert len(result.answers) == 9
    assert len(result.broken("0x0")) == len(result.repaired(lesion.ScaleBlock(0))) == len(result.broken(0)) == 0
    result.table_full.to_parquet(tmp_path / "table.parquet", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "table.parquet"), result.table_full, check_dtype=False)
    with pytest.raises(lesion.LesionError, match="There is no study in"):
        lesion.result(tmp_path)


def test_what_acts_on_a_terminal_is_escaped():
    assert described(Path("."), "a\x1b[31m\nb") == f"{type(Path('.')).__name__}(a\\x1b[31m\\nb)"
    assert brief("x" * MANY).endswith("…'")
    assert brief(list(range(MANY))) == f"<{MANY} values>"
    assert brief(torch.ones(3)) == "<Tensor>"
