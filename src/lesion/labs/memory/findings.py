"""What a memory lab found, in sentences made from its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lesion.labs.memory import size_findings as memory_sizes
from lesion.labs.memory.size_findings import SIDES
from lesion.report import wording
from lesion.report.finding import Finding


def findings(summary: Mapping[str, Any]) -> list[Finding]:
    """The findings of a `summary.json` of the memory lab."""
    sizes = memory_sizes.findings(summary["sizes"], summary["recipe"]["width"])
    return [_full(summary), _truncated(summary), *sizes, _first_step(summary)]


def best(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The part of the spectrum with the smallest clean loss, fewest components dropped among equals."""
    rank = max(row["rank"] for row in rows)
    return min(
        (row for row in rows if row["control"] is None and row["rank"] < rank),
        key=lambda row: (row["clean_loss"], -row["rank"]),
    )


def part(row: Mapping[str, Any], rank: int) -> str:
    """`the 19 smallest of 20 singular values kept`."""
    if row["control"] == "deletion" or row["rank"] == 0:
        return "nothing kept"
    if row["rank"] == rank:
        return "everything kept"
    if row["control"] == "random":
        return f"projected onto {row['rank']} of {rank} random directions"
    size = "largest" if row["side"] == "top" else "smallest"
    many = f"the {size}" if row["rank"] == 1 else f"the {row['rank']} {size}"
    return f"{many} of {rank} singular values kept"


def _full(summary: Mapping[str, Any]) -> Finding:
    full, recipe, noise = summary["full"], summary["recipe"], summary["noise"]
    place = full["noise"]
    headline = (
        f"After {wording.counted(full['step'], 'step')} the full memory gives f* a probability of"
        f" {_p(full['p_correct'])} and the common class {_p(full['p_noise'])}; it was trained on {_p(1 - noise)}"
        f" and {_p(noise)}."
    )
    if place["side"] == "absent":
        return Finding("The full memory", (headline,), (f"The code of the common class is {SIDES['absent']}.",))
    sentences = []
    if noise == 0:
        sentences.append("There was no noise to learn: the common class is one wrong answer more.")
    if len(full["singular_values"]) == 1:
        sentences.append(
            f"W has a single singular value, with {_p(place['alignment'])} of the common class's code: there is no"
            " other that it could lie above or below."
        )
        return Finding("The full memory", (headline,), tuple(sentences))
    sentences.append(
        f"The code of the common class lies {SIDES[place['side']]}: what holds most of it ({_p(place['alignment'])})"
        f" has {place['ratio']:.3g} times the largest other singular value."
    )
    first = summary["training"][0]
    if first["noise"]["side"] != place["side"]:
        sentences.append(f"After the first step it was {SIDES[first['noise']['side']]}: it moved during training.")
    if "predicted" in full:
        worst = max(
            abs(found - predicted) / max(point["singular_values"])
            for point in summary["training"]
            for found, predicted in zip(point["singular_values"], _predicted(point, recipe["classes"]), strict=False)
        )
        sentences.append(
            f"The closed form for orthonormal codes gives the same spectrum at every measured step, to"
            f" {wording.figures(max(worst, 1e-16), 1)} of its largest value."
        )
    return Finding("The full memory", (headline,), tuple(sentences))


def _predicted(point: Mapping[str, Any], classes: int) -> list[float]:
    of = point["predicted"]
    return sorted([of["signal"]] * (classes - 1) + [of["noise"]], reverse=True)


def _truncated(summary: Mapping[str, Any]) -> Finding:
    rows, full = summary["truncated"], summary["full"]
    rank = max(row["rank"] for row in rows)
    if rank < 2:
        return Finding("Truncation", ("W has a single component: there is nothing to keep a part of.",), ())
    found = best(rows)
    # Truncation helps where the whole does worse on clean inputs.
    helps = found["clean_loss"] < full["clean_loss"]
    headline = (
        f"With {part(found, rank)}, clean accuracy goes from {wording.percent(full['clean_accuracy'], 0)} to"
        f" {wording.percent(found['clean_accuracy'], 0)}, p of the common class from {_p(full['p_noise'])} to"
        f" {_p(found['p_noise'])}, and clean loss from {full['clean_loss']:.3f} to {found['clean_loss']:.3f} nats."
    )
    if not helps:
        headline = (
            f"No part of the spectrum has a smaller clean loss than the whole ({full['clean_loss']:.3f} nats); the"
            f" nearest is {part(found, rank)} ({found['clean_loss']:.3f})."
        )
    sentences = []
    control = next((r for r in rows if r["control"] == "random" and r["rank"] == found["rank"]), None)
    if control is not None:
        sentences.append(
            f"A random projection of the same rank ({wording.counted(control['draws'], 'draw')}): accuracy"
            f" {wording.percent(control['clean_accuracy'], 0)}, p of the common class {_p(control['p_noise'])}"
            f" [{_p(control['low']['p_noise'])}, {_p(control['high']['p_noise'])}], clean loss"
            f" {control['clean_loss']:.3f} [{control['low']['clean_loss']:.3f}, {control['high']['clean_loss']:.3f}]."
        )
    other = "top" if found["side"] == "bottom" else "bottom"
    opposite = next((r for r in rows if r["side"] == other and r["rank"] == found["rank"] and not r["control"]), None)
    if opposite is not None and found["rank"]:
        sentences.append(
            f"From the other side, {part(opposite, rank)}: accuracy"
            f" {wording.percent(opposite['clean_accuracy'], 0)}, p of the common class {_p(opposite['p_noise'])}, clean"
            f" loss {opposite['clean_loss']:.3f}."
        )
    nothing = next(r for r in rows if r["control"] == "deletion")
    sentences.append(
        f"With nothing kept: p of the common class {_p(nothing['p_noise'])}, clean loss {nothing['clean_loss']:.3f}."
    )
    return Finding("Truncation", (headline,), tuple(sentences))


