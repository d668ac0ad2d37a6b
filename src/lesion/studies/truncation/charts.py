"""The line charts of a truncation search: tokens before and after, other revisions, the composition's steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd
from typing_extensions import override

from lesion.report import drawing, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Figure, Panel, Series
from lesion.report.values import Estimate
from lesion.studies.truncation import numbers
from lesion.studies.truncation.result import (
    SEARCHED,
    UNEDITED,
    Answered,
    RevisionOutcome,
    Role,
    Step,
    Tokens,
    TruncationSummary,
)

ROLES: tuple[Role, ...] = ("right", "tempting")
MARGIN = "Margin, log p right − log p tempting"
APART = 0.06
"""Series over the same place stand so far from each other, so that no interval hides another."""


@dataclass(frozen=True)
class Names(Axis):
    """An axis of names, which stand at 0, 1, 2, …"""

    names: tuple[str, ...] = ()

    @property
    @override
    def axis(self) -> alt.Axis:
        shown = json.dumps([drawing.seen(wording.short(name, 18)) for name in self.names])
        return alt.Axis(title=self.title, values=list(range(len(self.names))), labelExpr=f"{shown}[datum.value]")


def names_axis(title: str, names: Sequence[str]) -> Names:
    """The horizontal axis of names."""
    return Names(title, -0.5, len(names) - 0.5, names=tuple(names))


def percent_axis(title: str, values: Sequence[float]) -> Axis:
    """An axis for percentages: of 0 to 100, or closer where all values lie near each other."""
    low, high = (min(values), max(values)) if values else (0.0, 100.0)
    if high - low >= 45:
        return Axis(title, min(0.0, low) - 3, max(100.0, high) + 3)
    room = max(2.0, 0.12 * (high - low))
    return Axis(title, max(-2.0, low - room), min(102.0, high + room))


def nats_axis(title: str, values: Sequence[float], *, zero: bool) -> Axis:
    """An axis for log-probabilities close around its values, with `zero` also around 0."""
    every = [*values, 0.0] if zero else list(values)
    low, high = (min(every), max(every)) if every else (0.0, 1.0)
    room = 0.1 * (high - low) or 0.5
    return Axis(title, low - room, high + room)


Point = tuple[str, float, Estimate, str]
"""Series, place, value with its interval, and what pointing at it shows."""


def _frame(points: Iterable[Point], factor: float = 1.0) -> pd.DataFrame:
    """The frame of `plots.curves`, without points of an unknown value."""
    rows = [(series, x, e.value, e.low, e.high, tip) for series, x, e, tip in points if e.value is not None]
    frame = pd.DataFrame(rows, columns=["series", "x", "y", "low", "high", "tip"])
    frame = frame.astype({"x": float, "y": float, "low": float, "high": float})
    frame[["y", "low", "high"]] *= factor
    return frame.sort_values("x", kind="stable")


def _heights(*frames: pd.DataFrame) -> list[float]:
    """Every height with the ends of its interval."""
    return [float(value) for frame in frames for value in frame[["y", "low", "high"]].melt()["value"].dropna()]


def _shifted(place: int, index: int, of: int) -> float:
    return place + APART * (index - (of - 1) / 2)


# -- the two tokens of a contrast


def token_figures(summary: TruncationSummary) -> list[Figure]:
    """The right and the tempting token under every edit, on the model that was searched: a figure per task."""
    tasks = list(dict.fromkeys(tokens.task for tokens in summary.searched_tokens))
    names = [f"{role} token" for role in ROLES]
    figures = []
    for number, task in enumerate(tasks, start=1):
        of_task = [tokens for tokens in summary.searched_tokens if tokens.task == task]
        across = names_axis("edit", [summary.role(tokens.edit) for tokens in of_task])
        chances = _frame(
            (
                (names[index], _shifted(place, index, 2), tokens.probability(role), _tip(summary, tokens, role))
                for index, role in enumerate(ROLES)
                for place, tokens in enumerate(of_task)
            ),
            100.0,
        )
        margins = _frame(
            ("margin", place, tokens.margin, _tip(summary, tokens)) for place, tokens in enumerate(of_task)
        )
        upright = percent_axis("mean probability, %", _heights(chances))
        figures.append(
            Figure(
                name="tokens" if len(tasks) == 1 else f"tokens-{number}",
                panels=(
                    Panel((plots.curves(chances, across, upright, names, spread="bars"),), "The two tokens"),
                    Panel((_margin_chart(margins, across, ["margin"], [2]),), MARGIN),
                ),
                caption=f"{task}: means over {_counts(of_task)} test items with {level(summary)} intervals. Where the"
                " margin is above 0, the right token is the likelier one, on the mean of the logarithms.",
                legend=tuple(Series(name, index) for index, name in enumerate(names)),
            )
        )
    return figures


def _margin_chart(frame: pd.DataFrame, across: Axis, names: Sequence[str], tones: Sequence[int]) -> alt.LayerChart:
    upright = nats_axis("margin, nats", _heights(frame), zero=True)
    chart = plots.curves(frame, across, upright, names, numbers=tones, spread="bars")
    return alt.layer(plots.level(0.0, upright), chart)


def _tip(summary: TruncationSummary, tokens: Tokens, role: Role | None = None) -> str:
    """What pointing at the probability of a token shows; without a role, at the margin."""
    revision = f", {tokens.revision}" if tokens.revision else ""
    if role is None:
        text = f"margin: {numbers.nats_estimate(tokens.margin)} nats"
    else:
        rank = f", median rank {numbers.rank(tokens.rank(role))}" if tokens.rank(role) is not None else ""
        text = f"{role} token: {numbers.probability(tokens.probability(role))}{rank}"
    return f"{summary.name(tokens.edit)}, {tokens.task}{revision}\n{text}\nn = {tokens.items:,}"


# -- other revisions of the model


def revision_figures(summary: TruncationSummary) -> list[Figure]:
    """Every measure along the revisions, and last on the model that was searched, a line per edit: one per task."""
    tasks = list(dict.fromkeys(outcome.task for outcome in summary.revisions))
    edits = list(dict.fromkeys(outcome.edit for outcome in summary.revisions))
    tones = [6 if edit == UNEDITED else index - 1 for index, edit in enumerate(edits)]
    figures = []
    for number, task in enumerate(tasks, start=1):
        panels = _revision_panels(summary, task, edits, tones)
        counts = _counts([outcome for outcome in summary.revisions if outcome.task == task])
        files = "revisions.csv and tokens.csv" if len(panels) > 1 else "revisions.csv"
        figures.append(
            Figure(
                name="revisions" if len(tasks) == 1 else f"revisions-{number}",
                panels=tuple(panels),
                caption=f"{task}: {counts} test items; bars: {level(summary)} intervals. Unrounded: {files}.",
                legend=tuple(Series(summary.role(edit), tone) for edit, tone in zip(edits, tones, strict=True)),
            )
        )
    return figures


def _revision_panels(summary: TruncationSummary, task: str, edits: Sequence[str], tones: Sequence[int]) -> list[Panel]:
    places = {revision: place for place, revision in enumerate([*summary.followed, SEARCHED])}
    across, roles = names_axis("revision", list(places)), [summary.role(edit) for edit in edits]

    def point(edit: str, revision: str | None, value: Estimate, tip: str) -> Point:
        x = _shifted(places[revision or SEARCHED], edits.index(edit), len(edits))
        return summary.role(edit), x, value, tip

    def panel(frame: pd.DataFrame, upright: Axis, title: str) -> Panel:
        return Panel((plots.curves(frame, across, upright, roles, numbers=tones, spread="bars"),), title)

    accuracies = _frame(
        (
            point(edit, revision, outcome.accuracy, f"{summary.name(edit)}, {revision}\n{_accuracy(outcome)}")
            for edit in edits
            for revision, outcome in _outcomes(summary, task, edit)
        ),
        100.0,
    )
    panels = [panel(accuracies, percent_axis("accuracy, %", _heights(accuracies)), "Accuracy")]
    of_task = [tokens for tokens in summary.tokens if tokens.task == task]
    if not of_task:
        return panels
    chances = {
        role: _frame((point(t.edit, t.revision, t.probability(role), _tip(summary, t, role)) for t in of_task), 100.0)
        for role in ROLES
    }
    upright = percent_axis("mean probability, %", _heights(*chances.values()))
    panels += [panel(frame, upright, f"The {role} token") for role, frame in chances.items()]
    margins = _frame(point(t.edit, t.revision, t.margin, _tip(summary, t)) for t in of_task)
    return [*panels, Panel((_margin_chart(margins, across, roles, tones),), MARGIN)]


def _outcomes(summary: TruncationSummary, task: str, edit: str) -> list[tuple[str, Answered]]:
    """(revision, outcome) of an edit on a task's test items, also on the model that was searched."""
    unedited = [summary.base(task, "test")]
    searched: Sequence[Answered] = unedited if edit == UNEDITED else dict(summary.tests).get(edit, ())
    return [
        *((outcome.revision, outcome) for outcome in summary.revisions if (outcome.task, outcome.edit) == (task, edit)),
        *((SEARCHED, outcome) for outcome in searched if outcome.task == task),
    ]


