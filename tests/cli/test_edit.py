"""`lesion edit`: an edit file shown in words."""

import pytest
import torch

from commandline import lesion, save
from lesion.edits.edit import Compose, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.edits.selections.topk import Magnitude, MathNeuro
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
