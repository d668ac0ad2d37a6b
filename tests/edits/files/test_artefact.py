"""Edit files: what is written reads back as the same edit, and whatever is not whole, or not ours, is refused."""

import hashlib
import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_tensors
from synthetic import inputs, mathneuro, wanda_rows

from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleParameters
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.container import BLANK, encode
from lesion.edits.selections.controls import Random
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Both, Either, Without, count
from lesion.edits.selections.topk import Magnitude, Wanda
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import values_digest
from lesion.models.load import wrap
from tiny import model as tiny_model
from tiny import tiny, tokenizer


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def good(model, tmp_path_factory):
    return save_edit(
        tmp_path_factory.mktemp("edits") / "good.edit", ScaleParameters(mathneuro(model), 0.5), model
    ).read_bytes()


def selections(model):
    one, two = mathneuro(model), wanda_rows(model)
    return {
        "mathneuro": one,
        "wanda": Wanda(inputs(model, 3), 0.2),
        "wanda rows": two,
        "magnitude": Magnitude(0.1),
        "magnitude of some": Magnitude(0.1, ("0.mlp.up", "head")),
        "random": Random(one, 3),
        "lape": LAPE(inputs(model, 0), (inputs(model, 1),), 0.3, bar=0.5),
        "minus": Without(one, two),
        "listed": Listed(["1.mlp.down[3,4]", "head[5,6]"], name="super-weights"),
        "minus listed": Without(two, Listed(["1.mlp.down[3,4]", "head[5,6]"])),
        "random minus listed": Random(Without(Magnitude(0.3), Listed(["1.mlp.down[3,4]"])), 2),
        "and": Both(one, two),
        "or": Either(Either(one, two), Random(Both(two, Magnitude(0.3)), 1)),
    }


@pytest.mark.parametrize("name", list(selections(tiny_model("llama"))))
def test_a_saved_edit_reads_back_as_the_same_edit_with_the_same_masks(name, model, tmp_path):
    selection = selections(model)[name]
    edit = ScaleParameters(selection, 0.25)
    file = read_edit(save_edit(tmp_path / "a.edit", edit, model))
    assert file.edit == edit
    assert str(file.edit) == str(edit)
    assert file.label == selection.label
    assert file.selected == tuple(count(selection, model))
    fitted = file.fit(model)
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        want = selection.mask(address, weight) if selection.touches(address) else None
        for read in (file.edit.selection, fitted.selection):
            assert read.touches(address) == (want is not None)
            assert want is None or torch.equal(read.mask(address, weight), want)


def test_thresholds_are_kept_and_used_only_for_the_weights_they_were_made_on(model, tmp_path):
    file = read_edit(save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(model), 0.0), model))
    assert all(part.thresholds is None for part in file.edit.selection.parts)
    assert all(set(part.thresholds) == set(model.anatomy.scored) for part in file.fit(model).selection.parts)
    rows = read_edit(save_edit(tmp_path / "b.edit", ScaleParameters(wanda_rows(model), 0.0), model))
    for address, matrix in model.anatomy.scored.items():
        assert rows.fit(model).selection.thresholds[address].shape == (matrix.shape[0],)


def test_a_composition_is_kept_whole_and_inputs_that_are_shared_once(model, tmp_path):
    one = mathneuro(model)
    edit = Compose((ScaleParameters(one, 0.0), ScaleParameters(Wanda(one.skill, 0.01), 2.0)))
    file = read_edit(save_edit(tmp_path / "a.edit", edit, model))
    assert file.edit == edit
    assert len(file.inputs) == 3
    assert file.factors == (0.0, 2.0)


def test_the_header_is_plain_json_that_says_what_and_for_which_model(model, tmp_path):
    path = save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(model), 0.0), model)
    with safe_open(path, "pt") as opened:
        header = json.loads(opened.metadata()["lesion"])
    assert header["format"] == "lesion edit"
    assert header["model"]["fingerprint"] == model.fingerprint
    matrix = model.anatomy.matrix("1.mlp.up")
    plain = hashlib.sha256(matrix.tensor.float().numpy().tobytes()).hexdigest()[:16]
    assert header["model"]["matrices"]["1.mlp.up"] == {"shape": [48, 32], "values": plain}
    assert header["inputs"][0]["provenance"][0]["data"] == "sums.jsonl"
    blank = path.read_bytes().replace(header["content"].encode(), BLANK.encode())
    assert hashlib.sha256(blank).hexdigest() == header["content"]


