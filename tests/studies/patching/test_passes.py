"""Patched passes against plain hooks on whole prompts, one run a patch; and what follows from the definition."""

import pytest
import torch

import architectures_zoo as zoo
from lesion.models.load import wrap
from lesion.studies.patching.passes import Pair, Patch, Place, patched, places_of, read, sites_of
from lesion.studies.patching.result import DIRECTIONS
from lesion.studies.patching.study import KINDS
from tiny import model as tiny_model
from tiny import tokenizer

CLOSE = {"abs": 2e-4}
PAIRS = {
    "one token": Pair("0", (1, 20, 22, 23, 24, 25), (1, 20, 30, 23, 24, 25), 40, 41),
    "two tokens, the last one too": Pair("0", (1, 20, 21, 22, 23), (1, 33, 21, 22, 34), 40, 41),
    "no common beginning": Pair("0", (20, 21, 22, 23, 24), (30, 21, 31, 23, 24), 40, 41),
}


@pytest.fixture(scope="module", params=["llama", "opt", "gemma2", "gpt_neox", "mixtral"])
def model(request):
    return tiny_model(request.param)


def stream(output):
    return output[0] if isinstance(output, tuple) else output


OUTPUTS = ("o_proj", "out_proj", "dense")
"""What transformers calls the matrix that reads the heads of an attention."""


def plain(model, pair, direction, patch, held) -> tuple[float, float, float]:
    """Right logit, tempting logit and log-probability: two whole runs, the second with one hook.

    What the first run of a prompt had at a place is held for other positions of it.
    """
    source, base = (pair.clean, pair.corrupted) if direction == "denoise" else (pair.corrupted, pair.clean)
    place, config = patch.place, model.network.config
    if place.kind == "head":
        names = dict(model.anatomy.block(place.layer).module.named_modules())
        (module,) = (
            part
            for name, part in names.items()
            if name.rpartition(".")[2] in OUTPUTS and "mlp" not in name and "mamba" not in name
        )
        size = module.in_features // config.num_attention_heads
        columns = slice(place.head * size, (place.head + 1) * size)
    else:
        module, columns = sites_of(model)[place], slice(None)

    def replaced(values):
        there = values.clone()
        flat = there.view(-1, there.shape[-1])  # [length, width], of one row
        at = list(patch.positions)
        flat[at, columns] = held[source, place].view(-1, there.shape[-1])[at, columns]
        return there

    def put(module, args, output):
        there = replaced(stream(output))
        return (there, *output[1:]) if isinstance(output, tuple) else there

    def hold(values):
        held[source, place] = values.clone()

    def hook(on_input, on_output):
        if place.kind == "head":
            return module.register_forward_pre_hook(lambda m, args: on_input(args[0]))
        return module.register_forward_hook(on_output)

    def run(prompt, handle):
        try:
            return model.network(torch.tensor([prompt])).logits[0, -1].double()
        finally:
            handle.remove()

    with torch.no_grad():
        if (source, place) not in held:
            run(source, hook(hold, lambda m, a, output: hold(stream(output))))
        logits = run(base, hook(lambda x: (replaced(x),), put))
    return float(logits[pair.right]), float(logits[pair.tempting]), float(logits.log_softmax(-1)[pair.right])


def test_every_place_and_class_is_what_a_plain_hook_on_a_whole_run_gives(model):
    compare(model, PAIRS["one token"])


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "one token"])
def test_prompts_may_differ_at_both_ends(name):
    compare(tiny_model("llama"), PAIRS[name])


def test_heads_are_patched_beside_a_state_with_which_they_make_one_branch():
    compare(wrap(zoo.made("falcon_h1"), tokenizer(), "falcon_h1"), PAIRS["one token"], {*KINDS} - {"attention"})


def compare(model, pair, kinds=frozenset(KINDS)):
    """Hold every place at every class of positions to plain hooks; heads, of which there are many, at one in turn."""
    values, held, classes = read(model, pair)[2], {}, list(pair.positions.values())
    places = places_of(model)
    patches = [Patch(place, positions) for place in places if place.kind != "head" for positions in classes]
    heads = (place for place in places if place.kind == "head")
    patches += [Patch(place, classes[number % len(classes)]) for number, place in enumerate(heads)]
    assert {patch.place.kind for patch in patches} == kinds
    for direction in DIRECTIONS:
        for patch, readout in zip(patches, patched(model, pair, values, direction, patches), strict=True):
            assert tuple(readout) == pytest.approx(plain(model, pair, direction, patch, held), **CLOSE)


def test_the_whole_stream_restores_everything_and_its_own_values_change_nothing(model):
    pair = PAIRS["one token"]
    clean, corrupted, values = read(model, pair)
    last = len(model.anatomy.blocks) - 1
    whole = [Patch(Place("block", layer), pair.positions["all"]) for layer in (0, last)]
    assert clean.difference != pytest.approx(corrupted.difference, abs=0.01)
    for readout in patched(model, pair, values, "denoise", whole):
        assert tuple(readout) == pytest.approx(tuple(clean), **CLOSE)
    for readout in patched(model, pair, values, "noise", whole):
        assert tuple(readout) == pytest.approx(tuple(corrupted), **CLOSE)
    itself = {site: of_site.flip(0) for site, of_site in values.items()}  # the corrupted run's own values
    every = [Patch(place, pair.positions["all"]) for place in places_of(model)]
    for readout in patched(model, pair, itself, "denoise", every):
        assert tuple(readout) == pytest.approx(tuple(corrupted), **CLOSE)


def test_the_number_of_rows_of_a_pass_changes_nothing_and_no_hook_stays():
    model, pair = tiny_model("llama"), PAIRS["one token"]
    values = read(model, pair)[2]
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in model.network.modules()]
    patches = [Patch(place, pair.positions["last"]) for place in reversed(places_of(model))]
    together, alone = (patched(model, pair, values, "noise", patches, rows) for rows in (None, 1))
    for one, other in zip(together, alone, strict=True):
        assert tuple(one) == pytest.approx(tuple(other), **CLOSE)
    assert hooks == [module._forward_hooks | module._forward_pre_hooks for module in model.network.modules()]


def test_positions_are_parted_by_the_differing_tokens():
    pair = Pair("0", (1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 9, 4, 9, 6, 7, 8), 0, 1)
    assert pair.positions == {
        "earlier different": (2,),
        "last different": (4,),
        "next": (5,),
        "between": (3, 6),
        "last": (7,),
        "all": (2, 3, 4, 5, 6, 7),
    }
    end = Pair("0", (1, 2), (1, 3), 0, 1)
    assert end.positions == {"last": (1,), "all": (1,)}
