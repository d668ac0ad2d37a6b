"""From readouts to the numbers of a patching study: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lesion.core.values import with_corrected
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean, mean_p, ratio_of_means
from lesion.studies.patching.passes import Pair, Place, Readout
from lesion.studies.patching.result import DIRECTIONS, Direction, Example, PatchedCell, PatchedTask
from lesion.studies.patching.study import POSITIONS


def name_of(direction: Direction, place: Place, position: str) -> str:
    """What a patch is called: `denoise 3.mlp last`."""
    return f"{direction} {place} {position}"


class Measured(NamedTuple):
    """A pair with the readouts of its two runs and of every patch, by `name_of`."""

    pair: Pair
    clean: Readout
    corrupted: Readout
    patched: Mapping[str, Readout]


def summarise(
    measured: Sequence[Measured],
    places: Sequence[Place],
    level: float,
    *,
    model: str,
    task: str,
    blocks: int,
    left_out: Sequence[str],
) -> PatchedTask:
    """The numbers of one model on one task."""
    clean = np.array([each.clean.difference for each in measured])
    corrupted = np.array([each.corrupted.difference for each in measured])
    difference = mean(clean - corrupted, level)
    first = measured[0].pair
    clean_right = float((clean > 0).mean())
    return PatchedTask(
        model=model,
        task=task,
        blocks=blocks,
        layers=tuple(sorted({place.layer for place in places})),
        pairs=len(measured),
        left_out=tuple(left_out),
        clean=Estimate.of(mean(clean, level)),
        corrupted=Estimate.of(mean(corrupted, level)),
        difference=Estimate.of(difference),
        clean_right=clean_right,
        corrupted_right=float((corrupted < 0).mean()),
        told=math.isfinite(difference.low) and difference.low > 0 and clean_right > 0.5,
        example=Example(clean=first.texts[0], corrupted=first.texts[1], answers=first.answers),
        cells=tuple(with_corrected(_cells(measured, places, level), "effect")),
    )


def _cells(measured: Sequence[Measured], places: Sequence[Place], level: float) -> list[PatchedCell]:
    cells = []
    for direction in DIRECTIONS:
        sign = 1.0 if direction == "denoise" else -1.0
        for place in places:
            for position in POSITIONS:
                name = name_of(direction, place, position)
                having = [each for each in measured if name in each.patched]
                if not having:
                    continue
                moved = np.array([_moved(each, name, direction) for each in having])
                whole = np.array([each.clean.difference - each.corrupted.difference for each in having])
                shares = ratio_of_means(sign * moved[:, 0], whole, level)
                p = mean_p(moved[:, 0])
                cells.append(
                    PatchedCell(
                        direction=direction,
                        place=place.kind,
                        layer=place.layer,
                        head=place.head,
                        position=position,
                        items=len(having),
                        effect=Estimate.of(shares, p),
                        log_probability=Estimate.of(mean(sign * moved[:, 1], level)),
                    )
                )
    return cells


def _moved(measured: Measured, name: str, direction: str) -> Float[np.ndarray, " two"]:
    """What a patch adds to the logit difference and to the log-probability of the run that it is put into."""
    base, patched = measured.corrupted if direction == "denoise" else measured.clean, measured.patched[name]
    return np.array([patched.difference - base.difference, patched.log_probability - base.log_probability])