def test_the_digest_of_values_is_that_of_the_same_numbers_in_any_wider_dtype():
    weight = torch.randn(7, 5).to(torch.bfloat16)
    assert values_digest(weight) == values_digest(weight.float()) == values_digest(weight.double())
    assert values_digest(weight.T.contiguous().T) == values_digest(weight)
    other = weight.clone()
    other[6, 4] += 1
    assert values_digest(other) != values_digest(weight)


# -- which model it fits


def test_the_same_weights_in_another_dtype_are_taken_for_the_same(tmp_path):
    half = wrap(tiny("llama").to(torch.bfloat16), tokenizer(), "half")
    wide = wrap(tiny("llama").to(torch.bfloat16).float(), tokenizer(), "wide")
    assert half.fingerprint != wide.fingerprint
    file = read_edit(save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(half), 0.0), half))
    assert file.fit(wide).selection.parts[0].thresholds is not None
    exact = wrap(tiny("llama"), tokenizer(), "exact")
    with pytest.raises(LesionError, match="made in bfloat16, and this one is in float32"):
        file.fit(exact)


def test_other_weights_are_refused_and_with_force_the_recipe_is_given(model, tmp_path):
    file = read_edit(save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(model), 0.0), model))
    network = tiny("llama")
    network.model.layers[1].mlp.up_proj.weight[3, 4] += 1
    other = wrap(network, tokenizer(), "other")
    with pytest.raises(LesionError, match=r"tiny:llama.*other.*--force") as caught:
        file.fit(other)
    assert model.fingerprint in str(caught.value)
    assert other.fingerprint in str(caught.value)
    assert file.fit(other, force=True).selection.parts[0].thresholds is None


def test_weights_that_differ_where_the_edit_does_not_reach_are_taken(model, tmp_path):
    edit = ScaleParameters(Magnitude(0.1, ("0.mlp.up",)), 0.0)
    file = read_edit(save_edit(tmp_path / "a.edit", edit, model))
    network = tiny("llama")
    network.model.layers[1].mlp.up_proj.weight[3, 4] += 1
    assert file.fit(wrap(network, tokenizer(), "other")) == edit


def test_shapes_that_do_not_fit_are_refused_with_the_first_matrix_even_with_force(model, tmp_path):
    file = read_edit(save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(model), 0.0), model))
    with pytest.raises(LesionError, match=r"0\.attention\.q \(32 × 32"):
        file.fit(tiny_model("qwen3"), force=True)
    gate = read_edit(save_edit(tmp_path / "b.edit", ScaleParameters(Magnitude(0.1, ("0.mlp.gate",))), model))
    with pytest.raises(LesionError, match=r"0\.mlp\.gate.*has no such matrix"):
        gate.fit(tiny_model("gpt2"), force=True)


# -- what is not written


def test_nothing_is_written_for_what_is_no_edit_of_weights_or_selects_nothing(model, tmp_path):
    for edit in (BASELINE, ScaleBlock(1), Compose((ScaleBlock(1), ScaleParameters(mathneuro(model))))):
        with pytest.raises(UsageError, match="text"):
            save_edit(tmp_path / "a.edit", edit, model)
    one = mathneuro(model)
    with pytest.raises(LesionError, match="empty"):
        save_edit(tmp_path / "a.edit", ScaleParameters(one - one), model)
    with pytest.raises(LesionError, match="everything"):
        save_edit(tmp_path / "a.edit", ScaleParameters(Magnitude(1.0)), model)
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    odd = wrap(tiny("llama"), tokenizer(), "a name\nof two lines")
    with pytest.raises(LesionError, match="control characters"):
        save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(odd)), odd)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(model, tmp_path):
    (tmp_path / "a.edit").mkdir()
    with pytest.raises(LesionError, match="cannot be written"):
        save_edit(tmp_path / "a.edit", ScaleParameters(mathneuro(model)), model)
    assert [path.name for path in tmp_path.iterdir()] == ["a.edit"]


# -- files that are damaged or hostile


