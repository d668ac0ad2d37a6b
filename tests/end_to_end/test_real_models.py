"""Studies on models that were really trained: the bundled one, and a small one that tells stories."""

import json
from functools import cache
from pathlib import Path

import pytest

from commandline import lesion
from lesion.models.load import Model, load
from lesion.models.source import bundled
from lesion.studies.ablation.recall import recall
from lesion.tasks.primer import NAMES

# What the bundled model must be able to do: room to fall, and to rise; that it does is shown by `models/test_bundled`.
RANGES = {"primer:arithmetic": (0.70, 0.95), "primer:atlas": (0.85, 1.0), "primer:reading": (0.85, 1.0)}


@cache
def base() -> Model:
    return load("bundled:llama-base")


def test_the_bundled_model_has_the_shape_that_other_engines_can_run():
    config = base().network.config
    assert config.architectures == ["LlamaForCausalLM"]
    assert config.num_hidden_layers >= 8
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.head_dim in (32, 64)
    assert (bundled()["llama-base"] / "model.safetensors").stat().st_size <= 5_000_000


@pytest.mark.slow
def test_the_bundled_models_card_tells_its_data_seed_time_curve_and_accuracies():
    folder = bundled()["llama-base"]
    card = (folder / "README.md").read_text(encoding="utf-8")
    facts = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    assert f"{facts['recipe']['documents']:,} generated documents" in card
    for part in ("seed", "steps", "minutes", "Loss over training", "95 % Wilson intervals"):
        assert part in card
    measured = {(entry["task"], entry["group"]): entry for entry in facts["results"]}
    for name, (least, most) in RANGES.items():
        entry = measured[name, ""]
        assert least <= entry["accuracy"] <= most
        assert f"| {name} | all | {entry['items']} | {100 * entry['accuracy']:.1f} %" in card
        assert sum(group != "" for task, group in measured if task == name) >= 3
    assert {group for task, group in measured if task == "primer:arithmetic"} >= {"1 step", "2 steps", "4 steps"}


@pytest.mark.slow
def test_the_bundled_model_goes_through_a_study_of_all_primer_tasks(capsys, tmp_path):
    out = tmp_path / "out"
    tasks = [part for name in NAMES for part in ("--task", f"primer:{name}")]
    done = lesion(capsys, "ablate", "bundled:llama-base", *tasks, "--items", 2, "--out", out)
    assert done.code == 0
    blocks = len(base().anatomy.blocks)
    summary = json.loads((out / "summary.json").read_text())
    assert [(task["task"], len(task["cells"])) for task in summary["models"][0]["tasks"]] == [
        (f"primer:{name}", blocks) for name in NAMES
    ]
    assert set(recall(out)[2]["prompt_style"]) == {"chat"}  # which the base writes as plain text


@pytest.mark.slow
def test_a_story_model_goes_through_gsm8k_and_its_score_is_honest(capsys, tmp_path, shared: Path):
    """260 thousand parameters that know stories: near 0, cut off, and nothing to read in what they say."""
    out = tmp_path / "out"
    place, task = shared / "models" / "stories260K", f"gsm8k:{shared / 'data' / 'gsm8k' / 'test.jsonl'}"
    done = lesion(capsys, "ablate", place, "--task", task, "--items", 10, "--max-new-tokens", 32, "--out", out)
    assert done.code == 0
    assert "evaluated 60 of 60 answers" in done.out
    (of_task,) = json.loads((out / "summary.json").read_text())["models"][0]["tasks"]
    assert (of_task["items"], [entry["layer"] for entry in of_task["cells"]]) == (10, [0, 1, 2, 3, 4])
    assert of_task["baseline"]["accuracy"]["value"] < 0.2
    assert of_task["baseline"]["truncated"] > 0.5
    shown = lesion(capsys, "show", place)
    assert shown.code == 0
    assert "5 (0 to 4)" in shown.out
