"""Loading: a folder becomes a model; what cannot become one gets a paragraph that says what to do."""

import json
import os
import pickle
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

import lesion.models.source
from lesion.edits.edit import ScaleBlock
from lesion.edits.files.checkpoint import apply
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import load, wrap
from lesion.models.source import Source, explained
from tiny import FAMILIES, configure, save, tiny, tokenizer


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    return save(tiny("llama"), tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def refusal(source, kind: type[LesionError] = LesionError, **settings) -> str:
    with pytest.raises(LesionError) as caught:
        load(source, **settings)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_a_model_saved_without_its_output_head_is_told(family, tmp_path):
    message = refusal(save(tiny(family).base_model, tmp_path / "body"))
    assert message.endswith("saved without its output head, as AutoModel does; save it with AutoModelForCausalLM.")


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "unknown"])
def test_a_saved_model_comes_back_bit_for_bit_and_ready_for_study(family, tmp_path):
    before = tiny(family)
    model = load(save(before, tmp_path / family))
    assert model.name == str(tmp_path / family)
    assert not model.network.training
    assert not any(parameter.requires_grad for parameter in model.network.parameters())
    assert (model.device, model.dtype, model.context) == (torch.device("cpu"), torch.float32, 256)
    assert (model.has_chat_template, model.tokenizer.pad_token, len(model.tokenizer)) == (False, None, 64)
    assert model.tokenizer("Two  words,\n3!").input_ids == tokenizer()("Two  words,\n3!").input_ids
    assert len(model.anatomy.blocks) == before.config.num_hidden_layers
    for name, parameter in before.named_parameters():
        assert torch.equal(model.network.get_parameter(name), parameter), name


def test_a_real_model_loads_and_knows_english_from_noise(shared):
    model = load(shared / "models" / "stories260K")
    ids = model.tokenizer("Once upon a time, there was a little girl named Lily.", return_tensors="pt").input_ids
    shuffled = torch.cat([ids[:, :1], ids[:, 1:].flip(1)], dim=1)

    def loss(tokens):
        return model.network(input_ids=tokens, labels=tokens).loss

    assert loss(ids) + 2 < loss(shuffled)
    assert (len(model.anatomy.blocks), model.context, model.anatomy.known) == (5, 512, True)


def test_auto_dtype_on_a_cpu_is_float32_whatever_the_checkpoint(tmp_path):
    save(tiny("llama").to(torch.bfloat16), tmp_path / "half")
    assert load(tmp_path / "half", device="cpu").dtype == torch.float32
    assert load(tmp_path / "half", device="cpu", dtype="bf16").dtype == torch.bfloat16
    assert load(tmp_path / "half", device="cpu", dtype=torch.float16).dtype == torch.float16


def test_loading_prints_and_warns_nothing_and_leaves_the_library_as_it_was(saved, capfd):
    hf.logging.set_verbosity_info()
    try:
        load(saved)
        assert hf.logging.get_verbosity() == hf.logging.INFO
    finally:
        hf.logging.set_verbosity_warning()
    assert hf.logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")


def test_a_bundled_model_goes_by_its_name_and_an_unknown_name_lists_those_there_are(saved, tmp_path, monkeypatch):
    shutil.copytree(saved, tmp_path / "bundled" / "small-one")
    (tmp_path / "bundled" / "not-a-model").mkdir()
    monkeypatch.setattr(lesion.models.source.resources, "files", lambda _: tmp_path)
    assert load("bundled:small-one").name == "bundled:small-one"
    message = refusal("bundled:small-two", UsageError)
    assert "(nearest: small-one)" in message
    assert message.endswith("There are: bundled:small-one.")
    message = refusal("bundled:small-one", UsageError, revision="step9")
    assert "has no revision step9" in message
    assert "`lesion lab lineage --out DIR`" in message
    assert "DIR/base/model" in message  # where it writes
    assert refusal("bundled:small-one@step9", UsageError) == message


def test_what_is_neither_a_folder_nor_a_hub_id_is_wrong_use(saved):
    for typed in ("./nowhere", "/no/such/folder", "a/b/c", "two words", "owner/name@", "folder/"):
        assert refusal(typed, UsageError).startswith(f"There is no folder {typed}.")
    assert str(saved) in refusal(saved / "config.json", UsageError)
    assert "v1" in refusal("owner/name@v1", UsageError, revision="v2")


