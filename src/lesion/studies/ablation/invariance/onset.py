"""Onset: from which checkpoint of a training on is a layer critical?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lesion.studies.ablation.invariance.result import Onset


def onsets(
    source: str,
    models: Sequence[str],
    steps: Sequence[int | None],
    able: Sequence[bool],
    critical: Sequence[Collection[int]],
    layers: Sequence[int],
) -> list[Onset]:
    """Per layer the first checkpoint from which on it is critical at all later ones, where the model is able.

    A model that cannot do a task has nothing to lose, so nothing is critical at such a checkpoint: the onset then
    says when the skill came. `able_from` tells the two apart: it is the first checkpoint from which on the model is
    able at all later ones.

    Args:
        source: name of the training.
        models: names of its checkpoints by step, the end last.
        steps: their steps; None for the end.
        able: whether each can do the task.
        critical: the critical layers of each.
        layers: indices of the layers.
    """
    skilled = _since(able)
    entries = []
    for layer in layers:
        since = _since([fit and layer in there for fit, there in zip(able, critical, strict=True)])
        entries.append(
            Onset(
                source=source,
                layer=layer,
                step=None if since is None else steps[since],
                model=None if since is None else models[since],
                after=steps[since - 1] if since else None,
                able_from=None if skilled is None else steps[skilled],
                able_after=steps[skilled - 1] if skilled else None,
                critical_at=[
                    step for step, there in zip(steps, critical, strict=True) if layer in there and step is not None
                ],
            )
        )
    return entries


def _since(holds: Sequence[bool]) -> int | None:
    """The place from which on it holds everywhere; None where it does not hold at the last."""
    place = len(holds)
    while place and holds[place - 1]:
        place -= 1
    return place if place < len(holds) else None
