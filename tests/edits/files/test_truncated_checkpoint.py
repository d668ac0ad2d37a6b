"""Checkpoints truncated on disk: bit for bit the model truncated in memory."""

import numpy as np
import pytest
import torch
import transformers as hf

from lesion.edits.apply import applied
from lesion.edits.edit import Compose, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.checkpoint import apply
from lesion.edits.selections.topk import Magnitude
from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from tiny import tiny, tokenizer

# One of every storage: plain, tied, fused rows, interleaved per head, transposed and fused columns, flat, experts.
STORAGES = ["llama", "llama_tied", "phi3", "gpt_neox", "gpt2", "opt", "mixtral", "qwen2_moe"]


def checkpoint(folder, family="llama", dtype=torch.float32, shard="5GB"):
    tiny(family).to(dtype).save_pretrained(folder, max_shard_size=shard)
    tokenizer().save_pretrained(folder)
    return folder


def kept(folder, source, edit, name="one.edit"):
    return read_edit(save_edit(folder / name, edit, load(source, dtype="auto")))


def state(folder):
    return hf.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()


def in_memory(source, edit, dtype="float32"):
    model = load(source, dtype=dtype)
    with applied(model, edit):
        return {name: tensor.clone() for name, tensor in model.network.state_dict().items()}


def assert_bitwise(mine, other):
    assert mine.keys() == other.keys()
    for name in mine:
        assert mine[name].dtype == other[name].dtype, name
        assert torch.equal(mine[name], other[name]), name


def of_two_blocks(model) -> Compose:
    """The attention of the first block by the top, the MLP of the second by the bottom; of many experts two."""
    attention, mlp = (list(model.anatomy.block(layer).matrices.values()) for layer in (0, 1))
    top = [matrix for matrix in attention if matrix.address.startswith("0.attention")]
    bottom = [matrix for matrix in mlp if matrix.address.startswith("1.mlp")][-5:]
    return Compose(
        (
            *(Truncate(matrix.address, 0.3) for matrix in top),
            *(Truncate(matrix.address, 0.7, "bottom") for matrix in bottom),
        )
    )


@pytest.mark.parametrize("family", STORAGES)
def test_a_truncated_checkpoint_is_the_model_truncated_in_memory(family, tmp_path):
    source = checkpoint(tmp_path / "base", family, shard="20KB")
    edit = kept(tmp_path, source, of_two_blocks(load(source)))
    before = state(source)
    done = apply(source, [edit], tmp_path / "out")
    after = state(tmp_path / "out")
    assert_bitwise(after, in_memory(source, edit.edit))
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert done.achieved is None
    assert done.effects == ()
    assert [matrix.cut.address for matrix in done.truncated] == [part.address for part in edit.edit.edits]


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_precisions_stay_and_are_rounded_as_in_memory(family, dtype, tmp_path):
    source = checkpoint(tmp_path / "base", family, dtype)
    edit = kept(tmp_path, source, of_two_blocks(load(source)))
    apply(source, [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), in_memory(source, edit.edit, str(dtype).removeprefix("torch.")))


def test_several_edits_meet_in_one_checkpoint_and_truncations_of_one_matrix_keep_what_all_keep(tmp_path):
    source = checkpoint(tmp_path / "base")
    edits = [
        Truncate("1.mlp.up", 0.75),
        Compose((Truncate("1.mlp.up", 0.5, "bottom"), Truncate("head", 0.25))),
        Compose((ScaleParameters(Magnitude(0.3, ("0.mlp.up",)), 0.5), Truncate("2.mlp.up", 0))),
    ]
    files = [kept(tmp_path, source, edit, f"{number}.edit") for number, edit in enumerate(edits)]
    done = apply(source, files, tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), in_memory(source, Compose(tuple(edits))))
    assert [(m.cut.address, m.cut.start, m.cut.stop) for m in done.truncated] == [
        ("1.mlp.up", 16, 24),
        ("2.mlp.up", 0, 0),
        ("head", 0, 8),
    ]
    assert [each.achieved for each in done.edits] == [None, None, pytest.approx(0.5)]
    assert {path.name for path in (tmp_path / "out" / "lesion").glob("*.edit")} == {
        f"{file.label}.edit" for file in files
    }


def test_what_is_kept_is_told_as_numpy_finds_it(tmp_path):
    source = checkpoint(tmp_path / "base")
    edit = kept(tmp_path, source, Truncate("1.mlp.up", 0.25))
    (matrix,) = apply(source, [edit], tmp_path / "out").truncated
    name = "model.layers.1.mlp.up_proj.weight"
    before, after = state(source)[name], state(tmp_path / "out")[name]
    values = np.linalg.svd(before.double().numpy(), compute_uv=False)
    assert matrix.energy == pytest.approx((values[:8] ** 2).sum() / (values**2).sum(), rel=1e-9)
    assert matrix.moved == int((before != after).sum())


def test_a_truncation_that_leaves_every_weight_as_it_is_is_refused(tmp_path):
    network = tiny("llama")
    network.model.layers[1].mlp.up_proj.weight.zero_()
    network.save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    edit = kept(tmp_path, tmp_path / "base", Truncate("1.mlp.up", 0.25))
    with pytest.raises(LesionError, match=r"changes no weight.*1\.mlp\.up"):
        apply(tmp_path / "base", [edit], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_edit_that_truncates_what_another_multiplies_and_a_factor_are_refused(tmp_path):
    source = checkpoint(tmp_path / "base")
    cut = kept(tmp_path, source, Truncate("1.mlp.up", 0.25))
    scaled = kept(tmp_path, source, ScaleParameters(Magnitude(0.1), 0.0), "b.edit")
    with pytest.raises(UsageError, match=r"1\.mlp\.up .* order would matter"):
        apply(source, [cut, scaled], tmp_path / "out")
    with pytest.raises(UsageError, match="no factor"):
        apply(source, [cut], tmp_path / "out", factor=0.5)
    assert not (tmp_path / "out").exists()


# -- the card


def test_the_card_says_what_was_truncated_and_by_which_edit(tmp_path):
    source = checkpoint(tmp_path / "base")
    edit = kept(tmp_path, source, Truncate("1.mlp.up", 0.25))
    scaled = kept(tmp_path, source, ScaleParameters(Magnitude(0.1, ("0.mlp.up",)), 0.0), "b.edit")
    done = apply(source, [edit], tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for words in (
        "1 matrix was truncated by `lesion apply`",
        edit.label,
        edit.digest,
        edit.model.fingerprint,
        "`1.mlp.up` | 48 × 32 | the largest 8 of 32 components",
        f"{done.moved:,} of {done.total:,} weights",
        "1,536 | 640 |",
    ):
        assert words in card, card
    assert "multiplied" not in card
    apply(source, [edit, scaled], tmp_path / "both")
    card = (tmp_path / "both" / "README.md").read_text()
    assert "were multiplied in place and 1 matrix was truncated" in card
    assert scaled.digest in card