def refused(tmp_path, data: bytes, *says: str) -> str:
    (tmp_path / "bad.edit").write_bytes(data)
    with pytest.raises(LesionError) as caught:
        read_edit(tmp_path / "bad.edit")
    text = str(caught.value)
    assert "bad.edit" in text
    for words in says:
        assert words in text, text
    return text


def test_a_file_cut_anywhere_is_refused(good, tmp_path):
    draw = random.Random(0)
    lengths = {0, 1, 7, 8, 9, len(good) - 1, *(draw.randrange(len(good)) for _ in range(60))}
    for length in sorted(lengths):
        refused(tmp_path, good[:length])
    refused(tmp_path, good + b"\0")


def test_any_byte_that_is_changed_is_noticed(good, tmp_path):
    draw = random.Random(1)
    header = 8 + int.from_bytes(good[:8], "little")
    places = {*range(16), *range(header - 16, header + 16), *(draw.randrange(len(good)) for _ in range(120))}
    for place in sorted(places):
        changed = bytearray(good)
        changed[place] ^= 1 << draw.randrange(8)
        refused(tmp_path, bytes(changed))


@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_in_words(data, tmp_path_factory):
    refused(tmp_path_factory.mktemp("bytes"), data)


def remade(good: bytes, change=None, vectors=None) -> bytes:
    """A file with a right content sum whose header or vectors somebody has changed on purpose."""
    size = int.from_bytes(good[:8], "little")
    header = json.loads(json.loads(good[8 : 8 + size])["__metadata__"]["lesion"])
    tensors = load_bytes(good)
    if change is not None:
        change(header)
    if vectors is not None:
        vectors(tensors)
    return encode(header, tensors)


def changes():
    def first_inputs(key, value):
        return lambda h: h["inputs"][0].__setitem__(key, value)

    def provenance(key, value):
        return lambda h: h["inputs"][0]["provenance"][0].__setitem__(key, value)

    def recipe(key, value):
        return lambda h: next(iter(h["recipes"].values())).__setitem__(key, value)

    deep: list = []
    for _ in range(200):
        deep = [deep]
    return {
        "a label that is a path": lambda h: h.__setitem__("label", "../../evil"),
        "a label that is hidden": lambda h: h.__setitem__("label", ".bashrc"),
        "a label with a control character": lambda h: h.__setitem__("label", "a\x1b[31m"),
        "a label that is too long": lambda h: h.__setitem__("label", "a" * 81),
        "a label of another selection": lambda h: h.__setitem__("label", "wanda-0.1"),
        "a model with a control character": lambda h: h["model"].__setitem__("name", "a\x1b]0;b"),
        "a model that turns the writing": lambda h: h["model"].__setitem__("name", "a\u202eb"),
        "data with a line break": provenance("data", "a\nb"),
        "a seed that is a text": provenance("seed", "0"),
        "an address that is a path": lambda h: h["model"]["matrices"].__setitem__(
            "../../etc/passwd", {"shape": [2, 2], "values": "0" * 16}
        ),
        "an unknown matrix": lambda h: h["model"]["matrices"].__setitem__(
            "9.mlp.up", {"shape": [48, 32], "values": "0" * 16}
        ),
        "a matrix less": lambda h: h["model"]["matrices"].pop("1.mlp.up"),
        "no matrix": lambda h: h["model"].__setitem__("matrices", {}),
        "another shape": lambda h: h["model"]["matrices"]["1.mlp.up"].__setitem__("shape", [48, 31]),
        "a shape below 0": lambda h: h["model"]["matrices"]["1.mlp.up"].__setitem__("shape", [-48, 32]),
        "recipes of nothing": lambda h: h.__setitem__("recipes", {}),
        "a recipe of inputs that are not there": recipe("mathneuro", "0" * 16),
        "a recipe with more": recipe("more", 1),
        "a recipe with another keep": recipe("keep", 0.2),
        "a keep of nothing": recipe("keep", 0),
        "a keep that is a text": recipe("keep", "0.1"),
        "no controls": recipe("controls", []),
        "a recipe within recipes without end": lambda h: h.__setitem__("recipes", {"0" * 16: deep}),
        "inputs without readers": first_inputs("readers", {}),
        "readers of nothing": first_inputs("readers", {"0.mlp.up": "nowhere"}),
        "inputs twice": lambda h: h["inputs"].append(h["inputs"][0]),
        "inputs that are missing": lambda h: h["inputs"].pop(),
        "tokens below 0": lambda h: h["inputs"][0]["inputs"].__setitem__("0.mlp.up", -1),
        "texts below 0": first_inputs("texts", -1),
        "counts beyond the total": lambda h: h["selected"][0].__setitem__("selected", 10**9),
        "counts of a path": lambda h: h["selected"][0].__setitem__("matrix", "../x"),
        "another edit": lambda h: h.__setitem__("edit", {"scale": "1", "factor": 0.0}),
        "no edit": lambda h: h.__setitem__("edit", {"compose": []}),
        "an edit of another selection": lambda h: h["edit"].__setitem__("select", f"mathneuro-0.1@{'0' * 16}"),
        "an edit under another label": lambda h: h["edit"].__setitem__("select", "x" + h["edit"]["select"]),
        "a factor that is a text": lambda h: h["edit"].__setitem__("factor", "x"),
        "no model": lambda h: h.pop("model"),
        "no inputs": lambda h: h.pop("inputs"),
        "no day": lambda h: h.pop("made"),
    }


