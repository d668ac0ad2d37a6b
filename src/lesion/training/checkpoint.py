"""A trained model as a folder that `lesion` loads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.errors import LesionError
from lesion.models.quiet import quiet


def write(
    folder: Path, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, notes: Mapping[str, str] | None = None
) -> None:
    """Write a network with its tokenizer and further texts by file name, whole or not at all, in place of one there."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    with writing(folder):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        with quiet():
            network.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
        for name, text in (notes or {}).items():
            (unfinished / name).write_text(text, encoding="utf-8")
        for file in unfinished.iterdir():
            if file.is_file():
                file.chmod(0o644)  # safetensors writes files that only their owner can read
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.replace(folder)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Say why a folder could not be written, and what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise LesionError(
            f"The model could not be written to {folder}: {error}. Free some space, or make the folder writable, and"
            " give the same command again: it goes on where it stopped."
        ) from error
