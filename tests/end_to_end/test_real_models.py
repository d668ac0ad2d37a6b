"""Studies on models that were really trained: the bundled one, and a small one that tells stories."""

import json
from pathlib import Path

import pytest

from commandline import lesion
from lesion.models.source import bundled

# What the bundled model must be able to do: room to fall, and to rise; that it does is shown by `models/test_bundled`.
RANGES = {"primer:arithmetic": (0.70, 0.95), "primer:atlas": (0.85, 1.0), "primer:reading": (0.85, 1.0)}


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
