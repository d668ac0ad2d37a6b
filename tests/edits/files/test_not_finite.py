"""Exports never write a tensor that is not finite: it is named, whether the edit made it so or it was so before."""

import pytest
import torch

import lesion
import tiny
from lesion.edits.files.folder import rewrite
from lesion.errors import LesionError
from lesion.models.stored import survey


@pytest.fixture
def saved(tmp_path):
    def save(name, change=None, dtype=torch.float32):
        model = tiny.model("qwen2")
        network = model.network.to(dtype)
        if change is not None:
            with torch.no_grad():
                change(network)
        network.save_pretrained(tmp_path / name)
        model.tokenizer.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return save


def infinite_norm(network):
    network.model.norm.weight.fill_(float("inf"))


def one_nan(network):
    network.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")


def nan_in_a_bias(network):
    network.model.layers[1].self_attn.q_proj.bias[3] = float("nan")


BROKEN = [(infinite_norm, "norm.weight"), (one_nan, "layers.1.mlp.up_proj.weight"), (nan_in_a_bias, "q_proj.bias")]


@pytest.mark.parametrize(("change", "tensor"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("edit", ["0.mlp.down top 0.5", "0.mlp.up×0.5", "2×0"])
def test_a_model_that_is_not_finite_is_not_exported(change, tensor, edit, saved, tmp_path):
    with pytest.raises(LesionError, match=f"not finite.*{tensor} .* of "):
        lesion.apply(saved("broken", change), edit, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("change", "tensor"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_model_that_is_not_finite_is_neither_perturbed_nor_reordered(change, tensor, saved, tmp_path):
    broken, sound = saved("broken", change), saved("sound")
    child = saved("child", lambda network: network.model.embed_tokens.weight.mul_(1.01))
    exports = (
        lambda out: lesion.perturb(broken, child, out),
        lambda out: lesion.perturb(sound, broken, out),
        lambda out: lesion.save_reordered(broken, "0,1", out),
        lambda out: lesion.distance(sound, broken),
    )
    for export in exports:
        with pytest.raises(LesionError, match=f"not finite.*{tensor} .* of "):
            export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("edit", ["1.mlp.up×1e38", "1×1e38", "1.mlp×1e38", "1.mlp×-1e300"])
def test_an_edit_that_overflows_is_refused(dtype, edit, saved, tmp_path):
    with pytest.raises(LesionError, match=r"not finite|larger than"):
        lesion.apply(saved("sound", dtype=dtype), edit, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_noise_and_neurons_that_overflow_the_stored_dtype_are_refused_by_the_name_of_the_tensor(saved, tmp_path):
    sound = saved("sound", dtype=torch.float16)
    child = saved("child", lambda network: network.model.layers[1].mlp.up_proj.weight.mul_(1.1), torch.float16)
    with pytest.raises(LesionError, match=r"up_proj\.weight .* larger than float16 can hold"):
        lesion.perturb(sound, child, tmp_path / "out", scale=1e8)
    with pytest.raises(LesionError, match=r"down_proj\.weight .* larger than float16 can hold"):
        lesion.apply(sound, "1.mlp.neuron.3×1e38", tmp_path / "out")


def test_an_edit_that_mends_a_tensor_is_written(saved, tmp_path):
    saved("broken", one_nan)
    checkpoint = survey(tmp_path / "broken", "broken")
    (shard,) = checkpoint.shards
    edits = {"model.layers.1.mlp.up_proj.weight": lambda tensor: tensor.nan_to_num_()}
    rewrite(tmp_path / "broken" / shard, tmp_path / "mended.safetensors", checkpoint.entries, edits)
    assert (tmp_path / "mended.safetensors").stat().st_size == (tmp_path / "broken" / shard).stat().st_size
