"""A tuning from its study to its folder: what trains, what stays, what is resumed, what is refused, what is told."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from made import STOPPING, bare
from tuning import Deadly, files, study, teach

from lesion.core.layers import canonical_layers
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import fingerprint
from lesion.models.load import load
from lesion.studies.tuning.report import Drops, TuningResult
from lesion.studies.tuning.training import Arm, cell_of, prepare, training_of
from lesion.tasks.prompts import encode
from runs import run_tuning
from tiny import model


@pytest.fixture(autouse=True)
def _taught(monkeypatch):
    teach(monkeypatch)


def run(what, folder, llama, **more):
    return run_tuning(what, folder, models={"tiny:llama": llama}, **more)


# -- what trains


def test_the_written_model_differs_in_the_chosen_block_alone_and_the_loaded_one_not_at_all(llama, tmp_path):
    before = {name: tensor.clone() for name, tensor in llama.network.state_dict().items()}
    outcome = run(study(arms="1", seeds=0), tmp_path, llama)
    assert outcome.model == tmp_path / "model"
    after = load(outcome.model, dtype="float32").network.state_dict()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith("model.layers.1.") for name in changed)
    assert all(torch.equal(tensor, before[name]) for name, tensor in llama.network.state_dict().items())
    assert not any(p.requires_grad for p in llama.network.parameters())


def test_what_is_told_is_what_the_written_model_says(llama, tmp_path):
    what = study(arms="all", seeds=0, controls=["control"], steps=12, learning_rates=[0.03])
    outcome = run(what, tmp_path, llama)
    (arm,) = outcome.summary.arms
    data = prepare(what)
    written = load(outcome.model, dtype="float32")
    for (choice, items), after, before in zip(data.test.items(), arm.tasks, outcome.summary.baseline, strict=True):
        task = data.tasks[choice]
        shares = []
        for subject in (llama, written):
            requests = [Request(item.id, encode(subject, task, item, "raw")) for item in items]
            requests = [Request(r.key, r.prompt, decoding=_decoding(task)) for r in requests]
            said = {one.key: one.answer for one in TransformersEngine(subject).answer(requests)}
            shares.append(np.mean([task.judge(item, said[item.id]).correct for item in items]))
        assert (before.accuracy.value, after.accuracy) == pytest.approx(tuple(shares))
        assert after.change.value == pytest.approx(shares[1] - shares[0])


def _decoding(task):
    from lesion.engines.engine import Decoding

    return Decoding(task.max_new_tokens, task.stop)


def test_an_adapter_changes_matrices_of_its_blocks_alone_and_the_written_model_is_an_ordinary_one(llama, tmp_path):
    before = {name: tensor.clone() for name, tensor in llama.network.state_dict().items()}
    outcome = run(study(arms="0,2", seeds=0, adapter=2), tmp_path, llama)
    after = load(outcome.model, dtype="float32").network.state_dict()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert {name.split(".")[2] for name in changed} == {"0", "2"}
    assert all(name.endswith("_proj.weight") for name in changed)
    assert outcome.summary.arms[0].rank == 2


def test_the_card_says_what_was_tuned_on_what_and_what_it_did(llama, tmp_path):
    outcome = run(study(arms="critical", seeds=3, controls=["control"], steps=4), tmp_path, llama)
    card = (outcome.model / "README.md").read_text()
    (block,) = outcome.summary.arms[0].blocks[0]
    for words in (
        f"Block {block} of `tiny:llama`",
        "trained in full",
        "without which the task loses most, by their ablation on 6 items",
        "16 of the training items of `sums`",
        "completions (supervised), 4 steps of 4 items",
        "seed 3",
        "| `control` | 10 |",
        "AutoModelForCausalLM.from_pretrained",
    ):
        assert words in card, words


# -- how it is resumed


RESUMED = {"learning_rates": [0.01, 0.03], "seeds": [0]}
"""Four trainings, or two where the arms come to the same blocks: 49 answers come first, then 85 or 121 are told."""


@pytest.fixture(scope="module")
def whole(llama, tmp_path_factory):
    """The study of four trainings, not interrupted, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        teach(patch)
        return run(study(**RESUMED), folder, llama), folder