@pytest.mark.parametrize("name", list(changes()))
def test_a_header_that_does_not_hold_together_is_refused(name, good, tmp_path):
    refused(tmp_path, remade(good, changes()[name]))


def vectors():
    def first(tensors, end):
        return next(name for name in tensors if name.endswith(end))

    def put(end, make):
        def change(tensors):
            name = first(tensors, end)
            tensors[name] = make(tensors[name].clone())

        return change

    def set_first(value):
        def make(vector):
            vector[0] = value
            return vector

        return make

    def threshold(tensors):
        name = next(name for name in tensors if name.startswith("thresholds/"))
        tensors[f"thresholds/{'0' * 16}"] = tensors.pop(name)

    def thresholds(make):
        def change(tensors):
            name = next(name for name in tensors if name.startswith("thresholds/"))
            tensors[name] = make(tensors[name].clone())

        return change

    return {
        "not a number": put("/norms", set_first(float("nan"))),
        "infinite": put("/squares", set_first(float("inf"))),
        "negative": put("/norms", set_first(-1.0)),
        "another dtype": put("/norms", lambda v: v.double()),
        "active as numbers": put("/active", lambda v: v.float()),
        "active below 0": put("/active", set_first(-1)),
        "shorter": put("/norms", lambda v: v[1:].clone()),
        "two axes": put("/norms", lambda v: v[None]),
        "missing": lambda tensors: tensors.pop(first(tensors, "/norms")),
        "more than belongs there": lambda tensors: tensors.__setitem__("extra", torch.ones(3)),
        "thresholds of no selection": threshold,
        "fewer thresholds": thresholds(lambda v: v[:-1].clone()),
        "thresholds below 0": thresholds(set_first(-1.0)),
        "thresholds in float32": thresholds(lambda v: v.float()),
    }


@pytest.mark.parametrize("name", list(vectors()))
def test_vectors_that_cannot_be_are_refused(name, good, tmp_path):
    refused(tmp_path, remade(good, vectors=vectors()[name]))


def test_other_files_are_refused_in_words(good, tmp_path):
    refused(tmp_path, b"PK\x03\x04 a zip, such as a pickle of torch lies in" * 9, "not an edit")
    refused(tmp_path, save_tensors({"a": torch.ones(2)}, metadata={"format": "pt"}), "not an edit")
    refused(tmp_path, save_tensors({"a": torch.ones(2)}), "not an edit")
    refused(tmp_path, (1 << 62).to_bytes(8, "little") + b"{" * 100, "header would be")
    nested = b'{"__metadata__": ' + b"[" * 100_000
    refused(tmp_path, len(nested).to_bytes(8, "little") + nested, "brackets")
    inner = json.dumps({"format": "something else", "version": 1})
    refused(tmp_path, save_tensors({"a": torch.ones(2)}, metadata={"lesion": inner}), "not an edit")


def test_a_name_that_is_no_file_names_the_files_that_are_near(good, tmp_path):
    (tmp_path / "mathneuro-0.05.edit").write_bytes(good)
    for place in (tmp_path, tmp_path / "mathneuro-0.06.edit"):
        with pytest.raises(UsageError, match=r"mathneuro-0\.05\.edit"):
            read_edit(place)
