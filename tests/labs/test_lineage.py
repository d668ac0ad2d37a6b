"""The lineage's base model: its batches, its loss, and a training that can be interrupted without a trace."""

import json
import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from commandline import lesion
from lesion.errors import LesionError
from lesion.models.load import load
from lesion.tasks.primer import document
from lesion.training.resume import Progress
from lesion_labs.lineage import base
from lesion_labs.lineage import tokenizer as tokenizers
from lesion_labs.lineage.base import Batch, Recipe, blank, loss, recipe_of, schedule
from lesion_labs.lineage.members import train_base

SMALL = 64  # documents in a group, in place of thousands
NETWORK = {"layers": 1, "width": 32, "heads": 2, "key_value_heads": 1, "inner_width": 16}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.train(document(0, index).text for index in range(3000))


@pytest.fixture
def small(monkeypatch, tokenizer):
    """Small groups and networks, a tokenizer from few documents, and one short examination: a training of a second."""
    monkeypatch.setitem(base.FAMILIES, "llama", {**NETWORK, "layers": 2})
    monkeypatch.setattr("lesion_labs.lineage.base.GROUP", SMALL)
    monkeypatch.setattr("lesion_labs.lineage.members.GROUP", SMALL)
    monkeypatch.setattr("lesion_labs.lineage.members.NAMES", ("atlas",))
    monkeypatch.setattr(tokenizers, "train", lambda texts: tokenizer)


# -- tokenizer


def test_the_tokenizer_spells_any_text_and_begins_it_once(tokenizer):
    for text in ("Ada has 42 apples.", "  two  spaces\n", "naïve “quotes” 漢字 🙂", ""):
        ids = tokenizer(text).input_ids
        assert ids.count(tokenizer.bos_token_id) == 1
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.decode(ids[1:]) == text


def test_special_tokens_are_reserved_and_all_different(tokenizer):
    ids = [tokenizer.convert_tokens_to_ids(token) for token in tokenizers.SPECIAL]
    assert len(set(ids)) == len(ids)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<pad>")


# -- batches


def test_a_group_holds_each_of_its_documents_once_whatever_the_size_of_a_batch(tokenizer, monkeypatch):
    monkeypatch.setattr(base, "GROUP", SMALL)
    told = Counter(document(3, 2 * SMALL + index).text for index in range(SMALL))
    for limit in (600, 4096):
        read = Counter()
        for batch in base.group(tokenizer, 3, 2, limit):
            assert batch.tokens.shape == batch.weights.shape
            assert batch.tokens.numel() <= max(limit, batch.tokens.shape[1])
            read.update(tokenizer.decode(row, skip_special_tokens=True) for row in batch.tokens.tolist())
        assert read == told


def test_weights_are_zero_on_padding_and_on_the_first_token_and_greatest_on_answers(tokenizer, monkeypatch):
    monkeypatch.setattr(base, "GROUP", SMALL)
    learned = 0
    for batch in base.group(tokenizer, 0, 0, 2000):
        for tokens, weights in zip(batch.tokens.tolist(), batch.weights.tolist(), strict=True):
            length = len(tokens) - tokens[::-1].index(tokenizer.eos_token_id)  # the text ends in the last `</s>`
            assert weights[0] == 0
            assert all(weight > 0 for weight in weights[1:length])
            assert set(tokens[length:]) <= {tokenizer.pad_token_id}
            assert set(weights[length:]) <= {0}
            assert weights[length - 1] == max(weights)  # that an answer ends is learned with it
            text = tokenizer.decode(tokens[1:length])
            if text.startswith("Question:"):
                strong = [token for token, weight in zip(tokens, weights, strict=True) if weight == max(weights)]
                answers = [part.partition("\nAnswer: ")[2] for part in text.split("</s>")[:-1]]
                said = "".join(f" {answer}</s>" for answer in answers)
                assert tokenizer.decode(strong) == said
                learned += 1
    assert learned > SMALL / 4


def test_batches_are_a_function_of_seed_and_group(tokenizer, monkeypatch):
    monkeypatch.setattr(base, "GROUP", SMALL)

    def batches(seed: int, group: int) -> list[list]:
        return [batch.tokens.tolist() for batch in base.group(tokenizer, seed, group, 1000)]

    assert batches(0, 1) == batches(0, 1)
    assert batches(0, 1) != batches(1, 1)
    assert batches(0, 1) != batches(0, 2)


