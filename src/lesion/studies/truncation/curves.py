"""What is drawn along edits, revisions and steps: tokens before and after, accuracies, the composition's path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from lesion.report import scales, wording
from lesion.studies.truncation.cells import UNEDITED, Search, Step, Tested, Tokens, Unedited
from lesion.studies.truncation.charts import BOTTOM, TOP, Curve, Place, close, legend, over
from lesion.studies.truncation.maps import nats, nats_interval

SEARCHED = "searched"
"""What stands for the model that was searched, among revisions."""
ROLES = {"right": (0, "right token"), "tempting": (1, "tempting token")}
"""Colour and name of the two tokens of a contrast."""
MARGIN, ACCURACY = 2, 6
"""Colours of the other measures."""


def probabilities(search: Search, of: Sequence[Tokens], at: Callable[[Tokens], int], *, by_edit: bool) -> list[Curve]:
    """The right and the tempting token's mean probability: a curve each, or `by_edit` one for each edit as well."""
    return [
        curve
        for shape, edit, of_edit in _edits(of, by_edit)
        for curve in (
            _curve(search, of_edit, at, f"p_{role}", (tone, shape if by_edit else tone), name, edit)
            for role, (tone, name) in ROLES.items()
        )
        if curve.places
    ]


def margins(search: Search, of: Sequence[Tokens], at: Callable[[Tokens], int], *, by_edit: bool) -> list[Curve]:
    """The mean margin, log p right − log p tempting, in nats: one curve, or one for each edit."""
    found = (
        _curve(search, of_edit, at, "margin", (MARGIN, shape), "margin", edit)
        for shape, edit, of_edit in _edits(of, by_edit)
    )
    return [curve for curve in found if curve.places]


def _edits(of: Sequence[Tokens], by_edit: bool) -> list[tuple[int, str | None, list[Tokens]]]:
    """The number, name and tokens of every edit; all of them under no name where edits are no curves."""
    if not by_edit:
        return [(0, None, list(of))]
    edits = dict.fromkeys(one.edit for one in of)
    return [(shape, edit, [one for one in of if one.edit == edit]) for shape, edit in enumerate(edits)]


def _curve(
    search: Search,
    of: Sequence[Tokens],
    at: Callable[[Tokens], int],
    measure: str,
    look: tuple[int, int],
    name: str,
    edit: str | None,
) -> Curve:
    """One measure (`p_right`, `p_tempting` or `margin`) with its interval, in a look of colour and mark."""
    places = []
    for one in of:
        value, low, high = (getattr(one, f"{measure}{end}") for end in ("", "_low", "_high"))
        if value is not None:
            told = f"{search.name(one.edit)}, {one.task}" + (f", {one.revision}" if one.revision else "")
            if measure == "margin":
                told += f"\n{name}: {nats(value)} {nats_interval(low, high)} nats"
            else:
                digits = 1 if value >= 0.1 else 2
                told += f"\n{name}: {wording.percent(value, digits)} {wording.interval(low, high, digits)}"
                rank = getattr(one, measure.replace("p_", "rank_"))
                told += "" if rank is None else f", median rank {rank:,g}"
            places.append(Place(at(one), value, low, high, f"{told}\nn = {one.items:,}"))
    called = name if edit is None else f"{name}, {search.role(edit)}"
    return Curve(called, *look, edit == UNEDITED, tuple(places))


def accuracies(search: Search, task: str, revisions: Sequence[str]) -> list[Curve]:
    """A task's accuracy on test items along the revisions, and last on the model that was searched, by edit."""
    found = []
    last = {test.task: test for test in search.best_tests}, {test.task: test for test in search.composed_tests}
    ends: dict[str | None, Unedited | Tested | None] = {
        UNEDITED: search.base(task, "test"), search.best: last[0].get(task), search.composed: last[1].get(task)
    }  # fmt: skip
    of_task = [one for one in search.revisions if one.task == task]
    for shape, edit in enumerate(dict.fromkeys(one.edit for one in of_task)):
        told = [(revisions.index(one.revision), one.revision, one) for one in of_task if one.edit == edit]
        end = ends.get(edit)
        every = [*told, *([(len(revisions), SEARCHED, end)] if end is not None else [])]
        places = [
            Place(at, one.accuracy, one.low, one.high,
                  f"{search.name(edit)}, {revision}\naccuracy {wording.percent(one.accuracy)} "
                  f"{wording.interval(one.low, one.high)}\nn = {one.items:,}")
            for at, revision, one in every
            if one.accuracy is not None
        ]  # fmt: skip
        if places:
            found.append(Curve(search.role(edit), ACCURACY, shape, edit == UNEDITED, tuple(places)))
    return found


def revisions_legend(search: Search, edits: Sequence[str], *, tokens: bool) -> list[tuple[Markup, str]]:
    """The edits by their marks, and the colours of the two tokens: one legend for all panels of a task."""
    by_mark = [Curve(search.role(edit), ACCURACY, i, edit == UNEDITED, ()) for i, edit in enumerate(edits)]
    stroke = Markup(
        '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true"><path class="stroke" d="M1 7H33"/></svg>'
    )
    return [*legend(by_mark), *((stroke.format(tone), name) for tone, name in ROLES.values() if tokens)]


def path(search: Search, size: tuple[int, int]) -> Markup:
    """The greedy composition: the score after every step that stayed, and apart from it what was rolled back."""
    steps = [(i, step, step.after) for i, step in enumerate(search.path) if step.after is not None]
    curves = [
        Curve("stayed", 0, 0, False, tuple(_stop(search, i, step, y) for i, step, y in steps if step.accepted)),
        # What was rolled back is no line: each step stands for itself.
        *(Curve("rolled back", 1, 3, True, (_stop(search, i, step, y),)) for i, step, y in steps if not step.accepted),
    ]
    start = next((step.before for step in search.path if step.before is not None), None)
    values = [value for step in search.path for value in (step.before, step.after) if value is not None]
    y = close(values, size) if search.by_gold else scales.shares(values, size[1] - BOTTOM, TOP)
    unit = "gold log-probability, nats" if search.by_gold else "accuracy, %"
    names = [str(step.step) for step in search.path]
    return over(names, curves, y, ("step", f"validation {unit}"), size, start, beside=False)


def path_legend(search: Search) -> list[tuple[Markup, str]]:
    """Steps that stayed, and those rolled back where there are some."""
    curves = [Curve("stayed", 0, 0, False, ()), Curve("rolled back", 1, 3, True, ())]
    return legend(curves if any(not step.accepted for step in search.path) else curves[:1])


def _stop(search: Search, at: int, step: Step, y: float) -> Place:
    return Place(at, y, None, None, step_told(search, step))


def step_told(search: Search, step: Step) -> str:
    """What pointing at a step tells."""
    added = search.name(step.added) if step.added else search.name(step.edit)
    return (
        f"step {step.step}: {added}\n{score(search, step.before)} → {score(search, step.after)}, "
        + ("stayed" if step.accepted else "rolled back")
        + (f"\n{step.reason}" if step.reason else "")
    )


def score(search: Search, value: float | None) -> str:
    """A score on validation items in the unit of the objective."""
    if value is None:
        return wording.DASH
    return f"{value:.3f}".replace("-", wording.MINUS) if search.by_gold else wording.percent(value)
