"""The commands `lesion isolate` and `lesion evaluate`, and `run` and `report` on what they leave."""

from pathlib import Path

import pytest

from commandline import lesion, questions, write
from lesion.core.lock import FolderLock


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("data")
    rows = ({"id": f"{n}", "prompt": f"a fox ran {n} miles in", "answer": "1 day"} for n in range(12))
    return questions(folder / "sums.jsonl", 12), write(folder / "foxes.jsonl", rows)


def isolating(checkpoint: Path, data: tuple[Path, Path], out: Path, *more: object) -> list[object]:
    skill, control = data
    told = ["--share", "0.1,0.2", "--samples", 4, "--repeats", 3]
    return ["isolate", checkpoint, "--skill", skill, "--control", control, *told, "--out", out, *more]


def evaluating(checkpoint: Path, data: tuple[Path, ...], out: Path, *more: object) -> list[object]:
    tasks = [argument for file in data for argument in ("--task", file)]
    told = ["--items", 4, "--max-new-tokens", 3, "--random-controls", 2]
    return ["evaluate", checkpoint, *tasks, *told, "--out", out, *more]


def test_neither_skill_nor_control_nor_out_may_be_left_out(capsys, checkpoint, data, tmp_path):
    whole = isolating(checkpoint, data, tmp_path / "out")
    for option in ("--skill", "--control", "--out"):
        place = whole.index(option)
        done = lesion(capsys, *whole[:place], *whole[place + 2 :])
        assert (done.code, option in done.complaint) == (2, True)


def test_a_folder_that_is_a_file_or_in_use_fails_with_advice(capsys, checkpoint, data, tmp_path):
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
def test_ctrl_c_leaves_with_130_and_says_what_is_kept(ours, capsys, checkpoint, data, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    place = "studies.isolation.selections.observe" if ours == "isolate" else "core.inference.answer_cells"
    monkeypatch.setattr(f"lesion.{place}", interrupted)
    command = isolating if ours == "isolate" else evaluating
    done = lesion(capsys, *command(checkpoint, data, tmp_path / "out"))
    assert (done.code, done.complaint) == (130, "interrupted.\n")
    assert f"kept in {tmp_path / 'out'}; the same command goes on" in " ".join(done.err.split())
