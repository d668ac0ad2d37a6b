"""GGUF files: read as their own dequantisation says, converted once, and refused in a sentence where they are wrong."""

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from commandline import lesion, refused
from ggufs import VOCABULARY, interleaved, llama, write
from lesion.edits.files.checkpoint import apply
from lesion.errors import LesionError, UsageError
from lesion.models import gguf_checkpoint
from lesion.models.gguf import read_header
from lesion.models.load import configuration, load, peek
from lesion.models.source import Source, find

REAL = Path(__file__).parents[3] / "shared/models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf"
Q4_1, Q8_0 = GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0


def readable(kind: GGMLQuantizationType) -> bool:
    try:
        dequantize(np.zeros(GGML_QUANT_SIZES[kind][1], np.uint8), kind)
    except NotImplementedError:
        return False
    return True


QUANTISED = [kind for kind in GGMLQuantizationType if GGML_QUANT_SIZES[kind][0] > 1]
READABLE, UNREADABLE = [k for k in QUANTISED if readable(k)], [k for k in QUANTISED if not readable(k)]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LESION_CACHE", str(tmp_path / "cache"))


def nibbles(packed: np.ndarray) -> np.ndarray:
    """Q4_1 by its definition: a block is a scale, a minimum (half precision) and 32 times 4 bits, low halves first."""
    rows = []
    for row in packed:
        values = []
        for block in row.reshape(-1, 20):
            d, m = np.frombuffer(block[:4].tobytes(), np.float16).astype(np.float32)
            low, high = block[4:] & 15, block[4:] >> 4
            values += [d * np.float32(q) + m for q in (*low, *high)]
        rows.append(values)
    return np.array(rows, np.float32)


def test_a_float_file_says_what_the_network_says_that_it_was_made_of(tmp_path):
    network = llama()
    model = load(write(tmp_path / "tiny.gguf", network))
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    torch.testing.assert_close(model.network(ids).logits, network(ids).logits, rtol=1e-5, atol=1e-5)
    assert model.network.get_output_embeddings().weight is model.network.get_input_embeddings().weight


