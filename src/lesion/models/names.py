"""Names of devices, data types and parts: refused without PyTorch where there is no such thing; the device meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lesion.errors import UsageError, nearest
from lesion.plain import short

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "fp32", "bfloat16", "bf16", "float16", "fp16")
# Kinds of devices that PyTorch knows; whether one is here, PyTorch says.
_DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu|hpu|mtia|xla|meta|privateuseone)(:[0-9]{1,4})?")


def refuse_device(device: str) -> None:
    """Refuse what is the name of no device anywhere."""
    if not _DEVICE.fullmatch(device):
        raise UsageError(f"There is no device '{short(device)}'; write auto, cpu, cuda or cuda:1.")


def refuse_dtype(dtype: str) -> None:
    """Refuse what is the name of no data type that models are studied in."""
    if dtype not in ("auto", *DTYPES):
        raise UsageError(
            f"There is no dtype '{short(dtype)}'{nearest(dtype, DTYPES)}; use auto, float32, bfloat16 or float16."
        )


def blocks_with(parts: str, blocks: Sequence[int]) -> str:
    """A sentence, after others, on which blocks have some parts that another one lacks; empty where none has."""
    return f" Blocks with {parts}: {', '.join(map(str, blocks))}." if blocks else ""


def device_of(device: str | int | torch.device) -> torch.device:
    """The device that is meant; `auto` is a GPU where there is one."""
    import torch  # names are refused without it

    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        # Read back: on `meta` a tensor can be made, but it holds nothing.
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        devices = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        if torch.backends.mps.is_available():
            devices.append("mps")
        raise UsageError(f"There is no device '{device}' here; there are: {', '.join(devices)}.") from error
    return torch.device(device)
