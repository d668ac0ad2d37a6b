"""Super weights are the largest products of a weight with its input, by a naive sort, and no selection has them."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import Listener

from commandline import write
from lesion.activations.observation import Peaks
from lesion.edits.files.artefact import read_edit
from lesion.errors import LesionError
from lesion.report.table import Table
from lesion.studies.isolation.plan import plan
from lesion.studies.isolation.report import IsolationResult
from lesion.studies.isolation.selections import TEXTS, draw_texts, find_super_weights, isolate, ranked
from lesion.studies.isolation.study import METHODS, IsolationStudy
from lesion.studies.isolation.summary import summarised
from tiny import model


@pytest.fixture(scope="module")
def llama():
    """A tiny model with a planted super weight: one neuron of block 1 is large, and so is its weight into channel 5."""
    planted = model("llama")
    with torch.no_grad():
        mlp = planted.network.model.layers[1].mlp
        mlp.up_proj.weight[7] *= 30
        mlp.down_proj.weight[5, 7] = 9.0
    return planted


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("data")
    skill = [{"id": f"{n}", "prompt": f"{n} + {n * 7 % 10} =", "answer": f"{n}"} for n in range(24)]
    control = [{"id": f"{n}", "prompt": f"a fox ran {n} miles,", "answer": f"{n}"} for n in range(24)]
    return str(write(folder / "skill.jsonl", skill)), str(write(folder / "control.jsonl", control))


def study(data, **values) -> IsolationStudy:
    skill, control = data
    chosen = {"model": "tiny:llama", "skill": skill, "controls": [control], "samples": 20, "share": 0.3}
    return IsolationStudy.make(**{**chosen, "methods": list(METHODS), "exclude_super_weights": 6, **values})


def made(chosen: IsolationStudy, lesioned, folder: Path):
    """The candidates and the numbers."""
    return isolate(chosen, lesioned, folder, Listener(), draw_texts(chosen, lesioned), lesioned)


def largest_inputs(lesioned, texts) -> list[np.ndarray]:
    """max_t |X_tj| of every down projection, one text at a time."""
    layers = [layer.mlp.down_proj for layer in lesioned.network.model.layers]
    inputs: list[list[np.ndarray]] = [[] for _ in layers]
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, own=own: own.append(args[0][0].abs().numpy()))
        for layer, own in zip(layers, inputs, strict=True)
    ]
    with torch.no_grad():
        for text in texts:
            lesioned.network(input_ids=torch.tensor([text]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return [np.concatenate(own).max(axis=0) for own in inputs]


def test_they_are_the_first_of_all_products_of_weights_with_their_largest_inputs(llama, data):
    texts = draw_texts(study(data), llama)
    read = [text for drawn in texts.values() for text in drawn.texts[:TEXTS]]
    products = []
    for block, inputs in enumerate(largest_inputs(llama, read)):
        weight = llama.network.model.layers[block].mlp.down_proj.weight.numpy()
        places = product(range(weight.shape[0]), range(weight.shape[1]))
        products += [(abs(weight[i, j]) * inputs[j], f"{block}.mlp.down[{i},{j}]", weight[i, j]) for i, j in places]
    expected = sorted(products, reverse=True)[:6]
    weights, unsearched = find_super_weights(llama, texts, 6, llama)
    assert [each.name for each in weights] == [name for _, name, _ in expected]
    assert [each.value for each in weights] == [pytest.approx(value) for _, _, value in expected]
    assert [each.product for each in weights] == [pytest.approx(size, rel=1e-4) for size, _, _ in expected]
    assert unsearched == ()
    assert weights[0].name == "1.mlp.down[5,7]"
    assert weights[0].spike


def test_a_spike_joins_the_largest_input_and_the_largest_output_channel(llama):
    inputs, outputs = torch.ones(48), torch.ones(32)
    inputs[3], outputs[4] = 1000.0, 500.0
    weights = ranked(llama, {"0.mlp.down": Peaks(inputs, outputs)}, 20)
    column = llama.network.model.layers[0].mlp.down_proj.weight[:, 3].abs()
    assert [each.row for each in weights] == column.argsort(descending=True)[:20].tolist()
    assert {each.column for each in weights} == {3}
    assert [each.row for each in weights if each.spike] == [4]
    assert [each.largest_output for each in weights if each.row != 4] == [1.0] * 19


def test_no_selection_and_no_random_control_has_them_and_all_else_stays(llama, data, tmp_path):
    without, numbers = made(study(data), llama, tmp_path / "without")
    plain, _ = made(study(data, exclude_super_weights=0), llama, tmp_path / "plain")
    excluded = numbers.excluded
    taken = {(weight.address, weight.row, weight.column) for weight in excluded.weights}
    held = 0
    for ours, theirs, entry in zip(without[:-1], plain, numbers.selections, strict=True):
        lost = set()
        for address, matrix in llama.anatomy.scored.items():
            weight = matrix.read()
            masks = [each.edit.selection.mask(address, weight) for each in (ours, theirs)]
            assert not (masks[0] & ~masks[1]).any()
            lost |= {(address, *place) for place in (masks[1] & ~masks[0]).nonzero().tolist()}
        assert lost <= taken
        names = [(weight.address, weight.row, weight.column) for weight in excluded.weights]
        assert entry.super_weights == tuple(place for place, name in enumerate(names) if name in lost)
        held += len(lost)
    assert held > 0
    made_plan = plan(llama, without, [0.0], 2)
    planned, edits = made_plan.entries, made_plan.edits
    alone = str(without[-1].edit)
    checked = [edits[entry.edit].selection for entry in planned if alone not in (entry.edit, entry.random_of)]
    assert len(checked) > len(METHODS)  # some random controls are shared
    for selection, (address, row, column) in product(checked, taken):
        assert not selection.mask(address, llama.anatomy.matrix(address).read())[row, column]


def test_they_are_cut_alone_by_an_edit_of_their_own(llama, data, tmp_path):
    candidates, found = made(study(data), llama, tmp_path)
    excluded = found.excluded
    file = read_edit(tmp_path / excluded.file)
    (selection,) = file.selections.values()
    assert (excluded.file, excluded.label) == ("super-weights-6.edit", "super-weights-6")
    assert selection.digest == excluded.digest
    assert {weight.name for weight in excluded.weights} == set(selection.weights)
    assert candidates[-1].edit == file.edit


def test_names_say_what_was_left_out_and_counts_are_kept_apart(llama, data, tmp_path):
    without = made(study(data, methods=["wanda"]), llama, tmp_path / "a")[0][0]
    plain = made(study(data, methods=["wanda"], exclude_super_weights=0), llama, tmp_path / "b")[0][0]
    planned = plan(llama, [without, plain], [0.0], 1).entries
    names = [entry.name.replace("\u00a0", " ") for entry in planned if entry.random_of is None]
    assert names == ["Wanda without super-weights-6, share 30 %, ×0", "Wanda, share 30 %, ×0"]
    assert len({entry.randoms for entry in planned if entry.random_of is None}) == 2


def test_the_report_says_which_they_are_and_which_selections_had_them(llama, data, tmp_path):
    isolation = made(study(data, methods=["wanda", "mathneuro"]), llama, tmp_path)[1]
    result = IsolationResult(tmp_path, summarised(isolation.study, isolation, None))
    (part,) = [part for part in result.parts() if part.rows is not None and part.rows.name == "super-weights"]
    (claim,) = part.claims
    text = claim.text.replace("\u00a0", " ")
    assert "6 weights with the largest activation spikes were excluded" in text
    assert "first 1.mlp.down[5,7]." in text
    frame = Table.of(part.rows).frame
    assert list(frame["weight"]) == [weight.name for weight in isolation.excluded.weights]
    first = frame["selected_by"][0]
    assert ("wanda-0.3" in first) == (0 in isolation.selections[0].super_weights)


def test_a_model_of_routed_experts_alone_is_refused(data):
    mixtral = model("mixtral")
    with pytest.raises(LesionError, match="cannot be followed"):
        find_super_weights(mixtral, draw_texts(study(data, model="tiny:mixtral"), mixtral), 3, mixtral)
