"""Edit files that truncate: they say what is kept, read back with distrust, and fit their model."""

import json

import pytest
from safetensors.torch import load as load_bytes

from lesion.edits.edit import Compose, ScaleMlp, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.container import encode
from lesion.edits.selections.topk import Magnitude
from lesion.errors import LesionError, UsageError
from tiny import model as tiny_model

ONE = Truncate("1.mlp.up", 0.25)
TWO = Compose((ONE, Truncate("0.attention.q", 0.5, "bottom")))
MIXED = Compose((ScaleParameters(Magnitude(0.1, ("0.mlp.down",)), 0.5), ONE))


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


def kept(model, tmp_path, edit, name="a.edit"):
    return read_edit(save_edit(tmp_path / name, edit, model))


@pytest.mark.parametrize("edit", [ONE, TWO, MIXED, Compose((ONE, ONE)), Truncate("head", 1e-5, "bottom")], ids=str)
def test_a_saved_truncation_reads_back_as_the_same_edit_and_fits_its_model(edit, model, tmp_path):
    file = kept(model, tmp_path, edit)
    assert file.edit == edit
    assert file.fit(model) == edit
    assert not file.afresh(model, file.fit(model))


def test_a_label_names_what_is_truncated_in_letters_that_a_file_name_may_have(model, tmp_path):
    assert kept(model, tmp_path, Truncate("1.mlp.up", 0.01)).label == "1.mlp.up-top-0.01"
    assert kept(model, tmp_path, TWO).label == "1.mlp.up-top-0.25_with_0.attention.q-bottom-0.5"
    assert kept(model, tmp_path, MIXED).label == "magnitude-0.1_with_1.mlp.up-top-0.25"
    many = Compose(tuple(Truncate(address, 0.5) for address in model.anatomy.matrices))
    assert len(kept(model, tmp_path, many).label) == 80


def test_a_truncation_has_no_factor(model, tmp_path):
    for edit in (ONE, MIXED):
        with pytest.raises(UsageError, match=r"1\.mlp\.up .* is a truncation and has no factor"):
            kept(model, tmp_path, edit).with_factor(0.5)


# -- what is not written


@pytest.mark.parametrize(
    ("edit", "error", "says"),
    [
        (Truncate("1.mlp.upp", 0.5), UsageError, r"no matrix '1\.mlp\.upp'.*1\.mlp\.up"),
        (Truncate("7.mlp.up", 0.5), UsageError, "no block 7"),
        (Truncate("1.mlp.up", 1), LesionError, "keeps every component"),
        (Compose((ONE, ScaleMlp(0))), UsageError, "partly one of blocks"),
        (Compose((ScaleParameters(Magnitude(0.1)), ONE)), UsageError, "order would matter"),
    ],
)
def test_what_no_model_could_be_edited_by_is_not_written(edit, error, says, model, tmp_path):
    with pytest.raises(error, match=says):
        save_edit(tmp_path / "a.edit", edit, model)
    assert list(tmp_path.iterdir()) == []


# -- files that somebody has changed on purpose


def changes():
    def edit(key, value):
        return lambda h: h["edit"]["compose"][1].__setitem__(key, value)

    def told(key, value):
        return lambda h: h["truncated"][0].__setitem__(key, value)

    def matrices(change):
        return lambda h: change(h["model"]["matrices"])

    return {
        "keep above 1": edit("keep", 1.5),
        "keep below 0": edit("keep", -0.1),
        "keep as a text": edit("keep", "0.25"),
        "keep of nothing": edit("keep", None),
        "another keep": edit("keep", 0.5),
        "a third side": edit("side", "middle"),
        "a list of sides": edit("side", ["top"]),
        "the other side": edit("side", "bottom"),
        "another matrix": edit("truncate", "1.mlp.gate"),
        "a path": edit("truncate", "../../etc/passwd"),
        "a matrix without a block": edit("truncate", "mlp.up"),
        "a number for an address": edit("truncate", 1),
        "more than belongs there": edit("more", 1),
        "the matrix that is multiplied": edit("truncate", "0.mlp.down"),
        "another count": told("kept", 1),
        "another rank": told("rank", 33),
        "nothing told": lambda h: h.pop("truncated"),
        "told twice": lambda h: h["truncated"].append(h["truncated"][0]),
        "a matrix less": matrices(lambda m: m.pop("1.mlp.up")),
        "a matrix more": matrices(lambda m: m.__setitem__("1.mlp.gate", m["1.mlp.up"])),
        "another shape": matrices(lambda m: m["1.mlp.up"].__setitem__("shape", [48, 31])),
        "a format that knows no truncations": lambda h: h.__setitem__("version", 1),
        "another label": lambda h: h.__setitem__("label", "1.mlp.up-top-0.25"),
    }


def remade(good: bytes, change=None) -> bytes:
    size = int.from_bytes(good[:8], "little")
    header = json.loads(json.loads(good[8 : 8 + size])["__metadata__"]["lesion"])
    if change is not None:
        change(header)
    return encode(header, load_bytes(good))


@pytest.mark.parametrize("name", list(changes()))
def test_a_truncation_that_does_not_hold_together_is_refused(name, model, tmp_path):
    good = kept(model, tmp_path, MIXED).data
    assert remade(good) == good
    (tmp_path / "bad.edit").write_bytes(remade(good, changes()[name]))
    with pytest.raises(LesionError, match=r"bad\.edit does not hold together"):
        read_edit(tmp_path / "bad.edit")
