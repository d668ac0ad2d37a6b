"""`lesion perturb`: the base with noise of the size of a child's change, from the command line."""

import pytest

from commandline import lesion, refused
from lesion.edits.files.perturbed import distance


def test_a_bundled_base_gets_noise_of_the_size_of_its_childs_change(capsys, tmp_path):
    done = lesion(
        capsys, "perturb", "bundled:llama-base", "--like", "bundled:llama-rlvr", "--scale", "2", "--out", tmp_path / "a"
    )
    assert done.code == 0
    far = distance("bundled:llama-base", "bundled:llama-rlvr")
    assert f"‖change‖ / ‖weights‖ = {far:.4g}" in done.out
    assert distance("bundled:llama-base", tmp_path / "a") == pytest.approx(2 * far, rel=1e-3)


def test_another_architecture_or_an_occupied_folder_is_refused(capsys, tmp_path):
    other = lesion(capsys, "perturb", "bundled:llama-base", "--like", "bundled:qwen2-base", "--out", tmp_path / "b")
    refused(other, 1, "not a model and a child of it")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine").write_text("mine")
    taken = lesion(capsys, "perturb", "bundled:llama-base", "--like", "bundled:llama-rlvr", "--out", tmp_path / "c")
    refused(taken, 2, "is not empty")
