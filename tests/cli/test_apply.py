"""`lesion apply`: an edited checkpoint that plain transformers loads, and answers as the edit in memory does."""

import pytest
import transformers as hf
from safetensors.numpy import load_file

from commandline import lesion, save
from lesion.edits.apply import applied
from lesion.edits.edit import Compose, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.topk import Magnitude
from lesion.edits.weights import written
from lesion.models.load import load


@pytest.fixture
def base(tmp_path):
    return save(tmp_path / "base")


@pytest.fixture
def edit(base, tmp_path):
    return save_edit(tmp_path / "half.edit", ScaleParameters(Magnitude(0.3), 0.5), load(base))


def generated(network, tokenizer) -> list[int]:
    prompt = tokenizer("12 + 34 =", return_tensors="pt")
    return network.generate(**prompt, max_new_tokens=24, do_sample=False, pad_token_id=2)[0].tolist()


def test_the_folder_answers_token_for_token_as_the_edit_in_memory(capsys, base, edit, tmp_path):
    done = lesion(capsys, "apply", base, "--edit", edit, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    model = load(base)
    with written(model, [read_edit(edit).fit(model)]):
        want = generated(model.network, model.tokenizer)
    assert want != generated(model.network, model.tokenizer)
    network = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert generated(network, hf.AutoTokenizer.from_pretrained(tmp_path / "out")) == want
    assert "magnitude-0.3 × 0.5: " in done.out
    assert "achieved" not in done.out
    size = sum(len(tensor.tobytes()) for tensor in load_file(tmp_path / "out" / "model.safetensors").values())
    assert f"model: {tmp_path / 'out'} ({size / 1e6:,.1f} MB)" in done.out


def test_the_bundled_model_is_edited_by_its_name(capsys, tmp_path):
    model = load("bundled:llama-base")
    one = save_edit(tmp_path / "one.edit", ScaleParameters(Magnitude(0.01), 0.0), model)
    two = save_edit(tmp_path / "two.edit", ScaleParameters(Magnitude(0.02, ("0.mlp.up",)), 1.5), model)
    done = lesion(capsys, "apply", "bundled:llama-base", "--edit", one, "--edit", two, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    # Products are rounded to the dtype on disk, so they are those of the model in that dtype.
    edited, model = (load(place, dtype="float16") for place in (tmp_path / "out", "bundled:llama-base"))
    with written(model, [read_edit(one).fit(model), read_edit(two).fit(model)]):
        want = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    assert all(tensor.equal(want[name]) for name, tensor in edited.network.state_dict().items())


def test_a_factor_may_be_given_for_all_edits(capsys, base, edit, tmp_path):
    done = lesion(capsys, "apply", base, "--edit", edit, "--factor", 0, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert " × 0: " in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["MODEL", "--edit", "nothing.edit", "--out", "OUT"], 2, "no file nothing.edit"),
        (["MODEL", "--edit", "EDIT", "--out", "MODEL"], 2, "not empty"),
        (["MODEL", "--edit", "EDIT", "--factor", "nan", "--out", "OUT"], 2, "finite"),
        (["MODEL", "--edit", "EDIT", "--factor", "1", "--out", "OUT"], 1, "the factor is 1"),
        (["nowhere/at/all", "--edit", "EDIT", "--out", "OUT"], 2, "no folder nowhere/at/all"),
        (["bundled:llama-base", "--edit", "EDIT", "--out", "OUT"], 1, "does not fit bundled:llama-base"),
        (["bundled:llama-base", "--edit", "EDIT", "--force", "--out", "OUT"], 1, "does not fit bundled:llama-base"),
        (["MODEL", "--edit", "EDIT", "--out", "EDIT/out"], 2, "not a directory. Give --out another place"),
        (["MODEL", "--edit", "EDIT", "--out", "EDIT"], 2, "is no folder"),
        (["MODEL", "--out", "OUT"], 2, "--edit"),
    ],
)
def test_bad_input_is_told_in_one_paragraph_and_nothing_is_written(arguments, code, says, capsys, base, edit, tmp_path):
    places = {"MODEL": str(base), "EDIT": str(edit), "EDIT/out": f"{edit}/out", "OUT": str(tmp_path / "out")}
    done = lesion(capsys, "apply", *(places.get(argument, argument) for argument in arguments))
    assert done.code == code, done.err
    assert says in done.complaint
    assert done.complaint.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"base", "half.edit"}


def test_a_model_in_the_hubs_cache_is_edited_through_its_links(capsys, base, edit, tmp_path, monkeypatch):
    import huggingface_hub.constants

    cache = tmp_path / "hub"
    commit = "0" * 40
    repository = cache / "models--tiny--llama"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "blobs").mkdir()
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(base.iterdir())):
        path.rename(repository / "blobs" / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    done = lesion(capsys, "apply", snapshot, "--edit", edit, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    done = lesion(capsys, "apply", "tiny/llama", "--edit", edit, "--out", tmp_path / "hubbed")
    assert done.code == 0, done.err
    one, two = (tmp_path / name / "model.safetensors" for name in ("out", "hubbed"))
    assert one.read_bytes() == two.read_bytes()


def test_a_truncated_folder_answers_as_the_edit_in_memory_and_says_what_is_kept(capsys, base, tmp_path):
    edit = Compose((Truncate("1.mlp.up", 0.25), Truncate("0.attention.o", 0.75, "bottom")))
    path = save_edit(tmp_path / "cut.edit", edit, load(base))
    done = lesion(capsys, "apply", base, "--edit", path, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    model = load(base)
    unedited = generated(model.network, model.tokenizer)
    with applied(model, edit):
        want = generated(model.network, model.tokenizer)
    assert want != unedited
    network = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert generated(network, hf.AutoTokenizer.from_pretrained(tmp_path / "out")) == want
    for words in (
        "1.mlp.up: the largest 8 of 32 components kept, ",
        "0.attention.o: the smallest 24 of 32 components kept, ",
    ):
        assert words in done.out, done.out
    done = lesion(capsys, "apply", base, "--edit", path, "--factor", 0, "--out", tmp_path / "again")
    assert done.code == 2
    assert "is a truncation and has no factor" in done.complaint
