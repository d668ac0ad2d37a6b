"""How numbers are written for people: percentages, intervals, p-values, runs of layers, lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line
DASH = "\N{EN DASH}"
STOPPING_SHARE = 0.5
"""Share of failing answers hitting the token limit from which a loss is said to be one of stopping."""
ALPHA = 0.05
"""The p, corrected for multiple comparisons where there are several, up to which an effect counts as evidence."""
WORTH_SAYING = 0.05
"""The rate of truncated or unread answers from which the terminal's tables mention it."""


def p_value(value: float | None) -> str:
    """A p-value with two significant digits, `< .0001` below that."""
    if value is None:
        return DASH
    if value < 1e-4:
        return f"<{SPACE}.0001"
    return "1" if value >= 0.995 else f"{value:.2g}".removeprefix("0")


def rho(value: float | None) -> str:
    """A rank correlation with two decimals: `.80`, `−.31`, `1`."""
    if value is None:
        return DASH
    text = f"{abs(value):.2f}"
    text = "1" if text == "1.00" else text.removeprefix("0")
    return f"{MINUS}{text}" if value < 0 and text != ".00" else text


def entry(value: Any) -> str:
    """An entry of a study as a page shows it: lists by commas, a table of one key as its value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        parts = {name: part for name, part in value.items() if part is not None}
        return ", ".join(entry(part) if len(parts) == 1 else f"{name} {entry(part)}" for name, part in parts.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(entry, value))
    return str(value)


def keep(share: float) -> str:
    """A share kept of 0.05 as `5 %`, of 0.0001 as `0.01 %`: as it was asked for, not rounded to tenths."""
    return f"{Decimal(f'{100 * share:.4g}'):f}{SPACE}%"


def factor(value: float) -> str:
    """What weights are multiplied by: `×0`, `×1.05`."""
    return f"×{value:g}".replace("-", MINUS)


def figures(value: float, digits: int) -> str:
    """A number with so many significant digits, its power of ten in short: `2e4`."""
    return re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", f"{value:.{digits}g}")


def layer_runs(layers: Iterable[int], last: str = ",") -> str:
    """0, 1, 2, 5, 7, 8 as `0–2, 5, 7, 8`, or with `last=" and"` as `0–2, 5, 7 and 8`."""
    runs: list[list[int]] = []
    for layer in sorted(set(layers)):
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    pieces: list[str] = []
    for run in runs:
        pieces.extend([f"{run[0]}{DASH}{run[-1]}"] if len(run) > 2 else [str(layer) for layer in run])
    return f"{last} ".join([", ".join(pieces[:-1]), pieces[-1]]) if len(pieces) > 1 else "".join(pieces)


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """`block 3`, `blocks 0–2 and 5`."""
    return f"{noun}{'' if len(numbers) == 1 else 's'}{SPACE}{layer_runs(numbers, ' and')}"


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def among(name: str, every: Iterable[str]) -> str:
    """A name where there are others to tell it from, else nothing."""
    return name if len(set(every)) > 1 else ""


def counted(number: int, noun: str) -> str:
    """`1 item`, `2,000 items`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`items`, `matrices`."""
    return f"{noun[:-2]}ices" if noun.endswith("matrix") else f"{noun}s"


def capital(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def item_count(items: int, decided: str | None, drawn: int | None) -> str:
    """How many items of those drawn a cell was asked and why no more; empty in a full table.

    `n = 24, stopped`, `n = 200, open`, and `n = 200 of 200, decided` where there was nothing left to ask.
    """
    if decided is None:
        return ""
    if decided == "open" or items != drawn:
        return f"n{SPACE}={SPACE}{items:,}, {'open' if decided == 'open' else 'stopped'}"
    return f"n{SPACE}={SPACE}{items:,} of {drawn:,}, decided"


def call(stopped: bool) -> str:
    """What a marked place is: `critical`; where asking stopped, only that its drop `exceeds the effect`."""
    return "exceeds the effect" if stopped else "critical"


def called(stopped: bool, places: int = 1) -> str:
    """The same as a verb: `is critical`, `are critical`, `exceeds the effect`, `exceed the effect`."""
    if stopped:
        return f"exceed{'s' if places == 1 else ''} the effect"
    return f"{'is' if places == 1 else 'are'} critical"


def unshown(stopped: bool) -> str:
    """What is not said of any place: `is shown to be critical`; where asking stopped, `exceeds the effect`."""
    return called(True) if stopped else "is shown to be critical"


def span(fewest: int, most: int) -> str:
    """`24`, or `24–117`."""
    return f"{most:,}" if fewest == most else f"{fewest:,}{DASH}{most:,}"


def from_to(values: Iterable[float], form: Callable[[float], str]) -> str:
    """The smallest and the largest of some numbers: `0.12 to 0.34`, or `0.12` where they read the same."""
    low, high = (form(end(values)) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def unended(looped: float | None) -> str:
    """What truncated answers did: `hit the token limit`, or, where loops were stopped, perhaps that."""
    return "hit the token limit or fell into a loop" if looped else "hit the token limit"


UNIT_NAMES = {
    "block": "block",
    "attention": "attention",
    "mlp": "MLP",
    "head": "head",
    "group": "key-value group",
    "neuron": "neuron",
    "expert": "expert",
    "matrix": "matrix",
}


def place(unit: str, layer: int, part: int | str | None = None) -> str:
    """`block 3`, `attention of block 3`, `MLP of block 3`, `head 3.5` (block and head, as in Wang et al. 2022), `matrix
    3.mlp.up`.
    """
    if part is not None:
        return f"{UNIT_NAMES[unit]}{SPACE}{layer}.{part}"
    block = f"block{SPACE}{layer}"
    return block if unit == "block" else f"{UNIT_NAMES[unit]} of {block}"


def some_unit(unit: str) -> str:
    """A place of a kind: `block`, `block's attention`, `block's MLP`, `head`."""
    return f"block's {UNIT_NAMES[unit]}" if unit in ("attention", "mlp") else UNIT_NAMES[unit]


def changed(factor: float | str | None) -> str:
    """What is done to a place: `switched off`, `scaled by 0.5`, `replaced by the mean`; `changed` by several."""
    if factor is None:
        return "changed"
    if factor == 0:
        return "switched off"
    if not isinstance(factor, str):
        return f"scaled by {factor:g}".replace("-", MINUS)
    if factor == "mean":
        return "replaced by the mean"
    if factor == "position":
        return "replaced by the mean at the position"
    if factor == "optimal":
        return "replaced by the constant that hurts least"
    _, _, draw = factor.partition(" ")
    return "resampled" + (f" (draw {draw})" if draw else "")


def factor_name(factor: float | str) -> str:
    """A factor in a table: `0.5`, `mean`, `resample 1`."""
    return factor if isinstance(factor, str) else f"{factor:g}"


def edit_name(unit: str, factor: float | str) -> str:
    """A unit and factor in a heading: `MLP ×0.5`, `block → mean`."""
    return f"{UNIT_NAMES[unit]} {f'→ {factor}' if isinstance(factor, str) else f'×{factor:g}'}"


def printable(text: str) -> str:
    """The text with lone surrogates and NULs as U+FFFD: UTF-8 or HTML cannot hold them."""
    return re.sub("[\ud800-\udfff\0]", "\N{REPLACEMENT CHARACTER}", text)


def short(name: str, longest: int) -> str:
    """The name within `longest` characters: of a longer one the beginning and, mostly, the end."""
    clean = printable(name)
    if len(clean) <= longest:
        return clean
    head = longest // 3
    return f"{clean[:head]}…{clean[len(clean) - (longest - head - 1) :]}"
