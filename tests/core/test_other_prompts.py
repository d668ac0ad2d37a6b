"""A folder goes on only with answers to the very prompts that are sent now."""

import json
import time
from pathlib import Path

import pytest
from oracle import Listener

import thinkers
from lesion.core.store import Store
from lesion.core.study_file import TaskChoice
from lesion.errors import LesionError
from lesion.studies.ablation.study import Study
from lesion.tasks import chat
from runs import run_ablation

CLOCK = thinkers.PLAIN.replace("{% for", "{{ 'it is ' ~ strftime_now('%Y-%m-%d %H:%M:%S') ~ '\n' }}{% for", 1)


@pytest.fixture
def questions(tmp_path) -> Path:
    path = tmp_path / "sums.jsonl"
    rows = [{"prompt": f"{a} + {a} =", "answer": str(2 * a), "choices": [str(2 * a), "x"]} for a in (1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def saved(tmp_path) -> Path:
    """A model with a chat template in a folder of its own."""
    folder = tmp_path / "model"
    model = thinkers.thinker(thinkers.PLAIN)
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def study(model: str | Path, task: str | Path, layers: str = "0", **other: object) -> Study:
    choice = TaskChoice(name=str(task), prompt_style=other.pop("style", "chat"))
    return Study.make(models=[str(model)], tasks=[choice], items="all", edits={"layers": layers}, **other)


def template_with(folder: Path, old: str, new: str) -> None:
    file = folder / "chat_template.jinja"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def tokenizer_with(folder: Path, change) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    change(content)
    file.write_text(json.dumps(content), encoding="utf-8")


def digits_swapped(content) -> None:
    words = content["model"]["vocab"]
    words["1"], words["3"] = words["3"], words["1"]


def letters_swapped(content) -> None:
    words = content["model"]["vocab"]
    words["q"], words["z"] = words["z"], words["q"]


@pytest.mark.parametrize("kind", ["", "gold:"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: template_with(folder, "<|assistant|>", "<|model|>"), "other prompts"),
        (lambda folder: template_with(folder, "m.content", "m.content ~ ' '"), "other prompts"),
        (lambda folder: tokenizer_with(folder, digits_swapped), "another tokenizer"),
        (lambda folder: tokenizer_with(folder, letters_swapped), "another tokenizer"),
    ],
)
def test_a_study_does_not_go_on_with_another_template_or_tokenizer(saved, questions, tmp_path, change, why, kind):
    run_ablation(study(saved, f"{kind}{questions}"), tmp_path / "out")
    change(saved)
    for layers in ("0", "0,1"):  # what was answered is not shown as if it were to the new prompts, either
        with pytest.raises(LesionError, match=why):
            run_ablation(study(saved, f"{kind}{questions}", layers), tmp_path / "out")
    with Store.read(tmp_path / "out") as store:
        assert set(store.answers()["edit"]) == {"baseline", "0×0"}


def test_the_refusal_counts_the_items_and_names_one(saved, questions, tmp_path):
    run_ablation(study(saved, questions), tmp_path / "out")
    template_with(saved, "{{ '<|' ~", "{{ ('Two? ' if '2' in m.content else '') ~ '<|' ~")
    with pytest.raises(LesionError, match=r"\(1 item of \S+sums.jsonl; item 2 of"):
        run_ablation(study(saved, questions, "0,1"), tmp_path / "out")


def test_end_tokens_that_changed_are_noticed_though_no_prompt_has_them(saved, questions, tmp_path):
    run_ablation(study(saved, questions, style="raw"), tmp_path / "out")
    file = saved / "generation_config.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**settings, "eos_token_id": [2, 9]}), encoding="utf-8")
    with pytest.raises(LesionError, match="the tokens that end an answer"):
        run_ablation(study(saved, questions, "0,1", style="raw"), tmp_path / "out")


def test_a_template_that_reads_the_clock_goes_on_tomorrow_and_it_is_said(questions, tmp_path):
    model = thinkers.thinker(CLOCK)
    notes = Listener()
    run_ablation(study("m", questions), tmp_path / "out", models={"m": model}, watcher=notes)
    time.sleep(1.1)  # its prompts would have another second
    again = run_ablation(study("m", questions, "0,1"), tmp_path / "out", models={"m": model}, watcher=notes)
    assert again.evaluated == 3
    assert sum(f"{chat.DAY:%d %B %Y}" in note for note in notes.notes) == 2  # once in each run


def test_a_template_that_draws_at_random_is_refused(questions, tmp_path):
    model = thinkers.thinker(thinkers.PLAIN.replace("m.content", "(m.content ~ ['a', 'b'] | random)"))
    with pytest.raises(LesionError, match="draws at random"):
        run_ablation(study("m", questions), tmp_path / "out", models={"m": model})
