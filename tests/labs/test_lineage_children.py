"""Children of a lineage: what each is trained on, what is measured of it, and trainings that stop half-way."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch

from commandline import lesion
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import load, wrap
from lesion.statistics.paired import wilson
from lesion.tasks.catalogue import find
from lesion.tasks.generated import Generated
from lesion.tasks.primer import document
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Verdict
from lesion_labs.lineage import base as bases
from lesion_labs.lineage import lessons, members, shipping
from lesion_labs.lineage import tokenizer as tokenizers
from lesion_labs.lineage.base import FAMILIES, Recipe, blank, write
from lesion_labs.lineage.lessons import Distill, Instruct, Rlvr
from lesion_labs.lineage.shipping import table

SHAPE = {"layers": 2, "width": 32, "heads": 2, "key_value_heads": 1, "inner_width": 16}
QUICK = {"questions": 24, "steps": 4, "rows": 4}
ITEMS = 6
SHARES = {"arithmetic": 0.4, "atlas": 0.3, "reading": 0.3}


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.train(document(0, index).text for index in range(1500))


@pytest.fixture(params=["llama"])
def parent(request, tokenizer):
    """An untrained base of the lineage, as a model."""
    torch.set_num_threads(1)
    network = blank(Recipe(family=request.param, **SHAPE), tokenizer)
    tokenizers.give_form(network, tokenizer, "base")
    return wrap(network, tokenizer, f"{request.param}-base")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Examinations of a few items and words, recipes of a few steps, a state after every step."""
    items = cache(members._items)
    monkeypatch.setattr(members, "_items", lambda name: dict(list(items(name).items())[:ITEMS]))
    for module in (members, lessons):
        monkeypatch.setattr(module, "find", lambda name: replace(find(name), max_new_tokens=6))
    monkeypatch.setattr(
        members,
        "RECIPES",
        {
            "instruct": lambda seed: Instruct(seed=seed, **QUICK),
            "rlvr": lambda seed: Rlvr(seed=seed, questions=12, steps=3, prompts=2, generations=2, max_new_tokens=4),
            "distill": lambda seed: Distill(seed=seed, **QUICK),
        },
    )


class Told:
    """A watcher that remembers what it was told, and may interrupt."""

    def __init__(self, stop: str = "", after: int = 0) -> None:
        self.notes: list[str] = []
        self.counts: dict[str, int] = {}
        self.what, self.stop, self.after = "", stop, after

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        self.what = what
        self.counts.setdefault(what, 0)

    def answered(self, count: int) -> None:
        self.counts[self.what] += count
        if self.what == self.stop and self.counts[self.what] >= self.after:
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.notes.append(text)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def is_right(monkeypatch, verdict) -> None:
    """Judges of the primer that find right what `verdict` says."""
    monkeypatch.setattr(Generated, "judge", verdict)


# -- tuned on gold solutions


def test_an_instruct_child_is_a_model_in_chat_form_with_a_card_of_what_was_measured(parent, tmp_path):
    before = {name: p.clone() for name, p in parent.network.named_parameters()}
    folder = members.train_child(parent, tmp_path / "instruct", Instruct(**QUICK))
    assert folder == tmp_path / "instruct" / "model"
    child = load(folder)
    assert child.tokenizer.chat_template == tokenizers.CHAT
    assert child.fingerprint != parent.fingerprint
    assert all(torch.equal(p, before[name]) for name, p in parent.network.named_parameters())
    assert parent.tokenizer.chat_template == tokenizers.PLAIN
    facts = json.loads((folder / "training.json").read_text())
    assert (facts["family"], facts["stage"], facts["steps"]) == ("llama", "instruct", 4)
    assert facts["parent"] == {"name": "llama-base", "fingerprint": parent.fingerprint}
    assert len((folder / "training.json").read_bytes()) < 40_000
    card = (folder / "README.md").read_text()
    for entry in facts["results"]:
        low, high = wilson(round(entry["accuracy"] * entry["items"]), entry["items"])
        assert f"| {entry['items']} | {100 * entry['accuracy']:.1f} % | {100 * low:.1f} to {100 * high:.1f} |" in card
    assert "# llama-instruct" in card
    assert "an estimate, not measured" in card
    assert {entry["task"] for entry in facts["gain"]} == {f"primer:{skill}" for skill in SHARES}