def _accuracy(outcome: Answered) -> str:
    return f"accuracy {numbers.percent_estimate(outcome.accuracy)}\nn = {outcome.items:,}"


def level(summary: TruncationSummary) -> str:
    """`95 %`, the level of the intervals."""
    return f"{100 * summary.study.level:g}{wording.SPACE}%"


def _counts(outcomes: Sequence[Tokens | RevisionOutcome]) -> str:
    return ", ".join(f"{count:,}" for count in sorted({outcome.items for outcome in outcomes}))


# -- the greedy composition


def path_figure(summary: TruncationSummary) -> Figure | None:
    """The score after every step that stayed, and apart from it what was rolled back; None for a single step."""
    steps = [(step, value) for step in summary.path if (value := summary.score(step.after)) is not None]
    if len(steps) < 2:
        return None
    factor, kinds = (1.0 if summary.by_gold else 100.0), ["stayed", "rolled back"]
    points = (
        (kinds[not step.accepted], step.step, Estimate(value=value), _step_tip(summary, step)) for step, value in steps
    )
    frame = _frame(points, factor)
    # What was rolled back is no line: a row without a height parts each such step from the next.
    back = frame[frame["series"] == kinds[1]]
    frame = pd.concat([frame, back.assign(y=math.nan, x=back["x"] + 0.5)]).sort_values("x")
    before = summary.score(summary.path[0].before)
    start = [] if before is None else [factor * before]
    across = Axis("step", -0.5, len(summary.path) - 0.5, whole=True)
    heights = [*_heights(frame), *start]
    upright = percent_axis("validation accuracy, %", heights)
    if summary.by_gold:
        upright = nats_axis("validation gold log-probability, nats", heights, zero=False)
    chart = alt.layer(*(plots.level(height, upright) for height in start), plots.curves(frame, across, upright, kinds))
    return Figure(
        name="composition",
        panels=(Panel((chart,)),),
        caption="The score on validation items after each step. A step that does not improve it is rolled back, and the"
        " next one starts from the score before it.",
        legend=(
            *(Series(kind, index) for index, kind in enumerate(kinds) if (frame["series"] == kind).any()),
            Series("before the first step", colour=theme.SOFT, dashed=True),
        ),
    )


