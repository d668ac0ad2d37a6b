"""A study of the recall laboratory as sentences and charts: means over seeds, beside random projections."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from scipy import stats

from lesion.labs.recall.charts import RANDOM, SIDES, SIZE, Panel
from lesion.labs.recall.findings import APART, Finding
from lesion.labs.recall.rows import central
from lesion.report import line_charts, scales, wording
from lesion.report.line_charts import BOTTOM, LEFT, RIGHT, TOP, Curve, Point
from lesion.statistics.paired import holm

Group = Mapping[str, Any]
CHANCE = 0.05
"""Of a family of comparisons, no claim at all is false but with this probability."""
OWN = (
    "In these sequences ȳ may be q or τ itself: where it is q a sequence becomes a run of q that asks at every"
    " position, and where it is τ, saying τ is right."
)
_MEANS = {"clean_accuracy": "accuracy on clean sequences, %", "p_noise": "p(τ) on clean sequences, %"}


def name(group: Group) -> str:
    """What tells a group from others: `α 0.6, mlp, sgd, 600 steps, V 32, d 128`."""
    recipe = group["recipe"]
    return (
        f"α {recipe['noise']:g}, {recipe['feed_forward']}, {recipe['optimiser']}, "
        f"{wording.counted(recipe['steps'], 'step')}, "
        f"V {recipe['vocabulary']}, d {recipe['width']}"
    )


def told(one: Mapping[str, Any], digits: int = 3, *, sign: bool = False, bare: bool = False) -> str:
    """A spread over seeds: its mean, with the lowest and the highest; `bare` as in `decimals`."""
    mean, least, most = (decimals(one[key], digits, sign=sign, bare=bare) for key in ("mean", "least", "most"))
    return mean if one["deviation"] is None else f"{mean} [{least}, {most}]"


def decimals(value: float, digits: int = 3, *, sign: bool = False, bare: bool = False) -> str:
    """A number with so many decimals; what rounds to 0 has no sign; `bare` of the 0 before the point."""
    rounded = round(value, digits) + 0.0
    text = f"{rounded:{'+' if sign and rounded else ''}.{digits}f}".replace("-", wording.MINUS)
    return text.replace("0.", ".", 1) if bare and abs(rounded) < 1 else text


def finding(group: Group) -> Finding:
    """What a group of seeds shows."""
    full, rows = group["full"], group["truncated"]
    headline = (
        f"Where no noise is, the full model gives τ {told(full['p_noise'])} and ȳ {told(full['p_correct'])};"
        f" its accuracy is {told(full['clean_accuracy'])}."
    )
    if abs(group["recipe"]["noise"] - 0.5) < APART:
        headline += " With α near .5 that is a tie between τ and ȳ: judge by probability and loss."
    differences = _differences(group)
    trained = group["recipe"]["steps"] > 0
    sentences = [_phases(group["phases"]) if trained else "Nothing is trained: these are untrained models."]
    if group["recipe"].get("own_answers"):
        sentences.append(OWN)
    for matrix in _central(group):
        of_matrix = [row for row in rows if row["matrix"] == matrix]
        deleted = next(row for row in of_matrix if row["control"] == "deletion")
        without = next(row for row in of_matrix if row["control"] == "drop-top")
        sentences.append(
            f"{matrix} deleted: p(τ) {told(deleted['p_noise'])}, accuracy {told(deleted['clean_accuracy'])};"
            f" without its largest component: p(τ) {told(without['p_noise'])},"
            f" accuracy {told(without['clean_accuracy'])}. Loss on noisy sequences: {told(full['noisy_loss'])} becomes"
            f" {told(deleted['noisy_loss'])} or {told(without['noisy_loss'])}."
        )
        sentences.append(_beyond(matrix, differences))
    return Finding(
        f"{name(group)} ({wording.counted(len(group['seeds']), 'seed')})", headline, tuple(filter(None, sentences))
    )


def _phases(phases: Mapping[str, Any]) -> str:
    """Which margin is first positive in every seed, which in some only, and when attention recalls."""
    margins = {key: value for key, value in phases.items() if key != "attention"}
    attention = phases["attention"]
    if attention["came"] == attention["of"]:
        recall = f"attention recalls from step {_steps(attention)} on"
    else:
        recall = f"attention recalls in {attention['came']} of {wording.counted(attention['of'], 'seed')}"
    always = {key: value for key, value in margins.items() if value["came"] == value["of"]}
    first = min(always, key=lambda key: always[key]["mean"], default=None)
    if first is not None:
        recall = f"{first} prefers τ behind q from step {_steps(always[first])} on; {recall}"
    text = f"{recall[0].upper()}{recall[1:]}."
    some = [key for key, value in margins.items() if value["came"] < value["of"] and _already(value) + value["came"]]
    if some:
        text += (
            f" Only in some seeds a margin turns positive for good: {'; '.join(_some(k, margins[k]) for k in some)}."
        )
    return text


def _some(margin: str, phase: Mapping[str, Any]) -> str:
    """`F1 in 2 of 3 seeds, from step 6 [1, 10] on, in 1 untrained`."""
    parts = [f"{margin} in {phase['came']} of {wording.counted(phase['of'], 'seed')}"]
    if phase["came"]:
        parts.append(f"from step {_steps(phase)} on")
    if _already(phase):
        parts.append(f"in {_already(phase)} before training already")
    return ", ".join(parts)


def _already(phase: Mapping[str, Any]) -> int:
    return int(phase.get("untrained", 0))


def _steps(one: Mapping[str, Any]) -> str:
    if one["least"] == one["most"]:
        return f"{one['least']:,.0f}"
    return f"{one['mean']:,.0f} [{one['least']:,.0f}, {one['most']:,.0f}]"


@dataclass(frozen=True)
class _Difference:
    """p(τ) behind the top of a matrix less that behind random projections of that rank, over seeds."""

    matrix: str
    keep: float
    mean: float
    p: float

    def __str__(self) -> str:
        return f"{wording.keep(self.keep)} ({decimals(self.mean, sign=True)})"


def _differences(group: Group) -> list[_Difference]:
    """The differences of a group's central matrices with p-values, Holm-corrected over all of them; [] of one seed."""
    count = len(group["seeds"])
    rows = [
        row
        for matrix in _central(group)
        for row in group["truncated"]
        if row["matrix"] == matrix and row["side"] == "top" and "beyond" in row
    ]
    if count < 2:
        return []
    plain = [_p(row["beyond"]["p_noise"], count) for row in rows]
    return [
        _Difference(row["matrix"], row["keep"], row["beyond"]["p_noise"]["mean"], p)
        for row, p in zip(rows, holm(plain) if plain else [], strict=True)
    ]