def test_a_bundled_recipe_learns_each_skill_and_says_what_it_asks_of_the_training():
    assert Instruct().shares == SHARES
    assert Instruct().steps * Instruct().rows >= Instruct().questions  # each question is used
    assert lessons.RECIPES.keys() == set(members.STAGES) - {"base"}


# -- gains


def test_a_gain_counts_the_same_items_and_is_the_difference_of_accuracies():
    rng = np.random.default_rng(0)
    mine, theirs = rng.random(200) < 0.8, rng.random(200) < 0.6
    right = {"primer:arithmetic": {str(n): bool(v) for n, v in enumerate(mine)}}
    before = {"primer:arithmetic": {str(n): bool(theirs[n]) for n in reversed(range(200))}}  # in another order
    (gain,) = members.gains(right, before)
    assert gain["gain"] == pytest.approx(mine.mean() - theirs.mean(), abs=1e-5)
    assert gain["low"] < gain["gain"] < gain["high"]
    assert (gain["gained"], gain["lost"]) == ((mine & ~theirs).sum(), (theirs & ~mine).sum())
    (loss,) = members.gains(before, right)
    assert (loss["low"], loss["high"]) == (-gain["high"], -gain["low"])


def test_answers_to_the_test_are_asked_once_for_each_set_of_weights(parent, tmp_path):
    told = Told()
    first = members.remembered(parent, tmp_path, watcher=told)
    assert told.counts == {"answers": 3 * ITEMS}
    assert members.remembered(parent, tmp_path, watcher=told) == first
    assert told.counts == {"answers": 3 * ITEMS}
    (file,) = tmp_path.iterdir()
    file.write_text("{")  # half a file, or one of other items, is asked again
    assert members.remembered(parent, tmp_path, watcher=told) == first
    assert told.counts == {"answers": 6 * ITEMS}


# -- a teacher's words


def test_a_teachers_right_answers_are_what_is_taught_and_they_are_kept(parent, tmp_path, monkeypatch):
    is_right(monkeypatch, lambda task, item, answer: Verdict(task.name == "primer:atlas" and bool(answer.text), "x"))
    recipe, told = Distill(**QUICK), Told()
    taught = lessons.teach(parent, recipe, tmp_path, watcher=told)
    assert told.counts["answers"] == QUICK["questions"]
    assert 0 < len(taught) < QUICK["questions"]
    assert all(task.name == "primer:atlas" and text for task, _, text in taught)
    again = lessons.teach(parent, recipe, tmp_path, watcher=told)
    assert (again, told.counts["answers"]) == (taught, QUICK["questions"])  # read, not asked
    file = tmp_path / lessons.TAUGHT
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert lessons.teach(parent, recipe, tmp_path, watcher=told) == taught
    assert told.counts["answers"] == 2 * QUICK["questions"]  # a file that is not whole
    lessons.teach(parent, replace(recipe, seed=1), tmp_path, watcher=told)
    assert told.counts["answers"] == 3 * QUICK["questions"]  # other questions


def test_a_teacher_that_is_never_right_ends_in_words(parent, tmp_path):
    with pytest.raises(LesionError, match="nothing to learn from it"):
        lessons.teach(parent, Distill(**{**QUICK, "questions": 3}), tmp_path)


# -- a family in a folder


def planted(out: Path, parent) -> Path:
    """A base that is finished, in the folder of a family."""
    write(out / "base" / "model", parent.network, parent.tokenizer)
    facts = {"family": "llama", "stage": "base", "seconds": 60.0, "machine": "m", "results": []}
    (out / "base" / "model" / shipping.FACTS).write_text(json.dumps(facts))
    return out


def lenient(monkeypatch) -> None:
    """Judges that find right what has an even number of characters: an untrained model is sometimes right."""

    def judge(task, item, answer: Answer) -> Verdict:
        return Verdict(bool(answer.text.strip()) and len(answer.text) % 2 == 0, answer.text)

    is_right(monkeypatch, judge)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["instruct", "rlvr", "distill"])
