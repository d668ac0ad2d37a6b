"""A layer study's screen: what gold solutions lose under each edit, how well that foretells, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from lesion.edits.edit import SCALES, Unit
from lesion.report import wording
from lesion.report.views import Summary
from lesion.studies.ablation.screening import ASKING


@dataclass(frozen=True)
class Loss:
    """What one edit takes of the gold solutions: nats per token with their interval, `None` where it is no number.

    `rank` is 1 where most is lost, among the layers of one unit and factor; `nonfinite` of the items have no number.
    """

    layer: int
    unit: Unit
    factor: float
    lost: float | None
    low: float | None
    high: float | None
    rank: int
    nonfinite: int

    @property
    def edit(self) -> str:
        """The text form of the edit."""
        return str(SCALES[self.unit](self.layer, self.factor))

    @property
    def told(self) -> str:
        """`0.412 [0.380, 0.446]`, or that there is no number."""
        if self.lost is None:
            return f"no number on {wording.counted(self.nonfinite, 'item')}"
        return f"{number(self.lost)} {interval(self.low, self.high)}"


@dataclass(frozen=True)
class Agreement:
    """Spearman's ρ of the screen with the drops of generated accuracy, with its interval; `None` where not known."""

    unit: Unit
    factor: float
    layers: int
    tied: int
    rho: float | None
    low: float | None
    high: float | None

    @property
    def told(self) -> str:
        """`ρ = 0.93 [0.81, 0.98] over 8 blocks, 2 of them with equal drops`, or why there is none."""
        over = f"over {wording.counted(self.layers, 'block')}"
        if self.rho is None:
            return f"no rank correlation {over}, since one side ranks nothing"
        tied = f", {self.tied} of them with equal drops" if self.tied else ""
        return f"ρ = {number(self.rho, 2)} {interval(self.low, self.high, 2)} {over}{tied}"


@dataclass(frozen=True)
class Screen:
    """The screen of one model on one task: what was scored, and beside it what was generated for the table."""

    model: str
    task: str
    items: int
    answers: int
    tokens: int
    generated_answers: int
    generated_tokens: int
    losses: tuple[Loss, ...]
    agreements: tuple[Agreement, ...]


def screens(summary: Summary) -> tuple[Screen, ...]:
    """Every screen of a summary; none where the study has no screen."""
    return tuple(
        Screen(
            str(model["model"]),
            str(task["task"]),
            int(found["items"]),
            int(found["answers"]),
            int(found["tokens"]),
            int(found["generated"]["answers"]),
            int(found["generated"]["tokens"]),
            tuple(Loss(**{name: one[name] for name in Loss.__dataclass_fields__}) for one in found["layers"]),
            tuple(Agreement(**one) for one in found["agreement"]),
        )
        for model in summary["models"]
        for task in model["tasks"]
        if (found := task.get("screen"))
    )  # fmt: skip


def sentences(summary: Summary) -> list[str]:
    """How well each screen foretells, and what the screens of each model cost beside what was generated."""
    every = screens(summary)
    told = []
    for one in every:
        of = [
            f"{agreement.told}{_of_edit(agreement) if len(one.agreements) > 1 else ''}" for agreement in one.agreements
        ]
        told.append(
            f"{one.model} on {one.task}: the log-probability that gold solutions lose per token"
            f" ({wording.counted(one.items, 'item')}) and the drop of generated accuracy agree in the order of blocks"
            f" with {'; '.join(of)}."
        )
    asking = (summary.get("cost") or {}).get(ASKING) or {}
    for model in summary["models"]:
        mine = [one for one in every if one.model == model["model"]]
        if mine:
            told.append(_cost(str(model["model"]), mine, asking.get(model["model"]) or {}))
    return told


def _of_edit(agreement: Agreement) -> str:
    return f" ({wording.UNIT_NAMES[agreement.unit]} × {agreement.factor:g})"


def _cost(model: str, mine: Sequence[Screen], seconds: Summary) -> str:
    answers, tokens = sum(one.answers for one in mine), sum(one.tokens for one in mine)
    told = (
        f"{model}: the screen scored {answers:,} solutions of {tokens:,} tokens, each in one pass; the table looks at"
        f" {sum(one.generated_answers for one in mine):,} answers of the same tasks, for which"
        f" {sum(one.generated_tokens for one in mine):,} tokens were generated one by one."
    )
    spent = [
        f"{part['answers']:,} {what} took {part['seconds']:,.1f} seconds"
        for name, what in (("screen", "solutions of the screen"), ("study", "answers"))
        if (part := seconds.get(name))
    ]
    return f"{told} As measured by the runs, {' and '.join(spent)}." if spent else told


def table(every: Sequence[Screen]) -> Table:
    """The terminal's table of one model's screens under one unit and factor: a row per block, a column per task."""
    found = Table(
        title=Text(f"{every[0].model} · screen: nats that gold solutions lose per token (rank)"),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
    )
    found.add_column("edit", justify="right")
    for one in every:
        found.add_column(Text(f"{one.task}\n{wording.counted(one.items, 'item')}"), justify="right", overflow="fold")
    for edit in dict.fromkeys(loss.edit for one in every for loss in one.losses):
        cells = [next((loss for loss in one.losses if loss.edit == edit), None) for one in every]
        found.add_row(
            edit, *(Text("not yet") if loss is None else Text(f"{loss.told} ({loss.rank})") for loss in cells)
        )
    return found


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits after the point and a true minus."""
    text = f"{abs(value):.{digits}f}"
    return f"{wording.MINUS}{text}" if value < 0 and float(text) != 0 else text


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    """`[0.38, 0.45]`; empty when unknown."""
    return "" if low is None or high is None else f"[{number(low, digits)},{wording.SPACE}{number(high, digits)}]"
