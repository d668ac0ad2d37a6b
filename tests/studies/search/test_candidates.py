"""Every candidate against plain transformers: a network whose blocks are copied and multiplied by hand."""

import pytest
import torch
from layouts import LIMIT, by_hand, greedy, questions, study
from oracle import Listener

import architectures_zoo as zoo
from lesion.core.store import Store
from lesion.edits.edit import Scale, Truncate, parts
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.models.reordered import reordered
from lesion.studies.search.search import candidates, without_effect
from runs import run_search
from tiny import model, tiny, tokenizer


def found(llama, **values):
    layers = values.pop("among", range(3))
    return candidates(study("q.jsonl", **values), llama.anatomy, layers)


def factors(edit):
    """What last matrices are multiplied by, place by place, of an edit that scales whole blocks' branches alike."""
    return {part.layer: part.factor for part in parts(edit) if isinstance(part, Scale)}


@pytest.mark.parametrize(
    "values",
    [
        {"family": ["repeat"], "lengths": [1, 2, 3], "damping": [1.0, 0.5], "times": [2, 3]},
        {"family": ["drop"], "lengths": [1, 2]},
        {"family": ["swap"], "lengths": [1]},
    ],
)
def test_every_layout_says_what_a_network_built_by_hand_says(values, llama, tmp_path):
    network = tiny("llama")
    file = questions(tmp_path / "q.jsonl", network, 12)
    result = run_search(study(file, screen="none", **values), tmp_path / "out", model=llama)
    rows = {row.name: row for row in result.summary.candidates}
    with Store.read(tmp_path / "out") as store:
        answers = store.answers()
    answers = answers[answers["task"] == str(file)]
    everyone = found(llama, **values)
    assert len(everyone) == len(rows) > 1
    differing = 0
    for candidate in everyone:
        row, plain = rows[candidate.name], by_hand(network, candidate.written, factors(candidate.damped))
        own = answers[(answers["model_name"] == row.model) & (answers["edit"] == row.edit)]
        assert len(own) >= 6
        said, unedited = [*own["text"]], greedy(network, [*own["question"]])
        assert said == greedy(plain, [*own["question"]])
        differing += sum(text != other for text, other in zip(said, unedited, strict=True))
    assert differing > len(everyone)


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "mixtral", "unknown"])
def test_in_other_architectures_a_candidate_answers_as_the_reordered_model_alone(family, tmp_path):
    original = model(family)
    file = questions(tmp_path / "q.jsonl", tiny("llama"), 6)
    what = study(file, model=original.name, family=["repeat", "swap"], lengths=[1, 2], damping=[0.5], screen="none")
    result = run_search(what.model_copy(update={"anyway": True}), tmp_path / "out", model=original)
    rows = {row.name: row for row in result.summary.candidates}
    with Store.read(tmp_path / "out") as store:
        answers = store.answers()
    blocks = range(len(original.anatomy.blocks))
    for candidate in candidates(what, original.anatomy, blocks)[::3]:
        row, other = rows[candidate.name], reordered(original, candidate.written)
        own = answers[(answers["model_name"] == row.model) & (answers["edit"] == row.edit)]
        own = own[own["task"] == str(file)]
        assert len(own) > 0
        for text, question in zip(own["text"], own["question"], strict=True):
            said = other.generate(question, candidate.damped, max_new_tokens=LIMIT, stop="\n", prompt_style="raw")
            assert text == said


def test_repeats_that_end_at_one_block_are_edits_of_one_network(llama):
    everyone = found(llama, family=["repeat"], lengths=[1, 2, 3], damping=[1.0, 0.5])
    assert len(everyone) == 12
    assert {candidate.order for candidate in everyone} == {(0, 0, 1, 2), (0, 1, 0, 1, 2), (0, 1, 2, 0, 1, 2)}
    assert len({(candidate.order, str(candidate.edit)) for candidate in everyone}) == 12
    by_name = {candidate.name: candidate for candidate in everyone}
    short = by_name["block 2 twice (×0.5)"]
    assert str(short.edit) == "3×0 + 4×0 + 5.attention×0.5 + 5.mlp×0.5"
    assert (short.written, str(short.damped)) == ((0, 1, 2, 2), "3.attention×0.5 + 3.mlp×0.5")


def test_runs_lie_within_the_layers_and_drops_of_a_length_are_a_contest_of_their_own(llama):
    drops = found(llama, family=["drop"], lengths=[1, 2], among=[0, 2])
    assert [(each.name, each.contest) for each in drops] == [
        ("block 0 left out", "drop 1"),
        ("block 2 left out", "drop 1"),
    ]
    assert {each.contest for each in found(llama, family=["swap", "scale"], lengths=[1])} == {"better"}
    with pytest.raises(
        UsageError,
        match=r"There is nothing to swap in tiny:llama, which has 3 blocks, with --lengths 1 and --layers 0,2",
    ):
        found(llama, family=["swap"], lengths=[1], layers="0,2", among=[0, 2])


