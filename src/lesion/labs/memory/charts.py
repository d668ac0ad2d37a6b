"""The charts of the memory lab as curves: spectrum, truncations, sizes and slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lesion.report.line_charts import Curve, Point

SIDES = {"top": (0, "the largest kept"), "bottom": (1, "the smallest kept"), "random": (6, "random projection")}
"""Colour and name of what is kept of a spectrum."""
MEASURES = {
    "clean_accuracy": "clean accuracy, %",
    "p_noise": "p of the common class, %",
    "clean_loss": "clean loss, nats",
}
SIGNALS = {
    "feed_forward": "feed-forward, q → τ",
    "value": "attention-value, recall",
    "value_noise": "attention-value, → τ",
}
TRIGGERS = {
    "constant": "trigger as frequent at any V",
    "zipf": "trigger first of π ∝ 1/rank",
    "uniform": "trigger as rare as any token",
}
TONES = (0, 1, 2, 3, 4, 6, 7)
"""Colours of the sizes: those that are told apart without marks."""


def spectrum(training: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Singular values over training: the noise's, and the largest of the others with a band down to the smallest."""
    of_noise, others, predicted_noise, predicted = [], [], [], []
    for point in training:
        place, values = point["noise"], list(point["singular_values"])
        if place["side"] == "absent":
            continue
        at = place["rank"] - 1
        rest = values[:at] + values[at + 1 :]
        of_noise.append(Point(float(point["step"]), values[at]))
        if rest:
            others.append(Point(float(point["step"]), max(rest), min(rest), max(rest)))
        if "predicted" in point:
            predicted.append(Point(float(point["step"]), point["predicted"]["signal"]))
            predicted_noise.append(Point(float(point["step"]), point["predicted"]["noise"]))
    found = [
        Curve("where the noise lies", 1, tuple(of_noise), "marked"),
        Curve("largest of the others (band: down to the smallest)", 0, tuple(others), "banded"),
    ]
    if predicted:
        found.append(Curve("closed form, noise", 6, tuple(predicted_noise), "dashed"))
        found.append(Curve("closed form, the others", 2, tuple(predicted), "dashed"))
    return found


def probabilities(training: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Mean probabilities of f* and of the common class over training."""
    return [
        Curve("p of the common class", 1, tuple(Point(float(p["step"]), p["p_noise"]) for p in training)),
        Curve("p of f*", 0, tuple(Point(float(p["step"]), p["p_correct"]) for p in training)),
    ]


def truncation(rows: Sequence[Mapping[str, Any]], measure: str) -> list[Curve]:
    """One measure against the number of components kept, by side, and for the random projections."""
    found = []
    for kind, (tone, name) in SIDES.items():
        points = tuple(
            Point(
                float(row["rank"]),
                row[measure],
                *((row["low"][measure], row["high"][measure]) if row["draws"] > 1 else ()),
            )
            for row in rows
            if (row["control"] or row["side"]) == kind
        )
        found.append(Curve(name, tone, points, "banded" if kind == "random" else "marked"))
    return found


def along_training(rows: Sequence[Mapping[str, Any]], noise: float, kind: str) -> list[Curve]:
    """σ_noise over the largest other σ against the step, a curve per number of classes, one input per class."""
    of = [row for row in rows if row["noise"] == noise and row["codes"] == kind and row["inputs"] == row["classes"]]
    return [
        Curve(
            f"m = {row['classes']}",
            TONES[index % len(TONES)],
            tuple(
                Point(float(p["step"]), p["ratio"], *((p["low"], p["high"]) if row["draws"] > 1 else ()))
                for p in row["places"]
            ),
            "banded" if row["draws"] > 1 else "line",
        )
        for index, row in enumerate(of)
    ]


def signals(first_step: Mapping[str, Any], trigger: str) -> list[Curve]:
    """The first step's signals against the vocabulary: exact lines, and sampled marks with their lowest and highest."""
    points = [point for point in first_step["points"] if point["trigger"] == trigger]
    found = []
    for tone, (signal, name) in enumerate(SIGNALS.items()):
        exact = tuple(Point(float(p["vocabulary"]), p[signal]) for p in points if p[signal] > 0)
        found.append(Curve(f"{name}, exact", tone, exact))
        measured = []
        for p in points:
            values = [one[signal] for one in p["draws"]]
            if values and sum(values) > 0:
                # A logarithmic axis has no place for draws that are not above 0: their bar goes down to its end.
                measured.append(
                    Point(float(p["vocabulary"]), sum(values) / len(values), max(min(values), 1e-12), max(values))
                )
        if measured:
            found.append(Curve(f"{name}, batches", tone, tuple(measured), "marks"))
    return found