@pytest.mark.parametrize("after", [10, 60])
def test_an_interrupted_study_goes_on_and_ends_with_the_same_summary(after, whole, llama, tmp_path):
    what = study(**RESUMED)
    with pytest.raises(KeyboardInterrupt):
        run(what, tmp_path, llama, watcher=Deadly(after))
    assert fingerprint(llama.network) == llama.fingerprint
    with pytest.raises(LesionError, match=r"is not finished.*Run the same command"):
        TuningResult.recall(tmp_path)
    rest = run(what, tmp_path, llama)
    assert rest.summary == whole[0].summary
    assert TuningResult.recall(tmp_path).summary == rest.summary
    assert files(tmp_path) == files(whole[1])
    assert (tmp_path / "summary.json").read_bytes() == (whole[1] / "summary.json").read_bytes()


def test_a_single_tuning_whose_model_was_removed_makes_the_same_again(llama, tmp_path):
    import shutil

    what = study(arms="critical", seeds=0)
    first = run(what, tmp_path, llama)
    weights = (first.model / "model.safetensors").read_bytes()
    shutil.rmtree(first.model)
    second = run(what, tmp_path, llama)
    assert (second.model / "model.safetensors").read_bytes() == weights
    assert (second.model / "README.md").is_file()


def test_further_seeds_and_arms_are_added_to_what_is_there(llama, tmp_path):
    run(study(arms=["0"], seeds=[0]), tmp_path / "out", llama)
    more = study(seeds=[0, 1], arms=["0", "all-adapter"])
    grown = run(more, tmp_path / "out", llama)
    afresh = run(more, tmp_path / "afresh", llama)
    assert grown.summary == afresh.summary
    assert grown.trained == 3 < afresh.trained == grown.planned


def test_arms_that_come_to_the_same_blocks_are_trained_once(llama, tmp_path):
    outcome = run(study(arms=["0-2", "all-full"], seeds=[0]), tmp_path, llama)
    assert (outcome.trained, outcome.planned) == (1, 2)
    first, second = outcome.summary.arms
    assert first.tasks == second.tasks
    assert first.parameters == second.parameters


def test_no_weights_stay_behind_but_those_of_a_single_tunings_model(llama, tmp_path):
    run(study(arms=["0", "1"], seeds=0), tmp_path / "study", llama)
    assert not [name for name in files(tmp_path / "study") if name.endswith(".safetensors")]
    run(study(arms="0", seeds=0), tmp_path / "one", llama)
    assert [name for name in files(tmp_path / "one") if name.endswith(".safetensors")] == ["model/model.safetensors"]


# -- by reward


REWARDED = {"task": "letters", "by": "reward", "steps": 12, "generations": 6, "arms": "all", "seeds": 0}


def test_by_reward_the_mean_reward_rises_and_the_written_model_is_right_more_often(llama, tmp_path):
    before = {name: tensor.clone() for name, tensor in llama.network.state_dict().items()}
    outcome = run(study(**REWARDED, controls=["control"]), tmp_path, llama)
    (arm,) = outcome.summary.arms
    rewards = [point.reward for point in arm.curves[0].points]
    assert [point.step for point in arm.curves[0].points] == list(range(1, 13))
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.2
    assert [point.reward.mean for point in arm.course("reward")] == rewards
    assert arm.gain.value > 0.2
    assert all(torch.equal(tensor, before[name]) for name, tensor in llama.network.state_dict().items())
    changed = load(outcome.model, dtype="float32").network.state_dict()
    moved = {name for name, tensor in changed.items() if not torch.equal(tensor, before[name])}
    assert moved == {name for name in before if name.startswith("model.layers.")}
    card = (outcome.model / "README.md").read_text()
    for words in (
        "a verifiable reward (GRPO), 12 steps of 4 items × 6 answers drawn at temperature 1",
        "learning rate 0.01 that rises and stays",
        "35 of the training items of `letters`",
    ):
        assert words in card, words
    assert "loss on answers" not in card


