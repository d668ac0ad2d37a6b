"""Blocks that keep something else than keys and values, in the fast way: each row says what it says alone, without a
cache.
"""

from dataclasses import replace
from functools import cache

import pytest
import torch

import architectures_studies as studies
import architectures_zoo as zoo
import tiny
from alone import answered, assert_alone, assert_scored_alone, greedy, prompts
from lesion.edits.edit import BASELINE, ScaleAttention, ScaleBlock, ScaleMlp, Truncate
from lesion.edits.gates import gated
from lesion.edits.table import tabulate
from lesion.edits.units import ScaleMatrix
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import prefixes
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.engines.transformers.recorded import masks_of
from lesion.engines.transformers.states import StateRows, has_keys, has_states
from lesion.engines.transformers.static_slots import Masks
from lesion.engines.transformers.ways import Kind
from lesion.models.load import Model, wrap
from recording import Recorder, anew

KINDS = {
    "qwen3_next": (True, True),
    "granitemoehybrid": (True, True),
    "bamba": (True, True),  # told no positions, its code counts none that it has read
    "falcon_h1": (True, True),  # attention and a state in one block
    "mamba": (True, False),  # no attention; its code reads no text in parts
    "falcon_mamba": (True, False),
    "mamba2": (True, True),
    "jamba": (True, False),
    "lfm2": (True, True),  # convolutions
    "nemotron_h": (True, True),  # blocks that keep nothing
    "kimi_linear": (True, True),
    "zamba2": (True, True),  # blocks that are given what was embedded
    "gemma4_text": (False, True),  # blocks that read the keys of another one
    "llama4_text": (False, True),  # attention in chunks of eight tokens
}
"""Whether a block keeps states, and whether a text may be read in parts."""


@cache
def made(kind: str) -> Model:
    return wrap(zoo.made(kind), tiny.tokenizer(), kind)


@pytest.fixture(scope="module", params=KINDS)
def model(request) -> Model:
    return made(request.param)


def requests(texts, edits=None, limit=9) -> list[Request]:
    edits = edits or (BASELINE, ScaleBlock(0), ScaleBlock(1, 0.5), ScaleBlock(3))
    return [
        Request(f"{n} {edit}", text, edit, Decoding(limit - n % 4)) for n, text in enumerate(texts) for edit in edits
    ]


def test_rows_of_all_lengths_leave_and_enter_under_their_own_edits(model):
    assert (way_of(model).kind, way_of(model).states, way_of(model).resumes) == (Kind.FAST, *KINDS[model.name])
    asked = requests([*prompts(5, longest=30), prompts(1, 70, seed=2, shortest=70)[0]])
    asked += [replace(each, key=f"{each.key} drawn", decoding=Decoding(6, temperature=1.2)) for each in asked[::5]]
    found, work = answered(model, asked, 6)
    assert_alone(model, asked, found)
    # A state cannot give a token back, and Gemma's last blocks would run on all of a draft.
    assert (work.drafted == 0) is (model.name != "llama4_text")