def _step_tip(summary: TruncationSummary, step: Step) -> str:
    before, after = numbers.step_score(summary, step.before), numbers.step_score(summary, step.after)
    outcome = "stayed" if step.accepted else "rolled back"
    return f"step {step.step}: {summary.name(step.added)}\n{before} → {after}, {outcome}\n{step.reason}"


def test_figure(summary: TruncationSummary) -> Figure | None:
    """What the chosen edit changes on the test items, above what it changed on the items that chose it."""
    tests = summary.composed_tests or summary.best_tests
    if not tests:
        return None
    by_gold = summary.by_gold
    cell = next((cell for cell in summary.cells if cell.edit == summary.chosen), None)
    rows = []
    for test in tests:
        parts = [(f"{test.task}\ntest items", test.gold_gain if by_gold else test.gain, theme.GAIN)]
        outcome = None if cell is None or summary.composed_tests else cell.on(test.task)
        if outcome is not None and not by_gold:
            parts.append((f"{test.task}\nitems that chose it", outcome.drop.negative, theme.SOFT))
        for name, change, colour in parts:
            if change.value is not None:
                tip = f"{name}: {numbers.nats(change.value) if by_gold else numbers.points_change(change)}"
                unit = 1 if by_gold else 100  # nats, or points
                values = {"x": change.value, "low": change.low, "high": change.high}
                ends = {key: None if end is None else unit * end for key, end in values.items()}
                rows.append({"y": name, **ends, "colour": colour, "tip": tip})
    if not rows:
        return None
    frame = pd.DataFrame(rows)
    known = [0.0, *(float(value) for field in ("x", "low", "high") for value in frame[field].dropna())]
    room = 0.05 * (max(known) - min(known)) or (0.05 if by_gold else 5.0)
    title = "change of the log-probability of gold answers, nats" if by_gold else "change in accuracy, points"
    across = Axis(title, min(known) - room, max(known) + room, form="" if by_gold else "+f")
    caption = f"Change under the chosen edit against the unedited model, with {level(summary)} intervals."
    if not by_gold and len(rows) > len(tests):
        caption += " Grey: on the items that chose it, where the best of many is partly luck."
    return Figure("test", (Panel((plots.forest(frame, across),)),), caption)
