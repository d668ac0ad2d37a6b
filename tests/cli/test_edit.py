"""`lesion edit`: an edit file shown in words, and two combined by what they select."""

import pytest
import torch

from commandline import lesion, save
from lesion.edits.edit import Compose, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.edits.selections.selection import count
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.models.load import load
from tiny import model as tiny_model


def observed(model, seed: int, data: str) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    sums = {}
    for address, matrix in model.anatomy.scored.items():
        norms = torch.rand(matrix.shape[1], generator=generator)
        sums[address] = InputSums(norms, norms**2, 1234, None)
    draw = Provenance(model.name, model.fingerprint, data, seed, 0, False, ("1", "2"), 1, "raw")
    return Inputs(sums, {address: address for address in sums}, 2, 1234, (draw,))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def model(base):
    return load(base)


@pytest.fixture
def skill(model, tmp_path):
    selection = MathNeuro(observed(model, 1, "sums"), (observed(model, 2, "atlas[/]"),), 0.1)
    return save_edit(tmp_path / "skill.edit", ScaleParameters(selection, 0.0), model)


@pytest.fixture
def large(model, tmp_path):
    return save_edit(tmp_path / "large.edit", ScaleParameters(Wanda(observed(model, 1, "sums"), 0.05), 0.0), model)


def words(text: str) -> str:
    return " ".join(text.split())


def test_show_says_what_where_and_from_which_data(capsys, skill, model):
    done = lesion(capsys, "edit", "show", skill)
    assert done.code == 0, done.err
    file = read_edit(skill)
    selected = sum(c.selected for c in file.selected)
    said = words(done.out)
    for expected in (
        "mathneuro-0.1",
        file.digest,
        model.fingerprint,
        "set to 0",
        "sums: 2 texts, 1,234 tokens; seed 1 repeat 0; 1 cut at the context",
        "atlas[/]: 2 texts",
        f"{selected:,} of",
    ):
        assert expected in said, done.out
    # one line a block, one for the head, one of headings
    table = done.out.partition("in percent")[2].strip().splitlines()
    assert [line.split()[0] for line in table] == ["block", "0", "1", "2", "–"]
    counts = [c for c in file.selected if c.block == 1]
    all_of_block = 100 * sum(c.selected for c in counts) / sum(c.total for c in counts)
    assert float(table[2].split()[-1]) == pytest.approx(all_of_block, rel=0.01)


def test_show_takes_the_experts_of_a_block_together(capsys, tmp_path):
    mixture = tiny_model("mixtral")
    path = save_edit(tmp_path / "a.edit", ScaleParameters(Magnitude(0.1), 2.0), mixture)
    done = lesion(capsys, "edit", "show", path)
    heading = words(done.out.partition("in percent")[2])
    assert heading.startswith("experts experts experts block q k v o router gate up down head all 0 ")
    assert "expert0" not in done.out
    assert "multiplied by 2" in words(done.out)
    assert "no data" in done.out


@pytest.mark.parametrize(("op", "join"), [("minus", "__sub__"), ("and", "__and__"), ("or", "__or__")])
def test_combine_does_the_algebra_of_the_selections_without_the_model(op, join, capsys, skill, large, model, tmp_path):
    done = lesion(capsys, "edit", "combine", skill, large, "--op", op, "--out", tmp_path / "new.edit")
    assert done.code == 0, done.err
    assert "not counted" in done.out
    file = read_edit(tmp_path / "new.edit")
    assert file.selected is None
    one, two = (read_edit(path).edit.selection for path in (skill, large))
    want = getattr(one, join)(two)
    assert file.edit == ScaleParameters(want, 0.0)
    fitted = file.fit(model).selection
    for address, matrix in model.anatomy.scored.items():
        masks = [selection.mask(address, matrix.read()) for selection in (one, two, fitted)]
        by_hand = {"minus": masks[0] & ~masks[1], "and": masks[0] & masks[1], "or": masks[0] | masks[1]}[op]
        assert torch.equal(masks[2], by_hand)
    assert "not counted" in words(lesion(capsys, "edit", "show", tmp_path / "new.edit").out)


def test_combine_with_the_model_counts_and_the_result_can_be_applied(capsys, skill, large, base, model, tmp_path):
    new = tmp_path / "new.edit"
    done = lesion(capsys, "edit", "combine", skill, large, "--op", "minus", "--out", new, "--model", base)
    assert done.code == 0, done.err
    file = read_edit(new)
    assert file.selected == tuple(count(file.edit.selection, model))
    again = lesion(capsys, "edit", "combine", new, large, "--op", "or", "--out", tmp_path / "again.edit")
    assert again.code == 0, again.err
    done = lesion(capsys, "apply", base, "--edit", tmp_path / "again.edit", "--out", tmp_path / "out")
    assert done.code == 0, done.err


