"""What the campaign of bad input damages: a tiny model, data sets of every format, and a study of every kind."""

from __future__ import annotations

import json
import random
import sqlite3
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BACKSLASH_U = chr(92) + "u"
DEEP, BIG, HALF = "@@deep@@", "@@big@@", "@@half@@"
"""What JSON texts of 5,000 levels, a number of 5,000 digits and half a character stand for until they are written."""
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, 1e308, float("nan"), float("inf"), "", " ", "\x1b[31mred", "\u202etxt",
    "a\nlesion: forged", "x" * 5000, [], {}, [[]], {"a": {"b": [1]}}, "1_0", "٣", "../../x", DEEP, BIG, HALF,
)  # fmt: skip


@dataclass(frozen=True)
class Places:
    """Where the material of the campaign lies; nobody changes it, every case works on copies or beside it.

    Attributes:
        root: of everything.
        model: a tiny Llama with a tokenizer of single characters.
        sharded: the same in several files with an index.
        sums: questions as JSON Lines, and `choices` such that are chosen among.
        data: one file for every format of a data set, by the name of its task.
        edits: two `.edit` files of the model.
        studies: the folder of a finished study, by its kind.
    """

    root: Path
    model: Path
    sharded: Path
    sums: Path
    controls: Path
    choices: Path
    data: dict[str, Path]
    edits: tuple[Path, Path]
    studies: dict[str, Path]


def commands(places: Places, out: str) -> dict[str, list[str]]:
    """A command that makes a study of every kind, cheaply."""
    model, sums, few = places.model, places.sums, "--items 2 --max-new-tokens 2"
    layers, truncation = places.studies["layers"], places.studies["truncation"]
    lines = {
        "layers": f"ablate {model} --task {sums} {few} --layers 0,1 --anyway",
        "isolation": f"isolate {model} --skill {sums} --control {places.controls} --share 0.1 --samples 2",
        "evaluation": f"evaluate {model} --task {sums} --edit {places.edits[0]} {few} --random-controls 1 --anyway",
        "truncation": f"truncate {model} --task {places.choices} --matrices mlp.up --keep 0.5 --layers 0 --items 6"
        " --anyway",
        "tuning": f"tune {model} --task primer:arithmetic --layers 0 --steps 1 --rows 2 {few} --control-items 2"
        " --ablation-items 2 --validation-items 2",
        "drift": f"drift {model} --task {sums} --clusters 3 --runs 1 --starts 1 {few}",
        "overlay": f"overlay {layers} {truncation}",
        "recall": "lab recall --vocabulary 8 --width 8 --steps 2 --keep 0.5",
        "memory": "lab memory --classes 3 --width 8 --steps 20",
    }
    return {kind: [*line.split(), "--out", out] for kind, line in lines.items()}


def _tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    letters = ["<unk>", "<s>", "</s>", "\n", " ", *string.digits, *string.ascii_lowercase, *".,?!:;#+-=*/()'\"<>|_%$&"]
    fast = Tokenizer(WordLevel({token: index for index, token in enumerate(letters)}, unk_token="<unk>"))
    fast.normalizer = normalizers.Lowercase()
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=256
    )