def test_without_the_hub_the_refusal_names_the_model_and_the_ways_out(monkeypatch):
    message = refusal("nobody/no-such-model-here")
    assert "nobody/no-such-model-here" in message
    assert "HF_HUB_OFFLINE is set" in message
    assert "bundled:NAME" in message


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        ("RepositoryNotFoundError", "There is no model owner/name on the Hugging Face hub"),
        ("GatedRepoError", "https://huggingface.co/owner/name"),
        ("RevisionNotFoundError", "has no revision v9"),
        ("ConnectError", "cannot be reached"),
    ],
)
def test_what_the_hub_answered_is_told_in_words(cause, says, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    try:
        raise OSError("a long message\nof several lines") from type(cause, (Exception,), {})()
    except OSError as error:
        message = str(explained(error, Source("owner/name", False, "v9"), "owner/name", "configuration"))
    assert says in message
    assert "\n" not in message


def test_a_folder_without_a_configuration_is_no_model(folder, tmp_path):
    (folder / "config.json").unlink()
    assert refusal(folder).startswith(f"The folder {folder} has no config.json")
    (folder / "adapter_config.json").write_text("{}")
    assert "merge it into its base model" in refusal(folder)
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "inner" / "config.json").write_text("{}")
    assert "There is one in inner below it." in refusal(tmp_path / "outer")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"model_type": ', "this is not JSON"),
        ("{}", "configuration in the folder"),
        ('{"model_type": "wombat"}', "wombat"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "hidden_size"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(folder, text, says):
    (folder / "config.json").write_text(text)
    with pytest.raises(LesionError, match=re.escape(says)):
        load(folder)


def test_weights_that_do_not_fit_the_configuration_are_refused_by_name(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.layers.2.mlp.down_proj.weight"] = torch.zeros(3, 5)
    weights["model.layers.9.mlp.gate_proj.weight"] = torch.zeros(48, 32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = refusal(folder)
    assert "1 missing (model.layers.1.mlp.up_proj.weight)" in message
    assert "1 that the configuration has no place for (model.layers.9.mlp.gate_proj.weight)" in message
    assert "model.layers.2.mlp.down_proj.weight: (3, 5) instead of (32, 48)" in message


def test_a_configuration_with_fewer_blocks_than_the_weights_is_refused(folder):
    assert "9 that the configuration has no place for" in refusal(configure(folder, num_hidden_layers=2))
    assert "and 6 more" in refusal(folder)


@pytest.mark.parametrize("damage", ["truncated", "absent", "pickled"])
def test_weights_that_cannot_be_read_are_refused(folder, damage):
    path = folder / "model.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    if damage == "pickled":
        torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(LesionError, match=r"The weights in the folder .* cannot be read"):
        load(folder)


def test_models_that_do_not_continue_a_text_are_refused(tmp_path):
    small = {"vocab_size": 64, "hidden_size": 32}
    for name, config, says in (
        ("t5", hf.T5Config(**small, architectures=["T5ForConditionalGeneration"]), "encoder-decoder"),
        ("bert", hf.BertConfig(**small), "does not continue text"),
        ("classifier", hf.LlamaConfig(**small, architectures=["LlamaForSequenceClassification"]), "does not continue"),
    ):
        config.save_pretrained(tmp_path / name)
        assert says in refusal(tmp_path / name)


def test_code_that_came_with_a_checkpoint_does_not_run_unasked(folder):
    (folder / "trap.py").write_text("raise SystemExit('it ran')")
    configure(folder, model_type="trap", auto_map={"AutoConfig": "trap.Trap"})
    assert "code of its own" in refusal(folder)


def test_a_device_map_is_accelerates(saved):
    assert load(saved, device_map={"": "cpu"}).device == torch.device("cpu")


@pytest.mark.parametrize(
    "spread", [{}, {1: None}, {"": None}, {"": True}, {"": 1j}, {"": "nowhere"}, {"": "cuda:99"}, "evenly"]
)
def test_a_device_map_without_devices_is_refused_before_anything_is_read(saved, spread):
    with pytest.raises(UsageError, match=r"device_map|There is no device"):
        load(saved, device_map=spread)


def test_parts_that_are_not_in_memory_are_refused():
    network = tiny("llama")
    network.model.layers[2].to("meta")
    with pytest.raises(LesionError, match=r"big does not fit: 9 of its parameters \(model\.layers\.2\."):
        wrap(network, tokenizer(), "big")


def test_wrapping_puts_a_network_into_eval_mode_without_gradients():
    network = tiny("llama").train().requires_grad_(True)
    model = wrap(network, tokenizer(), "mine")
    assert model.network is network
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "gpt_neox", "opt", "gemma2", "llama"])
def test_a_folder_without_a_tokenizer_is_refused_in_every_family(family, tmp_path):
    tiny(family).save_pretrained(tmp_path)
    with pytest.raises(LesionError, match="has no tokenizer that can be read"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["../evil.safetensors", "/etc/passwd", "sub/a.safetensors", ".."])
def test_an_index_that_names_a_file_outside_its_folder_is_refused(folder, name):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"w": name}}))
    assert "does not lie in the folder" in refusal(folder)


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": {"w": 3}}', "not json", "[" * 100_000],
    ids=lambda text: text[:24],
)
def test_an_index_that_is_none_is_refused(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json" in refusal(folder)


class Touch:
    """What runs when its pickle is opened."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def test_a_shard_that_is_no_safetensors_file_is_never_opened(folder, tmp_path, monkeypatch):
    (folder / "model.safetensors").unlink()
    (folder / "x.bin").write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    index = {"metadata": {}, "weight_map": dict.fromkeys(tiny("llama").state_dict(), "x.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch.load was called"))
    assert "names the file 'x.bin', which is no safetensors file; it is refused" in refusal(folder)
    assert not (tmp_path / "touched").exists()


def test_a_shard_that_is_a_device_or_is_missing_is_refused(folder):
    weights = {"metadata": {}, "weight_map": {"w": "a.safetensors"}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(weights))
    assert "a.safetensors, which is not there" in refusal(folder)
    os.mkfifo(folder / "a.safetensors")
    assert "a.safetensors, which is not there" in refusal(folder)


def test_a_link_that_leads_out_of_a_received_folder_is_not_followed(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    assert "is a link that leads out of the folder" in refusal(folder)


@pytest.mark.parametrize("inside", ["models--a--b/snapshots/0123", "plain"])
def test_links_into_a_cache_of_the_hub_are_followed(saved, tmp_path, inside):
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    place = tmp_path / inside
    place.mkdir(parents=True)
    for number, file in enumerate(sorted(saved.iterdir())):
        shutil.copy(file, blobs / str(number))
        (place / file.name).symlink_to(os.path.relpath(blobs / str(number), place))
    assert load(place).fingerprint == load(saved).fingerprint


def test_an_adapter_beside_a_model_is_refused_and_not_put_into_its_weights(folder):
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    message = refusal(folder)
    assert "adapter_config.json" in message
    assert "Merge the adapter" in message
    (folder / "adapter_config.json").unlink()
    (folder / "adapter_config.json").symlink_to(folder / "nowhere")
    assert "Merge the adapter" in refusal(folder)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn, torch.float8_e5m2])
def test_weights_stored_as_codes_without_a_quantization_config_are_refused_by_name(folder, dtype):
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = (10 * tensors[name]).to(dtype)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    message = refusal(folder)
    assert name in message
    assert "quantization_config" in message


def test_a_config_that_names_another_file_of_weights_is_refused(folder):
    configure(folder, transformers_weights="other.safetensors.index.json")
    assert "transformers_weights" in refusal(folder)


# -- shards without an index


def sharded(folder: Path, shards: int = 3) -> dict[str, torch.Tensor]:
    """Part the weights of a folder into so many shards, without an index; the weights."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    for number in range(shards):
        part = {name: weights[name] for name in sorted(weights)[number::shards]}
        save_file(part, folder / f"model-{number + 1:05}-of-{shards:05}.safetensors", metadata={"format": "pt"})
    return weights


def test_shards_without_an_index_are_read_and_written_with_one(saved, folder, tmp_path):
    sharded(folder)
    assert load(folder).fingerprint == load(saved).fingerprint
    assert sorted(path.name for path in folder.glob("*.index.json")) == []
    apply(folder, "1.mlp.up x0", tmp_path / "cut")
    edited = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "cut")
    assert not edited.model.layers[1].mlp.up_proj.weight.detach().any()
    assert load(tmp_path / "cut").anatomy.blocks


