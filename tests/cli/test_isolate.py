"""The commands `lesion isolate` and `lesion evaluate`, and `run` and `report` on what they leave."""

import csv
import json
import os
import shutil
from pathlib import Path

import pytest

from commandline import lesion, questions, refused, save, write
from lesion.core.lock import FolderLock


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("data")
    rows = ({"id": f"{n}", "prompt": f"a fox ran {n} miles in", "answer": "1 day"} for n in range(12))
    return questions(folder / "sums.jsonl", 12), write(folder / "foxes.jsonl", rows)


@pytest.fixture(scope="module")
def found(checkpoint, data, tmp_path_factory) -> Path:
    """A folder in which `lesion isolate` has been."""
    out = tmp_path_factory.mktemp("found") / "out"
    from lesion.cli.main import code

    assert code([str(a) for a in isolating(checkpoint, data, out)]) == 0
    return out


def isolating(checkpoint: Path, data: tuple[Path, Path], out: Path, *more: object) -> list[object]:
    skill, control = data
    told = ["--share", "0.1,0.2", "--samples", 4, "--repeats", 3]
    return ["isolate", checkpoint, "--skill", skill, "--control", control, *told, "--out", out, *more]


def evaluating(checkpoint: Path, data: tuple[Path, ...], out: Path, *more: object) -> list[object]:
    tasks = [argument for file in data for argument in ("--task", file)]
    told = ["--items", 4, "--max-new-tokens", 3, "--random-controls", 2]
    return ["evaluate", checkpoint, *tasks, *told, "--out", out, *more]


def summary(folder: Path) -> dict:
    def refuse(constant: str):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads((folder / "summary.json").read_text(encoding="utf-8"), parse_constant=refuse)


def table(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def test_isolate_leaves_statistics_edits_a_summary_and_a_report(found, capsys, checkpoint, data):
    edits = {f"mathneuro-{keep}{repeat}.edit" for keep in (0.1, 0.2) for repeat in ("", "-repeat1", "-repeat2")}
    assert {*edits, "statistics.safetensors", "summary.json", "report.html", "selections.csv"} <= set(os.listdir(found))
    assert (found / "report.html").stat().st_size > 10_000
    again = lesion(capsys, *isolating(checkpoint, data, found))
    assert again.code == 0, again.err
    assert f"report: {found / 'report.html'}" in again.out.splitlines()
    assert "asked" not in again.out


def test_evaluate_ends_with_a_table_and_every_file_of_the_report(capsys, checkpoint, data, found, tmp_path):
    out = tmp_path / "out"
    edit = found / "mathneuro-0.2.edit"
    done = lesion(capsys, *evaluating(checkpoint, data, out, "--edit", edit))
    assert done.code == 0, done.err
    assert "evaluated 32 of 32 answers\n" in done.out
    assert f"report: {out / 'report.html'}" in done.out.splitlines()
    assert {"answers.sqlite", "evaluation.csv", "summary.json", "report.html", "plan.json"} <= set(os.listdir(out))
    told = summary(out)["evaluation"]
    assert [(entry["name"], entry["role"], entry["items"]) for entry in told["tasks"]] == [
        (str(data[0]), "skill", 4),
        (str(data[1]), "control", 4),
    ]
    for task in told["tasks"]:
        first = task["cells"][0]
        assert all(first["result"][name] is not None for name in ("value", "low", "high"))
        assert all(first["change"][name] is not None for name in ("value", "low", "high", "p", "p_corrected"))
        assert set(first["rates"]) == {"truncated", "looped", "unparsed", "unclosed", "nonfinite"}
        assert all(first["random"][name] is not None for name in ("mean", "lowest", "highest", "drop", "beyond"))
        assert first["random"]["draws"] == 2
    assert {row["task"] for row in table(out / "evaluation.csv")} == {str(file) for file in data}


def test_evaluate_takes_further_edits_and_factors_into_its_folder(capsys, checkpoint, data, found, tmp_path):
    out = tmp_path / "out"
    lesion(capsys, *evaluating(checkpoint, data, out, "--edit", found / "mathneuro-0.2.edit"))
    more = ["--edit", found / "mathneuro-0.2.edit", "--edit", found / "mathneuro-0.1.edit", "--factor", "0, 1.5"]
    done = lesion(capsys, *evaluating(checkpoint, data, out, *more))
    # Two edits × two factors, each with two random controls, and the baseline; beside the factor above one the block
    # of each edit and its MLP at three factors; on two tasks of four items.
    assert (done.code, "evaluated 168 of 200 answers; 32 were stored already\n" in done.out) == (0, True), done.out
    assert len(summary(out)["evaluation"]["edits"]) == 12 + 12


def test_evaluate_without_an_edit_asks_the_baseline(capsys, checkpoint, data, tmp_path):
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "out"))
    assert done.code == 0, done.err
    assert "evaluated 8 of 8 answers\n" in done.out
    assert summary(tmp_path / "out")["evaluation"]["edits"] == []