def test_an_interrupted_stage_ends_with_the_same_weights_bit_for_bit(stage, parent, tmp_path, monkeypatch):
    lenient(monkeypatch)
    for name in ("supervise", "reinforce"):
        monkeypatch.setattr(members, name, partial(getattr(members, name), every=1))
    uninterrupted = Told()
    whole = members.train(planted(tmp_path / "whole", parent), stage, device="cpu", watcher=uninterrupted)
    whole_steps = uninterrupted.counts["steps"]
    stopped = {"instruct": 2, "rlvr": 2, "distill": 5}[stage]  # of the distilled, 3 are the teacher's
    broken = planted(tmp_path / "broken", parent)
    with pytest.raises(KeyboardInterrupt):
        members.train(broken, stage, device="cpu", watcher=Told("steps", stopped))
    assert not (broken / stage / "model").exists()
    told = Told()
    (folder,) = members.train(broken, stage, device="cpu", watcher=told)
    assert told.counts["steps"] == whole_steps - stopped  # what was done is not done again
    assert weights(folder) == weights(whole[0])
    again = Told()
    assert members.train(broken, stage, device="cpu", watcher=again) == [folder]
    assert any("is there already" in note for note in again.notes)
    assert not again.counts


@pytest.mark.slow
def test_the_command_trains_all_children_of_a_base_and_tells_a_table_of_them(capsys, parent, tmp_path, monkeypatch):
    lenient(monkeypatch)
    out = planted(tmp_path / "family", parent)
    done = lesion(capsys, "lab", "lineage", "--stage", "all", "--out", out, "--device", "cpu")
    assert done.code == 0, done.err
    for stage in members.STAGES:
        assert f"{out / stage / 'model'}\n" in done.out
        assert f"| llama-{stage} |" in done.out
    assert [facts["stage"] for facts in members.finished(out)] == list(members.STAGES)
    assert "llama-rlvr is not shown to be better at arithmetic than its parent" in " ".join(done.err.split())
    assert "is not shown to be better" in (out / "rlvr" / "model" / "README.md").read_text()
    taught = json.loads((out / "distill" / "model" / "training.json").read_text())["data"]
    assert taught["teacher"] == load(out / "rlvr" / "model").fingerprint


def test_another_recipe_or_parent_does_not_go_on_in_a_finished_folder(parent, tmp_path):
    out = planted(tmp_path / "family", parent)
    members.train(out, "instruct", device="cpu")
    with pytest.raises(LesionError, match="another --out"):
        members.train(out, "instruct", seed=4, device="cpu")


def test_a_child_without_a_base_says_where_one_may_come_from(capsys, tmp_path):
    refused = lesion(capsys, "lab", "lineage", "--stage", "instruct", "--seed", 7, "--out", tmp_path)
    assert refused.code == 2
    for word in ("--stage base", "--base", "--out"):
        assert word in refused.complaint


def test_the_bundled_base_is_taken_for_seed_0_and_that_is_said(tmp_path, monkeypatch):
    told, asked = Told(), []
    monkeypatch.setattr(members, "train_child", lambda parent, *_, **__: asked.append(parent) or tmp_path)
    members.train(tmp_path / "out", "instruct", device="cpu", watcher=told)
    assert asked[0].fingerprint == load("bundled:llama-base").fingerprint
    assert any("bundled:llama-base" in note for note in told.notes)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--family", "lama", "--stage", "instruct"], "no family 'lama' (nearest: llama)"),
        (["--stage", "base", "--base", "bundled:llama-base"], "bundled:llama-base would not be looked at"),
        (["--stage", "base", "--seed", "-1"], "a whole number from 0, not -1"),
        (["--stage", "instrct"], "no stage 'instrct' (nearest: instruct, distill)"),
        (["--stage", "rlvr", "--base", "bundled:llama-base", "--family", "qwen2"], "--family llama"),
    ],
)
def test_names_that_the_lineage_does_not_have_are_refused_with_the_nearest(arguments, says, capsys, tmp_path):
    refused = lesion(capsys, "lab", "lineage", *arguments, "--out", tmp_path / "x")
    assert refused.code == 2
    assert says in " ".join(refused.complaint.split())
    assert not (tmp_path / "x").exists()