def test_the_states_of_what_prompts_begin_with_are_computed_once_for_each_edit(model, worth_it):
    (head,) = prompts(1, longest=40, shortest=40)
    tails = prompts(6, longest=6, seed=3, shortest=2)
    asked = requests([head + tail for tail in tails])
    found, work = answered(model, asked)
    assert_alone(model, asked, found)
    whole = sum(len(each.prompt) for each in asked[:: len(asked) // len(tails)])
    assert (work.prompt - work.drafted < whole) is KINDS[model.name][1]


@pytest.mark.parametrize("kind", ["mamba2", "jamba", "zamba"])
def test_half_precision_goes_the_way_of_float32(kind):
    """Mamba 2 holds its stream in float32; what Zamba's states add is small against half precision's errors."""
    half = wrap(zoo.made(kind).to(torch.bfloat16), tiny.tokenizer(), kind)
    assert (way_of(half).kind, way_of(half).resumes) == (Kind.FAST, way_of(made(kind)).resumes)


@pytest.mark.parametrize("kind", ["mamba2", "qwen3_next", "lfm2"])
def test_states_count_as_the_memory_that_they_take(kind, worth_it):
    model = made(kind)
    (head,) = prompts(1, longest=40, shortest=40)
    asked = requests([head + tail for tail in prompts(3, longest=6, seed=3)], [BASELINE])
    engine = TransformersEngine(model, 8)
    entries = [(request, 0) for request in asked]
    with gated(model) as gates, torch.inference_mode():
        own = prefixes.Prefixes(
            model, gates, tabulate([BASELINE], model.anatomy), 0, engine.work, entries, way_of(model)
        )
        (begun, *_) = own.begun([own.of(*entry) for entry in entries], [0] * len(entries))
    layers = [layer for layer, _ in begun.past.kept]
    kept = [tensor for layer in filter(has_states, layers) for tensor in layer.tensors]
    kept += [tensor for layer in filter(has_keys, layers) for tensor in (layer.keys, layer.values)]
    assert begun.past.size == sum(tensor.nbytes for tensor in kept) > 0


def test_options_of_several_lengths_are_scored_as_in_a_pass_of_their_own(model):
    options = ((7,), (8, 9), (8, 10, 11))
    asked = [replace(each, choices=options) for each in requests(prompts(4, longest=20, seed=4))]
    assert_scored_alone(model, asked, answered(model, asked, 6)[0])


@pytest.mark.parametrize("recorder", [anew, Recorder()])
@pytest.mark.parametrize(
    "kind", ["qwen3_next", "falcon_h1", "mamba", "mamba2", "nemotron_h", "gemma4_text", "llama4_text"]
)
def test_steps_over_states_are_recorded_and_replayed(kind, recorder):
    """Rows leave and enter, the window widens, and the batch shrinks."""
    model = made(kind)
    assert isinstance(masks_of(model), Masks)
    asked = requests(prompts(6, longest=20, seed=5), (BASELINE, ScaleBlock(0), ScaleBlock(3, 0.5)), limit=14)
    engine = TransformersEngine(model, 5, recorder)
    assert_alone(model, asked, {response.key: response for response in engine.answer(asked)})
    assert (engine.work.replayed > 20) is (recorder is not anew)


@pytest.mark.parametrize("kind", ["qwen3_next", "falcon_h1", "mamba", "mamba2", "gemma4_text", "llama4_text"])
def test_effects_and_patched_runs_are_those_of_plain_passes(kind):
    texts = prompts(2, longest=12, seed=6, shortest=9)
    assert studies.effects(made(kind), texts) == ""
    assert studies.patch(made(kind), texts) == ""


def test_parts_of_blocks_and_rows_of_one_prompt():
    model, (text,) = made("granitemoehybrid"), prompts(1, longest=15, shortest=15)
    edits = [ScaleAttention(2, 0.5), ScaleMlp(0), ScaleMlp(3, 0.5), ScaleAttention(1), ScaleBlock(2, 0.3)]
    asked = requests([text], edits)
    assert_alone(model, asked, answered(model, asked, 8)[0])


def test_a_matrix_whose_module_nothing_runs_is_edited_in_its_weights():
    """The code of Jamba takes the weight of `dt_proj`, and never calls it."""
    model, (text,) = made("jamba"), prompts(1, longest=9, shortest=9)
    weight = model.network.model.layers[0].mamba.dt_proj.weight.data
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    by_hand = {
        ScaleMatrix(0, "attention.dt_proj", -2.0): weight * -2,
        Truncate("0.attention.dt_proj", 0.25): left[:, :1] * values[:1] @ right[:1],
    }
    said, _ = answered(model, requests([text], [BASELINE, *by_hand]), 8)
    before = weight.clone()
    for edit, edited in by_hand.items():
        weight.copy_(edited)
        assert said[f"0 {edit}"].token_ids == greedy(model, text, BASELINE, 9)
        weight.copy_(before)
    assert len({each.token_ids for each in said.values()}) == 3


@pytest.mark.parametrize("wrong", ["rows", "nothing kept"])
def test_states_of_other_rows_are_seen_in_the_trial(wrong, monkeypatch):
    put = StateRows.put

    def misplaced(self, new, sources, slots, rows):
        put(self, new, sources.roll(1) if wrong == "rows" else sources, slots, rows)
        if wrong != "rows":
            for state in self.tensors:
                state.zero_()

    monkeypatch.setattr(StateRows, "put", misplaced)
    assert way_of(wrap(zoo.made("mamba2"), tiny.tokenizer(), "mamba2")).kind is Kind.SHARED