def _p(one: Mapping[str, Any], count: int) -> float:
    """The p-value of Student's test that a mean over so many seeds is 0."""
    if not one["deviation"]:
        return 0.0 if one["mean"] else 1.0
    return float(2 * stats.t.sf(abs(one["mean"]) * math.sqrt(count) / one["deviation"], count - 1))


def _beyond(matrix: str, differences: Sequence[_Difference]) -> str:
    """Whether keeping the top leaves more or less of p(τ) than a random projection: surely, and by no trifle."""
    of_matrix = [one for one in differences if one.matrix == matrix]
    if not of_matrix:
        return ""
    told = [one for one in of_matrix if one.p <= CHANCE and abs(one.mean) >= APART]
    rule = (
        f"Student's test over seeds at {CHANCE:g}, Holm-corrected over"
        f" {wording.counted(len(differences), 'comparison')}, and a difference of at least {APART:g}"
    )
    if not told:
        most = max(of_matrix, key=lambda one: abs(one.mean))
        return (
            f"At no fraction is keeping the top of {matrix} told from a random projection of that rank by p(τ)"
            f" ({rule}); the largest difference of means is at {most}."
        )
    parts = []
    for how, of_sign in (
        ("less", [one for one in told if one.mean < 0]),
        ("more", [one for one in told if one.mean > 0]),
    ):
        if of_sign:
            parts.append(
                f"keeping the top {wording.listed([str(one) for one in of_sign])} of {matrix} leaves {how} of p(τ) than"
                " random projections of that rank"
            )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]} (in brackets the difference of means; {rule})."