def test_the_cells_of_another_method_or_recipe_are_others(llama, tmp_path):
    kinds = ({"by": "completions"}, {"by": "reward"}, {"by": "reward", "generations": 3},
             {"by": "reward", "rollout_temperature": 0.5}, {"by": "reward", "max_new_tokens": 3})  # fmt: skip
    digests = set()
    for kind in kinds:
        what = study(task="letters", **kind)
        training = training_of(what, llama, prepare(what), lambda text: None)
        digests.add(cell_of(Arm("0", (0,), None, 1), 0.1, 0, llama, training).digest)
    assert len(digests) == len(kinds)
    run(study(**{**REWARDED, "steps": 1}), tmp_path, llama)
    with pytest.raises(LesionError, match=r"holds another tuning \(.*by: reward there.*--out"):
        run(study(task="letters", arms="all", seeds=0, steps=1), tmp_path, llama)


def test_a_loss_that_rises_is_noted_with_what_to_do(llama, tmp_path):
    told = "rose from .* give a smaller --learning-rate"
    first = run(study(arms="all", seeds=0, steps=60, learning_rates=[0.02]), tmp_path / "first", llama)
    assert not any(re.search(told, note) for note in first.summary.notes)
    # Random weights cannot become worse; trained ones can.
    skilled = load(first.model, dtype="float32")
    again = study(model="skilled", arms="all", seeds=0, steps=6, learning_rates=[10.0])
    outcome = run_tuning(again, tmp_path / "large", models={"skilled": skilled})
    assert any(re.search(told, note) for note in outcome.summary.notes)


# -- which rate is told


def test_the_rate_is_chosen_on_held_out_items_and_only_its_models_meet_the_test_items(llama, tmp_path):
    from lesion.core.store import Store

    outcome = run(study(learning_rates=[1e-6, 0.03], seeds=[0]), tmp_path, llama)
    with Store.read(tmp_path) as store:
        answers = store.answers()
    data = prepare(study())
    test = {item.id for item in data.test[data.choice]}
    tested = set(answers["model"][answers["item"].isin(test)])
    arms = outcome.summary.arms
    for arm in arms:
        best = max(arm.rates, key=lambda tried: (tried.validation, -tried.rate))
        assert arm.rate == best.rate
    # Under each arm's rate, the cell of its blocks; and the untuned model.
    chosen = {
        json.loads(path.read_text())["fingerprint"]
        for arm in arms
        for path in (tmp_path / "cells").glob(
            f"blocks{canonical_layers(arm.blocks[0]).replace(',', '+')}-rate{arm.rate:g}-*/cell.json"
        )
    }
    assert tested == chosen | {llama.fingerprint}


# -- where critical blocks come from


def test_a_layer_studys_folder_says_which_blocks_are_critical_and_no_ablation_is_run(llama, tmp_path):
    def layer_study(drops, name="tiny:llama", task="sums", **more):
        cells = [{"layer": layer, "drop": {"value": drop}, "critical": drop > 0.5} for layer, drop in enumerate(drops)]
        (tmp_path / "layers").mkdir(exist_ok=True)
        told = bare({task: cells}, name, 50)
        told["models"][0]["tasks"][0] |= more
        (tmp_path / "layers" / "summary.json").write_text(json.dumps(told))
        return str(tmp_path / "layers")

    place = layer_study([0.1, 0.2, 0.9])
    outcome = run(study(layers_from=place, arms=["critical", "least"], seeds=0), tmp_path / "out", llama)
    assert [arm.blocks for arm in outcome.summary.arms] == [((2,),), ((0,),)]
    assert outcome.summary.layers == Drops(source=place, items=50, drops=(0.1, 0.2, 0.9), critical=(2,))
    assert not (tmp_path / "out" / "layers").exists()
    for drops, more, told in (
        ([0.1, 0.2], {}, "did not switch off every block of tiny:llama: block 2 is missing"),
        ([0.1] * 3, {"name": "tiny:lama"}, r"is about tiny:lama, not about tiny:llama \(nearest: tiny:lama\)"),
        ([0.1] * 3, {"task": "gsm8k"}, "asked gsm8k, not sums"),
        ([0.1] * 3, {"stopping": STOPPING}, "Run the same study without stopping into that folder"),
    ):
        layer_study(drops, **more)
        with pytest.raises(UsageError, match=told):
            run(study(layers_from=place), tmp_path / "refused", llama)
    assert not (tmp_path / "refused").exists()


