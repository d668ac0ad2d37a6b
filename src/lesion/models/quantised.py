"""Quantised storages: what a configuration says of one. Nothing large is loaded here."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

from lesion.errors import LesionError
from lesion.plain import short

_BITS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp8": 8, "mxfp4": 4, "nvfp4": 4, "metal": 4, "eetq": 8}
# Keys under which storages state the width of a number, at any depth.
_WIDTH_KEYS = ("bits", "w_bit", "nbits", "num_bits")
_NUMBERS = re.compile(r"u?(?:int|float)([1-8])(?![0-9])", re.IGNORECASE)
ORIGINAL = "use the checkpoint in float32, bfloat16 or float16 that it was made from"
FULL_PRECISION = (
    "give its full-precision checkpoint: as the model, or with --weights SOURCE to `lesion isolate` and `lesion apply`"
)

# transformers imports torchao wherever it is installed, for plain models too, and that warns of kernels for GPUs.
for _name in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_name).setLevel(logging.ERROR)


@dataclass(frozen=True)
class Quantisation:
    """A quantised storage.

    Attributes:
        method: as transformers names it.
        bits: the widths of its numbers, if stated.
        activations: whether the settings say that activations are rounded as well, in every pass.
    """

    method: str
    bits: tuple[int, ...] = ()
    activations: bool = False

    def __str__(self) -> str:
        return f"{self.method}, {' and '.join(map(str, self.bits))} bit" if self.bits else self.method


def quantisation(config: object) -> Quantisation | None:
    """The storage that the configuration of a network names; None of plain weights.

    Args:
        config: of transformers, or the object that a config.json holds.
    """
    settings = _settings(config)
    if settings is None:
        return None
    stated = settings.get("quant_method")
    method = str(getattr(stated, "value", stated) or "")
    widths = {width for width in (4, 8) if settings.get(f"load_in_{width}bit")}
    method = method or ("bitsandbytes" if widths else "unknown method")
    widths = widths or set(_widths(settings)) or ({_BITS[method]} if method in _BITS else set())
    rounds = (method == "bitsandbytes" and 8 in widths) or _rounds_activations(settings)
    return Quantisation(method, tuple(sorted(widths)), rounds)


def _rounds_activations(value: object, key: str = "") -> bool:
    """Whether settings name a scheme for activations, at any depth: as a table, or in the name of a type (torchao)."""
    if isinstance(value, Mapping):
        return (key == "input_activations" and bool(value)) or any(
            _rounds_activations(each, str(name)) for name, each in value.items()
        )
    if isinstance(value, list | tuple):
        return any(_rounds_activations(each) for each in value)
    return key in ("_type", "quant_type") and isinstance(value, str) and "Activation" in value


def _settings(config: object) -> Mapping[str, Any] | None:
    if isinstance(config, Mapping):
        given = config.get("quantization_config")
    else:
        given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    settings = given if isinstance(given, Mapping) else getattr(given, "to_dict", dict)()
    return settings if isinstance(settings, Mapping) else {}


def _widths(value: object, key: str = "") -> Iterator[int]:
    """Every width that settings state: as a number under a known key, or in a name such as `Int8WeightOnlyConfig`."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in ("input_activations", "output_activations", "kv_cache_scheme"):
                yield from _widths(each, str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _widths(each, key)
    elif key in _WIDTH_KEYS and type(value) is int:
        yield value
    elif key in ("weights", "_type", "_data", "quant_type") and isinstance(value, str):
        yield from (int(width) for width in _NUMBERS.findall(value)[-1:])


def refuse_unknown(storage: Quantisation, typed: str) -> None:
    """Refuse a storage that the installed transformers does not know."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KNOWN

    # Of bitsandbytes there are two, by the width of its numbers.
    if storage.method not in {str(name).removesuffix("_4bit").removesuffix("_8bit") for name in KNOWN}:
        raise LesionError(
            f"{short(typed, 200)} is stored quantised by '{short(storage.method)}', which the installed transformers "
            f"cannot load; {ORIGINAL}."
        )


@contextmanager
def hushed(storage: Quantisation) -> Iterator[None]:
    """Without the bars of the package of a storage; its remarks, some of every forward pass, stay away for good."""
    logging.getLogger(storage.method.replace("-", "_")).setLevel(logging.ERROR)
    with redirect_stderr(StringIO()):
        yield
