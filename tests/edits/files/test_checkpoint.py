"""Checkpoints edited on disk: the same weights as an edit in memory gives, whole or not there at all."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from synthetic import mathneuro, wanda_rows

from lesion.edits.edit import Compose, ScaleParameters
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.checkpoint import apply
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.controls import Random
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.topk import Magnitude
from lesion.edits.weights import written
from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from tiny import FAMILIES, tiny, tokenizer

KNOWN = [family for family in FAMILIES if family != "unknown"]


def checkpoint(folder: Path, family: str = "llama", dtype: torch.dtype = torch.float32, shard: str = "5GB") -> Path:
    tiny(family).to(dtype).save_pretrained(folder, max_shard_size=shard)
    tokenizer().save_pretrained(folder)
    return folder


def kept(folder: Path, source: Path, *edits, name: str = "one.edit"):
    """A model from a folder, and an edit of it saved and read again."""
    model = load(source, dtype="auto")
    made = tuple(edit(model) for edit in edits)
    save_edit(folder / name, made[0] if len(made) == 1 else Compose(made), model)
    return read_edit(folder / name)


def boost(model):
    return ScaleParameters(mathneuro(model), 1.5)


@pytest.fixture(scope="module")
def boosted(tmp_path_factory) -> dict[str, tuple[Path, EditFile]]:
    """A tiny Llama with an edit of its weights, in one file and in shards."""
    made = {}
    for shard in ("5GB", "20KB"):
        folder = tmp_path_factory.mktemp("boosted")
        source = checkpoint(folder / "base", shard=shard)
        made[shard] = source, kept(folder, source, boost)
    return made


@pytest.fixture
def base(boosted, tmp_path) -> tuple[Path, EditFile]:
    """A copy of the Llama in one file, and the edit."""
    source, edit = boosted["5GB"]
    return shutil.copytree(source, tmp_path / "base"), edit


@pytest.fixture
def shards(boosted, tmp_path) -> tuple[Path, EditFile]:
    """A copy of the Llama in shards, and the edit."""
    source, edit = boosted["20KB"]
    return shutil.copytree(source, tmp_path / "base"), edit


def prune(model):
    return ScaleParameters(wanda_rows(model), 0.0)


def assert_bitwise(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == other.keys()
    for name in mine:
        assert mine[name].dtype == other[name].dtype, name
        assert torch.equal(mine[name], other[name]), name


def state(folder: Path) -> dict[str, torch.Tensor]:
    return hf.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()


def edited_in_memory(source: Path, edit, dtype: str = "float32") -> dict[str, torch.Tensor]:
    model = load(source, dtype=dtype)
    parts = edit.edits if isinstance(edit, Compose) else (edit,)
    with written(model, parts):
        return {name: tensor.clone() for name, tensor in model.network.state_dict().items()}


@pytest.mark.parametrize("family", KNOWN)
def test_a_written_checkpoint_is_the_model_edited_in_memory(family, tmp_path):
    source = checkpoint(tmp_path / "base", family, shard="20KB")
    edit = kept(tmp_path, source, boost)
    before = state(source)
    apply(source, [edit], tmp_path / "out")
    after = state(tmp_path / "out")
    assert_bitwise(after, edited_in_memory(source, edit.edit))
    assert any(not torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize(
    ("family", "dtype", "name"),
    [
        ("llama", torch.float16, "float16"),
        ("mixtral", torch.bfloat16, "bfloat16"),
        ("gpt2", torch.bfloat16, "bfloat16"),
    ],
)
def test_half_precision_stays_and_is_rounded_as_in_memory(family, dtype, name, tmp_path):
    source = checkpoint(tmp_path / "base", family, dtype)
    edit = kept(tmp_path, source, boost)  # observed in float32, as a CPU loads it
    assert edit.model.dtype == "float32"
    apply(source, [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(source, edit.edit, name))


def test_two_edits_select_on_the_unedited_weights_and_their_factors_multiply(tmp_path):
    source = checkpoint(tmp_path / "base")
    first = kept(tmp_path, source, lambda m: ScaleParameters(Magnitude(0.2), 0.5), name="a.edit")
    second = kept(tmp_path, source, boost, name="b.edit")
    done = apply(source, [first, second], tmp_path / "out")
    after = state(tmp_path / "out")
    assert_bitwise(after, edited_in_memory(source, Compose((first.edit, second.edit))))
    with (tmp_path / "out" / "lesion" / "magnitude-0.2.edit").open("rb") as copy:
        assert copy.read() == first.data
    assert [each.achieved for each in done.edits] == pytest.approx([0.5, 1.5])


def test_a_selection_without_listed_weights_and_its_random_control_are_applied_as_in_memory(tmp_path):
    source = checkpoint(tmp_path / "base")
    listed = Listed(["1.mlp.down[3,4]", "2.mlp.down[0,0]"])
    edit = kept(
        tmp_path,
        source,
        lambda m: ScaleParameters(mathneuro(m) - listed, 0.0),
        lambda m: ScaleParameters(Random(mathneuro(m) - listed, 7), 2.0),
    )
    apply(source, [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(source, edit.edit))
    before, after = (
        state(folder)["model.layers.1.mlp.down_proj.weight"][3, 4] for folder in (source, tmp_path / "out")
    )
    assert before == after


@pytest.mark.parametrize("family", ["llama_tied", "mixtral", "gpt_neox"])
def test_files_names_order_metadata_and_untouched_tensors_stay_as_they_are(family, tmp_path):
    source = checkpoint(tmp_path / "base", family, shard="20KB")
    edit = kept(tmp_path, source, lambda m: ScaleParameters(Magnitude(0.1, ("1.attention.o",)), 0.0))
    apply(source, [edit], tmp_path / "out")
    old = {path.name for path in source.iterdir()}
    assert {path.name for path in (tmp_path / "out").iterdir()} == old | {"README.md", "lesion"}
    changed = []
    for name in sorted(old):
        before, after = (source / name).read_bytes(), (tmp_path / "out" / name).read_bytes()
        assert len(before) == len(after)
        if before != after:
            changed.append(name)
            size = int.from_bytes(before[:8], "little")
            assert before[: 8 + size] == after[: 8 + size]
    assert len(changed) == 1
    assert changed[0].endswith(".safetensors")


def test_names_without_the_prefix_of_the_network_are_found(tmp_path):
    source = checkpoint(tmp_path / "base", "gpt2")
    edit = kept(tmp_path, source, boost)
    want = edited_in_memory(source, edit.edit)
    old = {name.removeprefix("transformer."): t for name, t in load_file(source / "model.safetensors").items()}
    assert "h.0.attn.c_attn.weight" in old
    save_file(old, source / "model.safetensors", metadata={"format": "pt"})
    apply(source, [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), want)


def test_experts_that_lie_on_disk_as_one_tensor_are_found_too(tmp_path):
    source = checkpoint(tmp_path / "base", "mixtral")
    edit = kept(tmp_path, source, boost)
    want = edited_in_memory(source, edit.edit)
    fused = {name: tensor.contiguous() for name, tensor in state(source).items()}
    save_file(fused, source / "model.safetensors", metadata={"format": "pt"})
    apply(source, [edit], tmp_path / "out")
    assert "model.layers.0.mlp.experts.gate_up_proj" in load_file(tmp_path / "out" / "model.safetensors")
    assert_bitwise(state(tmp_path / "out"), want)


def test_the_text_part_of_a_multimodal_gemma_is_found(tmp_path):
    text = {**tiny("gemma3").config.to_dict(), "model_type": "gemma3_text"}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = hf.Gemma3Config(
        text_config=text, vision_config={**vision, "image_size": 28, "patch_size": 14}, mm_tokens_per_image=4
    )
    torch.manual_seed(0)
    network = hf.Gemma3ForConditionalGeneration(config)
    network.save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    edit = kept(tmp_path, tmp_path / "base", boost)
    apply(tmp_path / "base", [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(tmp_path / "base", edit.edit))


def test_an_architecture_that_is_taken_apart_by_its_structure_is_edited_too(tmp_path):
    torch.manual_seed(0)
    config = hf.StableLmConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=None,
        bos_token_id=1,
        eos_token_id=2,
    )
    hf.StableLmForCausalLM(config).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    edit = kept(tmp_path, tmp_path / "base", boost)
    apply(tmp_path / "base", [edit], tmp_path / "out")
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(tmp_path / "base", edit.edit))


def test_both_names_of_a_tied_tensor_are_edited_where_both_are_stored(tmp_path):
    source = checkpoint(tmp_path / "base", "llama")
    edit = kept(tmp_path, source, lambda m: ScaleParameters(Magnitude(0.1, ("head",)), 2.0))
    done = apply(source, [edit], tmp_path / "out")
    assert [effect.address for effect in done.effects] == ["head"]
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(source, edit.edit))


# -- what is refused, with nothing written


def refused(tmp_path, source, edits, *says, error=LesionError, **settings) -> str:
    with pytest.raises(error) as caught:
        apply(source, edits, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))
    for words in says:
        assert words in str(caught.value), str(caught.value)
    return str(caught.value)


def test_an_edit_made_for_other_weights_is_refused_and_made_anew_when_forced(base, tmp_path):
    _, edit = base
    torch.manual_seed(1)
    other = tiny("llama")
    for parameter in other.parameters():
        parameter.data.mul_(1 + 0.1 * torch.rand_like(parameter))
    other.save_pretrained(tmp_path / "other")
    tokenizer().save_pretrained(tmp_path / "other")
    refused(tmp_path, tmp_path / "other", [edit], "fingerprint", edit.model.fingerprint, "--force")
    done = apply(tmp_path / "other", [edit], tmp_path / "out", force=True)
    assert done.edits[0].afresh
    assert_bitwise(state(tmp_path / "out"), edited_in_memory(tmp_path / "other", edit.edit))
    assert "for other weights" in (tmp_path / "out" / "README.md").read_text()


def test_a_factor_that_half_precision_loses_is_refused_with_the_numbers(tmp_path):
    source = checkpoint(tmp_path / "base", dtype=torch.bfloat16)
    edit = kept(tmp_path, source, boost)
    refused(tmp_path, source, [edit], "bfloat16", "moves 0 of", "99 %", factor=1.001)


def test_a_matrix_that_is_not_on_disk_is_refused(base, tmp_path):
    source, edit = base
    tensors = load_file(source / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    refused(tmp_path, source, [edit], "1.mlp.up", "model.layers.1.mlp.up_proj.weight")


@pytest.mark.parametrize("place", ["../elsewhere.safetensors", "/elsewhere.safetensors", "sub/a.safetensors", ".."])
def test_an_index_that_names_a_file_outside_the_folder_is_refused(shards, place, tmp_path):
    source, edit = shards
    index = source / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    first = next(iter(listed["weight_map"]))
    listed["weight_map"][first] = place
    index.write_text(json.dumps(listed))
    refused(tmp_path, source, [edit], "refused")


def test_a_link_that_leads_out_of_the_folder_is_not_followed(base, tmp_path):
    source, edit = base
    (tmp_path / "secret.json").write_text("{}")
    (source / "extra.json").symlink_to(tmp_path / "secret.json")
    done = apply(source, [edit], tmp_path / "fine")
    assert done.left_out == ("extra.json",)
    (source / "model.safetensors").rename(tmp_path / "model.safetensors")
    (source / "model.safetensors").symlink_to(tmp_path / "model.safetensors")
    refused(tmp_path, source, [edit], "link", "not followed")


def test_a_damaged_shard_and_a_missing_one_are_refused(shards, tmp_path):
    source, edit = shards
    shard = sorted(source.glob("*.safetensors"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-5])
    refused(tmp_path, source, [edit], shard.name, "damaged or cut short")
    shard.unlink()
    refused(tmp_path, source, [edit], shard.name, "not there")


def test_weights_in_other_formats_are_neither_read_nor_copied(base, tmp_path):
    source, edit = base
    for name in ("pytorch_model.bin", "flax_model.msgpack", "model.onnx", "code.py", "pytorch_model.bin.index.json"):
        (source / name).write_bytes(b"{}")
    (source / "LICENSE").write_text("free")
    done = apply(source, [edit], tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"LICENSE", "tokenizer.json", "config.json", "generation_config.json"} <= names
    assert not names & set(done.left_out)
    assert len(done.left_out) == 5
    (source / "model.safetensors").unlink()
    refused(tmp_path / "x", source, [edit], "no safetensors weights", "may hold code")


def test_a_quantised_checkpoint_is_refused(base, tmp_path):
    source, edit = base
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (source / "config.json").write_text(json.dumps(config))
    refused(tmp_path, source, [edit], "quantised", "gptq")


def test_a_folder_that_exists_is_refused_and_left_alone(base, tmp_path):
    source, edit = base
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        apply(source, [edit], tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(UsageError, match="inside the model's own folder"):
        apply(source, [edit], source / "out")
    (tmp_path / "empty").mkdir()
    apply(source, [edit], tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").is_file()


def test_a_place_that_cannot_be_written_is_refused_before_weights_are_read(base, tmp_path, monkeypatch):
    source, _ = base
    (source / "model.safetensors").unlink()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match=r"current folder.*Give --out a name in it"):
        apply(source, "1x0", ".")
    denied = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    monkeypatch.setattr(tempfile, "TemporaryFile", denied)
    with pytest.raises(UsageError, match=r"Nothing can be written in .*here: permission denied.*another place"):
        apply(source, "1x0", tmp_path / "here" / "a" / "out")
    denied.assert_called_once_with(dir=tmp_path / "here")
    assert not list((tmp_path / "here").iterdir())


def test_a_disk_that_is_full_leaves_nothing(base, tmp_path):
    source, edit = base
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limit[1]))
        refused(tmp_path, source, [edit], "cannot be written", os.strerror(errno.EFBIG))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)


# -- crashes

PROCESS = """
import os, resource, signal, sys
from lesion.edits.files.artefact import read_edit
from lesion.edits.files.checkpoint import apply

