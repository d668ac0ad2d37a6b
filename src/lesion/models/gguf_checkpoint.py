"""GGUF checkpoint: a GGUF file converted once into an ordinary folder in the cache, from which it is loaded ever after.

Its weights become float32. Half precision would round them: a weight in Q4_1 is a half-precision scale times four bits,
plus a half-precision minimum. Tokenizer and chat template are those that transformers makes of the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tempfile
from contextlib import redirect_stderr
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lesion.atomic import alive
from lesion.errors import LesionError
from lesion.files import cache_folder, reason
from lesion.models.gguf import Header, read_header
from lesion.models.gguf_settings import complete, refuse_unread
from lesion.models.source import Source, explained, refuse_unsuited

NOTE = "gguf.json"
"""In a converted folder: what was stored how."""
FORM = 2
"""Of the conversion; another one converts anew."""
_SAMPLES, _SAMPLE = 256, 1 << 16  # of the bytes of a file, in its key


def as_folder(source: Source) -> Source:
    """The source itself, or where it is a GGUF file the folder of its conversion, made now if it is not there yet."""
    if source.file is None:
        return source
    header = read_header(fetched(source))
    folder = _place(header)
    if not (folder / NOTE).is_file():
        _convert(header, folder)
    return Source(str(folder), True)


def fetched(source: Source) -> Path:
    """The GGUF file of a source, from the hub's cache or the hub where it lies there."""
    assert source.file is not None
    if source.local:
        return Path(source.place) / source.file
    from transformers.utils import cached_file

    try:
        return Path(str(cached_file(source.place, source.file, revision=source.revision)))
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        raise explained(error, source, f"{source.place}:{source.file}", "file") from error


def pending(source: Source) -> str:
    """What a person should know before the file is loaded: that it is converted first. Empty where it is not."""
    if source.file is None:
        return ""
    header = read_header(fetched(source))
    if (_place(header) / NOTE).is_file():
        return ""
    return (
        f"{source.file} is converted once: {header.weights:,} weights to float32 ({4 * header.weights / 1e6:,.0f} MB), "
        f"in {cache_folder('gguf')}"
    )


def storage_of(folder: Path) -> str:
    """How the weights of a converted folder are stored in their GGUF file; empty of any other folder."""
    try:
        return str(json.loads((folder / NOTE).read_text("utf-8"))["storage"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _place(header: Header) -> Path:
    """The folder of a file's conversion, by the form of the conversion and the file's content.

    Its content is its size, its header and `_SAMPLES` pieces of its data: reading tens of gigabytes would take minutes.
    Since a change of single weights can lie between the pieces, the time of the last change counts too.
    """
    path = header.path.resolve()
    status = path.stat()
    digest = hashlib.sha256(f"{FORM} {status.st_size} {status.st_mtime_ns}".encode())
    digest.update(repr(sorted(header.metadata.items(), key=lambda entry: entry[0])).encode())
    digest.update(repr([tuple(asdict(tensor).values()) for tensor in header.tensors]).encode())
    step = max(_SAMPLE, status.st_size // _SAMPLES)
    with path.open("rb") as file:
        for start in range(0, status.st_size, step):
            file.seek(start)
            digest.update(file.read(_SAMPLE))
    return cache_folder("gguf") / digest.hexdigest()[:24]


def _convert(header: Header, folder: Path) -> None:
    """Write the folder beside its place and move it there, so that nobody ever loads half of it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _clear(folder.parent)
        free = shutil.disk_usage(folder.parent).free
        if free < 4 * header.weights:
            raise LesionError(
                f"{header.path} converted to float32 takes {4 * header.weights / 1e6:,.0f} MB, and {folder.parent} has "
                f"{free / 1e6:,.0f} MB left: make room there, or give another folder by the environment variable "
                "LESION_CACHE."
            )
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".partial-{os.getpid()}-"))
    except OSError as error:
        raise LesionError(
            f"{folder.parent}, where GGUF files are converted, cannot be written: {reason(error)}. Give another folder "
            "by the environment variable LESION_CACHE."
        ) from error
    try:
        _write(header, partial)
        (partial / NOTE).write_text(json.dumps({"storage": header.storage, "file": header.path.name}) + "\n", "utf-8")
        partial.rename(folder)
    except OSError as error:
        if not (folder / NOTE).is_file():  # else another process was first
            raise LesionError(f"{folder.parent} cannot be written: {reason(error)}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _clear(parent: Path) -> None:
    for leftover in parent.glob(".partial-*-*"):
        if not alive(leftover.name.split("-")[1]):
            shutil.rmtree(leftover, ignore_errors=True)


def _write(header: Header, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from lesion.models.quiet import quiet

    home, name = str(header.path.parent), header.path.name
    with quiet(), redirect_stderr(io.StringIO()):  # the bar over tensors knows no other way to be silent
        config = _read("configuration", AutoConfig.from_pretrained, home, header, gguf_file=name)
        refuse_unsuited(config, str(header.path))
        complete(config, header)
        tokenizer = _read("tokenizer", AutoTokenizer.from_pretrained, home, header, gguf_file=name)
        network, loading = _read(
            "weights",
            AutoModelForCausalLM.from_pretrained,
            home,
            header,
            gguf_file=name,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they are named
        )
        for key, have, want in loading.get("mismatched_keys") or ():
            raise LesionError(
                f"{header.path} holds {key} of {tuple(have)} weights, and by its header there are {tuple(want)}: it is "
                "damaged, or was converted wrongly. Get it again."
            )
        refuse_unread(network, header)
        missing = sorted(loading.get("missing_keys") or ())
        if missing:
            raise LesionError(
                f"{header.path} lacks weights of its architecture: {', '.join(missing[:3])}. Get it again."
            )
        _plain(network)
        network.save_pretrained(folder, max_shard_size="1TB")
        tokenizer.save_pretrained(folder)


def _plain(network: Any) -> None:
    """Make transformers forget that the weights were stored otherwise; they are float32 by now."""
    network.hf_quantizer = None
    network.is_quantized = False
    if hasattr(network.config, "quantization_config"):
        del network.config.quantization_config


def _read(part: str, loader: Any, home: str, header: Header, **settings: Any) -> Any:
    try:
        return loader(home, **settings)
    except MemoryError as error:
        raise LesionError(f"{header.path} does not fit into memory in float32.") from error
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        if "not supported yet" in str(error) and header.architecture in str(error):
            raise LesionError(
                f"{header.path} is of the architecture {header.architecture}, which transformers cannot read from GGUF "
                "files: give the model as a folder with safetensors weights."
            ) from error
        raise LesionError(f"The {part} in {header.path} cannot be read by transformers: {reason(error)}.") from error
