"""The largest counts that can be meant, for study files, command line and Python alike, checked before work begins.

They are far beyond what has been of use to anybody, and within what memory and time can hold.
"""

from __future__ import annotations

from typing import Any

from lesion.errors import UsageError

MOST: dict[str, int] = {
    "items": 10_000_000,
    "control_items": 10_000_000,
    "ablation_items": 10_000_000,
    "validation_items": 10_000_000,
    "samples": 10_000_000,
    "best": 1_000_000,
    "random": 1_000_000,
    "runs": 1_000,
    "repeats": 1_000,
    "starts": 1_000,
    "clusters": 100_000,
    "random_controls": 1_000,
    "max_new_tokens": 1_000_000,
    "stop_loops": 1_000_000,
    "thinking_tokens": 1_000_000,
    "batch_size": 100_000,
    "rows": 65_536,
    "adapter": 65_536,
    "steps": 100_000_000,
    "draws": 10_000,
    "width": 8_192,
    "vocabulary": 8_192,
    "length": 65_536,
    "batch": 65_536,
    "measured": 1_000_000,
    "groups": 1_000_000,
    "checkpoints": 1_000,
    "shots": 1_000,
    "workers": 10_000,
    "gpus_per_worker": 1_000,
    "seed": 2**64 - 1,
    "seeds": 2**64 - 1,
}
"""By name of the option, of the key in a study file, and of the argument in Python."""


def excess(name: str, value: Any) -> str:
    """What is wrong with a count, or with one in a list of them; empty where nothing is."""
    most = MOST.get(name)
    for number in value if isinstance(value, list | tuple) else (value,):
        if most is not None and isinstance(number, int | float) and number > most:
            shown = f"{number:,}" if number < 10**30 else "a number of more than 30 digits"
            return f"{shown} is too large; it goes up to {most:,}."
    return ""


def check(**counts: Any) -> None:
    """Refuse counts that cannot be meant, by name; None and words (`all`, `auto`) are none."""
    for name, value in counts.items():
        if wrong := excess(name, value):
            raise UsageError(f"{name}: {wrong}")