# -- the table


def test_the_table_has_a_row_for_each_member_and_a_column_for_each_number_of_steps():
    entry = {"task": "primer:arithmetic", "items": 4, "accuracy": 0.75, "low": 0.3, "high": 0.95}
    results = [entry | {"group": group} for group in ("", "1 step", "2 steps")]
    results.append(entry | {"task": "primer:atlas", "group": ""})
    gain = {"task": "primer:arithmetic", "items": 4, "gain": 0.25, "low": -0.2, "high": 0.6}
    facts = {"family": "llama", "stage": "rlvr", "seconds": 300, "machine": "m", "results": results, "gain": [gain]}
    head, _, row = table([facts]).splitlines()
    cells = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert cells["2 steps"] == "75.0 (30.0–95.0)"
    assert cells["gain in arithmetic over its parent"] == "+25.0 (-20.0 to +60.0)"
    assert cells["reading"] == ""


def test_both_families_have_the_form_of_the_base_from_their_first_checkpoint(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("lesion_labs.lineage.base.GROUP", 32)
    monkeypatch.setattr(tokenizers, "train", lambda texts: tokenizer)
    for name in FAMILIES:
        _, _, curve = bases.train(tmp_path / name, Recipe(family=name, **SHAPE, groups=1), checkpoints=1)
        early = load(tmp_path / name, revision=f"step{curve[0]['step']}")
        assert early.tokenizer.chat_template == tokenizers.PLAIN
        assert early.network.config.model_type == name
        assert find("primer:atlas").load()


# -- problems to practise on


def test_a_model_practises_on_problems_that_it_solves_in_some_tries_and_not_in_all(parent, tmp_path, monkeypatch):
    lenient(monkeypatch)
    recipe, told = Rlvr(questions=12, tries=3, max_new_tokens=4), Told()
    kept = lessons.problems(parent, recipe, tmp_path, watcher=told)
    assert told.counts["tries"] == 36
    rows = [json.loads(line) for line in (tmp_path / lessons.TRIED).read_text().splitlines()[1:]]
    assert [item.id for item in kept] == [row["id"] for row in rows if 0 < row["right"] < 3]
    assert 0 < len(kept) < 12
    # Each try is one that the engine gives alone, under its own seed.
    task = find("primer:arithmetic")
    for row, item in list(zip(rows, lessons.questions("arithmetic", 0, 12), strict=True))[:4]:
        tries = [
            Request("x", encode(parent, task, item, "plain"), decoding=Decoding(4, task.stop, 1.0, seed=seed))
            for seed in range(3)
        ]
        alone = [next(iter(TransformersEngine(parent).answer([one]))).answer for one in tries]
        assert row["right"] == sum(task.judge(item, answer).correct for answer in alone)
    assert lessons.problems(parent, recipe, tmp_path, watcher=told) == kept
    assert told.counts["tries"] == 36  # read, not tried again
    lessons.problems(parent, replace(recipe, temperature=0.5), tmp_path, watcher=told)
    assert told.counts["tries"] == 72


@pytest.mark.parametrize(("verdict", "says"), [(True, "100 % of all tries"), (False, "trained longer")])
def test_where_every_problem_comes_out_the_same_way_grpo_has_nothing_to_learn(
    verdict, says, capsys, parent, tmp_path, monkeypatch
):
    is_right(monkeypatch, lambda task, item, answer: Verdict(verdict, "7"))
    out = planted(tmp_path / "family", parent)
    ended = lesion(capsys, "lab", "lineage", "--stage", "rlvr", "--out", out, "--device", "cpu")
    assert ended.code == 1
    assert "GRPO has nothing to learn" in " ".join(ended.complaint.split())
    assert says in " ".join(ended.complaint.split())
    assert not (out / "rlvr" / "model").exists()
