"""The memory lab's sweep over sizes: in sentences, and as the tables of the page and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lesion.report import wording
from lesion.report.finding import Finding

SIDES = {
    "top": "at the top of the spectrum",
    "bottom": "at the bottom of the spectrum",
    "between": "in the middle of the spectrum",
    "tied": "among equal singular values, which no truncation by size can part",
    "absent": "not in W at all",
}
MARKS = {"top": "▲", "bottom": "▼", "between": "◆", "tied": "=", "absent": wording.DASH, None: "?"}
CUTS = {
    "full": "whole",
    "without_largest": "without the largest",
    "without_smallest": "without the smallest",
    "largest_alone": "the largest alone",
    "random": "a random direction less",
}
KINDS = ("orthonormal", "gaussian")
LITTLE = 0.1
"""A truncation cleans when it leaves at most this share of the whole memory's clean loss."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of the tables: a size under one kind of codes, with its row for every noise (None where not tried)."""

    codes: str
    classes: int
    inputs: int
    rows: tuple[Row | None, ...]

    @property
    def name(self) -> str:
        """`gaussian, m = 4, 16 inputs`."""
        return f"{self.codes}, {_size(self.classes, self.inputs)}"


def lines(rows: Sequence[Row]) -> list[Line]:
    """The sweep by codes and size."""
    noises = sorted({row["noise"] for row in rows})
    found = {(row["codes"], row["classes"], row["inputs"], row["noise"]): row for row in rows}
    sizes = list(dict.fromkeys((row["classes"], row["inputs"]) for row in rows))
    return [
        Line(kind, classes, inputs, tuple(found.get((kind, classes, inputs, noise)) for noise in noises))
        for kind in KINDS
        for classes, inputs in sizes
    ]


def places(row: Row | None) -> str:
    """`▼ 0.32 → ▲ 1.20`: where the noise lies after the first and after the last step, with its ratio."""
    if row is None:
        return ""
    return " → ".join(
        f"{MARKS[place['side']]}{wording.SPACE}{place['ratio']:.2f}" for place in (row["places"][0], row["places"][-1])
    )


def findings(rows: Sequence[Row], width: int) -> list[Finding]:
    """Which side holds the noise with orthonormal and with gaussian codes, and which cut cleans."""
    if not rows:
        return []
    steps = rows[0]["places"][-1]["step"]
    plain = [row for row in rows if row["codes"] == "orthonormal"]
    headline = _headline(plain, steps)
    alone = [row for row in plain if row["inputs"] == row["classes"]]
    sentences = [_of_size([row for row in alone if row["classes"] == m]) for m in sorted({r["classes"] for r in alone})]
    worst = max(
        abs(place["ratio"] - predicted)
        for row in plain
        for place, predicted in zip(row["places"], row["predicted"], strict=True)
    )
    sentences.append(
        "Closed form and training agree on σ_noise/σ_signal at every size, noise and measured step to"
        f" {wording.figures(max(worst, 1e-16), 1)}."
    )
    repeated = [
        abs(one["places"][-1]["ratio"] - other["places"][-1]["ratio"])
        for one in plain
        for other in alone
        if one["inputs"] > one["classes"] and (one["classes"], one["noise"]) == (other["classes"], other["noise"])
    ]
    if repeated:
        sentences.append(
            "With several inputs of every class the ratio differs by"
            f" {wording.figures(max(repeated), 1)} at most from that with one."
        )
    told = Finding("Sizes, orthonormal codes", (headline,), (*sentences, *_cleaning(plain)))
    return [told, _gaussian(rows, width)]


