"""Tokenizer files: when what decides a model's prompts last changed on the disk."""

from __future__ import annotations

from pathlib import Path

from lesion.models.gguf_checkpoint import fetched
from lesion.models.source import BUNDLED, find

_READ = (".json", ".jinja", ".model", ".txt", ".tiktoken")


def latest_change(source: str, revision: str | None = None) -> float | None:
    """The time, in seconds since 1970, of the latest change to a file that tokenizer or chat template are read from.

    A file that was put in the place of another counts as changed then, however old its content is. Models that come
    with lesion do not change.

    Args:
        source: as for `load`.
        revision: likewise.

    Returns:
        None where no such file is to be found here.
    """
    if source.startswith(BUNDLED):
        return 0.0
    place = find(source, revision)
    if place.file is not None:
        files = [fetched(place)]
    elif place.local:
        files = [file for file in Path(place.place).rglob("*") if file.suffix in _READ]
    else:
        from transformers.utils import cached_file

        config = cached_file(place.place, "config.json", revision=place.revision)
        files = [file for file in Path(str(config)).parent.iterdir() if file.suffix in _READ]
    changes = [max(status.st_mtime, status.st_ctime) for status in map(Path.stat, files)]
    return max(changes, default=None)
