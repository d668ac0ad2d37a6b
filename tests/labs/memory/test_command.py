"""`lesion lab memory`: what it writes and prints, that it repeats, and what it says to wrong options."""

from __future__ import annotations

import pytest

import lesion as python
from commandline import lesion
from lesion_labs.memory import run, theory
from lesion_labs.memory.report import MemoryResult
from lesion_labs.memory.result import MemorySummary
from memories import memory


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(run, "CLASSES", (2, 4))
    monkeypatch.setattr(run, "NOISES", (0.3,))
    monkeypatch.setattr(run, "SEEDS", 2)
    monkeypatch.setattr(theory, "VOCABULARIES", (8, 16, 32))
    monkeypatch.setattr(theory, "SEEDS", 3)
    monkeypatch.setattr(theory, "BATCH", 400)
    monkeypatch.setattr(theory, "RESAMPLES", 50)


OPTIONS = ("--classes", 4, "--width", 24, "--noise", 0.6, "--steps", 600)
SHORT = (*OPTIONS, "--steps", 20)
"""Where it does not matter what is learned."""


def test_the_command_writes_a_summary_and_a_page_and_prints_where_the_noise_lies(tmp_path, capsys):
    left = lesion(capsys, "lab", "memory", *OPTIONS, "--out", tmp_path / "m")
    assert left.code == 0, left.err
    assert sorted(file.name for file in (tmp_path / "m").iterdir()) == [
        "figures", "lesion.json", "lock", "powers.csv", "report.html", "sizes.csv", "summary.json",
        "training.csv", "truncations.csv",
    ]  # fmt: skip
    summary = MemorySummary.model_validate_json((tmp_path / "m" / "summary.json").read_text())
    assert summary.study == memory(4, 4, 24, 0.6, steps=600, name="memory")
    assert summary.full.clean_accuracy == 0
    assert summary.full.p_noise == pytest.approx(0.6, abs=0.01)
    assert summary.full.noise.side == "top"
    said = " ".join(left.out.split())
    assert "With the 3 smallest of 4 components of W kept, the common class's probability goes from 59.9" in said
    for words in ("Truncations of W", "report: "):
        assert words in said


def test_the_same_command_gives_the_same_numbers_and_another_seed_others(tmp_path, capsys):
    texts = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        lesion(capsys, "lab", "memory", *SHORT, "--codes", "gaussian", "--seed", seed, "--out", tmp_path / name)
        texts.append((tmp_path / name / "summary.json").read_text())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("wrong", "explained"),
    [
        (("--width", 3), "3 has no room for 5 orthonormal codes"),
        (("--codes", "gausian"), "orthonormal or gaussian"),
    ],
)
def test_wrong_options_are_explained_before_anything_is_trained(wrong, explained, tmp_path, capsys):
    left = lesion(capsys, "lab", "memory", "--classes", 4, *wrong, "--out", tmp_path / "m")
    assert left.code == 2
    assert explained in left.complaint
    assert not (tmp_path / "m").exists()


def test_a_study_file_and_python_give_what_the_command_gives(tmp_path, capsys):
    (tmp_path / "m.toml").write_text('kind = "memory"\nclasses = 4\nwidth = 24\nnoise = 0.6\nsteps = 20\n')
    for command in (("run", tmp_path / "m.toml"), ("lab", "memory", *SHORT)):
        left = lesion(capsys, *command, "--out", tmp_path / command[0])
        assert left.code == 0, left.err
    by_file, by_command = (MemoryResult.recall(tmp_path / name).summary for name in ("run", "lab"))
    result = python.study(tmp_path / "m.toml", out=tmp_path / "python")
    assert isinstance(result, MemoryResult)
    unnamed = [summary.model_copy(update={"study": None}) for summary in (by_file, by_command, result.summary)]
    assert unnamed[0] == unnamed[1] == unnamed[2]
    assert lesion(capsys, "run", tmp_path / "m.toml", "--out", tmp_path / "lab").code == 0
    refused = lesion(capsys, "run", tmp_path / "m.toml", "--workers", 2, "--out", tmp_path / "lab")
    assert "leave --workers and --ray out" in refused.complaint


def test_an_interrupted_memory_keeps_nothing_and_is_started_anew(tmp_path, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "sweep", interrupted)
        left = lesion(capsys, "lab", "memory", *SHORT, "--out", tmp_path)
    assert left.code == 130
    assert "the same command starts it anew" in " ".join((left.out + left.err).split())
    assert "is not finished" in lesion(capsys, "report", tmp_path).complaint
    assert lesion(capsys, "lab", "memory", *SHORT, "--out", tmp_path).code == 0


class Counting:
    """A watcher that adds up."""

    def __init__(self):
        self.begun, self.done, self.notes = [], [], []

    def begin(self, model, total, stored, what="answers"):
        self.begun.append(total)
        self.done.append(0)

    def answered(self, count):
        self.done[-1] += count

    def note(self, text):
        self.notes.append(text)


@pytest.mark.parametrize(("steps", "width"), [(1234, 24), (7, 24), (500, 5)])
def test_progress_comes_to_exactly_what_was_announced(steps, width):
    watcher = Counting()
    run.measured(memory(4, None, width, 0.6, steps=steps), watcher)
    assert watcher.done == watcher.begun


def test_the_notes_say_what_the_numbers_cannot_show():
    watcher = Counting()
    summary = run.measured(memory(3, None, 4, 0.5, steps=20), watcher)
    assert any("no room for orthonormal codes of 4 classes" in note for note in summary.notes)
    assert tuple(watcher.notes) == summary.notes
    summary = run.measured(memory(3, None, 24, 0.0, steps=20))
    assert summary.first_step.power("constant", "feed_forward").exact is None


def test_the_training_of_the_summary_follows_the_closed_form_where_there_is_one():
    for inputs, known in ((6, True), (7, False)):
        for moment in run.measured(memory(3, inputs, 24, 0.4, steps=50)).training:
            assert (moment.predicted is not None) is known
            if known:
                signal, noise = moment.predicted.signal, moment.predicted.noise
                assert sorted([signal, signal, noise]) == pytest.approx(sorted(moment.singular_values), abs=1e-9)