class Deadly:
    def begin(self, *_): pass
    def note(self, *_): pass
    def answered(self, _):
        os.kill(os.getpid(), signal.SIGKILL)

*measured, last = zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3])
for source, edit, out in measured:
    apply(source, [read_edit(edit)], out)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, flush=True)
source, edit, out = last
apply(source, [read_edit(edit)], out, watcher=Deadly())
"""


@dataclass
class Ended:
    """A process that applied edits to a small model and to a large one, and was killed while it did so to a third."""

    folder: Path
    edit: EditFile
    size: int
    """Of the large model's weights, in bytes."""
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> Ended:
    folder = tmp_path_factory.mktemp("process")
    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8
    )
    torch.manual_seed(0)
    hf.LlamaForCausalLM(config).save_pretrained(folder / "large")
    tokenizer().save_pretrained(folder / "large")
    large = kept(folder, folder / "large", lambda m: ScaleParameters(Magnitude(0.05), 0.0), name="large.edit")
    small = checkpoint(folder / "small")
    little = kept(folder, small, lambda m: ScaleParameters(Magnitude(0.05), 0.0), name="little.edit")
    source = checkpoint(folder / "base", shard="20KB")
    edit = kept(folder, source, boost)
    arguments = (small, little.path, folder / "a", folder / "large", large.path, folder / "b")
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, *arguments, source, edit.path, folder / "out"],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    return Ended(folder, edit, (folder / "large" / "model.safetensors").stat().st_size, done)