def test_without_one_the_drops_are_those_of_a_layer_study_in_the_folder(llama, tmp_path):
    from lesion.studies.ablation.recall import recall

    outcome = run(study(arms="critical", seeds=0), tmp_path, llama)
    _, summary, _, _ = recall(tmp_path / "layers")
    drops = [cell.drop.value for cell in summary.models[0].tasks[0].cells]
    assert list(outcome.summary.layers.drops) == drops
    assert outcome.summary.arms[0].blocks == ((int(np.argmax(drops)),),)


# -- what is refused


def test_a_folder_of_another_tuning_is_left_alone_and_the_difference_is_named(llama, tmp_path):
    run(study(arms="0", seeds=0), tmp_path, llama)
    before = files(tmp_path)
    with pytest.raises(LesionError, match=r"holds another tuning \(steps: 3 there, 4 here\)\. Give another folder"):
        run(study(arms="0", seeds=0, steps=4), tmp_path, llama)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"arms": "3"}, "there is no block 3: tiny:llama has blocks 0 to 2"),
        ({"budget": 9}, "A budget of 9 blocks is more than tiny:llama has: 3"),
        ({"adapter": 99}, "rank of 1 to 16, not 99"),
        ({"task": "closed"}, "closed has no training items"),
    ],
)
def test_what_cannot_be_is_refused_before_the_folder_is_made(values, told, llama, tmp_path):
    with pytest.raises(UsageError, match=told):
        run(study(**values), tmp_path / "out", llama)
    assert not (tmp_path / "out").exists()


def test_a_model_in_half_precision_is_refused(tmp_path):
    from dataclasses import replace

    half = model("llama")
    half.network.half()
    with pytest.raises(UsageError, match="dtype='float32'"):
        run(study(), tmp_path / "out", replace(half, fingerprint=fingerprint(half.network)))


def test_another_models_weights_under_the_same_name_are_not_mixed_in(llama, tmp_path):
    from dataclasses import replace

    run(study(arms="0", seeds=0), tmp_path, llama)
    other = model("llama")
    with torch.no_grad():
        other.network.lm_head.weight.mul_(2)
    with pytest.raises(LesionError, match="are not those that this study began with"):
        run(study(arms="0", seeds=0), tmp_path, replace(other, fingerprint=fingerprint(other.network)))


def test_by_reward_an_interrupted_study_goes_on_and_ends_with_the_same_summary(llama, tmp_path):
    what = study(**{**REWARDED, "steps": 3, "arms": "critical", "ablation_items": 2, "adapter": 2})
    whole = run(what, tmp_path / "whole", llama)
    # Ten answers less than all: before the last are told, the training is done.
    with pytest.raises(KeyboardInterrupt):
        run(what, tmp_path / "broken", llama, watcher=Deadly(whole.evaluated + 3 + 8 - 10))
    assert fingerprint(llama.network) == llama.fingerprint
    rest = run(what, tmp_path / "broken", llama)
    assert rest.summary == whole.summary
    assert files(tmp_path / "broken") == files(tmp_path / "whole")