def test_a_factor_of_one_is_refused_alone_and_told_beside_others(capsys, checkpoint, data, found, tmp_path):
    more = ["--edit", found / "mathneuro-0.2.edit", "--factor", "1"]
    refused(lesion(capsys, *evaluating(checkpoint, data, tmp_path / "alone", *more)), 2, "there is nothing to evaluate")
    more[-1] = "1,0"
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "out", *more))
    assert done.code == 0, done.err
    assert "The factor 1 changes nothing" in " ".join(done.err.split())


def test_validation_chooses_an_edit_and_reports_it_on_the_other_items(capsys, checkpoint, data, found, tmp_path):
    more = ["--edit", found / "mathneuro-0.2.edit", "--factor", "0.5,1.5", "--validation", "0.5"]
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "out", *more))
    assert done.code == 0, done.err
    choice = summary(tmp_path / "out")["evaluation"]["choice"]
    assert (choice["validation_items"], choice["test_items"], len(choice["candidates"])) == (2, 2, 2)


@pytest.mark.parametrize("ours", ["isolation", "evaluation"])
def test_report_writes_the_page_again_from_the_folder(ours, capsys, checkpoint, data, found, tmp_path):
    out = tmp_path / "out"
    if ours == "isolation":
        shutil.copytree(found, out)
    else:
        lesion(capsys, *evaluating(checkpoint, data, out, "--edit", found / "mathneuro-0.2.edit"))
    before = {name: (out / name).read_bytes() for name in ("summary.json", "report.html")}
    (out / "report.html").unlink()
    if ours == "evaluation":  # its numbers are those of the answers in the store
        (out / "summary.json").unlink()
    done = lesion(capsys, "report", out)
    assert done.code == 0, done.err
    assert f"report: {out / 'report.html'}" in done.out.splitlines()
    assert {name: (out / name).read_bytes() for name in before} == before


def test_run_takes_an_isolation_study_from_a_file_to_its_report(capsys, checkpoint, data, tmp_path):
    skill, control = data
    (tmp_path / "prune.toml").write_text(
        f'kind = "isolation"\ntitle = "Prune <b>"\nmodel = "{checkpoint}"\nskill = "{skill}"\ncontrols = "{control}"\n'
        f'methods = ["mathneuro", "magnitude"]\nsamples = 4\nshare = [0.1, 0.2]\nrandom_controls = 1\nitems = 3\n'
        f'tasks = ["{skill}", "{control}"]\n[decoding]\nmax_new_tokens = 2\n'
    )
    out = tmp_path / "out"
    done = lesion(capsys, "run", tmp_path / "prune.toml", "--out", out)
    assert done.code == 0, done.err
    assert "evaluated 54 of 54 answers\n" in done.out
    told = summary(out)
    assert (told["study"]["name"], told["study"]["title"]) == ("prune", "Prune <b>")
    assert [one["method"] for one in told["isolation"]["selections"]] == ["mathneuro"] * 2 + ["magnitude"] * 2
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Prune &lt;b&gt;" in page
    assert "Prune <b>" not in page
    again = lesion(capsys, "run", tmp_path / "prune.toml", "--out", out)
    assert "evaluated 0 of 54 answers; 54 were stored already\n" in again.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--share", "0"], "share"),
        (["--share", "0.1,"], "--share takes numbers by commas; '' is none"),
        (["--samples", "1.5"], "--samples takes whole numbers by commas; '1.5' is none"),
        (["--samples", "99"], "99 calibration texts are asked for"),
        (["--method", "mathnuro"], "mathneuro"),
        (["--control", "DATA0"], "cannot be its own control"),
        (["--control", "DATA1"], "listed twice"),
        (["--shar", "0.1"], "--share"),
    ],
    ids=str,
)
def test_wrong_use_of_isolate_is_one_paragraph_and_exits_with_2(more, said, capsys, checkpoint, data, tmp_path):
    more = [str(data[int(word[-1])]) if word.startswith("DATA") else word for word in more]
    done = lesion(capsys, *isolating(checkpoint, data, tmp_path / "out", *more))
    assert done.code == 2
    assert said in " ".join(done.complaint.split())
    assert not list(tmp_path.glob("out/*.edit"))


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--factor", "two"], 2, "--factor takes numbers by commas"),
        (["--validation", "1"], 2, "validation must be a share of the items between 0 and 1, not 1"),
        (["--random-controls", "-1"], 2, "random_controls must be a whole number from 0"),
        (["--edit", "absent.edit"], 2, "absent.edit"),
    ],
    ids=str,
)
def test_wrong_use_of_evaluate_is_one_paragraph(more, code, said, capsys, checkpoint, data, found, tmp_path):
    edit = ["--edit", found / "mathneuro-0.2.edit"]
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "out", *edit, *more))
    assert done.code == code
    assert said in " ".join(done.complaint.split())
    assert not (tmp_path / "out" / "answers.sqlite").exists()