def test_weights_in_one_file_of_another_name_are_read(saved, folder):
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert load(folder).fingerprint == load(saved).fingerprint


def test_sets_of_shards_that_are_not_whole_are_named(folder):
    sharded(folder)
    second = folder / "model-00002-of-00003.safetensors"
    weights = load_file(second)
    second.unlink()
    assert "has 2 of 3 shards; missing: model-00002-of-00003.safetensors. Download the rest." in refusal(folder)
    first = sorted(load_file(folder / "model-00001-of-00003.safetensors"))[0]
    save_file({**weights, first: torch.zeros(2)}, second, metadata={"format": "pt"})
    assert f"The tensor {first} lies in model-00001-of-00003.safetensors and in model-00002" in refusal(folder)


def test_several_files_that_are_no_set_are_named(folder):
    sharded(folder)
    (folder / "other-00001-of-00002.safetensors").write_bytes(b"")
    assert "has 4 safetensors files (model-00001-of-00003.safetensors, " in refusal(folder)


# -- what a config.json may want of passes


@pytest.mark.parametrize(
    "settings",
    [
        {"return_dict": False},
        {"output_attentions": True},
        {"output_hidden_states": True, "use_cache": False},
        {"torchscript": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_a_configuration_that_wants_other_outputs_answers_alike(saved, folder, settings):
    answers = [load(place).generate("ab", "1x0", max_new_tokens=4) for place in (saved, configure(folder, **settings))]
    assert answers[0] == answers[1]


def test_what_is_no_network_or_tokenizer_is_refused_by_wrap():
    network = tiny("llama")
    for given, says in (
        ((5, tokenizer()), "network must be a causal language model of transformers, not 5"),
        ((torch.nn.Linear(2, 2), tokenizer()), "network must be a causal language model"),
        ((torch.compile(network), tokenizer()), "network is compiled"),
        ((network, 5), "tokenizer must be a PreTrainedTokenizerBase, not 5"),
    ):
        with pytest.raises(UsageError, match=says):
            wrap(*given, "mine")


def test_a_python_that_drops_docstrings_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "flags", SimpleNamespace(optimize=2))
    with pytest.raises(LesionError, match="Python runs with -OO"):
        load("bundled:llama-base")


def test_half_a_character_is_no_prompt(saved):
    with pytest.raises(UsageError, match="prompt has half of a character in it"):
        load(saved).generate("a\ud800")


# -- models that also see


SEES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 16}
READS = {
    **{"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256, "eos_token_id": 2},
}
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
QWEN = {"hidden_size": 16, "depth": 2, "num_heads": 2, "intermediate_size": 24, "out_hidden_size": 32, "patch_size": 8}


@pytest.mark.parametrize(
    ("kind", "text", "vision"),
    [
        ("llava", {"model_type": "llama"}, {**SEES, "patch_size": 8, "model_type": "clip_vision_model"}),
        ("qwen2_5_vl", MROPE, QWEN),
        ("gemma3", {"sliding_window": 6}, {**SEES, "patch_size": 8}),
        ("mistral3", {"model_type": "mistral"}, {**SEES, "patch_size": 8, "head_dim": 8, "model_type": "pixtral"}),
        ("idefics3", {"model_type": "llama"}, {**SEES, "patch_size": 8}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_text_model_of_a_model_that_sees_is_studied(kind, text, vision, tmp_path):
    torch.manual_seed(0)
    config = hf.AutoConfig.for_model(
        kind, text_config={**READS, **text}, vision_config=vision, tie_word_embeddings=False, image_token_id=3
    )
    network = hf.AutoModelForImageTextToText.from_config(config).eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.copy_(torch.randn_like(parameter) * 0.2 if parameter.dim() > 1 else parameter)
    model = load(save(network, tmp_path / kind))
    assert len(model.anatomy.blocks) == 3
    block = network.model.language_model.layers[1] if hasattr(network.model, "language_model") else None
    block = network.model.text_model.layers[1] if block is None else block
    block.register_forward_hook(
        lambda _, args, kwargs, output: args[0] if isinstance(output, torch.Tensor) else (args[0], *output[1:]),
        with_kwargs=True,
    )
    ids = [5, 8, 9, 12]
    request = Request("only", tuple(ids), ScaleBlock(1), Decoding(4))
    (response,) = TransformersEngine(model).answer([request])
    while len(ids) < 8 and 2 not in ids:
        ids.append(int(network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    assert response.token_ids == tuple(ids[4:])
