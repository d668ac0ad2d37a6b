"""Devices: from what a person typed to a device that is there."""

from __future__ import annotations

import torch

from lesion.errors import UsageError


def device_of(device: str | torch.device) -> torch.device:
    """The device that is meant; `auto` is a GPU where there is one."""
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