def test_weights_in_q4_1_are_those_of_the_definition_and_nothing_is_rounded_twice(tmp_path):
    from gguf import quantize

    network = llama()
    model = load(write(tmp_path / "tiny.gguf", network, Q4_1))
    for address, module, heads in (
        ("0.mlp.up", network.model.layers[0].mlp.up_proj, None),
        ("1.attention.q", network.model.layers[1].self_attn.q_proj, 4),
        ("1.attention.k", network.model.layers[1].self_attn.k_proj, 2),
    ):
        weight = module.weight.numpy() if heads is None else interleaved(module.weight.numpy(), heads)
        expected = nibbles(quantize(weight, Q4_1))
        have = model.anatomy.scored[address].tensor.numpy()
        np.testing.assert_array_equal(have if heads is None else interleaved(have, heads), expected)
    assert model.dtype == torch.float32


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_every_kind_of_storage_that_the_reader_knows_is_loaded(kind, tmp_path):
    network, generator = llama(256), np.random.default_rng(7)
    weights, size = GGML_QUANT_SIZES[kind]
    raw = {}
    for block in range(2):
        for name, (rows, columns) in {
            "attn_q": (256, 256), "attn_k": (128, 256), "attn_v": (128, 256), "attn_output": (256, 256),
            "ffn_gate": (512, 256), "ffn_up": (512, 256), "ffn_down": (256, 512),
        }.items():  # fmt: skip
            # Bytes below 0x38, so that no scale in half precision is infinite.
            data = generator.integers(0, 0x38, (rows, columns // weights * size), dtype=np.uint8)
            raw[f"blk.{block}.{name}.weight"] = data
    path = write(tmp_path / "tiny.gguf", network, kind, raw=raw)
    model = load(path)
    expected = dequantize(raw["blk.1.ffn_down.weight"], kind)
    np.testing.assert_array_equal(model.anatomy.scored["1.mlp.down"].tensor.numpy(), expected)
    assert kind.name in (model.origin.storage if model.origin else "")


def test_a_file_is_converted_once_and_anew_when_it_changes(tmp_path, monkeypatch):
    written = []
    convert = gguf_checkpoint._write
    monkeypatch.setattr(gguf_checkpoint, "_write", lambda *given: (written.append(1), convert(*given))[1])
    path = write(tmp_path / "tiny.gguf", llama(seed=0))
    first = load(path).fingerprint
    assert load(tmp_path).fingerprint == first == load(str(path)).fingerprint
    assert len(written) == 1
    write(path, llama(seed=1))
    assert load(path).fingerprint != first
    assert len(written) == 2


def test_tokenizer_and_chat_template_are_those_of_the_file(tmp_path):
    model = load(write(tmp_path / "tiny.gguf", llama()))
    assert model.tokenizer("3+4= 7", add_special_tokens=False)["input_ids"] == [
        VOCABULARY.index(token) for token in ("3", "+", "4", "=", "Ġ", "7")
    ]
    assert model.tokenizer.eos_token == "</s>"
    assert model.has_chat_template


def test_an_edit_is_written_as_an_ordinary_checkpoint(tmp_path):
    import transformers as hf

    path = write(tmp_path / "tiny.gguf", llama(), Q8_0)
    apply(path, "1×0", tmp_path / "out")
    model = load(path)
    edited = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    from lesion.edits.apply import applied

    with applied(model, "1×0"):
        expected = model.network(ids).logits
    torch.testing.assert_close(edited(ids).logits, expected, rtol=1e-5, atol=1e-5)
    assert not hasattr(edited.config, "quantization_config")


def test_the_command_shows_how_weights_are_stored_and_says_that_it_converts(tmp_path, capsys):
    path = write(tmp_path / "tiny.gguf", llama(), Q8_0)
    done = lesion(capsys, "show", path)
    assert "converted once" in done.err
    assert "GGUF, Q8_0 (" in done.out
    assert "converted" not in lesion(capsys, "show", path).err


def test_a_sweep_answers_as_the_same_model_in_a_folder(tmp_path):
    import lesion as library

    network = llama()
    (tmp_path / "questions.jsonl").write_text('{"prompt": "3+4=", "answer": "7"}\n{"prompt": "1+1=", "answer": "2"}\n')
    path = write(tmp_path / "tiny.gguf", network)
    converted = gguf_checkpoint.as_folder(find(str(path)))
    tables = [
        library.ablate(place, tasks=str(tmp_path / "questions.jsonl"), out=tmp_path / name, progress=False).answers
        for place, name in ((str(path), "one"), (converted.place, "two"))
    ]
    assert list(tables[0]["text"]) == list(tables[1]["text"])


# -- what a person may type


def test_what_may_be_typed_for_a_gguf_file(tmp_path):
    path = write(tmp_path / "tiny.gguf", llama())
    local = Source(str(tmp_path), True, file="tiny.gguf")
    assert find(str(path)) == local == find(str(tmp_path))
    assert find("org/name@main:model.Q4_K_M.gguf") == Source("org/name", False, "main", "model.Q4_K_M.gguf")
    assert find("org/name:model.gguf", "v1") == Source("org/name", False, "v1", "model.gguf")
    assert peek(path) == 2
    assert configuration(path).num_hidden_layers == 2


def test_a_folder_with_several_gguf_files_and_a_file_that_is_not_there(tmp_path):
    write(tmp_path / "a.gguf", llama())
    write(tmp_path / "b.gguf", llama())
    with pytest.raises(UsageError, match=r"holds 2 GGUF files: give one of them, as .*a\.gguf"):
        find(str(tmp_path))
    with pytest.raises(UsageError, match=r"There is no file .*c\.gguf"):
        find(str(tmp_path / "c.gguf"))
    with pytest.raises(UsageError, match="has no revision v1"):
        find(str(tmp_path / "a.gguf"), "v1")


# -- wrong files: a sentence each, before anything large is loaded


def test_a_cut_file_is_one_sentence_wherever_it_is_cut(tmp_path):
    whole = write(tmp_path / "tiny.gguf", llama()).read_bytes()
    start = read_header(tmp_path / "tiny.gguf").tensors[0].start
    cut = tmp_path / "cut.gguf"
    for length in (4, 7, 20, 100, start // 2, start - 40, start, start + 1000, len(whole) - 200):
        cut.write_bytes(whole[:length])
        with pytest.raises(LesionError, match="is cut short") as raised:
            read_header(cut)
        assert "Get the file again" in str(raised.value)


def test_wrong_magic_version_type_and_part(tmp_path):
    good = write(tmp_path / "tiny.gguf", llama()).read_bytes()
    bad = tmp_path / "bad.gguf"

    def fault(content: bytes, match: str, path: Path = bad) -> None:
        path.write_bytes(content)
        with pytest.raises(LesionError, match=match):
            read_header(path)

    fault(b"", "is no GGUF file|cut short")
    fault(b"PK\x03\x04" + good[4:], "it begins with .*not with 'GGUF'")
    fault(good[:4] + struct.pack("<I", 9) + good[8:], "has version 9")
    fault(good[:4] + struct.pack(">I", 3) + good[8:], "byte order of other machines")
    name = b"blk.1.ffn_down.weight"
    place = good.index(name) + len(name) + 4 + 16
    fault(good[:place] + struct.pack("<I", 99) + good[place + 4 :], "unknown quantisation type 99")
    for kind in UNREADABLE[:1]:
        fault(good[:place] + struct.pack("<I", int(kind)) + good[place + 4 :], f"type {kind.name}, which")
    fault(good, "one of 3 parts", tmp_path / "big-00001-of-00003.gguf")


def test_parts_of_a_model_are_to_be_joined_whatever_they_are_called(tmp_path):
    for part in (1, 2, 3):
        write(tmp_path / f"big-0000{part}-of-00003.gguf", llama())
    with pytest.raises(LesionError, match=r"big-00001-of-00003\.gguf is one of 3 parts .*llama-gguf-split --merge"):
        load(tmp_path)
    renamed = write(tmp_path / "renamed.gguf", llama(), general={"split.count": 3, "split.no": 0})
    with pytest.raises(LesionError, match="is one of 3 parts"):
        load(renamed)
    adapter = write(tmp_path / "adapter.gguf", llama(), general={"general.type": "adapter"})
    with pytest.raises(LesionError, match=r"holds no model, but a part for one \(adapter\)"):
        load(adapter)


def test_an_architecture_that_transformers_cannot_read(tmp_path):
    path = write(tmp_path / "tiny.gguf", llama(), architecture="plamo9")
    with pytest.raises(LesionError, match="architecture plamo9, which transformers cannot read from GGUF files"):
        load(path)
    assert not list((tmp_path / "cache").glob("gguf/*"))


def test_header_bytes_changed_at_random_end_in_no_foreign_exception(tmp_path):
    good = write(tmp_path / "tiny.gguf", llama()).read_bytes()
    end, generator = read_header(tmp_path / "tiny.gguf").tensors[0].start, np.random.default_rng(3)
    for _ in range(300):
        content = bytearray(good)
        for place in generator.integers(4, end, 3):
            content[place] = generator.integers(256)
        (tmp_path / "bad.gguf").write_bytes(content)
        with contextlib.suppress(LesionError):
            read_header(tmp_path / "bad.gguf")


def test_a_command_refuses_a_block_that_is_not_there_before_it_converts(tmp_path, capsys):
    path = write(tmp_path / "tiny.gguf", llama())
    options = ("--task", "primer:arithmetic", "--layers", "12", "--out", tmp_path / "out")
    refused(lesion(capsys, "ablate", path, *options), 2, "blocks 0 to 1")
    assert not (tmp_path / "cache" / "gguf").exists()


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason="the real model is not beside the project: ../shared/models")
def test_a_real_model_continues_a_text_as_it_should():
    model = load(REAL)
    assert model.fingerprint == "40fb2bbc9bfcd6ac"
    assert "Paris" in model.generate("The capital of France is", max_new_tokens=8, prompt_style="raw")
