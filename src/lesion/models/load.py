"""Load: a hub id, a local folder or a bundled checkpoint becomes a model ready for study."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import AutoConfig, PretrainedConfig, PreTrainedTokenizerBase
from transformers.utils import cached_file
from transformers.utils import logging as transformers_logging

from lesion.arguments import validated
from lesion.brief import described
from lesion.errors import LesionError, UsageError, nearest
from lesion.markup import facts
from lesion.models.anatomy import Anatomy, dissect
from lesion.models.device import device_of
from lesion.models.facts import facts_of
from lesion.models.fingerprint import fingerprint
from lesion.models.plausible import refuse_foreign_tokenizer, refuse_implausible
from lesion.models.soundness import NotFinite, complaint, not_finite
from lesion.models.source import ADAPTER, Source, explained, find, refuse_adapter, refuse_unsuited
from lesion.models.stored import INDEX, files, listing, refuse_packed
from lesion.models.tokenizer import read_tokenizer

if TYPE_CHECKING:  # their libraries take seconds to load
    import pandas as pd
    from transformers import PreTrainedModel

DTYPES = {
    **dict.fromkeys(("float32", "fp32"), torch.float32),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
    **dict.fromkeys(("float16", "fp16"), torch.float16),
}


# Engines stand above models: what a model says is computed there, by name, so that nothing here imports it.
_PLAYING = "lesion.playing"
MOST_MATRICES = 12
"""Of a block, that a notebook names."""


@dataclass(frozen=True)
class Origin:
    """The arguments with which `load` loads the same model again; `dtype` is that of the weights as loaded."""

    source: str
    revision: str | None
    dtype: str
    trust_remote_code: bool = False


@dataclass(frozen=True, eq=False)
class Model:
    """A language model on the table.

    Attributes:
        network: the Hugging Face model, in eval mode, without gradients.
        tokenizer: as it came (no token is added).
        anatomy: its blocks and matrices.
        name: as the person typed it.
        fingerprint: 16 hexadecimal digits that tell one set of weights from another.
        origin: where it was loaded from; None of a model made in memory.
        not_finite: its tensors with NaN or infinite values, as they were when the fingerprint was taken.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    name: str
    fingerprint: str
    origin: Origin | None = None
    not_finite: tuple[NotFinite, ...] = ()

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.network.parameters())
        counts = f"{len(self.anatomy.blocks)} blocks", f"{in_short(size)} parameters"
        where = f"{str(self.dtype).removeprefix('torch.')} on {self.device}"
        return described(self, repr(self.name), self.anatomy.family, *counts, where)

    def generate(
        self,
        prompt: str,
        edit: Any = None,
        *,
        max_new_tokens: int = 64,
        prompt_style: str | None = None,
        stop: str | tuple[str, ...] = (),
    ) -> str:
        """What the model says to a prompt, greedily; with an edit, under it.

        Args:
            prompt: the text.
            edit: in any form that `lesion.applied` takes: `"3×0"`, a value, an `.edit` file, several of these, which
                are composed.
            max_new_tokens: of the answer at most; it ends at the end of the context, too.
            prompt_style: by default the model's chat template; `raw`, the prompt as it stands, where it has none.
            stop: strings that end the answer.

        Example:
            >>> model.generate("What is 2 + 2?", "3×0")

        Raises:
            UsageError: it is no edit, or names a place that the model does not have; there is no such prompt style.
            LesionError: the prompt does not fit the context, or the edit was made for another model.
        """
        options = {"max_new_tokens": max_new_tokens, "prompt_style": prompt_style, "stop": stop}
        answer: str = import_module(_PLAYING).generate(self, prompt, edit, **options)
        return answer

    def compare(
        self,
        prompt: str,
        edits: Any,
        *,
        max_new_tokens: int = 64,
        prompt_style: str | None = None,
        stop: str | tuple[str, ...] = (),
    ) -> pd.DataFrame:
        """What the model says to a prompt, as it is and under each of several edits.

        Args:
            prompt: the text.
            edits: several, or one, each as for `generate`.
            max_new_tokens, prompt_style, stop: as for `generate`.

        Returns:
            A row per edit with the columns edit and answer, `baseline` first.

        Raises:
            UsageError: as `generate`, or there is no edit.
            LesionError: as `generate`.
        """
        options = {"max_new_tokens": max_new_tokens, "prompt_style": prompt_style, "stop": stop}
        frame: pd.DataFrame = import_module(_PLAYING).compare(self, prompt, edits, **options)
        return frame

    def _repr_html_(self) -> str:
        notes = (self.complaint(), *self.anatomy.notes)
        shapes = [f"{name} {' × '.join(map(str, m.shape))}" for name, m in self.anatomy.blocks[0].matrices.items()]
        first = _some(shapes, MOST_MATRICES)
        rows = (*facts_of(self), ("matrices of block 0 (out × in)", first), *(("note", note) for note in notes if note))
        return facts(self.name, rows)

    def complaint(self, name: str | None = None) -> str:
        """What is wrong with its weights, as a sentence; empty where all are finite."""
        return complaint(self.not_finite, name or self.name)

    @property
    def device(self) -> torch.device:
        """Where token ids must be put: the device of the input embedding."""
        device: torch.device = self.network.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        dtype: torch.dtype = self.network.get_input_embeddings().weight.dtype
        return dtype

    @property
    def context(self) -> int:
        """How many positions a prompt and its answer may take together; the last token of an answer takes none.

        By the configuration; where it sets no limit, by the tokenizer. A model with two rotary embeddings (longrope:
        Phi-3 and later) has the positions of the first: beyond them all keys of the batch would be others.
        """
        config = self.network.config.get_text_config()
        stated = getattr(config, "max_position_embeddings", None)
        context = int(stated or self.tokenizer.model_max_length)
        rotary = getattr(config, "rope_parameters", None) or {}
        if rotary.get("rope_type") != "longrope":
            return context
        first = rotary.get("original_max_position_embeddings")
        first = first or getattr(config, "original_max_position_embeddings", None) or context
        return min(context, int(first))

    @property
    def has_chat_template(self) -> bool:
        """Whether the tokenizer knows how to write a conversation."""
        return self.tokenizer.chat_template is not None


