"""The example of a study from outside: installed, driven from command, Python and study file, checked against torch."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lesion
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_gold

EXAMPLE = Path(__file__).parents[2] / "examples" / "logit_lens"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder into which the package is installed, as pip does it."""
    place = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "logit_lens"
    shutil.copytree(EXAMPLE, source)  # pip builds beside the sources
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(place)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=300)
    return place


def driven(installed: Path, *arguments: object, code: str = "") -> subprocess.CompletedProcess[str]:
    """A process that knows the package: `lesion` with arguments, or Python code."""
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    command = ["-c", code] if code else ["-m", "lesion", *map(str, arguments)]
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, env={**os.environ, "PYTHONPATH": path}
    )


@pytest.fixture(scope="module")
def folder(installed, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("lens") / "out"
    words = ("bundled:llama-base", "--task", "primer:arithmetic", "--items", 4, "--out", out)
    done = driven(installed, "logit-lens", *words)
    assert done.returncode == 0, done.stderr
    assert "asked 72 of 72 answers" in done.stdout  # 9 layers × 4 items, said and scored
    return out


def summary(folder: Path):
    return json.loads((folder / "summary.json").read_text("utf-8"))


def test_the_example_is_small():
    files = [file for file in EXAMPLE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert len(files) <= 5
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 500


def test_its_options_are_those_of_any_study(installed):
    done = driven(installed, "logit-lens", "--help")
    assert done.returncode == 0
    for word in ("--task", "--items", "--seed", "--temperature", "--engine", "--workers", "--out", "Statistics"):
        assert word in done.stdout


def test_the_log_probabilities_are_those_of_the_final_norm_and_head_on_the_hidden_states(folder):
    model = lesion.load("bundled:llama-base")
    task = find("primer:arithmetic")
    items = draw(task, 4, 0)
    network = model.network
    expected = []
    for item in items:
        prompt, gold = encode_gold(model, find("gold:primer:arithmetic"), item, task.style)
        ids = torch.tensor([[*prompt, *gold]])
        with torch.no_grad():
            states = network(ids, output_hidden_states=True).hidden_states
            # Transformers gives the last state behind the final norm already.
            normed = [network.model.norm(state) for state in states[:-1]] + [states[-1]]
            logits = [network.lm_head(state)[0].double().log_softmax(-1) for state in normed]
        places = torch.arange(len(prompt) - 1, ids.shape[1] - 1)
        expected.append([of_layer[places, ids[0, places + 1]].sum().item() for of_layer in logits])
    means = torch.tensor(expected, dtype=torch.float64).mean(0)
    layers = summary(folder)["tasks"][0]["layers"]
    assert [layer["layer"] for layer in layers] == list(range(9))
    for layer, mean in zip(layers, means.tolist(), strict=True):
        assert layer["log_probability"]["value"] == pytest.approx(mean, rel=1e-4, abs=1e-3)


def test_the_last_layer_is_the_model_as_it_is(folder):
    result = lesion.ablate("bundled:llama-base", ["primer:arithmetic"], items=4, layers="0")
    last = summary(folder)["tasks"][0]["layers"][-1]
    table = result.table
    assert last["accuracy"]["value"] == pytest.approx(float(table["baseline_accuracy"].iloc[0]))


def test_what_is_there_is_not_evaluated_again_and_a_further_item_is_only_itself(installed, folder, tmp_path):
    file = tmp_path / "lens.toml"
    file.write_text(
        'kind = "logit-lens"\nmodels = ["bundled:llama-base"]\ntasks = ["primer:arithmetic"]\nitems = 4\n'
        'name = "logit-lens"\n'
    )
    before = (folder / "summary.json").read_bytes()
    done = driven(installed, "run", file, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert "asked 0 of 72 answers; 72 were stored already" in done.stdout
    assert (folder / "summary.json").read_bytes() == before
    again = driven(installed, "report", folder)
    assert again.returncode == 0, again.stderr


def test_page_pictures_and_table_lie_in_the_folder(folder):
    page = (folder / "report.html").read_text("utf-8")
    assert page.count('class="vega"') == 2
    assert "unsafe-eval" not in page.partition("</head>")[0]
    assert (folder / "figures" / "logit-lens.svg").read_text("utf-8").startswith("<svg")
    assert (folder / "figures" / "logit-lens.png").read_bytes().startswith(b"\x89PNG")
    with (folder / "logit-lens.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["accuracy"]) for row in rows] == [
        layer["accuracy"]["value"] for layer in summary(folder)["tasks"][0]["layers"]
    ]


def test_python_runs_it_and_a_notebook_shows_it(installed, folder):
    code = f"""
import lesion
from lesion_logit_lens.study import LensStudy
study = LensStudy.make(name="logit-lens", models=["bundled:llama-base"], tasks=["primer:arithmetic"], items=4)
result = lesion.study(study, {str(folder)!r})
print(len(result.table), result.summary.tasks[0].layers[-1].accuracy.value)
bundle = result.plot()._repr_mimebundle_()
print(sorted(bundle[0] if isinstance(bundle, tuple) else bundle))
"""
    done = driven(installed, code=code)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("9 ")
    assert "vegalite" in second


def test_the_folder_of_another_study_is_refused(installed, folder):
    words = ("bundled:llama-base", "--task", "primer:arithmetic", "--items", 1, "--out", folder)
    done = driven(installed, "ablate", *words)
    assert done.returncode == 2
    assert "belongs to a study of kind logit-lens" in " ".join(done.stderr.split())


def test_workers_answer_for_it(installed, folder, tmp_path):
    pytest.importorskip("ray")
    words = (
        "bundled:llama-base",
        "--task",
        "primer:arithmetic",
        "--items",
        4,
        "--workers",
        2,
        "--out",
        tmp_path / "out",
    )
    done = driven(installed, "logit-lens", *words)
    assert done.returncode == 0, done.stderr
    for one, other in zip(summary(folder)["tasks"], summary(tmp_path / "out")["tasks"], strict=True):
        for mine, theirs in zip(one["layers"], other["layers"], strict=True):
            assert mine["accuracy"] == theirs["accuracy"]
            assert mine["log_probability"]["value"] == pytest.approx(theirs["log_probability"]["value"], abs=1e-4)