def _headline(rows: Sequence[Row], steps: int) -> str:
    """On what the side depends: on the number of classes, on α, on both, or on neither."""
    of_noise: dict[float, set[str | None]] = {}
    of_size: dict[int, set[str | None]] = {}
    for row in rows:
        side = row["places"][-1]["side"]
        of_noise.setdefault(row["noise"], set()).add(side)
        of_size.setdefault(row["classes"], set()).add(side)
    only = ""
    if len(of_size) == 1:
        (classes,) = of_size
        only = f"; m{wording.SPACE}={wording.SPACE}{classes} alone has room here"
    ends = set().union(*of_size.values())
    if len(ends) == 1:
        where, every = SIDES[ends.pop() or "between"], "α" if only else "size and α"
        return f"After {wording.counted(steps, 'step')} the noise lies {where} at every {every}{only}."
    on = []
    if any(len(sides) > 1 for sides in of_noise.values()):
        on.append("on the number of classes m")
    if any(len(sides) > 1 for sides in of_size.values()):
        on.append("on α")
    return f"Which side holds the noise after {wording.counted(steps, 'step')} depends {wording.listed(on)}{only}."


def _of_size(of: Sequence[Row]) -> str:
    sides: dict[str, list[str]] = {}
    short: list[str] = []
    for row in of:
        side = row["places"][-1]["side"] or "between"
        sides.setdefault(side, []).append(f"{row['noise']:g}")
        if side != ("top" if row["late"] > 1 + 1e-9 else "bottom") and abs(row["late"] - 1) > 1e-9:
            short.append(f"{row['noise']:g}")
    told = "; ".join(f"{side} at α = {', '.join(noises)}" for side, noises in sides.items())
    moved = [f"{row['noise']:g}" for row in of if row["flips"]]
    told += f". It changed sides during training at α = {wording.listed(moved)}" if moved else ""
    told += f". At α = {wording.listed(short)} it is not yet on the side of its limit" if short else ""
    return (
        f"m = {of[0]['classes']}: {told}. The closed form has the noise on top after the first step above"
        f" α = {of[0]['threshold']:.3g}, and a ratio of {of[0]['late']:.3g} in the limit."
    )


def _cleaning(rows: Sequence[Row]) -> list[str]:
    found = []
    for cut, name in (
        ("without_largest", "Dropping only the largest singular value"),
        ("without_smallest", "Dropping only the smallest"),
        ("random", "Dropping a random direction instead"),
    ):
        which = [row for row in rows if row["cuts"][cut]["clean_loss"] <= LITTLE * row["cuts"]["full"]["clean_loss"]]
        by_size: dict[str, list[str]] = {}
        for row in which:
            by_size.setdefault(_size(row["classes"], row["inputs"]), []).append(f"{row['noise']:g}")
        told = "; ".join(f"{size} at α = {', '.join(noises)}" for size, noises in by_size.items())
        found.append(
            f"{name} takes away at least {100 * (1 - LITTLE):g} % of the clean loss in {len(which)} of {len(rows)}"
            f" settings{': ' + told if told else ''}."
        )
    return found


def _gaussian(rows: Sequence[Row], width: int) -> Finding:
    pairs = [
        (other, plain) for line in lines(rows) if line.codes == "orthonormal" for plain in line.rows if plain
        for other in rows
        if other["codes"] == "gaussian" and all(other[key] == plain[key] for key in ("classes", "inputs", "noise"))
    ]  # fmt: skip
    same = [one for one, other in pairs if one["places"][-1]["side"] == other["places"][-1]["side"] is not None]
    mixed = [one for one, _ in pairs if one["places"][-1]["side"] is None]
    apart = [one for one, _ in pairs if one not in same and one not in mixed]
    headline = (
        f"With gaussian codes of width {width} all {pairs[0][0]['draws']} draws have the noise on the same side as"
        f" orthonormal codes in {len(same)} of {len(pairs)} settings; in {len(mixed)} the draws disagree among"
        f" themselves, in {len(apart)} they agree on another side."
    )
    sentences = [
        f"{name}: " + ", ".join(f"{_size(r['classes'], r['inputs'])} with α = {r['noise']:g}" for r in of) + "."
        for name, of in (("They disagree", mixed), ("Another side", apart))
        if of
    ]
    return Finding("Sizes, gaussian codes", (headline,), (*sentences, *_cleaning([one for one, _ in pairs])))


def _size(classes: int, inputs: int) -> str:
    size = f"m{wording.SPACE}={wording.SPACE}{classes}"
    return size if inputs == classes else f"{size}, {inputs} inputs"