def test_edits_with_different_factors_need_one_that_is_said(capsys, skill, model, tmp_path):
    other = save_edit(tmp_path / "other.edit", ScaleParameters(Magnitude(0.1), 1.5), model)
    arguments = ("edit", "combine", skill, other, "--op", "or", "--out", tmp_path / "new.edit")
    done = lesion(capsys, *arguments)
    assert done.code == 2
    assert "--factor" in done.complaint
    assert lesion(capsys, *arguments, "--factor", 0.5).code == 0
    assert read_edit(tmp_path / "new.edit").factors == (0.5,)


def test_edits_of_different_models_are_not_combined(capsys, skill, tmp_path):
    gpt2 = tiny_model("gpt2")
    other = save_edit(tmp_path / "other.edit", ScaleParameters(Magnitude(0.1), 0.0), gpt2)
    done = lesion(capsys, "edit", "combine", skill, other, "--op", "or", "--out", tmp_path / "new.edit")
    assert done.code == 2
    assert gpt2.fingerprint in done.complaint


def test_what_would_be_empty_is_refused(capsys, skill, tmp_path):
    done = lesion(capsys, "edit", "combine", skill, skill, "--op", "minus", "--out", tmp_path / "new.edit")
    assert done.code == 1
    assert "nothing would be left" in done.complaint


def test_a_file_that_exists_is_replaced_only_when_asked(capsys, skill, large, tmp_path):
    arguments = ("edit", "combine", skill, large, "--op", "or", "--out", large)
    before = large.read_bytes()
    done = lesion(capsys, *arguments)
    assert done.code == 2
    assert "--overwrite" in done.complaint
    assert large.read_bytes() == before
    assert lesion(capsys, *arguments, "--overwrite").code == 0
    assert read_edit(large).label == "mathneuro-0.1_or_wanda-0.05"


def test_files_that_are_no_edits_are_told_in_one_paragraph(capsys, skill, tmp_path):
    (tmp_path / "bad.edit").write_bytes(skill.read_bytes()[:-1])
    done = lesion(capsys, "edit", "show", tmp_path / "bad.edit")
    assert done.code == 1
    assert "bad.edit was changed or damaged" in done.complaint
    done = lesion(capsys, "edit", "show", tmp_path / "none.edit")
    assert done.code == 2
    assert "bad.edit" in done.complaint


def test_show_describes_what_is_truncated(capsys, model, tmp_path):
    path = save_edit(
        tmp_path / "a.edit", Compose((Truncate("1.mlp.up", 0.25), Truncate("head", 0.95, "bottom"))), model
    )
    done = lesion(capsys, "edit", "show", path)
    assert done.code == 0, done.err
    said = words(done.out)
    for expected in (
        "1.mlp.up-top-0.25_with_head-bottom-0.95",
        "truncates 1.mlp.up, 48 × 32: the largest 8 of 32 components kept",
        "two thin factors have 640 parameters in place of 1,536: 896 saved",
        "truncates head, 64 × 32: the smallest 30 of 32 components kept",
        "it does not pay, they are 832 more",
        model.fingerprint,
    ):
        assert expected in said, done.out
    for missing in ("selects", "Made from", "in percent", "not counted"):
        assert missing not in said


def test_combine_joins_truncations_by_or_alone(capsys, model, large, tmp_path):
    one = save_edit(tmp_path / "one.edit", Truncate("1.mlp.up", 0.25), model)
    two = save_edit(tmp_path / "two.edit", Truncate("2.mlp.up", 0.5), model)
    done = lesion(capsys, "edit", "combine", one, two, "--op", "or", "--out", tmp_path / "new.edit")
    assert done.code == 0, done.err
    assert "of 1.mlp.up the largest 8 of 32 components kept; of 2.mlp.up the largest 16 of" in done.out
    assert read_edit(tmp_path / "new.edit").edit == Compose((Truncate("1.mlp.up", 0.25), Truncate("2.mlp.up", 0.5)))
    for other, op, says in ((two, "minus", "have no 'minus'"), (large, "or", "both edit 1.mlp.up")):
        done = lesion(capsys, "edit", "combine", one, other, "--op", op, "--out", tmp_path / "other.edit")
        assert done.code == 2
        assert says in done.complaint
