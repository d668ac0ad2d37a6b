"""A perturbed model has noise of the norm of its child's change in every tensor, and is an ordinary checkpoint."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

import lesion
from lesion.errors import LesionError, UsageError
from tiny import tiny


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A base and a child of it that differs in all tensors but the final norm, by different amounts."""
    folder = tmp_path_factory.mktemp("family")
    network = tiny("llama")
    network.save_pretrained(folder / "base")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for number, (name, weights) in enumerate(network.named_parameters()):
            if name != "model.norm.weight":
                weights += (1 + number) * 1e-3 * torch.randn(weights.shape, generator=generator)
    network.save_pretrained(folder / "child")
    return folder / "base", folder / "child"


def tensors(folder) -> dict[str, np.ndarray]:
    return {name: array.astype(np.float64) for name, array in load_file(folder / "model.safetensors").items()}


def norm(arrays) -> float:
    return float(np.sqrt(sum((array**2).sum() for array in arrays)))


@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_noise_has_the_norm_of_the_change_in_every_tensor_and_another_direction(family, tmp_path, scale):
    base, child = map(tensors, family)
    done = lesion.perturb(*family, tmp_path / "out", scale=scale, seed=3)
    noisy = tensors(tmp_path / "out")
    for name, weights in base.items():
        change, noise = child[name] - weights, noisy[name] - weights
        assert np.linalg.norm(noise) == pytest.approx(scale * np.linalg.norm(change), rel=1e-4)
        if change.size > 500:
            assert abs((change * noise).sum()) < 0.2 * np.linalg.norm(change) * np.linalg.norm(noise)
    assert np.array_equal(noisy["model.norm.weight"], base["model.norm.weight"])
    moved = norm(child[name] - base[name] for name in base) / norm(base.values())
    assert (done.distance, done.achieved) == pytest.approx((moved, scale * moved), rel=1e-4)
    assert lesion.distance(*family) == pytest.approx(moved)
    assert done.tensors == (len(base) - 1, len(base))


def test_the_noise_is_decided_by_the_seed(family, tmp_path):
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        lesion.perturb(*family, tmp_path / name, seed=seed)
    a, b, c = (tensors(tmp_path / name)["model.embed_tokens.weight"] for name in "abc")
    assert np.allclose(a, b)
    assert not np.allclose(a, c)


def test_what_cannot_be_meant_is_refused_and_nothing_is_left(family, tmp_path):
    base, child = family
    with pytest.raises(UsageError, match="above 0"):
        lesion.perturb(base, child, tmp_path / "out", scale=0)
    with pytest.raises(LesionError, match="very weights"):
        lesion.perturb(base, base, tmp_path / "out")
    other = tmp_path / "other"
    tiny("gpt_neox").save_pretrained(other)
    with pytest.raises(LesionError, match="not a model and a child of it"):
        lesion.perturb(base, other, tmp_path / "out")
    with pytest.raises(LesionError, match="not a model and a child of it"):
        lesion.distance(base, other)
    assert not (tmp_path / "out").exists()


def test_noise_that_half_precision_swallows_is_refused(family, tmp_path):
    base, _ = family
    for name, shift in {"half": 0.0, "near": 2.0**-9}.items():
        halves = {key: torch.ones_like(value).bfloat16() for key, value in tiny("llama").state_dict().items()}
        halves["model.embed_tokens.weight"][0, 0] += 4 * shift
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text((base / "config.json").read_text())
        save_file(halves, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LesionError, match="rounds to nothing"):
        lesion.perturb(tmp_path / "half", tmp_path / "near", tmp_path / "out")