def _first_step(summary: Mapping[str, Any]) -> Finding:
    found = summary["first_step"]
    of = {(row["trigger"], row["signal"]): row for row in found["slopes"]}
    sizes = [point["vocabulary"] for point in found["points"]]
    last = next(p for p in reversed(found["points"]) if p["trigger"] == "constant")
    between = f"Between vocabularies of {min(sizes)} and {max(sizes)}"
    rarer = (
        f"Where the trigger becomes rarer with the vocabulary, recall's exact power is"
        f" {_number(of['zipf', 'value']['exact'])} (π ∝ 1/rank) and {_number(of['uniform', 'value']['exact'])}"
        " (π even)."
    )
    told = _without_noise if found["noise"] == 0 else _with_noise
    headline, sentences = told(of, last, between)
    return Finding("The first gradient step", (headline,), (*sentences, rarer))


Slopes = Mapping[tuple[str, str], Mapping[str, Any]]


def _without_noise(of: Slopes, last: Mapping[str, Any], between: str) -> tuple[str, list[str]]:
    """Of the three signals there is recall's alone."""
    value = of["constant", "value"]
    headline = (
        "Without noise nothing pushes from q or from any token to τ: there is no signal of the feed-forward to compare."
        f" {between} the attention-value signal towards recall grows with {_slope(value)} of the vocabulary; exactly,"
        f" {_number(value['exact'])}."
    )
    sentences = [f"Between the two largest vocabularies its exact power is {_number(value['late'])}."]
    if last["draws"]:
        over = _mean_of(last["draws"], "value") / _mean_of(last["draws"], "value_spread")
        sentences.append(
            f"On batches at V = {last['vocabulary']} recall's mean is {_times(over)} times the spread over its tokens."
        )
    return headline, sentences


def _with_noise(of: Slopes, last: Mapping[str, Any], between: str) -> tuple[str, list[str]]:
    forward, value, noisy = (of["constant", signal] for signal in ("feed_forward", "value", "value_noise"))
    headline = (
        f"{between} the feed-forward's signal towards q → τ grows with {_slope(forward)} of the vocabulary, the"
        f" attention-value signal towards recall with {_slope(value)}; exactly, {_number(forward['exact'])} and"
        f" {_number(value['exact'])}."
    )
    sentences = [
        f"Between the two largest vocabularies the exact powers are {_number(forward['late'])} and"
        f" {_number(value['late'])}.",
    ]
    if last["value"] > 0 and last["feed_forward"] > 0:
        sentences.append(
            f"At V = {last['vocabulary']} the feed-forward's signal is"
            f" {last['feed_forward'] / last['value']:,.0f} times the attention-value one."
        )
    if last["draws"]:
        forward_over, value_over = (
            _mean_of(last["draws"], signal) / _mean_of(last["draws"], width)
            for signal, width in (("feed_forward", "feed_forward_width"), ("value", "value_spread"))
        )
        sentences.append(
            f"On batches at V = {last['vocabulary']} the feed-forward's signal is"
            f" {_times(forward_over)} times the width of what is pushed from q to other tokens;"
            f" recall's mean is {_times(value_over)} times the spread over its tokens."
        )
    times = ""
    if last["value"] > 0 and last["value_noise"] > 0:
        times = f", {_times(last['value_noise'] / last['value'])} times its signal at V = {last['vocabulary']}"
    sentences.append(
        f"Attention also learns the noise, from every token: with {_slope(noisy)}"
        f" (exactly {_number(noisy['exact'])}){times}."
    )
    return headline, sentences


def _mean_of(draws: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(one[name] for one in draws) / len(draws)


def _slope(row: Mapping[str, Any]) -> str:
    """`the power 0.362 [0.218, 0.582]`."""
    if row.get("slope") is None or math.isnan(row["slope"]):
        return "no measurable power"
    return f"the power {_number(row['slope'])} {_between(row)}".rstrip()


def _times(value: float) -> str:
    """Two digits, or more where the number itself has more: `0.13`, `16`, `39,300`."""
    text = f"{value:,.0f}" if abs(value) >= 100 else wording.figures(value, 2)
    return text.replace("-", wording.MINUS)


def _between(row: Mapping[str, Any]) -> str:
    low, high = row.get("low"), row.get("high")
    if low is None or high is None or math.isnan(low):
        return ""
    return f"[{_number(low)},{wording.SPACE}{_number(high)}]"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return wording.DASH
    return f"{value:.3f}".replace("-", wording.MINUS)


def _p(value: float) -> str:
    return f"{value:.3f}"