def test_neither_skill_nor_control_nor_out_may_be_left_out(capsys, checkpoint, data, tmp_path):
    whole = isolating(checkpoint, data, tmp_path / "out")
    for option in ("--skill", "--control", "--out"):
        place = whole.index(option)
        done = lesion(capsys, *whole[:place], *whole[place + 2 :])
        assert (done.code, option in done.complaint) == (2, True)


@pytest.mark.parametrize("how", ["cut short", "tampered", "not one"])
def test_a_damaged_edit_file_fails_in_words(how, capsys, checkpoint, data, found, tmp_path):
    whole = bytearray((found / "mathneuro-0.2.edit").read_bytes())
    whole[-3] ^= 1
    bytes_of = {"cut short": whole[: len(whole) // 2], "tampered": whole, "not one": b"hello"}
    (tmp_path / "bad.edit").write_bytes(bytes_of[how])
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "out", "--edit", tmp_path / "bad.edit"))
    assert (done.code, "bad.edit" in done.complaint) == (1, True)


def test_an_edit_for_another_model_fails_and_says_how_to_force_it(capsys, data, found, tmp_path):
    other = save(tmp_path / "gpt2", "gpt2")
    edit = ["--edit", found / "mathneuro-0.2.edit"]
    done = lesion(capsys, *evaluating(other, data, tmp_path / "out", *edit))
    assert (done.code, "does not fit" in done.complaint) == (1, True)
    forced = lesion(capsys, *evaluating(other, data, tmp_path / "out", *edit, "--force"))
    assert (forced.code, "does not fit" in forced.complaint) == (1, True)


def test_a_damaged_statistics_file_fails_and_says_to_remove_it(capsys, checkpoint, data, found, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(found, out)
    whole = bytearray((out / "statistics.safetensors").read_bytes())
    whole[-3] ^= 1
    (out / "statistics.safetensors").write_bytes(whole)
    done = lesion(capsys, *isolating(checkpoint, data, out))
    assert (done.code, "remove it" in done.complaint) == (1, True)
    (out / "statistics.safetensors").unlink()
    assert lesion(capsys, *isolating(checkpoint, data, out)).code == 0


def test_a_folder_that_is_a_file_or_in_use_fails_with_advice(capsys, checkpoint, data, found, tmp_path):
    (tmp_path / "file").write_text("")
    done = lesion(capsys, *isolating(checkpoint, data, tmp_path / "file"))
    assert (done.code, "--out" in done.complaint) == (1, True)
    done = lesion(capsys, *evaluating(checkpoint, data, tmp_path / "file"))
    assert (done.code, "--out" in done.complaint) == (1, True)
    (tmp_path / "out").mkdir()
    lock = FolderLock(tmp_path / "out", "isolation")
    try:
        for command in (isolating, evaluating):
            done = lesion(capsys, *command(checkpoint, data, tmp_path / "out"))
            assert (done.code, "writing in" in done.complaint) == (1, True)
    finally:
        lock.release()


@pytest.mark.parametrize("ours", ["isolate", "evaluate"])
def test_ctrl_c_leaves_with_130_and_says_what_is_kept(ours, capsys, checkpoint, data, found, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    place = "studies.isolation.activation_cache.observe" if ours == "isolate" else "core.run.answer_cells"
    monkeypatch.setattr(f"lesion.{place}", interrupted)
    command = isolating if ours == "isolate" else evaluating
    done = lesion(capsys, *command(checkpoint, data, tmp_path / "out"))
    assert (done.code, done.complaint) == (130, "interrupted.\n")
    assert f"kept in {tmp_path / 'out'}; the same command goes on" in " ".join(done.err.split())


def test_a_share_that_leaves_nothing_fails_in_words(capsys, checkpoint, data, tmp_path):
    done = lesion(capsys, *isolating(checkpoint, data, tmp_path / "out", "--share", "1"))
    assert (done.code, "is empty on" in done.complaint) == (1, True)