def test_scaled_places_and_truncated_matrices_are_edits_of_the_model_itself(llama):
    everyone = found(llama, family=["scale", "truncate"], factor=[1.1], keep=[0.5], matrices=["mlp.up"])
    assert [str(each.edit) for each in everyone] == [
        *(f"{block}.{unit}×1.1" for block in range(3) for unit in ("attention", "mlp")),
        *(str(Truncate(f"{block}.mlp.up", 0.5)) for block in range(3)),
    ]
    assert {each.order for each in everyone} == {(0, 1, 2)}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"family": ["drop"], "damping": [0.5]}, "damping is of repeat alone"),
        ({"family": ["scale"], "lengths": [2]}, "lengths is of repeat, drop or swap alone"),
        ({"family": ["repeat", "drop"], "factor": [1.2]}, "factor is of scale alone"),
        ({"family": ["swap"], "keep": [0.5]}, "keep is of truncate alone"),
        ({"damping": [1.0, 0.0]}, "damping 0"),
        ({"family": ["scale"], "factor": [1.0]}, "factor 1 changes nothing"),
        ({"margin": 5.0}, "margin is of controls and dropped runs alone; leave it out, give a control"),
        ({"margin": -1.0}, "margin must be a number above 0, up to 100"),
    ],
)
def test_options_that_would_change_nothing_are_refused(values, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        study(tmp_path / "q.jsonl", **values)


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        ({}, []),
        ({"lengths": [1, 3], "family": ["repeat", "swap"]}, []),
        ({"lengths": [1, 2, 4], "family": ["swap"]}, ["No run of 2 or 4 blocks can be tried in these layers."]),
        ({"lengths": [1], "screen": 4}, ["Every candidate is evaluated in full: a screen to 4 would leave none out."]),
        ({"lengths": [1], "screen": 2}, []),
        (
            {"family": ["truncate"], "matrices": ["mlp.up"], "keep": [1.0, 0.5]},
            ["3 keeps leave the same components as another, or all, and were not asked again."],
        ),
    ],
)
def test_what_makes_no_candidate_or_no_difference_is_noted(values, notes, llama):
    what = study("q.jsonl", **values)
    assert without_effect(what, llama.anatomy, range(3), found(llama, **values)) == notes


def test_damping_is_refused_where_blocks_have_no_attention_and_mlp():
    from transformers import MambaConfig, MambaForCausalLM

    mamba = wrap(MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)), tokenizer(), "m")
    assert len(found(mamba, family=["repeat"], lengths=[1], among=range(2))) == 2
    with pytest.raises(UsageError, match=r"block 0 of m has not both; leave --damping out"):
        found(mamba, family=["repeat"], lengths=[1], damping=[0.5], among=range(2))
    with pytest.raises(UsageError, match=r"No block of m among these has mlp to scale; give another --unit"):
        found(mamba, family=["scale"], among=range(2))


def test_an_architecture_that_builds_blocks_by_number_is_refused_before_anything_is_evaluated(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64, n_embd=32, n_layer=3, n_head=4, n_positions=64, scale_attn_by_inverse_layer_idx=True
    )
    numbered = wrap(GPT2LMHeadModel(config), tokenizer(), "tiny:numbered")
    file = questions(tmp_path / "q.jsonl", tiny("llama"), 4)
    what = study(file, model="tiny:numbered", family=["drop", "repeat"], lengths=[1])
    with pytest.raises(LesionError, match=r"would be another function.*Leave repeat out of --family"):
        run_search(what, tmp_path / "out", model=numbered)
    assert not (tmp_path / "out" / "answers.sqlite").exists()


def test_orders_that_the_architecture_cannot_have_are_left_out_of_their_family_with_a_note(tmp_path):
    """Jamba has a state-space layer at every even place: only whole pairs of blocks can be swapped."""
    listener, periodic = Listener(), wrap(zoo.made("jamba"), tokenizer(), "tiny:periodic")
    file = questions(tmp_path / "q.jsonl", tiny("llama"), 4)
    what = study(file, model="tiny:periodic", family=["swap"], lengths=[1, 2], anyway=True)
    result = run_search(what, tmp_path / "out", model=periodic, watcher=listener)
    assert [row.name for row in result.summary.candidates] == ["blocks 0–1 behind blocks 2–3"]
    assert any("swap: 3 of 4 candidates cannot be made and are left out" in note for note in listener.notes)
