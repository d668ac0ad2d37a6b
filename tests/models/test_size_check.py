"""Checkpoints that cannot be what their config.json says are refused before a network is built."""

import shutil
import time
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

import tiny
from commandline import save
from lesion.errors import LesionError
from lesion.models.load import load, refuse_foreign_tokenizer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("plausible") / "llama")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 1_000_000}, "num_hidden_layers is 1000000, and there are"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"hidden_size": 10**9, "head_dim": 16}, "hidden_size is 1000000000"),
        ({"intermediate_size": 10**9}, "intermediate_size is 1000000000"),
        ({"architectures": 5}, "architectures"),
        ({"architectures": [5]}, "architectures"),
    ],
)
def test_a_config_beyond_its_weights_is_refused_at_once(changes, says, checkpoint, tmp_path):
    folder = tiny.configure(Path(shutil.copytree(checkpoint, tmp_path / "model")), **changes)
    began = time.monotonic()
    with pytest.raises(LesionError, match=says):
        load(folder)
    assert time.monotonic() - began < 30


def test_a_tokenizer_of_more_words_than_the_embedding_has_rows_is_refused():
    network, tokenizer = tiny.tiny("llama"), tiny.tokenizer()
    refuse_foreign_tokenizer(tokenizer, network, "m")

    class Larger(PreTrainedTokenizerBase):
        def __init__(self) -> None:
            pass

        vocab_size = network.get_input_embeddings().weight.shape[0] + 1

    with pytest.raises(LesionError, match="tokenizer of another model"):
        refuse_foreign_tokenizer(Larger(), network, "m")
