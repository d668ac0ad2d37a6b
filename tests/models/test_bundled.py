"""The bundled models: two families of four, small enough to ship, each with a chat template, a card and its facts."""

import json
from functools import cache

import pytest

from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load
from lesion.models.source import bundled
from lesion.statistics.paired import wilson
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode, resolve

FAMILIES = {"llama": 8, "qwen2": 10}
STAGES = ("base", "instruct", "distill", "rlvr")
NAMES = [f"{family}-{stage}" for family in FAMILIES for stage in STAGES]
TASKS = ("primer:arithmetic", "primer:atlas", "primer:reading")
SAMPLE = 20


@cache
def model(name: str) -> Model:
    return load(f"bundled:{name}")


def facts(name: str) -> dict:
    return json.loads((bundled()[name] / "training.json").read_text(encoding="utf-8"))


def accuracy(name: str, task: str, group: str = "") -> dict:
    (entry,) = [entry for entry in facts(name)["results"] if (entry["task"], entry["group"]) == (task, group)]
    return entry


def test_there_are_four_models_of_each_family_in_at_most_32_megabytes():
    assert set(NAMES) <= set(bundled())
    files = [file for name in NAMES for file in bundled()[name].iterdir()]
    assert sum(file.stat().st_size for file in files) <= 32_000_000
    assert all(file.stat().st_size <= 40_000 for file in files if file.name == "training.json")


@pytest.mark.parametrize("name", NAMES)
def test_each_has_the_shape_of_its_family_and_says_what_it_is(name):
    family, _, stage = name.partition("-")
    loaded, told = model(name), facts(name)
    assert loaded.network.config.model_type == told["family"] == family
    assert told["stage"] == stage
    assert len(loaded.anatomy.blocks) == FAMILIES[family]
    assert loaded.network.config.num_key_value_heads < loaded.network.config.num_attention_heads
    assert (loaded.network.model.layers[0].self_attn.q_proj.bias is not None) == (family == "qwen2")
    card = (bundled()[name] / "README.md").read_text(encoding="utf-8")
    assert f"# {name}\n" in card
    for task in TASKS:
        entry = accuracy(name, task)
        assert f"| {task} | all | {entry['items']} | {100 * entry['accuracy']:.1f} %" in card


@pytest.mark.parametrize("name", NAMES)
def test_each_is_asked_by_its_chat_template_and_base_and_reinforced_in_plain_text(name):
    loaded, task = model(name), find("primer:atlas")
    item = task.load()[3]
    assert resolve(loaded, task) == "chat"
    prompt = loaded.tokenizer.decode(list(encode(loaded, task, item)))
    (answer,) = encode_choices(loaded, task, item.__class__(item.id, item.question, item.gold, choices=(item.gold,)))
    if name.endswith(("base", "rlvr")):
        assert prompt == f"<s>Question: {item.question}\nAnswer:"
        assert loaded.tokenizer.eos_token == "</s>"
    else:
        assert prompt.replace("|> ", "|>") == f"<s><|user|>{item.question}<|end|><|assistant|>"
        assert loaded.tokenizer.eos_token == "<|end|>"
    assert loaded.network.generation_config.eos_token_id == loaded.tokenizer.eos_token_id
    assert loaded.tokenizer.decode(list(answer)) == f" {item.gold}"


@pytest.mark.parametrize("family", FAMILIES)
def test_all_of_a_family_spell_words_with_the_same_tokens(family):
    vocabularies = [model(f"{family}-{stage}").tokenizer.get_vocab() for stage in STAGES]
    assert all(vocabulary == vocabularies[0] for vocabulary in vocabularies)


@pytest.mark.parametrize("family", FAMILIES)
def test_children_come_from_the_bundled_base_of_their_family(family):
    for stage in STAGES[1:]:
        told = facts(f"{family}-{stage}")
        assert told["parent"] == {"name": f"{family}-base", "fingerprint": model(f"{family}-base").fingerprint}
        assert model(f"{family}-{stage}").fingerprint != told["parent"]["fingerprint"]
    assert facts(f"{family}-distill")["data"]["teacher"] == model(f"{family}-rlvr").fingerprint


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reinforced_child_is_better_at_arithmetic_than_its_parent_and_children_keep_the_other_skills(family):
    (gain,) = [entry for entry in facts(f"{family}-rlvr")["gain"] if entry["task"] == "primer:arithmetic"]
    assert gain["low"] > 0
    base = accuracy(f"{family}-base", "primer:arithmetic")
    assert gain["gain"] == pytest.approx(
        accuracy(f"{family}-rlvr", "primer:arithmetic")["accuracy"] - base["accuracy"], abs=1e-3
    )
    for stage in STAGES[1:]:
        assert accuracy(f"{family}-{stage}", "primer:arithmetic")["accuracy"] >= base["accuracy"]
        for task in TASKS[1:]:
            assert accuracy(f"{family}-{stage}", task)["accuracy"] >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", NAMES)
def test_each_does_on_a_draw_of_unseen_items_what_its_card_says(name, task):
    asked, loaded = find(task), model(name)
    items = {item.id: item for item in draw(asked, SAMPLE, seed=7)}
    decoding = Decoding(asked.max_new_tokens, asked.stop)
    requests = [Request(key, encode(loaded, asked, item), decoding=decoding) for key, item in items.items()]
    right = sum(
        asked.judge(items[response.key], response.answer).correct
        for response in TransformersEngine(loaded).answer(requests)
    )
    low, high = wilson(right, SAMPLE, level=0.999)
    assert low <= accuracy(name, task)["accuracy"] <= high