def noise_panel(groups: Sequence[Group]) -> tuple[Panel, list[tuple[Markup, str]]] | None:
    """The full model's p(τ) against α, a line for each recipe otherwise alike; None where α is one."""
    if len({group["recipe"]["noise"] for group in groups}) < 2:
        return None
    of_recipe: dict[str, list[Group]] = {}
    for group in groups:
        rest = {key: value for key, value in group["recipe"].items() if key != "noise"}
        of_recipe.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    curves = []
    for tone, members in enumerate(of_recipe.values()):
        members = sorted(members, key=lambda group: group["recipe"]["noise"])
        label = name(members[0]).partition(", ")[2] if len(of_recipe) > 1 else "the full model"
        curves.append(
            Curve(label, tone, tuple(_point(g["recipe"]["noise"], g["full"]["p_noise"]) for g in members), "marked")
        )
    noises = sorted({group["recipe"]["noise"] for group in groups})
    equal = Curve("p(τ) = α", 6, tuple(Point(noise, noise) for noise in (noises[0], noises[-1])), "dashed")
    x = scales.numbers(noises, LEFT, SIZE[0] - RIGHT)
    y = scales.shares([0.0, 1.0], SIZE[1] - BOTTOM, TOP, closer=False)
    title = "p(τ) on clean sequences, %"
    drawn = line_charts.chart("The full model's p(τ) against α", [equal, *curves], x, y, ("α", title), SIZE)
    return ((title, drawn), line_charts.legend([*curves, equal]))


def truncation_panels(group: Group) -> list[Panel]:
    """Accuracy and p(τ) of the central matrices' truncations, means over seeds with bars from lowest to highest."""
    found = []
    for matrix in _central(group):
        rows = [row for row in group["truncated"] if row["matrix"] == matrix]
        deleted = next(row for row in rows if row["control"] == "deletion")
        keeps = sorted({row["keep"] for row in rows if row["control"] is None and row["keep"] > 0})
        if not keeps:
            continue
        x = scales.ratios(keeps, LEFT, SIZE[0] - RIGHT, "keep")
        y = scales.shares([0.0, 1.0], SIZE[1] - BOTTOM, TOP, closer=False)
        for number, title in _MEANS.items():
            curves = _curves(rows, number)
            ends = (keeps[0], keeps[-1])
            full = Curve("nothing cut", 3, tuple(Point(keep, group["full"][number]["mean"]) for keep in ends), "dashed")
            chart = line_charts.chart(
                f"{matrix}, {title}", [*curves, full], x, y, ("rank kept, %", title), SIZE, deleted[number]["mean"]
            )
            found.append((matrix, chart))
    return found


def truncation_legend() -> list[tuple[Markup, str]]:
    """The legend of all truncation panels."""
    sides = [Curve(label, tone, (), "marked") for label, tone in (*SIDES.values(), RANDOM)]
    return line_charts.legend([*sides, Curve("nothing cut", 3, (), "dashed")])


def _curves(rows: Sequence[Mapping[str, Any]], number: str) -> list[Curve]:
    found = []
    for side, (label, tone) in SIDES.items():
        of_side = [row for row in rows if row["side"] == side and row["control"] is None and row["keep"] > 0]
        points = tuple(_point(row["keep"], row[number]) for row in sorted(of_side, key=lambda row: row["keep"]))
        found.append(Curve(label, tone, points, "marked"))
    random = sorted((row for row in rows if row["control"] == "random"), key=lambda row: row["keep"])
    found.append(Curve(*RANDOM, tuple(_point(row["keep"], row[number]) for row in random), "marked"))
    return [curve for curve in found if curve.points]


def _point(x: float, one: Mapping[str, Any]) -> Point:
    several = one["deviation"] is not None
    return Point(x, one["mean"], one["least"] if several else None, one["most"] if several else None)


def _central(group: Group) -> list[str]:
    return central(list(dict.fromkeys(row["matrix"] for row in group["truncated"])))