def model_folder(folder: Path, **saving: Any) -> Path:
    """A Llama of three blocks and 30,000 random weights, saved with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=256, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder, **saving)
    _tokenizer().save_pretrained(folder)
    return folder


def _lines(file: Path, rows: Iterable[dict[str, Any]]) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def _data(folder: Path) -> dict[str, Path]:
    """A small file in each format, by the name of the task that reads it."""
    folder.mkdir(parents=True)
    options = ["red", "green", "blue", "grey"]
    passage = {
        "id": "high1.txt",
        "article": "Snow is white.",
        "questions": ["Which?", "And?"],
        "options": [options] * 2,
        "answers": ["A", "B"],
    }
    names = {
        "subject": "Rome",
        "attribute": "Italy",
        "template": "{} is in",
        "prompt": "Rome is in",
        "relation_id": "P30",
        "known_id": 0,
    }
    (folder / "fruit_test.csv").write_text("Which?,red,green,blue,grey,B\nAnd?,1,2,3,4,A\n")
    (folder / "race.json").write_text(json.dumps([passage]))
    (folder / "ioi.json").write_text(
        json.dumps(
            [{"case_id": n, "prompt": f"Then Ann and Bob went. Bob gave {n} to", "answer": "Ann"} for n in range(3)]
        )
    )
    (folder / "facts.json").write_text(json.dumps([{**names, "known_id": n} for n in range(3)]))
    (folder / "text.txt").write_text("Snow is white and the sea is blue.\n\n" * 5)
    two = range(3)
    return {
        "gsm8k": _lines(
            folder / "gsm8k.jsonl", [{"question": f"{n}?", "answer": f"It is <<1+1=2>>2.\n#### {n}"} for n in two]
        ),
        "math500": _lines(
            folder / "math.jsonl",
            [
                {"problem": f"{n}?", "solution": "s", "answer": f"{n}", "subject": "x", "level": 1, "unique_id": f"{n}"}
                for n in two
            ],
        ),
        "triviaqa": _lines(
            folder / "trivia.jsonl", [{"id": f"{n}", "question": f"{n}?", "golden_answers": ["a", "b"]} for n in two]
        ),
        "nq_open": _lines(folder / "nq.jsonl", [{"question": f"{n}?", "answer": ["a", "b"]} for n in two]),
        "mmlu": folder / "fruit_test.csv",
        "race": folder / "race.json",
        "ioi": folder / "ioi.json",
        "facts": folder / "facts.json",
        "jsonl": _lines(
            folder / "own.jsonl", [{"id": f"{n}", "prompt": f"{n} + 1 =", "answer": f"{n + 1}"} for n in two]
        ),
        "text": folder / "text.txt",
    }


def make(root: Path, run: Callable[[list[str], Path], None]) -> Places:
    """Make everything; what is there already is kept.

    Args:
        root: the folder.
        run: runs a command to its end in a folder, and fails where the command does.
    """
    kinds = ("layers", "isolation", "evaluation", "truncation", "tuning", "drift", "overlay", "recall", "memory")
    own = {name: root / "studies" / name for name in kinds}
    edits = (root / "a.edit", root / "b.edit")
    names = (
        "gsm8k.jsonl",
        "math.jsonl",
        "trivia.jsonl",
        "nq.jsonl",
        "fruit_test.csv",
        "race.json",
        "ioi.json",
        "facts.json",
        "own.jsonl",
        "text.txt",
    )
    tasks = ("gsm8k", "math500", "triviaqa", "nq_open", "mmlu", "race", "ioi", "facts", "jsonl", "text")
    data = {task: root / "data" / name for task, name in zip(tasks, names, strict=True)}
    places = Places(
        root,
        root / "model",
        root / "sharded",
        root / "sums.jsonl",
        root / "controls.jsonl",
        root / "choices.jsonl",
        data,
        edits,
        own,
    )
    if not (root / "model").exists():
        root.mkdir(parents=True, exist_ok=True)
        model_folder(root / "model")
        model_folder(root / "sharded", max_shard_size="40KB")
        _lines(places.sums, [{"id": f"{n}", "prompt": f"{n} + {n} =", "answer": f"{n + n}"} for n in range(6)])
        _lines(places.controls, [{"id": f"{n}", "prompt": f"what is {n}", "answer": f"{n}"} for n in range(6)])
        rows = [{"id": f"{n}", "prompt": f"{n} + {n} = ", "answer": f"{n % 7}", "tempting": "t"} for n in range(12)]
        _lines(places.choices, rows)
        _data(root / "data")
        from lesion.edits.edit import ScaleParameters
        from lesion.edits.files.artefact import save_edit
        from lesion.edits.selections.topk import Magnitude
        from lesion.models.load import load

        model = load(str(root / "model"))
        for edit, keep in zip(edits, (0.05, 0.1), strict=True):
            save_edit(edit, ScaleParameters(Magnitude(keep), 0.0), model)
    for kind, folder in own.items():
        if not folder.exists():
            run(commands(places, str(folder))[kind], root)
    return places


def shuffled_json(text: str, seed: int) -> str:
    """A JSON text with one value somewhere in it dropped, renamed, or replaced by an odd one of another kind."""
    choice = random.Random(seed)
    value = json.loads(text)
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        one = pending.pop()
        found = list(one.items()) if isinstance(one, dict) else list(enumerate(one)) if isinstance(one, list) else []
        places += [(one, key) for key, _ in found]
        pending += [entry for _, entry in found if isinstance(entry, dict | list)]
    if not places:
        return _written(choice.choice(ODD))
    # Of many alike entries deep inside, most would be of the same few lists: the upper ones count as much.
    upper = places[: max(8, len(places) // 8)]
    holder, key = choice.choice(choice.choice((upper, places)))
    way = choice.randrange(4)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[f"{key}\x1b[31m"] = holder.pop(key)
    else:
        holder[key] = choice.choice(ODD)
    return _written(value)


def _written(value: Any) -> str:
    text = json.dumps(value)
    for mark, instead in ((DEEP, "[" * 5000 + "]" * 5000), (BIG, "9" * 5000), (HALF, f'"{BACKSLASH_U}d800"')):
        text = text.replace(json.dumps(mark), instead)
    return text


def shuffled_bytes(data: bytes, seed: int) -> bytes:
    """Bytes with a piece flipped, cut off, doubled or replaced."""
    choice = random.Random(seed)
    place = choice.randrange(max(1, len(data)))
    size = choice.choice((1, 1, 4, 64))
    ways = (
        data[:place],
        data[:place] + bytes(choice.randrange(256) for _ in range(size)) + data[place + size :],
        data[:place] + data[place : place + size] * 3 + data[place + size :],
        data[:place] + data[place + size :],
        b"\xff\xfe" + data,
        b"",
    )
    return choice.choice(ways)


def shuffled_store(file: Path, seed: int) -> None:
    """Replace one cell of one table of a store by something odd, as whoever sends a store could."""
    choice = random.Random(seed)
    odd = [
        None,
        -1,
        10**15,
        1e308,
        "",
        "x" * 5000,
        "\x1b[31m",
        "[" * 5000,
        "{}",
        "[1,",
        "null",
        b"\x00\xff",
        '{"a": NaN}',
        "9" * 5000,
    ]
    with sqlite3.connect(file) as database:
        names = [
            name for (name,) in database.execute("select name from sqlite_master where type = 'table' order by name")
        ]
        filled = [name for name in names if database.execute(f'select count(*) from "{name}"').fetchone()[0]]
        table = choice.choice(filled)
        columns = [row[1] for row in database.execute(f'pragma table_info("{table}")')]
        column, value = choice.choice(columns), choice.choice(odd)
        try:
            database.execute(
                f'update "{table}" set "{column}" = ? where rowid = (select min(rowid) from "{table}")', (value,)
            )
        except sqlite3.Error:  # a constraint of the table: it is dropped instead
            database.execute(f'delete from "{table}"')
    database.close()
