"""Isolation on a quantised model: its activations, the weights of the checkpoint that it was made from."""

import pytest
import torch

from commandline import write
from lesion.edits.files.artefact import read_edit
from lesion.edits.files.checkpoint import apply
from lesion.errors import LesionError, UsageError
from lesion.models.load import load, wrap
from lesion.studies.isolation.study import IsolationStudy
from quantising import STORAGES, coded, dequantised, quantised, save
from runs import run_isolation
from tiny import model, tiny, tokenizer


@pytest.fixture
def data(tmp_path) -> tuple[str, str]:
    texts = {"skill": "{n} + {m} =", "control": "a fox ran {m}{n} miles,"}
    for name, text in texts.items():
        rows = ({"id": str(n), "prompt": text.format(n=n, m=n * 7 % 10), "answer": "right"} for n in range(10))
        write(tmp_path / f"{name}.jsonl", rows)
    return str(tmp_path / "skill.jsonl"), str(tmp_path / "control.jsonl")


def study(data: tuple[str, str], **values) -> IsolationStudy:
    skill, control = data
    asks = {"tasks": [skill], "items": 4, "random_controls": 1, "decoding": {"max_new_tokens": 3}}
    told = {"model": "tiny:llama", "skill": skill, "controls": control, "samples": 3, "share": 0.2, "name": "s"}
    return IsolationStudy.make(**{**told, **asks, **values})


@pytest.fixture
def packed():
    return wrap(coded(tiny("llama")), tokenizer(), "tiny:llama")


@pytest.fixture
def full():
    return wrap(tiny("llama"), tokenizer(), "tiny:full")


def test_activations_are_those_of_the_quantised_model_and_weights_the_full_ones(packed, full, data, tmp_path):
    asked = study(data, weights="tiny:full", share=0.2)
    outcome = run_isolation(asked, tmp_path / "a", models={"tiny:llama": packed, "tiny:full": full})
    (file,) = (tmp_path / "a").glob("*.edit")
    edit = read_edit(file)
    # Independent: the quantised model's numbers as plain weights give the same activations; |W| stays that of `full`.
    plain = wrap(dequantised(packed.network), tokenizer(), "tiny:llama")
    other = run_isolation(study(data), tmp_path / "b", model=plain)
    ours, theirs = (read_edit(next(folder.glob("*.edit"))) for folder in (tmp_path / "a", tmp_path / "b"))
    for inputs, expected in zip(ours.edit.selection.inputs, theirs.edit.selection.inputs, strict=True):
        for key, sums in expected.sums.items():
            torch.testing.assert_close(inputs.sums[key].norms, sums.norms, rtol=1e-4, atol=1e-5)
    assert edit.model.fingerprint == full.fingerprint != packed.fingerprint
    assert {p.fingerprint for i in edit.edit.selection.inputs for p in i.provenance} == {packed.fingerprint}
    assert outcome.summary.isolation.model == "tiny:full"
    assert any("Activations were read on tiny:llama (gptq, 8 bit)" in note for note in outcome.summary.isolation.notes)
    assert outcome.summary.evaluation.model == "tiny:full"
    assert other.summary.isolation.fingerprint == plain.fingerprint
    assert str(edit.fit(full)) == str(edit.edit)


def test_a_quantised_model_without_full_weights_is_refused(packed, data, tmp_path):
    with pytest.raises(LesionError, match=r"stored quantised \(gptq, 8 bit\), and packed weights .* --weights SOURCE"):
        run_isolation(study(data), tmp_path / "out", model=packed)


def test_full_weights_of_a_model_that_is_not_quantised_are_refused(full, data, tmp_path):
    models = {"tiny:llama": model("llama"), "tiny:full": full}
    with pytest.raises(UsageError, match=r"tiny:llama is not quantised.*leave out --weights"):
        run_isolation(study(data, weights="tiny:full"), tmp_path / "out", models=models)


def test_weights_of_another_model_or_quantised_ones_are_refused(packed, data, tmp_path):
    for name, wrong, says in (
        ("other", model("gpt2"), "is not what tiny:llama was made from"),
        ("packed", wrap(coded(tiny("llama")), tokenizer(), "packed"), "packed is stored quantised"),
    ):
        with pytest.raises(LesionError, match=says):
            run_isolation(study(data, weights=name), tmp_path / "out", models={"tiny:llama": packed, name: wrong})


def test_other_full_weights_do_not_go_into_the_same_folder(packed, full, data, tmp_path):
    asked = study(data, weights="tiny:full", tasks=[])
    run_isolation(asked, tmp_path / "out", models={"tiny:llama": packed, "tiny:full": full})
    network = tiny("llama")
    network.model.layers[0].mlp.up_proj.weight.data *= 2
    models = {"tiny:llama": packed, "else": wrap(network, tokenizer(), "else")}
    with pytest.raises(LesionError, match="holds another isolation"):
        run_isolation(study(data, weights="else", tasks=[]), tmp_path / "out", models=models)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_really_quantised_checkpoint_gives_an_edit_of_its_origin(storage, data, tmp_path):
    plain, packed = quantised(storage, tmp_path)
    asked = study(data, model=str(packed), weights=str(plain), tasks=[])
    run_isolation(asked, tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*.edit")
    with pytest.raises(LesionError, match="cannot be written into packed weights"):
        apply(packed, file, tmp_path / "refused")
    done = apply(packed, file, tmp_path / "edited", weights=plain)
    assert done.moved > 0
    edited, before = load(tmp_path / "edited").network.state_dict(), load(plain).network.state_dict()
    assert sum(int((edited[name] != before[name]).sum()) for name in before) == done.moved


def test_apply_takes_full_weights_for_quantised_models_only(tmp_path):
    plain = save(tiny("llama"), tmp_path / "plain")
    with pytest.raises(UsageError, match=r"is not quantised.*leave out --weights"):
        apply(plain, "1×0", tmp_path / "out", weights=plain)
