"""Stored answers as logs of other programs: read back by those programs where they are installed, and by compare."""

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from commandline import lesion
from lesion.errors import UsageError
from lesion.sharing.logs import Run, eval_results, inspect_log


@pytest.fixture
def logs(capsys, folder) -> Path:
    done = lesion(capsys, "export", folder, "--inspect-log", "--every-eval-ever", "--out", "logs")
    assert done.code == 0, done.err
    assert {path.name for path in Path("logs").iterdir()} == {"inspect", "every_eval_ever"}
    return Path("logs")


def stored(folder: Path, task: str, edit: str) -> dict[str, int]:
    """item → whether it is right, as the store has it."""
    with sqlite3.connect(folder / "answers.sqlite") as store:
        return dict(store.execute("SELECT item, correct FROM answers WHERE task = ? AND edit = ?", (task, edit)))


@pytest.mark.parametrize(
    "files", ["inspect/*arithmetic*.json", "every_eval_ever/data/*arith*/lesion/*/*_samples.jsonl"]
)
def test_compare_reads_the_logs_and_finds_what_the_store_has(files, logs, capsys, folder):
    unedited, edited = sorted(logs.glob(files), key=lambda path: "with-1x0" in str(path))
    done = lesion(capsys, "compare", unedited, edited, "--json")
    assert done.code == 0, done.err
    ((cell,),) = [pair["cells"] for pair in json.loads(done.out)["pairs"]]
    before, after = (stored(folder, "primer:arithmetic", edit) for edit in ("baseline", "1×0"))
    assert cell["items"] == len(before) == 4
    assert cell["difference"]["value"] == pytest.approx((sum(after.values()) - sum(before.values())) / 4)
    done = lesion(capsys, "compare", folder, unedited, "--json")
    (cell, *_) = json.loads(done.out)["pairs"][0]["cells"]
    assert cell["difference"]["value"] == 0


def test_the_real_inspect_ai_reads_the_logs(logs, folder):
    reading = pytest.importorskip("inspect_ai.log")
    infos = reading.list_eval_logs(str(logs / "inspect"))
    assert len(infos) == 4
    for info in infos:
        log = reading.read_eval_log(info.name)
        right = stored(folder, log.eval.task, log.eval.metadata["edit"])
        assert {each.id: each.scores["lesion"].value == "C" for each in log.samples} == right
        assert log.results.scores[0].metrics["accuracy"].value == sum(right.values()) / len(right)


def test_a_system_prompt_is_a_message_of_the_log():
    asked = run("primer:arithmetic").answers.assign(
        prompt_style='chat system="Answer in \\"one\\" word."', item=list("wxyz"), question="1 + 1?", gold="2",
        text="2", parsed="2", tokens=1, finish="stop", group="", engine="e", model_name="m", model="f",
    )  # fmt: skip
    log = json.loads(inspect_log(replace(run("primer:arithmetic"), answers=asked)))
    system = {"role": "system", "content": 'Answer in "one" word.'}
    assert all(sample["messages"][:2] == [system, {"role": "user", "content": "1 + 1?"}] for sample in log["samples"])


def test_the_real_every_eval_ever_takes_the_files(logs, monkeypatch):
    validator = pytest.importorskip("every_eval_ever.validator.validate")
    monkeypatch.chdir(logs / "every_eval_ever")
    monkeypatch.setattr("sys.argv", ["validate", *map(str, Path().rglob("*.json*"))])
    assert validator.main() == 0


def run(task: str, model: str = "org/model", edit: str = "baseline") -> Run:
    answers = pd.DataFrame(
        {"key": list("abcd"), "correct": [True, True, True, False], "prompt_style": "chat", "decoding": "greedy max=8"}
    )
    return Run(model, "org/model", edit, task, datetime(2026, 11, 28, tzinfo=UTC), answers)


def test_eval_results_are_those_of_benchmarks_on_the_hub():
    files = eval_results([run("gsm8k"), run("primer:arithmetic"), run("gsm8k", "org/model with 1×0", "1×0")])
    assert list(files) == [f"eval_results/org-model{edit}/.eval_results/gsm8k.yaml" for edit in ("", "-with-1x0")]
    (entry,) = parse_eval_result_entries(yaml.safe_load(files["eval_results/org-model/.eval_results/gsm8k.yaml"]))
    assert (entry.dataset_id, entry.task_id, entry.value, str(entry.date)) == (
        "openai/gsm8k",
        "gsm8k",
        75.0,
        "2026-11-28",
    )
    assert "4 items" in entry.notes
    # Wilson's interval of 3 of 4, from its definition.
    z, n, p = 1.959964, 4, 0.75
    middle, half = (
        (p + z * z / (2 * n)) / (1 + z * z / n),
        z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5 / (1 + z * z / n),
    )
    assert f"{100 * (middle - half):.1f} to {100 * (middle + half):.1f}" in entry.notes


def test_a_study_without_a_benchmark_has_no_eval_results(capsys, folder):
    done = lesion(capsys, "export", folder, "--eval-results", "--out", "results")
    assert done.code == 2
    assert "No task here is a benchmark of the hub" in done.err
    assert not Path("results").exists()


def test_a_benchmark_from_a_local_file_is_none_of_the_hub():
    with pytest.raises(UsageError, match=r"of gsm8k:/q.jsonl come from a local file.*Run the study on gsm8k,"):
        eval_results([run("gsm8k:/q.jsonl"), run("primer:atlas")])


def test_what_is_scored_is_left_out_and_named(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("The sky above Lisbon is blue and the sea before it is green.\n" * 20)
    asked = ["--task", "text:text.txt", "--task", "primer:atlas", "--items", "2", "--layers", "1"]
    assert lesion(capsys, "ablate", "bundled:llama-base", *asked, "--out", "study").code == 0
    done = lesion(capsys, "export", "study", "--inspect-log", "--out", "logs")
    assert done.code == 0
    assert "note: left out, since nothing in it is right or wrong: text:text.txt" in done.err
    assert {json.loads(path.read_text())["eval"]["task"] for path in Path("logs/inspect").iterdir()} == {"primer:atlas"}
