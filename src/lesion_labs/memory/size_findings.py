"""The sweep over sizes in sentences: which side of the spectrum holds the noise, and which cut removes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from lesion.report import wording
from lesion.report.finding import Finding
from lesion_labs.memory.result import ClosedForm, Size

SIDES = {
    "top": "at the top of the spectrum",
    "bottom": "at the bottom of the spectrum",
    "between": "in the middle of the spectrum",
    "tied": "among equal singular values, which no truncation by size can separate",
    "absent": "not in W at all",
}
LITTLE = 0.1
"""A truncation cleans when it leaves at most this share of the whole memory's clean loss."""
CLEANING = {
    "without_largest": "the largest singular value",
    "without_smallest": "the smallest",
    "random": "a random direction",
}


def findings(sizes: Sequence[Size], width: int) -> list[Finding]:
    """Which side holds the noise with orthonormal and with gaussian codes, and which cut cleans."""
    plain = [size for size in sizes if size.codes == "orthonormal"]
    return [_orthonormal(plain), _gaussian(plain, sizes, width)] if sizes else []


def _orthonormal(sizes: Sequence[Size]) -> Finding:
    single = [size for size in sizes if size.inputs == size.classes]
    classes = sorted({size.classes for size in single})
    sentences = [_of_classes([size for size in single if size.classes == number]) for number in classes]
    errors = [
        abs(place.ratio.mean - predicted)
        for size in sizes
        for place, predicted in zip(size.places, _form(size).ratios, strict=True)
    ]
    sentences.append(
        f"Closed form and training agree on σ_noise/σ_signal to {wording.figures(max(*errors, 1e-16), 1)}."
    )
    ratios = {(size.classes, size.noise): size.last.ratio.mean for size in single}
    changes = [
        abs(size.last.ratio.mean - ratios[size.classes, size.noise])
        for size in sizes
        if size.inputs > size.classes and (size.classes, size.noise) in ratios
    ]
    if changes:
        sentences.append(f"Several inputs per class change the ratio by {wording.figures(max(changes), 1)} at most.")
    return Finding("Sizes, orthonormal codes", (_headline(sizes),), (*sentences, *_cleaning(sizes)))


def _form(size: Size) -> ClosedForm:
    assert size.closed_form is not None
    return size.closed_form


def _headline(sizes: Sequence[Size]) -> str:
    """What the side depends on: the number of classes, α, both, or neither."""
    rows = [(size.classes, size.noise, size.last.side or "between") for size in sizes]
    frame = pd.DataFrame(rows, columns=["classes", "noise", "side"])
    steps, only = wording.counted(sizes[0].last.step, "step"), ""
    if frame["classes"].nunique() == 1:
        only = f"; m{wording.SPACE}={wording.SPACE}{sizes[0].classes} alone has room here"
    if frame["side"].nunique() == 1:
        where, every = SIDES[frame["side"][0]], "α" if only else "size and α"
        return f"After {steps} the noise lies {where} at every {every}{only}."
    names = {"noise": "on the number of classes m", "classes": "on α"}
    factors = [name for fixed, name in names.items() if frame.groupby(fixed)["side"].nunique().max() > 1]
    return f"Which side holds the noise after {steps} depends {wording.listed(factors)}{only}."


def _of_classes(sizes: Sequence[Size]) -> str:
    """One number of classes: `m = 4: bottom at α = 0.1; top at α = 0.3, 0.5. …`."""
    form = _form(sizes[0])
    limit = "top" if form.late > 1 + 1e-9 else "bottom"
    sides: dict[str, list[str]] = {}
    for size in sizes:
        sides.setdefault(size.last.side or "between", []).append(f"{size.noise:g}")
    text = "; ".join(f"{side} at α = {', '.join(noises)}" for side, noises in sides.items())
    if moved := [f"{size.noise:g}" for size in sizes if size.flips]:
        text += f". It changed sides at α = {wording.listed(moved)}"
    short = [f"{size.noise:g}" for size in sizes if size.last.side != limit]
    if short and abs(form.late - 1) > 1e-9:
        text += f". Not yet at its limit: α = {wording.listed(short)}"
    return (
        f"m = {sizes[0].classes}: {text}. Closed form: first on top above α = {form.threshold:.3g}, limit ratio"
        f" {form.late:.3g}."
    )


def _cleaning(sizes: Sequence[Size]) -> list[str]:
    """In which settings each of three cuts removes most of the clean loss."""
    parts = []
    for cut, name in CLEANING.items():
        cleaned = [size for size in sizes if size.cuts.of(cut).clean_loss <= LITTLE * size.cuts.full.clean_loss]
        parts.append(f"{name} in {len(cleaned)}{f' ({_settings(cleaned)})' if cleaned else ''}")
    return [
        f"At least {100 * (1 - LITTLE):g} % of the clean loss is removed, in {len(sizes)} settings, by dropping"
        f" {', '.join(parts)}."
    ]


def _settings(sizes: Sequence[Size]) -> str:
    """`m = 4 at α = 0.3, 0.5; m = 8 at α = 0.5`."""
    return "; ".join(
        f"{name} at α = {', '.join(f'{size.noise:g}' for size in members)}"
        for name, members in groupby(sizes, size_name)
    )


def _gaussian(plain: Sequence[Size], sizes: Sequence[Size], width: int) -> Finding:
    sides = {size.key: size.last.side for size in plain}
    drawn = [size for size in sizes if size.codes == "gaussian" and size.key in sides]
    mixed = [size for size in drawn if size.last.side is None]
    other = [size for size in drawn if size.last.side not in (None, sides[size.key])]
    headline = (
        f"With gaussian codes (width {width}, {wording.counted(drawn[0].draws, 'draw')}) the noise is on the side of"
        f" orthonormal codes in {len(drawn) - len(mixed) - len(other)} of {len(drawn)} settings."
    )
    sentences = [
        f"{name}: {_settings(members)}."
        for name, members in (("Draws disagree", mixed), ("Another side", other))
        if members
    ]
    return Finding("Sizes, gaussian codes", (headline,), (*sentences, *_cleaning(drawn)))


def size_name(size: Size) -> str:
    """`m = 4`, `m = 4, 16 inputs`."""
    name = f"m{wording.SPACE}={wording.SPACE}{size.classes}"
    return name if size.inputs == size.classes else f"{name}, {size.inputs} inputs"