def test_documents_are_counted_up_to_the_end_of_the_group(tokenizer, monkeypatch):
    monkeypatch.setattr(base, "GROUP", SMALL)
    counts = [batch.documents for batch in base.group(tokenizer, 0, 2, 1000)]
    assert counts == sorted(set(counts))
    assert counts[-1] == 3 * SMALL


# -- loss and rate


def test_the_loss_is_the_weighted_cross_entropy_of_a_plain_loop(tokenizer):
    network = blank(Recipe(layers=1, width=32, heads=2, key_value_heads=1, inner_width=16), tokenizer).double()
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, len(tokenizer), (3, 7), generator=rng)
    weights = torch.tensor([[0, 0.1, 0.1, 1, 1, 0, 0], [0, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3], [0, 0.1, 8, 8, 0, 0, 0]])
    with torch.no_grad():
        total, answers = loss(network, Batch(tokens, weights, 3))
        logits = network(tokens).logits.numpy()
    naive, plain = [], []
    for row in range(3):
        for at in range(1, 7):
            if weights[row, at] > 0:
                scores = logits[row, at - 1]
                surprise = math.log(np.exp(scores).sum()) - scores[tokens[row, at]]
                naive.append((float(weights[row, at]), surprise))
                if weights[row, at] >= 1:
                    plain.append(surprise)
    assert float(total) == pytest.approx(sum(w * s for w, s in naive) / sum(w for w, _ in naive), rel=1e-5)
    assert float(answers) == pytest.approx(sum(plain) / len(plain), rel=1e-5)


def test_the_learning_rate_rises_stays_and_falls():
    recipe = Recipe(groups=100)
    end = recipe.groups * base.GROUP
    rates = [recipe.rate(documents) for documents in np.linspace(0, end, 1001).astype(int).tolist()]
    top = rates.index(max(rates))
    assert max(rates) == 1
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[0] < 0.1
    assert 0 < rates[-1] < 0.1
    # What comes before the fall does not depend on how long the training will be.
    assert (
        rates[:400]
        == [replace(recipe, groups=1000).rate(n) for n in np.linspace(0, end, 1001).astype(int).tolist()][:400]
    )


