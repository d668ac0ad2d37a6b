"""The sweep over sizes in sentences: which side of the spectrum holds the noise, and which cut removes it."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.labs.memory.result import ClosedForm, Size
from lesion.report import wording
from lesion.report.finding import Finding

SIDES = {
    "top": "at the top of the spectrum",
    "bottom": "at the bottom of the spectrum",
    "between": "in the middle of the spectrum",
    "tied": "among equal singular values, which no truncation by size can separate",
    "absent": "not in W at all",
}
LITTLE = 0.1
"""A truncation cleans when it leaves at most this share of the whole memory's clean loss."""


def findings(sizes: Sequence[Size], width: int) -> list[Finding]:
    """Which side holds the noise with orthonormal and with gaussian codes, and which cut cleans."""
    if not sizes:
        return []
    return [_orthonormal([size for size in sizes if size.codes == "orthonormal"]), _gaussian(sizes, width)]


def _orthonormal(sizes: Sequence[Size]) -> Finding:
    single = [size for size in sizes if size.inputs == size.classes]
    sentences = [
        _of_classes([size for size in single if size.classes == classes])
        for classes in sorted({size.classes for size in single})
    ]
    worst = max(
        abs(place.ratio.mean - predicted)
        for size in sizes
        for place, predicted in zip(size.places, _form(size).ratios, strict=True)
    )
    sentences.append(
        "Closed form and training agree on σ_noise/σ_signal at every size, noise and measured step to"
        f" {wording.figures(max(worst, 1e-16), 1)}."
    )
    last_of = {(size.classes, size.noise): size.last.ratio.mean for size in single}
    repeated = [
        abs(size.last.ratio.mean - last_of[size.classes, size.noise])
        for size in sizes
        if size.inputs > size.classes and (size.classes, size.noise) in last_of
    ]
    if repeated:
        sentences.append(f"Several inputs per class change the ratio by {wording.figures(max(repeated), 1)} at most.")
    return Finding("Sizes, orthonormal codes", (_headline(sizes),), (*sentences, *_cleaning(sizes)))


def _form(size: Size) -> ClosedForm:
    assert size.closed_form is not None
    return size.closed_form


def _headline(sizes: Sequence[Size]) -> str:
    """On what the side depends: on the number of classes, on α, on both, or on neither."""
    of_noise: dict[float, set[str | None]] = {}
    of_classes: dict[int, set[str | None]] = {}
    for size in sizes:
        of_noise.setdefault(size.noise, set()).add(size.last.side)
        of_classes.setdefault(size.classes, set()).add(size.last.side)
    steps = wording.counted(sizes[0].last.step, "step")
    only = ""
    if len(of_classes) == 1:
        (classes,) = of_classes
        only = f"; m{wording.SPACE}={wording.SPACE}{classes} alone has room here"
    ends = set().union(*of_classes.values())
    if len(ends) == 1:
        where, every = SIDES[ends.pop() or "between"], "α" if only else "size and α"
        return f"After {steps} the noise lies {where} at every {every}{only}."
    factors = []
    if any(len(sides) > 1 for sides in of_noise.values()):
        factors.append("on the number of classes m")
    if any(len(sides) > 1 for sides in of_classes.values()):
        factors.append("on α")
    return f"Which side holds the noise after {steps} depends {wording.listed(factors)}{only}."


def _of_classes(sizes: Sequence[Size]) -> str:
    """One number of classes: `m = 4: bottom at α = 0.1; top at α = 0.3, 0.5. …`."""
    sides: dict[str, list[str]] = {}
    short: list[str] = []
    for size in sizes:
        side, late = size.last.side or "between", _form(size).late
        sides.setdefault(side, []).append(f"{size.noise:g}")
        if side != ("top" if late > 1 + 1e-9 else "bottom") and abs(late - 1) > 1e-9:
            short.append(f"{size.noise:g}")
    text = "; ".join(f"{side} at α = {', '.join(noises)}" for side, noises in sides.items())
    moved = [f"{size.noise:g}" for size in sizes if size.flips]
    text += f". It changed sides during training at α = {wording.listed(moved)}" if moved else ""
    text += f". Not yet on the side of its limit: α = {wording.listed(short)}" if short else ""
    form = _form(sizes[0])
    return (
        f"m = {sizes[0].classes}: {text}. Closed form: on top after the first step above"
        f" α = {form.threshold:.3g}, ratio {form.late:.3g} in the limit."
    )


def _cleaning(sizes: Sequence[Size]) -> list[str]:
    """In which settings each of three cuts removes most of the clean loss."""
    sentences = []
    for cut, name in (
        ("without_largest", "Dropping only the largest singular value"),
        ("without_smallest", "Dropping only the smallest"),
        ("random", "Dropping a random direction instead"),
    ):
        cleaned = [size for size in sizes if size.cuts.of(cut).clean_loss <= LITTLE * size.cuts.full.clean_loss]
        by_size: dict[str, list[str]] = {}
        for size in cleaned:
            by_size.setdefault(size_name(size.classes, size.inputs), []).append(f"{size.noise:g}")
        where = "; ".join(f"{name} at α = {', '.join(noises)}" for name, noises in by_size.items())
        sentences.append(
            f"{name} removes at least {100 * (1 - LITTLE):g} % of the clean loss in {len(cleaned)} of"
            f" {len(sizes)} settings{': ' + where if where else ''}."
        )
    return sentences


def _gaussian(sizes: Sequence[Size], width: int) -> Finding:
    plain = {size.key: size for size in sizes if size.codes == "orthonormal"}
    drawn = [size for size in sizes if size.codes == "gaussian" and size.key in plain]
    mixed = [size for size in drawn if size.last.side is None]
    agreeing = [size for size in drawn if size.last.side is not None]
    same = [size for size in agreeing if size.last.side == plain[size.key].last.side]
    other = [size for size in agreeing if size.last.side != plain[size.key].last.side]
    headline = (
        f"With gaussian codes (width {width}, {wording.counted(drawn[0].draws, 'draw')}) the noise is on the side of"
        f" orthonormal codes in every draw in {len(same)} of {len(drawn)} settings; in {len(mixed)} the draws disagree,"
        f" in {len(other)} they agree on another side."
    )
    sentences = [
        f"{name}: "
        + ", ".join(f"{size_name(size.classes, size.inputs)} with α = {size.noise:g}" for size in group)
        + "."
        for name, group in (("Draws disagree", mixed), ("Another side", other))
        if group
    ]
    return Finding("Sizes, gaussian codes", (headline,), (*sentences, *_cleaning(drawn)))


def size_name(classes: int, inputs: int) -> str:
    """`m = 4`, `m = 4, 16 inputs`."""
    name = f"m{wording.SPACE}={wording.SPACE}{classes}"
    return name if inputs == classes else f"{name}, {inputs} inputs"