class Heard:
    def __init__(self):
        self.notes, self.shards = [], 0

    def begin(self, model, total, stored, what="answers"):
        self.total = total

    def answered(self, count):
        self.shards += count

    def note(self, text):
        self.notes.append(text)


@pytest.mark.slow
def test_killed_in_the_middle_nothing_is_left_that_loads_and_a_rerun_cleans_up(ended):
    folder, source, edit = ended.folder, ended.folder / "base", ended.edit
    assert ended.done.returncode == -signal.SIGKILL, ended.done.stderr
    assert not (folder / "out").exists()
    (left,) = folder.glob(".out.partial-*")
    assert list(left.glob("*.safetensors"))
    with pytest.raises((OSError, ValueError)):
        hf.AutoModelForCausalLM.from_pretrained(left)
    heard = Heard()
    apply(source, [edit], folder / "out", watcher=heard)
    assert not left.exists()
    assert len(heard.notes) == 1
    assert "stopped in the middle" in heard.notes[0]
    assert heard.shards == heard.total > 2
    assert_bitwise(state(folder / "out"), edited_in_memory(source, edit.edit))


def test_what_a_living_run_writes_beside_is_left_alone(base, tmp_path):
    source, edit = base
    other = tmp_path / f".out.partial-{os.getppid()}"
    other.mkdir()
    apply(source, [edit], tmp_path / "out")
    assert other.is_dir()


