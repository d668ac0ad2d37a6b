"""The models and items of the truncation benchmark: the bundled one, and a random one of the shape of Qwen2.5-0.5B."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lesion.edits.apply import applied
from lesion.edits.edit import Truncate
from lesion.engines.transformers.prefill import pad_left
from lesion.models.load import Model, load, wrap
from lesion.tasks.catalogue import find
from truncation_published import Question

BUNDLED, SHAPE = "bundled:llama-base", "qwen2.5-0.5b"
VOCABULARY = 151_936
PLANTED = Truncate("2.mlp.up", 0.05)  # under which the random model gives the answers that are called right
# What a prompt of the bundled model ends in. As it is asked in training, it knows every answer, and no edit could be
# better; asked like this it knows a part of them.
FRAME = " It is"


@dataclass(frozen=True)
class Workload:
    """A model with the items that it is asked.

    Attributes:
        model: who is asked.
        file: the items as JSON Lines, contrasts.
        questions: the same items as token ids, by id.
    """

    model: Model
    file: Path
    questions: dict[str, Question]


def loaded(name: str, folder: Path, items: int, device: str) -> Workload:
    """A trained model and facts: of the atlas in an unusual frame where it is the bundled one, else of `facts`."""
    model = load(name, dtype="float32", device=device)
    task, frame = ("primer:atlas?form=contrast", FRAME) if name == BUNDLED else ("facts", "")
    chosen = random.Random(0).sample(list(find(task).load()), items)
    rows = [
        {"id": item.id, "prompt": item.question + frame, "answer": item.gold, "tempting": item.choices[1]}
        for item in chosen
    ]
    encode = model.tokenizer
    questions = {
        str(row["id"]): Question(
            tuple(encode(row["prompt"])["input_ids"]),
            encode(f" {row['answer']}", add_special_tokens=False)["input_ids"][0],
        )
        for row in rows
    }
    return Workload(model, _write(folder / "facts.jsonl", rows), questions)


def random_qwen(folder: Path, items: int, length: int, device: str) -> Workload:
    """A randomly initialised Qwen2.5-0.5B, random prompts, and as right answers what it says under a truncation.

    There is thus a best edit, `PLANTED`, which a search has to find. The tokenizer writes token number i as the word
    `w<i>`.
    """
    from transformers import Qwen2Config, Qwen2ForCausalLM

    # Names of special tokens must not begin a word: they are looked for within words too.
    names = ["<pad>", "<s>", "</s>", "<unknown>"]
    vocabulary = {name: index for index, name in enumerate(names)}
    vocabulary |= {f"w{index}": index for index in range(len(names), VOCABULARY)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=names[3]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    torch.manual_seed(0)
    with torch.device(device):
        network = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                num_key_value_heads=2, vocab_size=VOCABULARY, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
                max_position_embeddings=512,
            )
        )  # fmt: skip
    model = wrap(network.eval(), tokenizer, f"random {SHAPE}")
    rng = random.Random(0)
    prompts = [tuple(rng.randrange(4, VOCABULARY) for _ in range(length)) for _ in range(items)]
    tokens, _ = pad_left(prompts, 0)
    with torch.inference_mode(), applied(model, PLANTED):
        logits = model.network(input_ids=tokens.to(model.device), logits_to_keep=1).logits[:, -1]
    most = (logits[:, len(names) :].topk(2).indices + len(names)).tolist()  # special tokens are no answers
    rows = [
        {"id": str(index), "prompt": " ".join(f"w{token}" for token in prompt), "answer": f"w{first}",
         "tempting": f"w{second}"}
        for index, (prompt, (first, second)) in enumerate(zip(prompts, most, strict=True))
    ]  # fmt: skip
    questions = {
        str(index): Question(prompt, first)
        for index, (prompt, (first, _)) in enumerate(zip(prompts, most, strict=True))
    }
    return Workload(model, _write(folder / "words.jsonl", rows), questions)


def _write(file: Path, rows: list[dict[str, str]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