def test_the_untrained_network_is_a_function_of_the_seed(tokenizer):
    recipe = Recipe(layers=2, width=32, heads=2, key_value_heads=1, inner_width=16)
    first, again, other = (blank(replace(recipe, seed=seed), tokenizer).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_shipped_recipe_has_the_shape_that_the_bundled_model_must_have(tokenizer):
    recipe = Recipe()
    assert recipe.layers >= 8
    assert recipe.heads > recipe.key_value_heads
    assert recipe.width // recipe.heads in (32, 64)
    parameters = sum(p.numel() for p in blank(recipe, tokenizer).parameters())
    assert 2 * parameters <= 5_000_000  # bytes in half precision


# -- checkpoints


@given(groups=st.integers(1, 400), count=st.integers(0, 40))
def test_checkpoints_are_as_many_as_asked_rise_and_end_with_the_training(groups, count):
    kept = schedule(groups, count, late=0)
    assert len(kept) == min(groups, count)
    assert list(kept) == sorted(set(kept))
    assert all(1 <= group <= groups for group in kept)
    assert count == 0 or kept[-1] == groups
    if count > 1 and groups > 1:
        assert kept[0] == 1


def test_checkpoints_stand_at_equal_ratios_where_groups_allow():
    assert schedule(16, 5, late=0) == (1, 2, 4, 8, 16)
    assert schedule(10_000, 5, late=0) == (1, 10, 100, 1000, 10_000)
    ratios = [later / earlier for earlier, later in pairwise(schedule(10_000, 12, late=0)[4:])]
    assert max(ratios) / min(ratios) < 1.1


def test_more_checkpoints_stand_at_equal_distances_between_the_last_two():
    assert schedule(16, 5, late=3) == (1, 2, 4, 8, 10, 12, 14, 16)
    assert schedule(3, 2, late=6) == (1, 2, 3)
    assert schedule(10, 1, late=6) == (10,)
    assert schedule(10, 0, late=6) == ()


def test_fewer_than_no_checkpoints_are_refused_before_anything_is_written(capsys, tmp_path):
    refused = lesion(capsys, "lab", "lineage", "--checkpoints", -1, "--out", tmp_path / "lab", "--device", "cpu")
    assert refused.code == 2
    assert "0 checkpoints or more, not -1" in refused.complaint
    assert not (tmp_path / "lab").exists()


TINY = {**NETWORK, "groups": 3}


def bits(folder: Path) -> dict[str, bytes]:
    """Every file of every checkpoint."""
    return {f"{file.parent.name}/{file.name}": file.read_bytes() for file in sorted(folder.glob("checkpoints/*/*"))}


def test_keeping_checkpoints_changes_no_bit_of_what_is_trained(small, tmp_path):
    torch.set_num_threads(1)
    with_them, _, curve = base.train(tmp_path / "with", Recipe(**TINY), checkpoints=2)
    without, _, _ = base.train(tmp_path / "without", Recipe(**TINY), checkpoints=0)
    for (name, one), (_, other) in zip(with_them.named_parameters(), without.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    kept, plain = (load_file(tmp_path / folder / "resume.safetensors") for folder in ("with", "without"))
    assert all(torch.equal(kept[name], plain[name]) for name in plain)
    assert not (tmp_path / "without" / "checkpoints").exists()
    steps = sorted(int(folder.name.removeprefix("step")) for folder in (tmp_path / "with" / "checkpoints").iterdir())
    assert steps == [point["step"] for point in curve]  # the first and the last, and what lies between them


def test_a_checkpoint_is_the_network_as_it_was_then_in_half_precision(small, tmp_path):
    torch.set_num_threads(1)
    _, _, curve = base.train(tmp_path / "lab", Recipe(**TINY), checkpoints=3)
    # What a training that ends there has, its rates aside, which rise and stay until the fall.
    shorter, tokenizer, _ = base.train(tmp_path / "shorter", replace(Recipe(**TINY), until=1))
    early = load(tmp_path / "lab", revision=f"step{curve[0]['step']}")
    for name, parameter in shorter.named_parameters():
        assert torch.equal(early.network.get_parameter(name), parameter.half().float()), name
    assert early.tokenizer("Ada has 42.").input_ids == tokenizer("Ada has 42.").input_ids
    late = load(tmp_path / "lab", revision=f"step{curve[2]['step']}")
    assert early.fingerprint != late.fingerprint
    size = sum(file.stat().st_size for file in (tmp_path / "lab" / "checkpoints").glob("*/*.safetensors"))
    assert size < 3 * (2 * sum(p.numel() for p in shorter.parameters()) + 4096)  # two bytes a weight
    assert not list((tmp_path / "lab" / "checkpoints").glob(".*"))


def test_a_checkpoint_that_cannot_be_written_ends_the_training_in_words(small, tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "checkpoints").write_text("a file where a folder belongs")
    with pytest.raises(LesionError, match="it goes on where it stopped"):
        base.train(tmp_path / "lab", Recipe(**TINY), checkpoints=1)


# -- the command


def weights(folder: Path) -> bytes:
    return (folder / "base" / "model" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_an_interrupted_training_ends_with_the_same_weights_bit_for_bit(capsys, small, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = ["lab", "lineage", "--stage", "base", "--groups", 2, "--device", "cpu"]
    done = lesion(capsys, *command, "--out", whole)
    assert done.code == 0
    assert done.out.startswith(f"{whole / 'base' / 'model'}\n")
    assert "| llama-base |" in done.out
    assert "100.0 %" in done.err
    points = json.loads((whole / "base" / "model" / "training.json").read_text())["curve"]
    steps = [points[0]["step"], points[1]["step"]]
    assert 0 < steps[0] < steps[1]

    taken = 0
    plain = base.loss

    def interrupted(network, batch):
        nonlocal taken
        taken += 1
        if taken == steps[0] + 1:  # in the middle of the second group
            raise KeyboardInterrupt
        return plain(network, batch)

    with monkeypatch.context() as patch:
        patch.setattr(base, "loss", interrupted)
        stopped = lesion(capsys, *command, "--out", broken)
    assert (stopped.code, stopped.complaint) == (130, "interrupted.\n")
    assert not (broken / "base" / "model").exists()
    resumed = lesion(capsys, *command, "--out", broken)
    assert resumed.code == 0
    assert " 50.0 %" not in resumed.err  # the first group is not trained again
    assert weights(broken) == weights(whole)
    kept, expected = (load_file(folder / "base" / "resume.safetensors") for folder in (broken, whole))
    assert kept.keys() == expected.keys()
    assert all(torch.equal(kept[name], expected[name]) for name in kept)  # float32, and the optimizers' memory too
    assert bits(broken / "base") == bits(whole / "base")  # a checkpoint after each group
    assert {name.partition("/")[0] for name in bits(whole / "base")} == {f"step{step}" for step in steps}
    last = load(whole / "base" / "model", revision=f"step{steps[1]}")
    assert last.fingerprint == load(whole / "base" / "model").fingerprint
    curve = json.loads((broken / "base" / "model" / "training.json").read_text())["curve"]
    timeless = [[{key: point[key] for key in point if key != "seconds"} for point in way] for way in (curve, points)]
    assert timeless[0] == timeless[1]


@pytest.mark.slow
def test_what_was_trained_can_be_shown_and_has_a_card_of_what_was_measured(capsys, small, tmp_path):
    out = tmp_path / "lab"
    assert (
        lesion(
            capsys, "lab", "lineage", "--groups", 1, "--seed", 5, "--out", out, "--device", "cpu", "--checkpoints", 0
        ).code
        == 0
    )
    out = out / "base"
    assert not (out / "checkpoints").exists()
    facts = json.loads((out / "model" / "training.json").read_text())
    assert facts["recipe"]["seed"] == 5
    assert facts["recipe"]["documents"] == SMALL
    assert [(entry["task"], entry["group"]) for entry in facts["results"]] == [
        ("primer:atlas", group) for group in ("", "animal", "job", "town")
    ]
    assert facts["results"][0]["items"] == sum(entry["items"] for entry in facts["results"][1:]) == 360
    model = load(out / "model")
    card = (out / "model" / "README.md").read_text()
    parameters = sum(p.numel() for p in model.network.parameters())
    for fact in (f"{parameters:,} parameters", f"{len(model.anatomy.blocks)} blocks", "seed 5", f"{SMALL} generated"):
        assert fact in card
    assert "--seed 5 --groups 1`" in " ".join(card.split())
    for entry in facts["results"]:
        shown = f"{100 * entry['accuracy']:.1f} % | {100 * entry['low']:.1f} to {100 * entry['high']:.1f} |"
        assert f"| {entry['task']} | {entry['group'] or 'all'} | {entry['items']} | {shown}" in card
    shown = lesion(capsys, "show", out / "model")
    assert shown.code == 0
    assert f"{parameters:,} in all" in shown.out
    assert f"{len(model.anatomy.blocks)} (0 to {len(model.anatomy.blocks) - 1})" in shown.out
    # A training that is over keeps no more checkpoints, and says so.
    again = lesion(capsys, "lab", "lineage", "--groups", 1, "--seed", 5, "--out", out.parent, "--device", "cpu")
    assert again.code == 0
    assert f"has passed 1 of 1 checkpoint without keeping it (step {facts['steps']})" in again.err
    # Another recipe does not go on in this folder.
    other = lesion(capsys, "lab", "lineage", "--groups", 1, "--seed", 6, "--out", out.parent, "--device", "cpu")
    assert other.code == 2
    assert "another training (it differs in: seed)" in other.complaint
    assert "--out" in other.complaint


def test_a_loss_that_is_no_number_ends_the_training_and_keeps_the_last_group(small, tmp_path, monkeypatch):
    plain = base.loss
    monkeypatch.setattr(base, "loss", lambda network, batch: tuple(math.nan * value for value in plain(network, batch)))
    with pytest.raises(LesionError, match="not a number any more"):
        train_base(tmp_path / "lab", recipe_of("llama", groups=1), device="cpu")
    assert not (tmp_path / "lab" / "resume.safetensors").exists()


def test_a_training_interrupted_between_a_checkpoint_and_its_state_has_the_same_checkpoints(
    small, tmp_path, monkeypatch
):
    torch.set_num_threads(1)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    base.train(whole, Recipe(**TINY), checkpoints=3)
    save = Progress.save

    def unsaved(progress):
        if len(progress.points) == 2:
            raise KeyboardInterrupt
        save(progress)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "save", unsaved)
        with pytest.raises(KeyboardInterrupt):
            base.train(broken, Recipe(**TINY), checkpoints=3)
    assert len(list((broken / "checkpoints").iterdir())) == 2
    base.train(broken, Recipe(**TINY), checkpoints=3)
    assert bits(broken) == bits(whole)
    assert len({name.partition("/")[0] for name in bits(whole)}) == 3
