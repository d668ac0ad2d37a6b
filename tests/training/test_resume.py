"""What a training leaves on its way: a file that is whole, and a curve of about a hundred points."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lesion.errors import LesionError
from lesion.training.resume import Progress, curve
from lesion.training.schedule import optimizer_of


def progress(folder, start=0.0):
    parameter = nn.Parameter(torch.full((2, 3), start))
    return Progress(folder, {"recipe": [1, 2]}, {"matrix": parameter}, optimizer_of([parameter], 0.1)), parameter


def step(parameter, optimizer, size):
    parameter.grad = torch.full((2, 3), size)
    optimizer.step()


def test_weights_and_moments_come_back_so_that_the_next_step_is_the_same(tmp_path):
    first, parameter = progress(tmp_path)
    for size in (1.0, -0.3):
        step(parameter, *first.optimizers, size)
    first.step, first.points = 2, [{"step": 1, "seconds": 1.5}, {"step": 2, "seconds": 3.0}]
    first.save()
    second, again = progress(tmp_path, start=9.0)
    assert (second.step, second.points) == (2, first.points)
    assert torch.equal(again, parameter)
    assert second.seconds >= 3.0
    for each, optimizer in ((parameter, *first.optimizers), (again, *second.optimizers)):
        step(each, optimizer, 0.7)
    assert torch.equal(again, parameter)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LesionError, match=r"cannot be written.*--out"):
        progress(tmp_path / "file" / "folder")


def test_a_state_that_cannot_be_written_says_that_the_last_one_counts(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError("No space left on device")

    monkeypatch.setattr("lesion.training.resume.replace", full)
    with pytest.raises(LesionError, match=r"No space left.*goes on from the last state"):
        progress(tmp_path)[0].save()


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=350), st.integers(1, 100))
def test_a_curve_is_means_over_stretches_and_ends_where_the_training_does(losses, about):
    points = [
        {"step": n + 1, "loss": x, "seconds": n * 0.5, "tokens": 7 * n, "rate": 1 / (n + 1)}
        for n, x in enumerate(losses)
    ]
    found = curve(points, about)
    assert len(found) <= about
    assert {key: found[-1][key] for key in ("step", "seconds", "tokens", "rate")} == {
        key: points[-1][key] for key in ("step", "seconds", "tokens", "rate")
    }
    ends = [point["step"] for point in found]
    for start, end, point in zip([0, *ends], ends, found, strict=False):
        assert point["loss"] == pytest.approx(sum(losses[start:end]) / (end - start), abs=1e-6)
