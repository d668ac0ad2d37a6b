"""GGUF files with their blocks in another order: what is loaded from them is the model reordered in memory."""

import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, dequantize

from commandline import lesion as command
from ggufs import llama, write
from lesion.edits.apply import applied
from lesion.edits.files.gguf_order import _SCALES, multiplied, save_gguf
from lesion.edits.files.reordering import save_reordered
from lesion.errors import LesionError, UsageError
from lesion.models.gguf import read_header
from lesion.models.load import load
from lesion.models.reordered import reordered

Q8_0 = GGMLQuantizationType.Q8_0
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LESION_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", [None, Q8_0])
def test_the_file_is_the_model_reordered_in_memory(kind, tmp_path):
    path = write(tmp_path / "tiny.gguf", llama(), *([] if kind is None else [kind]))
    edit = "2.attention×0.5 + 1.mlp×0.25 + 0.mlp×2"
    done = save_reordered(path, "1,0,1", tmp_path / "out.gguf", edit=edit)
    assert (done.folder, done.order, done.blocks, done.edit) == (tmp_path / "out.gguf", (1, 0, 1), 2, edit)
    in_memory, written = reordered(load(path), "1,0,1"), load(done.folder)
    with applied(in_memory, edit):
        wanted = in_memory.network(IDS).logits
    torch.testing.assert_close(written.network(IDS).logits, wanted, rtol=1e-5, atol=1e-5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cache", "out.gguf", "tiny.gguf"]


def test_all_but_the_numbers_of_blocks_is_copied_byte_for_byte(tmp_path):
    path = write(tmp_path / "tiny.gguf", llama(), Q8_0)
    save_reordered(path, "1,1,0", tmp_path / "out.gguf")
    before, after = GGUFReader(path), GGUFReader(tmp_path / "out.gguf")
    told = [{key: (field.types, field.contents()) for key, field in each.fields.items()} for each in (before, after)]
    assert [each.pop("llama.block_count") for each in told] == [([GGUFValueType.UINT32], n) for n in (2, 3)]
    assert {key: value for key, value in told[0].items() if not key.startswith("GGUF.")} == {
        key: value for key, value in told[1].items() if not key.startswith("GGUF.")
    }
    old, new = ({tensor.name: tensor for tensor in each.tensors} for each in (before, after))
    for name, tensor in new.items():
        origin = name.replace("blk.0.", "blk.1.") if "blk.2." not in name else name.replace("blk.2.", "blk.0.")
        assert tensor.tensor_type == old[origin].tensor_type
        assert tensor.data.tobytes() == old[origin].data.tobytes()
        assert tensor.data_offset % 32 == 0
    assert len(new) == len(old) + sum(name.startswith("blk.1.") for name in old)


@pytest.mark.parametrize("kind", [*_SCALES, "F32", "F16", "BF16"])
def test_a_factor_multiplies_what_the_storage_means(kind):
    number, generator = GGMLQuantizationType[kind], np.random.default_rng(7)
    data = generator.integers(0x20, 0x38, (4, 3 * GGML_QUANT_SIZES[number][1]), dtype=np.uint8)

    def meaning(stored):
        plain = {"F32": "<f4", "F16": "<f2"}.get(kind)
        return stored.view(plain).astype(float) if plain else dequantize(stored, number).astype(float)

    for factor, rounding in ((0.5, 0.0), (-1.3, 2**-8 if kind == "BF16" else 2**-10)):
        made = multiplied(data.copy().reshape(-1), kind, factor, "it").reshape(data.shape)
        whole = np.abs(meaning(data)).max()
        np.testing.assert_allclose(meaning(made), factor * meaning(data), rtol=0, atol=rounding * whole * abs(factor))


def test_what_cannot_be_written_as_a_gguf_file_is_refused_and_leaves_nothing(tmp_path, capsys):
    path, out = write(tmp_path / "tiny.gguf", llama(), Q8_0), tmp_path / "out.gguf"
    (tmp_path / "there.gguf").write_text("something")
    (tmp_path / "folder.gguf").mkdir()
    for occupied in ("there.gguf", "folder.gguf"):
        with pytest.raises(UsageError, match="is there already; nothing is overwritten"):
            save_reordered(path, "0-1", tmp_path / occupied)
    with pytest.raises(UsageError, match=r"there\.gguf: not a directory"):
        save_reordered(path, "0-1", tmp_path / "there.gguf" / "out.gguf")
    assert not (tmp_path / "cache").exists()  # no weight has been converted
    with pytest.raises(UsageError, match="Only a model that is a GGUF file is written as one"):
        save_reordered("bundled:llama-base", "0-7", out)
    with pytest.raises(LesionError, match=r"Multiplied by 1e\+09, blk\.0\.ffn_down\.weight would"):
        save_reordered(path, "0-1", out, edit="0.mlp×1e9")
    done = command(capsys, "apply", path, "--edit", "0.mlp×0.5", "--out", out)
    assert (done.code, "--order" in done.complaint) == (2, True)
    header = read_header(path)
    lists = replace(header, metadata={**header.metadata, "llama.feed_forward_length": (64, 64)})
    with pytest.raises(LesionError, match=r"states llama\.feed_forward_length of every block"):
        save_gguf(lists, out, (0, 1), 2, {}, print)
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


KILLED = """
import os, signal, sys
from pathlib import Path
from lesion.edits.files import gguf_order
from lesion.models.gguf import read_header

gguf_order.copy_bytes = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
gguf_order.save_gguf(read_header(Path(sys.argv[1])), Path(sys.argv[2]), (1, 0), 2, {}, print)
"""


@pytest.mark.slow
def test_killed_in_the_middle_the_file_is_not_there_and_the_next_run_removes_what_is_left(tmp_path, capsys):
    path, out = write(tmp_path / "tiny.gguf", llama(), Q8_0), tmp_path / "out.gguf"
    done = subprocess.run([sys.executable, "-c", KILLED, path, out], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".*")
    assert (out.exists(), left.name.startswith(".out.gguf.partial-")) == (False, True)
    done = command(capsys, "apply", path, "--order", "1,0", "--out", out)
    assert (done.code, f"Removed {left}" in done.err, left.exists()) == (0, True, False)
    assert len(GGUFReader(out).tensors) == len(GGUFReader(path).tensors)


def test_the_command_writes_a_gguf_file(tmp_path, capsys):
    path = write(tmp_path / "tiny.gguf", llama(), Q8_0)
    done = command(capsys, "apply", path, "--order", "0,0-1", "--out", tmp_path / "out.gguf")
    assert done.code == 0, done.err
    assert f"model: {tmp_path / 'out.gguf'} (" in done.out
    assert "mergekit" not in done.out
