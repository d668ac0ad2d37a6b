"""Checkpoints with their blocks in another order: what plain transformers loads is the model reordered in memory."""

import json

import pytest
import torch
import yaml
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from commandline import lesion as command
from commandline import save
from lesion.edits.apply import applied
from lesion.edits.files.reordering import save_reordered
from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from lesion.models.reordered import reordered
from tiny import FAMILIES, tokenizer

ORDERS = {
    "llama": "0-1,1-2",
    "qwen2": "2,0",
    "gpt2": "0-2,1",
    "gemma3": "0,2-3,1,2",
    "mixtral": "1,0,1",
    "qwen2_moe": "1,0-2",
}
PROMPT = torch.randint(3, 60, (1, 16), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """A tiny Llama in several shards."""
    folder = tmp_path_factory.mktemp("sharded") / "model"
    FAMILIES["llama"]().save_pretrained(folder, max_shard_size="20kB")
    tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ORDERS)
def test_the_checkpoint_gives_the_logits_and_the_fingerprint_of_the_model_in_memory(family, tmp_path):
    folder = save(tmp_path / "model", family)
    done = save_reordered(folder, ORDERS[family], tmp_path / "out")
    in_memory = reordered(load(folder), ORDERS[family])
    network, report = AutoModelForCausalLM.from_pretrained(done.folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.allclose(network(PROMPT).logits, in_memory.network(PROMPT).logits, atol=1e-5)
    assert load(done.folder).fingerprint == in_memory.fingerprint


@pytest.mark.parametrize("family", ["llama", "llama_tied", "gpt2", "gpt_neox", "opt", "phi3", "mixtral", "qwen2_moe"])
def test_factors_of_repeated_blocks_are_those_of_the_reordered_model_in_memory(family, tmp_path):
    folder, edit = save(tmp_path / "model", family), "2.attention×0.5 + 2.mlp×0.25 + 0.mlp×3"
    done = save_reordered(folder, "0-1,1-2", tmp_path / "out", edit=edit)
    in_memory = reordered(load(folder), "0-1,1-2")
    network, report = AutoModelForCausalLM.from_pretrained(done.folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with applied(in_memory, edit):
        wanted = in_memory.network(PROMPT).logits
    assert torch.allclose(network(PROMPT).logits, wanted, atol=1e-4)
    assert not torch.allclose(in_memory.network(PROMPT).logits, wanted, atol=1e-2)
    assert f"but for the factors `{edit}`" in (done.folder / "README.md").read_text()


def test_factors_that_weights_cannot_hold_and_other_edits_are_refused(sharded, tmp_path):
    gemma = save(tmp_path / "gemma", "gemma2")
    with pytest.raises(UsageError, match="a norm stands behind the last matrix"):
        save_reordered(gemma, "0-3", tmp_path / "out", edit="1.mlp×0.5")
    with pytest.raises(UsageError, match="'1×0' is not written together with an order"):
        save_reordered(sharded, "0-2", tmp_path / "out", edit="1×0")
    with pytest.raises(UsageError, match="there is no block 3: in this order"):
        save_reordered(sharded, "0-2", tmp_path / "out", edit="3.mlp×0.5")
    assert not (tmp_path / "out").exists()


def test_the_recipe_scales_the_last_matrices_of_the_places_that_are_damped(sharded, tmp_path):
    save_reordered(
        sharded, "0-1,0-2", tmp_path / "out", edit="2.attention×0.5 + 3.attention×0.5 + 2.mlp×0.5 + 3.mlp×0.5"
    )
    recipe = yaml.safe_load((tmp_path / "out" / "mergekit.yaml").read_text())
    slices = [one["sources"][0] for one in recipe["slices"]]
    assert [one["layer_range"] for one in slices] == [[0, 2], [0, 2], [2, 3]]
    assert [one.get("parameters") is not None for one in slices] == [False, True, False]
    assert slices[1]["parameters"]["scale"] == [
        {"filter": "mlp.down_proj", "value": 0.5}, {"filter": "self_attn.o_proj", "value": 0.5}, {"value": 1.0},
    ]  # fmt: skip


def test_shards_and_their_index_hold_together(sharded, tmp_path):
    save_reordered(sharded, "2,0,2", tmp_path / "out")
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    there = {}
    for shard in sorted((tmp_path / "out").glob("*.safetensors")):
        with safe_open(shard, framework="pt") as opened:
            there |= dict.fromkeys(opened.keys(), shard.name)
            assert opened.metadata() == {"format": "pt"}
    assert there == index["weight_map"]
    assert len(set(there.values())) > 1
    assert not any(".layers.3." in name for name in there)
    assert load(tmp_path / "out").fingerprint == reordered(load(sharded), "2,0,2").fingerprint


def test_the_recipe_has_a_slice_for_every_run_and_the_card_says_what_was_done(sharded, tmp_path):
    save_reordered(sharded, "0-1,1-2,0", tmp_path / "out")
    recipe = yaml.safe_load((tmp_path / "out" / "mergekit.yaml").read_text())
    assert recipe["merge_method"] == "passthrough"
    assert [one["sources"][0]["layer_range"] for one in recipe["slices"]] == [[0, 2], [1, 3], [0, 1]]
    assert {one["sources"][0]["model"] for one in recipe["slices"]} == {str(sharded)}
    assert "Left out: none. Repeated: 0-1." in (tmp_path / "out" / "README.md").read_text()


def test_a_checkpoint_with_further_blocks_and_a_folder_in_use_are_refused(sharded, tmp_path):
    config = json.loads((sharded / "config.json").read_text())
    for path in sharded.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(LesionError, match=r"of a block beyond the 2 that its config\.json counts"):
        save_reordered(tmp_path, "1,0", tmp_path.parent / "beyond")
    with pytest.raises(UsageError, match="is not empty"):
        save_reordered(sharded, "1,0", tmp_path)


def test_the_command_writes_an_order(sharded, capsys, tmp_path):
    done = command(capsys, "apply", sharded, "--order", "2,1,0", "--out", tmp_path / "out")
    assert done.code == 0
    assert "3 blocks in the order 2,1,0" in done.out
    assert load(tmp_path / "out").fingerprint == reordered(load(sharded), [2, 1, 0]).fingerprint
