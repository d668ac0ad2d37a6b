"""Source: what a person typed for a model becomes a folder or a hub id, or a refusal that says what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from lesion.errors import LesionError, UsageError, nearest
from lesion.files import named, read_object, reason
from lesion.models.gguf import PART, SUFFIX, is_gguf
from lesion.models.quantised import quantisation, refuse_unknown
from lesion.plain import natural, some

BUNDLED = "bundled:"
ADAPTER = "adapter_config.json"
CHECKPOINTS = "checkpoints"
"""The folder in which a training keeps its checkpoints, beside the folder `model` of what it ended in."""
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+)(?:@([^:@]+))?:([^:]+\.gguf)", re.IGNORECASE)
# The kinds of checkpoint that have weights, but no head that continues a text.
_NOT_CONTINUING = re.compile("MaskedLM|Classification|QuestionAnswering|MultipleChoice|PreTraining|NextSentence")
# What is raised somewhere below transformers where the hub cannot be reached.
UNREACHABLE = {
    *("LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectionError", "ConnectError", "Timeout"),
    *("ConnectTimeout", "ReadTimeout", "ProxyError", "MaxRetryError"),
}


@dataclass(frozen=True)
class Source:
    """Where a model lies: `place` is a folder (`local`), also for its revisions, or a hub id with its `revision`.

    `file` is the name of the GGUF file there that holds the model; None where it is an ordinary checkpoint.
    """

    place: str
    local: bool
    revision: str | None = None
    file: str | None = None


def bundled() -> dict[str, Path]:
    """The checkpoints that came with the package, by name."""
    root = Path(str(resources.files("lesion.models").joinpath("bundled")))
    if not root.is_dir():
        return {}
    return {folder.name: folder for folder in sorted(root.iterdir()) if (folder / "config.json").is_file()}


def revisions(folder: str | Path) -> dict[str, Path]:
    """The checkpoints over training that belong to a local folder, by name, step 2 before step 10.

    They are the models in `FOLDER/checkpoints`, in `checkpoints` beside it when it is called `model` (where
    `lesion lab lineage` keeps them), and right below it.
    """
    # Absolute, so that `.` has a name and a parent; not resolved: a link may lead to where no checkpoints lie.
    path = Path(os.path.abspath(named(folder, "model")))
    places = [path / CHECKPOINTS, *([path.parent / CHECKPOINTS] if path.name == "model" else []), path]
    checkpoints: dict[str, Path] = {}
    for place in places:
        for entry in place.iterdir() if place.is_dir() else ():
            if os.path.isfile(entry / "config.json"):  # False, not an error, where it may not be looked at
                checkpoints.setdefault(entry.name, entry)
    return dict(sorted(checkpoints.items(), key=lambda entry: natural(entry[0])))


def find(typed: str, revision: str | None = None) -> Source:
    """The place of `bundled:NAME`, a folder, a hub id or a GGUF file; folders and hub ids with or without `@REVISION`.

    A GGUF file is given by its path, by the folder that it lies in alone, or on the hub as `OWNER/NAME:FILE.gguf`.
    """
    identifier, at, tag = typed.partition("@")
    path = named(typed, "model")
    if path.is_dir():  # also one with an @ in its name
        return _folder(typed, typed, revision)
    hub = _HUB_FILE.fullmatch(typed)
    stated = tag if hub is None else hub[2]
    if stated and revision and stated != revision:
        raise UsageError(f"{typed} names the revision {stated}, but {revision} is asked for: give one of them.")
    if typed.startswith(BUNDLED):
        return _bundled(identifier, revision or tag or None)
    if is_gguf(path):
        if revision is not None:
            raise UsageError(f"{typed} is a file and has no revision {revision}; leave it out.")
        return Source(str(path.parent), True, file=path.name)
    if path.is_file():
        raise UsageError(
            f"{typed} is a file, and no GGUF file; a model is a folder. Give {path.parent} if the model lies there."
        )
    if hub is not None:
        return Source(hub[1], False, revision or stated, hub[3])
    if path.suffix.lower() == SUFFIX:
        raise UsageError(f"There is no file {typed}. A GGUF file on the Hugging Face hub is OWNER/NAME:FILE.gguf.")
    if tag and named(identifier, "model").is_dir():
        return _folder(identifier, identifier, tag)
    looks_like_path = typed.startswith((".", "~", os.sep)) or typed.count("/") > 1 or typed.endswith("/")
    if looks_like_path or not _HUB_ID.fullmatch(identifier) or (at and not tag):
        raise UsageError(
            f"There is no folder {typed}. Give a folder with config.json and safetensors weights, the id of "
            "a model on the Hugging Face hub (OWNER/NAME), or bundled:NAME."
        )
    return Source(identifier, False, revision or tag or None)


def _bundled(typed: str, revision: str | None) -> Source:
    name, known = typed.removeprefix(BUNDLED), bundled()
    if name not in known:
        have = ", ".join(BUNDLED + key for key in known) or "none in this installation"
        raise UsageError(f"There is no bundled model '{name}'{nearest(name, known)}. There are: {have}.")
    if revision is not None:
        raise UsageError(
            f"{typed} comes without checkpoints of its training, and so has no revision {revision}. Train one again: "
            f"`lesion lab lineage --out DIR` keeps them; then give DIR/base/model and one of the revisions in "
            f"DIR/base/{CHECKPOINTS}."
        )
    return _folder(str(known[name]), typed, None)


def _folder(folder: str, typed: str, revision: str | None) -> Source:
    """A folder that holds a configuration, or the one of its checkpoints that a revision names."""
    path = named(folder, "model")
    if revision is not None:
        path, typed = _checkpoint(path, typed, revision), f"{typed}@{revision}"
    if not (path / "config.json").is_file():
        if (path / ADAPTER).is_file():
            raise LesionError(
                f"{typed} holds an adapter ({ADAPTER}), not a model: merge it into its base model, "
                "save that, and give the folder of the merged model."
            )
        if (file := _gguf(path, typed)) is not None:
            return Source(str(path), True, file=file)
        inside = sorted(entry.name for entry in path.iterdir() if (entry / "config.json").is_file())
        hint = f" There is one in {', '.join(inside[:3])} below it." if inside else ""
        raise LesionError(f"The folder {typed} has no config.json, so it is not a model.{hint}")
    read_object(path / "config.json")
    refuse_adapter(path, typed)
    weighted = any(path.glob("*.safetensors")) or (path / "model.safetensors.index.json").exists()
    return Source(str(path), True, file=None if weighted else _gguf(path, typed))


def _gguf(folder: Path, typed: str) -> str | None:
    """The name of the GGUF file in a folder, None where there is none.

    Of the parts of one model, the first: reading it says that they have to be joined.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() == SUFFIX and entry.is_file())
    if len(names) > 1 and len({PART.sub("", name) for name in names}) > 1:
        raise UsageError(f"The folder {typed} holds {len(names)} GGUF files: give one of them, as {folder / names[0]}.")
    return names[0] if names else None


