"""The Python API: a model, a cut, a study, its table and its report."""

import subprocess
import sys

import pytest
import torch

import lesion
from commandline import questions, save, undrawn
from tiny import model


@pytest.fixture
def sums(tmp_path) -> str:
    return str(questions(tmp_path / "sums.jsonl", 5))


def test_every_public_name_can_be_had_and_is_listed():
    assert set(lesion.__all__) >= {"load", "applied", "ScaleBlock", "ScaleAttention", "ScaleMlp", "Compose", "ablate"}
    assert dir(lesion) == sorted(lesion.__all__)
    for name in lesion.__all__:
        assert getattr(lesion, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'scalpel'"):
        _ = lesion.scalpel


def test_importing_lesion_does_not_wait_for_torch():
    listing = "import sys, lesion; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_a_report_is_not_written_over_another_study(sums, tmp_path):
    one, other = (
        lesion.ablate(model("llama"), sums, items=2, layers=[layer], max_new_tokens=1, out=tmp_path / str(layer))
        for layer in (0, 1)
    )
    with pytest.raises(lesion.UsageError, match=r"A study was run into .* give another folder for the report"):
        one.report(other.folder)
    assert (other.folder / "summary.json").read_text() == other.summary.text()
    with undrawn():
        assert one.report(tmp_path / "1" / ".." / "0") == tmp_path / "1" / ".." / "0" / "report.html"
        assert one.report(tmp_path / "page") == one.report(tmp_path / "page")


def test_a_figure_is_saved_as_png_svg_or_pdf(sums, tmp_path):
    result = lesion.ablate(model("llama"), sums, items=2, max_new_tokens=1)
    assert result.plot().save(tmp_path / "drops.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in result.plot().save(str(tmp_path / "drops.svg")).read_text("utf-8")
    assert result.plot().save(tmp_path / "drops.PDF").read_bytes().startswith(b"%PDF")
    with pytest.raises(lesion.UsageError, match="as PNG, SVG or PDF"):
        result.plot().save(tmp_path / "drops.jpg")
    with pytest.raises(lesion.LesionError, match=r"nowhere.* cannot be written"):
        result.plot().save(tmp_path / "nowhere" / "drops.png")


def test_a_study_needs_no_folder_and_leaves_the_model_as_it_was(sums):
    loaded = model("llama")
    before = {name: tensor.clone() for name, tensor in loaded.network.state_dict().items()}
    first, second = (lesion.ablate(loaded, sums, items=2, max_new_tokens=2, layers=[1]) for _ in range(2))
    assert first.folder != second.folder
    assert first.evaluated == second.evaluated == 4
    assert first.summary == second.summary
    for name, tensor in loaded.network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_command_and_the_function_give_the_same_answers(sums, tmp_path, capsys):
    from commandline import lesion as command

    place = save(tmp_path / "llama")
    result = lesion.ablate(str(place), sums, items=4, max_new_tokens=5, seed=2, out=tmp_path / "function")
    with undrawn():
        result.report()
    command(
        capsys,
        *("ablate", place, "--task", sums, "--items", 4, "--max-new-tokens", 5, "--seed", 2),
        *("--out", tmp_path / "command"),
    )
    for name in ("layers.csv", "summary.json"):
        assert (tmp_path / "function" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()


def test_a_model_that_was_changed_in_memory_is_another_one_and_an_edited_one_is_refused(tmp_path):
    changed = model("llama")
    file = questions(tmp_path / "q.jsonl", 2)
    lesion.ablate(changed, tasks=[str(file)], items="all", layers="0", out=tmp_path / "out")
    changed.anatomy.matrix("0.mlp.up").write(torch.zeros(changed.anatomy.matrix("0.mlp.up").shape))
    with pytest.raises(lesion.LesionError, match="weights of"):
        lesion.ablate(changed, tasks=[str(file)], items="all", layers="0", out=tmp_path / "out")
    with lesion.applied(changed, lesion.ScaleBlock(0)), pytest.raises(lesion.UsageError, match="edit in force"):
        lesion.ablate(changed, tasks=[str(file)], items="all", layers="0", out=tmp_path / "other")
