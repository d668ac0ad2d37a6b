"""The example of a study from outside: installed, driven from command, Python and study file, checked against torch."""

import csv
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch

import lesion
from commandline import lesion as command
from lesion.cli import main
from lesion.report.values import Estimate
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_gold

EXAMPLE = Path(__file__).parents[2] / "examples" / "logit_lens"
WORDS = ("bundled:llama-base", "--task", "primer:arithmetic", "--items", "4")
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


@pytest.fixture(scope="module")
def folder(installed, tmp_path_factory) -> Path:
    """What a process of its own left that knows the package; where Ray is installed, a worker answered for it."""
    out = tmp_path_factory.mktemp("lens") / "out"
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    workers = ("--workers", "1") if importlib.util.find_spec("ray") else ()
    done = subprocess.run(
        [sys.executable, "-m", "lesion", "logit-lens", *WORDS, *workers, "--out", str(out)],
        capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "evaluated 72 of 72 answers" in done.stdout  # 9 layers × 4 items, said and scored
    return out


@pytest.fixture(scope="module")
def known(installed) -> Iterator[None]:
    """This process knows the package too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(installed))
        patch.setattr(main, "_command", cache(main._command.__wrapped__))
        yield
        for name in [name for name in sys.modules if name.partition(".")[0] == "lesion_logit_lens"]:
            del sys.modules[name]


def summary(folder: Path):
    return json.loads((folder / "summary.json").read_text("utf-8"))


def test_the_example_is_small():
    files = [file for file in EXAMPLE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert len(files) <= 5
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 500


def test_its_options_are_those_of_any_study(known, capsys):
    done = command(capsys, "logit-lens", "--help", "all")
    assert done.code == 0
    for word in ("--task", "--items", "--seed", "--temperature", "--engine", "--workers", "--out", "Statistics"):
        assert word in done.out


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


def test_the_intervals_of_log_probabilities_are_bootstrap_intervals_and_never_exceed_0(known, folder):
    for layer in summary(folder)["tasks"][0]["layers"]:
        interval = layer["log_probability"]
        assert interval["low"] <= interval["value"] <= interval["high"] <= 0
    mean = importlib.import_module("lesion_logit_lens.study").mean
    values = -np.random.default_rng(1).exponential(0.1, 12)
    expected = scipy.stats.bootstrap((values,), np.mean, method="percentile", rng=0).confidence_interval
    interval = mean(values, 0.95, 0)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=0.005)
    assert mean(np.array([-1.0]), 0.95, 0) == Estimate(value=-1.0)


def test_the_last_layer_is_the_model_as_it_is(folder):
    result = lesion.ablate("bundled:llama-base", ["primer:arithmetic"], items=4, layers="0")
    last = summary(folder)["tasks"][0]["layers"][-1]
    table = result.table_full
    assert last["accuracy"]["value"] == pytest.approx(float(table["baseline_accuracy"].iloc[0]))


def test_what_is_there_is_not_evaluated_again(known, capsys, folder, tmp_path):
    file = tmp_path / "lens.toml"
    file.write_text(
        'kind = "logit-lens"\nmodels = ["bundled:llama-base"]\ntasks = ["primer:arithmetic"]\nitems = 4\n'
        'name = "logit-lens"\n'
    )
    before = (folder / "summary.json").read_bytes()
    done = command(capsys, "run", file, "--out", folder, drawn=True)
    assert done.code == 0, done.err
    assert "evaluated 0 of 72 answers; 72 were stored already" in done.out
    assert (folder / "summary.json").read_bytes() == before
    assert command(capsys, "report", folder, drawn=True).code == 0


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


def test_python_runs_it_and_a_notebook_shows_it(known, folder):
    study = importlib.import_module("lesion_logit_lens.study").LensStudy.make(
        name="logit-lens", models=["bundled:llama-base"], tasks=["primer:arithmetic"], items=4
    )
    result = lesion.study(study, folder)
    assert len(result.table_full) == 9
    assert (
        result.summary.tasks[0].layers[-1].accuracy.value
        == summary(folder)["tasks"][0]["layers"][-1]["accuracy"]["value"]
    )
    assert any("vegalite" in kind for kind in result.plot()._repr_mimebundle_())


def test_its_function_in_python_is_that_of_any_study(known, folder):
    logit_lens = importlib.import_module("lesion.functions").logit_lens
    result = logit_lens("bundled:llama-base", "primer:arithmetic", items=np.int64(4), out=folder)
    assert result.evaluated == 0  # all answers are those of the command
    with pytest.raises(lesion.UsageError, match=r"unexpected keyword argument 'item_s' \(nearest: items"):
        logit_lens("bundled:llama-base", "primer:arithmetic", item_s=4)
    assert "Raises" not in logit_lens.__doc__
    assert "items: Number of items per task" in logit_lens.__doc__


def test_the_folder_of_another_study_is_refused(known, capsys, folder):
    done = command(capsys, "ablate", *WORDS, "--out", folder)
    assert done.code == 2
    assert "belongs to a study of kind logit-lens" in done.complaint
