"""Names of devices and data types, refused without PyTorch where no machine has such a thing."""

from __future__ import annotations

import re

from lesion.errors import UsageError, nearest
from lesion.plain import short

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
