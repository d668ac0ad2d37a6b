"""Received things: models, chat templates, output folders and links, each damaged or made to do harm."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaign_cases import Case, written
from campaign_places import Places, commands, shuffled_bytes, shuffled_json, shuffled_store


def copied(folder: Path, to: str = "r", then: Callable[[Path], Any] | None = None) -> Callable[[Path], None]:
    """A copy of a folder in the case's own, changed."""

    def prepare(inside: Path) -> None:
        shutil.copytree(folder, inside / to)
        if then is not None:
            then(inside / to)

    return prepare


def _json_changed(name: str, seed: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(shuffled_json(path.read_text(encoding="utf-8"), seed), encoding="utf-8")

    return change


def received(places: Places) -> list[Case]:
    """Everything that somebody else sent: models, templates, output folders, edits and links."""
    return [
        *_models(places),
        *_templates(places),
        *_folders(places),
        *_pairs(places),
        *_links(places),
    ]


def _settings(**settings: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return change


def _models(places: Places) -> Iterator[Case]:
    """Folders of models with damaged configurations, indexes, weights and tokenizers."""
    show, apply = ("show", "r"), ("apply", "r", "--edit", str(places.edits[0]), "--out", "o")
    for seed in range(14):
        yield Case(
            f"config {seed}", show, None, copied(places.model, then=_json_changed("config.json", seed)), "either"
        )
    for seed in range(4):
        yield Case(
            f"tokenizer_config {seed}",
            show,
            None,
            copied(places.model, then=_json_changed("tokenizer_config.json", seed)),
            "either",
        )
        yield Case(
            f"tokenizer {seed}", show, None, copied(places.model, then=_json_changed("tokenizer.json", seed)), "either"
        )
    for seed in range(10):
        change = _json_changed("model.safetensors.index.json", seed)
        yield Case(f"index {seed}", (show, apply)[seed % 2], None, copied(places.sharded, then=change), "either")
    for seed in range(10):
        yield Case(
            f"weights {seed}", (show, apply)[seed % 2], None, copied(places.model, then=_weights(seed)), "either"
        )
    for settings in (
        {"num_hidden_layers": 1000000},
        {"architectures": 5},
        {"architectures": ["\x1b[31m"]},
        {"vocab_size": 10**15},
        {"hidden_size": -1},
        {"hidden_size": 0},
        {"model_type": "nosuch"},
        {"model_type": "\x1b[31m"},
        {"model_type": 5},
        {"num_attention_heads": 0},
        {"auto_map": {"AutoConfig": "x.Y"}},
        {"torch_dtype": "nosuch"},
        {"rope_scaling": {"type": "\x1b[31m"}},
        {"quantization_config": {"quant_method": "\x1b[31m"}},
        {"max_position_embeddings": -1},
        {"num_hidden_layers": 0},
    ):
        yield Case(f"config {settings}"[:60], show, None, copied(places.model, then=_settings(**settings)), "either")
    special: dict[str, Callable[[Path], Any]] = {
        "config deep": lambda folder: (folder / "config.json").write_text("[" * 50000),
        "config list": lambda folder: (folder / "config.json").write_text("[1]"),
        "config big": lambda folder: (folder / "config.json").write_text('{"a": %s}' % ("9" * 5000)),
        "config pipe": lambda folder: os.mkfifo(_gone(folder / "config.json")),
        "config folder": lambda folder: _gone(folder / "config.json").mkdir(),
        "weights link": lambda folder: _gone(folder / "model.safetensors").symlink_to("../../victim"),
        "adapter": lambda folder: (folder / "adapter_config.json").write_text(
            '{"peft_type": "LORA", "base_model_name_or_path": "x"}'
        ),
        "weights absent": lambda folder: _gone(folder / "model.safetensors"),
        "tokenizer absent": lambda folder: [_gone(path) for path in folder.glob("tokenizer*")],
        "tokenizer deep": lambda folder: (folder / "tokenizer.json").write_text("[" * 50000),
    }
    for label, change in special.items():
        for line in (show, apply):
            # What `apply` writes beside the weights is copied as it is.
            beside = line is apply and label.startswith("tokenizer")
            yield Case(
                f"{line[0]} {label}", line, None, copied(places.model, then=change), "either" if beside else "refused"
            )
    sharded: dict[str, Callable[[Path], Any]] = {
        "bin": lambda folder: _index(folder, lambda names: dict.fromkeys(names, "x.bin")),
        "outside": lambda folder: _index(folder, lambda names: dict.fromkeys(names, "../../victim")),
        "absent": lambda folder: _index(folder, lambda names: dict.fromkeys(names, "no.safetensors")),
        "control": lambda folder: _index(folder, lambda names: dict.fromkeys(names, "\x1b[31m.safetensors")),
        "number": lambda folder: _index(folder, lambda names: dict.fromkeys(names, 5)),
        "empty": lambda folder: _index(folder, lambda names: {}),
        "deep": lambda folder: (folder / "model.safetensors.index.json").write_text("[" * 50000),
        "linked": _linked_shard,
    }
    for label, change in sharded.items():
        for line in (show, apply):
            yield Case(f"{line[0]} index {label}", line, None, copied(places.sharded, then=change))


def _gone(path: Path) -> Path:
    """The path, free for something else."""
    path.unlink()
    return path


def _index(folder: Path, change: Callable[[dict[str, str]], dict[str, Any]]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps(index | {"weight_map": change(index["weight_map"])}))
    (folder / "x.bin").write_bytes(b"\x80\x04.")


def _linked_shard(folder: Path) -> None:
    shard = sorted(folder.glob("*.safetensors"))[0]
    shard.rename(folder.parent / "elsewhere.safetensors")
    shard.symlink_to(folder.parent / "elsewhere.safetensors")


def _weights(seed: int) -> Callable[[Path], None]:
    """Bytes of the header changed; or a tensor of NaN, of whole numbers, of another shape, of 8 bits."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        data = path.read_bytes()
        if seed < 6:
            path.write_bytes(shuffled_bytes(data[:2000], seed) + data[2000:])
            return
        import torch
        from safetensors.torch import load_file, save_file

        tensors = load_file(path)
        name = "model.layers.0.mlp.up_proj.weight"
        tensors[name] = {
            6: torch.full_like(tensors[name], float("nan")), 7: tensors[name].to(torch.int8),
            8: tensors[name][:3], 9: tensors[name].to(torch.float8_e4m3fn),
        }[seed]  # fmt: skip
        save_file(tensors, path, {"format": "pt"})

    return change


def _templates(places: Places) -> Iterator[Case]:
    """Chat templates that break, raise, run on, or write what acts on a terminal; and a tokenizer of another model."""
    line = [("r" if part == str(places.model) else part) for part in commands(places, "o")["layers"]]
    templates = {
        "broken": "{% if %}",
        "raises": "{{ raise_exception('\x1b[31mno system') }}",
        "class": "{{ ''.__class__.__mro__ }}",
        "huge": "{{ 'a'*200000000 }}",
        "endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}",
        "recursive": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "undefined": "{{ nosuch.a.b }}",
        "filter": "{{ 1|nosuch }}",
        "number": "{{ 9**9**9 }}",
        "empty": "{{ '' }}",
        "deep": "{{ " + "(" * 3000 + ")" * 3000 + " }}",
        "null": "{{ '\\x00' }}",
    }
    for label, template in templates.items():

        def change(folder: Path, template: str = template) -> None:
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": template}))
            (folder / "chat_template.jinja").write_text(template)

        yield Case(
            f"template {label}",
            (*line, "--prompt-style", "chat"),
            None,
            copied(places.model, then=change),
            "either" if label in ("empty", "null") else "refused",
        )

    def other(folder: Path) -> None:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        vocabulary = tokenizer["model"]["vocab"]
        tokenizer["model"]["vocab"] = {token: number + 5000 * (number > 4) for token, number in vocabulary.items()}
        path.write_text(json.dumps(tokenizer))

    for kind in ("layers", "isolation", "evaluation", "truncation", "drift"):
        used = [("r" if part == str(places.model) else part) for part in commands(places, "o")[kind]]
        yield Case(f"tokenizer of another model: {kind}", tuple(used), None, copied(places.model, then=other))


def _folders(places: Places) -> Iterator[Case]:
    """Folders of every kind of study, with a file damaged by value or by byte, and the store by cells."""
    others = str(places.studies["truncation"])
    for kind, folder in places.studies.items():
        yield Case(f"good: report {kind}", ("report", "r"), prepare=copied(folder), expect="accepted")
        files = sorted(path.relative_to(folder) for path in folder.rglob("*.json") if path.name != "lesion.json")
        for number in range(5):
            name = str(files[number % len(files)])
            yield Case(
                f"received {kind} {name} {number}",
                ("report", "r"),
                None,
                copied(folder, then=_json_changed(name, number)),
                "either",
            )
        for number in range(1):
            name = str(files[number % len(files)])

            def cut(copy: Path, name: str = name, seed: int = number) -> None:
                (copy / name).write_bytes(shuffled_bytes((copy / name).read_bytes(), seed + 50))

            yield Case(f"received {kind} bytes of {name}", ("report", "r"), None, copied(folder, then=cut), "either")
        if (folder / "answers.sqlite").exists():
            for number in range(4):
                yield Case(
                    f"received {kind} store {number}",
                    ("report", "r"),
                    None,
                    copied(folder, then=_store(number)),
                    "either",
                )
        if kind in ("layers", "isolation", "truncation", "evaluation", "drift"):
            for number in range(2):
                name = str(files[number % len(files)])
                yield Case(
                    f"overlay of {kind} {number}",
                    ("overlay", "r", others if kind != "truncation" else str(places.studies["layers"]), "--out", "o"),
                    None,
                    copied(folder, then=_json_changed(name, number + 20)),
                    "either",
                )
    data = places.edits[0].read_bytes()
    for seed in range(10):
        yield Case(
            f"edit bytes {seed}",
            ("edit", "show", "e.edit"),
            None,
            written("e.edit", shuffled_bytes(data, seed)),
            "either",
        )


def _store(seed: int) -> Callable[[Path], None]:
    return lambda folder: shuffled_store(folder / "answers.sqlite", seed)


def _pairs(places: Places) -> Iterator[Case]:
    """Each kind of study into the folder of each other."""
    for into, folder in places.studies.items():
        for kind, line in commands(places, "r").items():
            if kind != into and {kind, into} != {"isolation", "evaluation"}:
                yield Case(f"{kind} into {into}", tuple(line), None, copied(folder), kept="r")


def _links(places: Places) -> Iterator[Case]:
    """Links in an output folder that lead to somebody's file, and what else a received archive can hold there."""
    for kind, line in commands(places, "o").items():
        for name in ("lock", "summary.json", "report.html", "answers.sqlite", "figures", "cells")[
            : 3 if kind != "layers" else 6
        ]:

            def link(inside: Path, name: str = name) -> None:
                (inside / "o").mkdir()
                (inside / "o" / name).symlink_to("../../victim" if "." in name or name == "lock" else "../..")

            yield Case(f"link {name}: {kind}", tuple(line), None, link, "either")
    for name in ("lock", "answers.sqlite", "report.html"):

        def pipe(inside: Path, name: str = name) -> None:
            (inside / "o").mkdir()
            os.mkfifo(inside / "o" / name)

        yield Case(f"pipe {name}", tuple(commands(places, "o")["layers"]), None, pipe)
