"""The largest counts that can be meant, for study files, command line and Python alike, checked before work begins.

They are far beyond what has been of use to anybody, and within what memory and time can hold.
"""

from __future__ import annotations

from typing import Any

from lesion.errors import UsageError

_NAMES: dict[int, tuple[str, ...]] = {
    2**64 - 1: ("seed", "seeds"),
    100_000_000: ("steps",),
    10_000_000: ("items", "control_items", "ablation_items", "validation_items", "samples"),
    1_000_000: ("best", "random", "max_new_tokens", "stop_loops", "thinking_tokens", "measured", "groups"),
    100_000: ("clusters", "batch_size"),
    65_536: ("rows", "adapter", "length", "batch"),
    10_000: ("draws", "workers"),
    8_192: ("width", "vocabulary"),
    1_000: ("runs", "repeats", "starts", "random_controls", "checkpoints", "shots", "gpus_per_worker"),
}
MOST = {name: most for most, names in _NAMES.items() for name in names}
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
