"""The commands that make and show a study: `lesion ablate`, `run`, `demo` and `report`."""

import csv
import os
from pathlib import Path

import pytest

from commandline import Outcome, lesion, questions, save
from lesion.core.store import Store
from lesion.core.study_file import shipped
from lesion.studies.ablation.recall import recall


@pytest.fixture
def sums(tmp_path) -> Path:
    return questions(tmp_path / "sums.jsonl", 6)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "layers.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_sweep_ends_with_a_table_on_the_terminal_and_every_file_of_the_report(capsys, checkpoint, sums, out):
    words = ("--task", sums, "--items", 4, "--max-new-tokens", 3, "--out", out)
    done = lesion(capsys, "ablate", checkpoint, *words, drawn=True)
    assert done.code == 0, done.err
    assert f"report: {out / 'report.html'}" in done.out.splitlines()
    assert "evaluated 16 of 16 answers\n" in done.out
    assert "0.0 [0.0,\N{NO-BREAK SPACE}49.0]" in done.out  # the Wilson interval of 0 in 4
    assert "16 answers" in done.err
    assert {"answers.sqlite", "layers.csv", "summary.json", "report.html", "figures"} <= set(os.listdir(out))
    assert (out / "report.html").stat().st_size > 10_000
    assert list((out / "figures").glob("*.png"))
    rows = table(out)
    assert [(row["model"], row["task"], row["unit"], row["factor"], row["layer"]) for row in rows] == [
        (str(checkpoint), str(sums), "block", "0.0", str(layer)) for layer in range(3)
    ]


def test_unit_layers_and_factor_choose_what_is_cut_and_how_much(capsys, checkpoint, sums, out):
    done = lesion(
        capsys,
        *("ablate", checkpoint, "--task", sums, "--items", 2, "--max-new-tokens", 2, "--out", out),
        *("--unit", "attention", "--layers", "0-1", "--factor", "0.5"),
    )
    assert done.code == 0
    assert [(row["unit"], row["factor"], row["layer"]) for row in table(out)] == [
        ("attention", "0.5", "0"),
        ("attention", "0.5", "1"),
    ]
    answers = recall(out)[2]
    assert set(answers["edit"]) == {"baseline", "0.attention×0.5", "1.attention×0.5"}


def test_several_models_and_tasks_are_one_study(capsys, checkpoint, sums, tmp_path, out):
    other = save(tmp_path / "gpt2", "gpt2")
    more = questions(tmp_path / "more.jsonl", 3)
    command = ["ablate", checkpoint, other, "--task", sums, "--task", f"jsonl:{more}", "--items", "all"]
    done = lesion(capsys, *command, "--max-new-tokens", 2, "--out", out)
    assert done.code == 0
    assert f"evaluated {2 * 4 * 9} of {2 * 4 * 9} answers" in done.out
    assert "4 of 12 rows (--all" in done.out
    assert "--all" not in lesion(capsys, *command, "--max-new-tokens", 2, "--out", out, "--all").out
    assert {(row["model"], row["task"], row["items"]) for row in table(out)} == {
        (str(place), task, count)
        for place in (checkpoint, other)
        for task, count in ((str(sums), "6"), (f"jsonl:{more}", "3"))
    }


def test_without_a_folder_the_study_goes_to_one_of_its_own(capsys, checkpoint, sums, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["ablate", checkpoint, "--task", sums, "--items", 1, "--max-new-tokens", 1]
    first = lesion(capsys, *command, "--layers", 0)
    lesion(capsys, *command, "--layers", 1)
    folders = sorted((tmp_path / "lesion-out").iterdir())
    assert len(folders) == 2
    page = next(line for line in first.out.splitlines() if line.startswith("report: "))
    assert str(Path(page.removeprefix("report: ")).parent) in {str(folder.relative_to(tmp_path)) for folder in folders}


def is_answer(response) -> bool:
    """Whether it is an answer of the study, which has a digest as its key, and no look at whether an edit acts."""
    return len(response.key) == 64


def test_ctrl_c_before_anything_was_begun_promises_nothing(capsys, checkpoint, sums, out, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lesion.studies.ablation.run.refuse_doubled", interrupted)
    stopped = lesion(capsys, "ablate", checkpoint, "--task", sums, "--items", 4, "--out", out)
    assert stopped.code == 130
    assert "Nothing was kept." in stopped.err
    assert "kept in" not in stopped.err
    assert not out.exists()


# -- run and demo


def test_the_studies_shipped_are_listed_with_kind_models_and_title(capsys):
    done = lesion(capsys, "run", "--list")
    assert done.code == 0
    table, _, legend = done.out.partition("\n\n")
    heading, *lines = table.splitlines()
    assert heading.split() == ["study", "kind", "models", "items", "needs", "question"]
    assert "lesion run NAME --show" in legend
    (demo,) = (line for line in lines if line.startswith("demo-drift "))
    assert demo.split()[1:4] == ["drift", "8", "60"]
    (llama,) = (line for line in lines if line.startswith("layer-importance-llama3.1 "))
    assert "  a GPU, 24 GB  " in llama
    (bundled,) = (line for line in lines if line.startswith("layer-importance-bundled "))
    assert bundled.split()[1:5] == ["layers", "8", "600", "minutes"]
    assert [line.split()[0] for line in lines] == sorted(shipped())
    assert all(len(line.split()) > 3 for line in lines)


def test_run_without_a_study_says_how_to_find_one(capsys):
    done = lesion(capsys, "run")
    assert done.code == 2
    assert "lesion run --list" in done.complaint


# -- report


def unfinished(capsys, monkeypatch, checkpoint: Path, sums: Path, out: Path, lives: int) -> Outcome:
    """A study that died after so many answers."""
    from lesion.engines.transformers.engine import TransformersEngine

    whole, count = TransformersEngine.answer, iter(range(100))

    def dying(self, requests):
        for response in whole(self, requests):
            if is_answer(response) and next(count) == lives:
                raise RuntimeError("gone")
            yield response

    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "answer", dying)
        return lesion(
            capsys,
            *("ablate", checkpoint, "--task", sums, "--items", 3, "--max-new-tokens", 2, "--batch-size", 1),
            *("--out", out),
        )


@pytest.mark.parametrize("lives", [0, 7])
def test_the_report_of_an_unfinished_study_shows_what_there_is(lives, capsys, monkeypatch, checkpoint, sums, out):
    unfinished(capsys, monkeypatch, checkpoint, sums, out, lives)
    done = lesion(capsys, "report", out)
    assert done.code == 0
    with Store.read(out) as store:
        assert len(store) == lives
        answers = store.answers()
    whole = {edit for edit, frame in answers.groupby("edit") if len(frame) == 3}
    assert {f"{row['layer']}×0" for row in table(out)} == (whole - {"baseline"} if "baseline" in whole else set())
    assert (out / "report.html").is_file()


def test_a_folder_without_a_study_is_said_and_left_empty(capsys, tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        done = lesion(capsys, "report", folder)
        assert done.code == 1
        assert done.complaint.startswith(f"There is no study in {folder}")
    assert list(tmp_path.iterdir()) == []