def _checkpoint(folder: Path, typed: str, revision: str) -> Path:
    known = revisions(folder)
    if revision in known:
        return known[revision]
    if not known:
        raise UsageError(
            f"{typed} is a folder and has no revisions: those of a folder are the models in {CHECKPOINTS}/REVISION "
            f"below it. Leave out the revision {revision}, or give a folder with checkpoints."
        )
    raise UsageError(
        f"{typed} has no revision '{revision}'{nearest(revision, known)}. There are: {some([*known], 12)}."
    )


def refuse_adapter(folder: Path, typed: str) -> None:
    """Refuse a model beside which an adapter lies: transformers would put it into the weights without a word."""
    if os.path.lexists(folder / ADAPTER):
        raise LesionError(
            f"{typed} holds a model and beside it an adapter ({ADAPTER}), which would change its weights when it is "
            f"loaded. Merge the adapter into the model, save that and give its folder; or move {ADAPTER} away to study "
            f"the model without it."
        )


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it came of."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def explained(error: BaseException, source: Source, typed: str, part: str) -> LesionError:
    """The message when reading a part (`configuration`, `weights`, `tokenizer`) of the model `typed` failed."""
    kinds = {type(cause).__name__ for cause in causes(error)}
    first = reason(error)
    if source.local:
        if part == "tokenizer":
            # Where no file of it is there, transformers' own words only list the ways it tried.
            names = ("tokenizer.json", "tokenizer.model", "vocab.json")
            fault = f" What was found wrong: {first}." if any(Path(source.place, n).exists() for n in names) else ""
            return LesionError(
                f"The folder {typed} has no tokenizer that can be read (tokenizer.json, tokenizer_config.json). Save"
                f" the model's tokenizer into it.{fault}"
            )
        if "above report" in first:  # which is not shown
            return LesionError(
                f"The {part} in the folder {typed} cannot be brought into the form that this version of transformers "
                "gives them: some tensors are missing or of another shape, or it takes a newer version (`pip install "
                "--upgrade transformers`)."
            )
        return LesionError(
            f"The {part} in the folder {typed} cannot be read: {first}. Save or download the model again."
        )
    if "GatedRepoError" in kinds:
        return LesionError(
            f"{typed} is a gated model: ask for access at https://huggingface.co/{source.place} and log in "
            "with `hf auth login`."
        )
    if "RevisionNotFoundError" in kinds:
        return LesionError(f"{source.place} has no revision {source.revision} on the Hugging Face hub.")
    if "RepositoryNotFoundError" in kinds:
        return LesionError(
            f"There is no model {typed} on the Hugging Face hub (or it is private and you are not logged "
            "in), and no folder of that name here. Check the spelling: OWNER/NAME."
        )
    if kinds & UNREACHABLE:
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
        why = "HF_HUB_OFFLINE is set" if offline else "the Hugging Face hub cannot be reached"
        return LesionError(
            f"There is no folder {typed} here and no {part} of it in the local cache, and {why}. Check the "
            "spelling and the network, or give a folder with a downloaded model, or bundled:NAME."
        )
    return LesionError(f"The {part} of {typed} cannot be read from the Hugging Face hub: {first}.")


def refuse_unsuited(config: object, typed: str) -> None:
    """Refuse configurations of models that cannot be studied: of an unreadable storage, or no decoder that continues
    text.
    """
    storage = quantisation(config)
    if storage is not None:
        refuse_unknown(storage, typed)
    if getattr(config, "transformers_weights", None) is not None:
        raise LesionError(
            f"The config.json of {typed} names a file of weights (transformers_weights); lesion reads "
            "model.safetensors or the shards of its index. Remove that entry, or save the model again."
        )
    architectures = getattr(config, "architectures", None) or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise LesionError(
            f"{typed}: architectures in config.json is no list of names; save or download the model again."
        )
    kind = ", ".join(architectures) or str(getattr(config, "model_type", "model"))
    if getattr(config, "is_encoder_decoder", False):
        raise LesionError(
            f"{typed} is an encoder-decoder ({kind}); lesion studies decoders, which continue a text alone."
        )
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    encoder = getattr(config, "model_type", "") in MASKED and not getattr(config, "is_decoder", False)
    if encoder or (architectures and all(map(_NOT_CONTINUING.search, architectures))):
        raise LesionError(
            f"{typed} is a {kind}, which does not continue text; lesion studies decoders (causal language models)."
        )