def in_short(count: int) -> str:
    """A number of parameters in short: `1.7 M`."""
    power, letter = next(((power, letter) for power, letter in _POWERS if count >= power), (1, ""))
    return f"{count / power:.1f} {letter}" if letter else f"{count:,}"


_POWERS = ((10**9, "B"), (10**6, "M"), (10**3, "k"))


@validated
def wrap(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> Model:
    """A model from objects already in memory. The network is put into eval mode, its gradients off.

    Raises:
        LesionError: the network is not a decoder whose weights can be edited (see `dissect`), or parts of it
            are not in memory.
    """
    network.eval().requires_grad_(False)
    absent = [key for key, tensor in network.named_parameters() if tensor.is_meta]
    if absent:
        raise LesionError(
            f"{name} does not fit: {len(absent)} of its parameters ({_some(sorted(absent))}) would be swapped in "
            "from main memory or disk, where no edit reaches them. Use a smaller dtype (bfloat16) or more "
            "devices."
        )
    return Model(network, tokenizer, dissect(network, name), name, fingerprint(network), not_finite=not_finite(network))


def refuse_not_finite(model: Model, name: str) -> None:
    """Refuse a model, called `name` in the study, with NaN or infinite weights.

    Raises:
        LesionError: naming the tensors, and what to do.
    """
    if model.not_finite:
        raise LesionError(
            f"{model.complaint(name)} What it says means nothing: get the checkpoint again, or load it in a dtype in "
            f"which its weights are finite."
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' bars and remarks."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _some(names: Sequence[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _dtype(dtype: str | torch.dtype, on_cpu: bool) -> torch.dtype | str:
    if isinstance(dtype, torch.dtype):
        if dtype not in DTYPES.values():
            raise UsageError(f"A model cannot be studied in {dtype}; use float32, bfloat16 or float16.")
        return dtype
    if dtype == "auto":
        # Half precision saves memory on an accelerator; on a CPU it is slower and less exact.
        return torch.float32 if on_cpu else "auto"
    if dtype not in DTYPES:
        raise UsageError(
            f"There is no dtype '{dtype}'{nearest(dtype, DTYPES)}; use auto, float32, bfloat16 or float16."
        )
    return DTYPES[dtype]


def _refuse_misfits(loading_info: Mapping[str, Collection[Any]], typed: str) -> None:
    """Refuse weights that do not fit the configuration, naming some."""
    shapes = [
        f"{key}: {tuple(have)} instead of {tuple(want)}" for key, have, want in loading_info.get("mismatched_keys", ())
    ]
    misfits = {
        "missing": loading_info.get("missing_keys"),
        "that the configuration has no place for": loading_info.get("unexpected_keys"),
        "of another shape": shapes,
    }
    clauses = [f"{len(names)} {what} ({_some(sorted(names))})" for what, names in misfits.items() if names]
    if clauses:
        raise LesionError(
            f"The weights of {typed} do not fit its config.json: {'; '.join(clauses)}. One of the two "
            "belongs to another model, or the download or the save is incomplete."
        )


def _read(part: str, loader: Any, source: Source, typed: str, trust_remote_code: bool, **settings: Any) -> Any:
    try:
        return loader(source.place, revision=source.revision, trust_remote_code=trust_remote_code, **settings)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise LesionError(
            f"{typed} does not fit into memory: use a smaller dtype, a larger device, or a device_map over "
            "several of them."
        ) from error
    except Exception as error:  # what transformers raises here has no common base; the reason is kept and said
        if "trust_remote_code" in str(error):
            raise LesionError(
                f"{typed} comes with code of its own, which runs only when you trust it: look at the code, "
                "then say trust_remote_code (--trust-remote-code)."
            ) from error
        raise explained(error, source, typed, part) from error


def _looked_at(place: Source, typed: str) -> Path | None:
    """Refuse weights that transformers would read in another way than as safetensors; the folder, where it is local."""
    if place.local:
        files(Path(place.place), typed)
        return Path(place.place)
    for name in (INDEX, ADAPTER):
        try:
            path = cached_file(place.place, name, revision=place.revision)
        except OSError:  # it is not there, or nothing is: reported when the weights are read
            continue
        if path is not None and name == INDEX:
            listing(Path(path))
        elif path is not None:
            refuse_adapter(Path(path).parent, typed)
    return None


@validated
def peek(source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False) -> int | None:
    """The number of blocks in a model's config, None where it has none; raises as `configuration`."""
    config = configuration(source, revision=revision, trust_remote_code=trust_remote_code)
    blocks = getattr(config.get_text_config(decoder=True), "num_hidden_layers", None)
    return blocks if isinstance(blocks, int) else None


@validated
def configuration(
    source: str | Path, *, revision: str | None = None, trust_remote_code: bool = False
) -> PretrainedConfig:
    """The config of a decoder; its weights are not read. Raises as `load`, as far as the config tells."""
    place = find(str(source), revision)
    with quiet():
        config: PretrainedConfig = _read(
            "configuration", AutoConfig.from_pretrained, place, str(source), trust_remote_code
        )
        refuse_unsuited(config, str(source))
    return config


@validated
def load(
    source: str | Path,
    *,
    revision: str | None = None,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    device_map: str | dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Model:
    """Load a decoder and its tokenizer, and take it apart.

    Args:
        source: `bundled:NAME`, a local folder, or a hub id (`OWNER/NAME`); behind the latter two also `@REVISION`.
        revision: branch, tag or commit of a hub id; of a folder, the name of one of its checkpoints over training
            (`lesion.models.source.revisions`).
        dtype: `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's own on an accelerator, float32 on
            a CPU.
        device: `cpu`, `cuda`, `cuda:1`, …, or `auto`: a GPU if there is one.
        device_map: spread over devices as accelerate does it (`auto`, `balanced`, or a mapping), in place of
            `device`.
        trust_remote_code: run the code that came with the checkpoint. Off unless you have read it.

    Raises:
        UsageError: the folder, its revision, the bundled model, the dtype or the device does not exist.
        LesionError: no network, an unknown hub id, no config, tokenizer or safetensors weights, weights that
            do not fit the config, a quantised storage, a model that is not a decoder, or one that does not
            fit into memory.
    """
    typed = str(source)
    place = find(typed, revision)
    if device_map is not None and str(device) != "auto":
        raise UsageError("Give either a device or a device_map, not both.")
    target = device_of(device)
    on_cpu = target.type == "cpu" if device_map is None else not torch.cuda.is_available()
    settings: dict[str, Any] = {"dtype": _dtype(dtype, on_cpu)}
    if device_map is not None:
        settings["device_map"] = device_map
    elif not on_cpu:
        settings["device_map"] = {"": target}  # straight to the device, without a copy in main memory
    with quiet():
        config = _read("configuration", AutoConfig.from_pretrained, place, typed, trust_remote_code)
        refuse_unsuited(config, typed)
        folder = _looked_at(place, typed)
        if folder is not None:
            refuse_implausible(config, folder, typed)
        tokenizer = _read("tokenizer", read_tokenizer, place, typed, trust_remote_code)
        network, loading_info = _read(
            "weights",
            transformers.AutoModelForCausalLM.from_pretrained,
            place,
            typed,
            trust_remote_code,
            config=config,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that all of them are named, not the first
            **settings,
        )
        _refuse_misfits(loading_info, typed)
        parameters = {key for key, _ in network.named_parameters(remove_duplicate=False)}
        if folder is None:  # by now the hub's files are in the cache
            folder = Path(str(cached_file(place.place, "config.json", revision=place.revision))).parent
        refuse_packed(folder, typed, parameters)
        refuse_foreign_tokenizer(tokenizer, network, typed)
        model = wrap(network, tokenizer, typed)
        stored = str(model.dtype).removeprefix("torch.")
        return replace(model, origin=Origin(typed, revision, stored, trust_remote_code))