# -- memory and the card


@pytest.mark.slow
def test_memory_is_needed_for_one_tensor_and_not_for_the_model(ended):
    assert ended.size > 60e6
    before, after = map(int, ended.done.stdout.split())
    assert after - before < ended.size / 2


def test_the_card_says_what_was_done_and_keeps_the_base_models_own(tmp_path):
    source = checkpoint(tmp_path / "base")
    (source / "README.md").write_text("---\nlicense: mit\n---\n# Base\n\nA `base`.\n")
    edit = kept(tmp_path, source, boost)
    done = apply(source, [edit], tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n---\n")
    for words in (
        edit.label,
        edit.digest,
        edit.model.fingerprint,
        "sums.jsonl",
        "# The card of the base model",
        "A `base`",
    ):
        assert words in card
    assert f"{done.edits[0].selected:,}" in card
    assert done.edits[0].selected == sum(count.selected for count in edit.selected)
    assert (tmp_path / "out" / "lesion" / f"{edit.label}.edit").read_bytes() == edit.data
    again = kept(tmp_path, tmp_path / "out", prune, name="again.edit")
    apply(tmp_path / "out", [again], tmp_path / "twice")
    names = {path.name for path in (tmp_path / "twice" / "lesion").glob("*.edit")}
    assert names == {f"{edit.label}.edit", f"{again.label}.edit"}
