"""The screen of a layer study: what gold solutions lose under each edit, how well that foretells, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map, Profile
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.values import decimals
from lesion.studies.ablation.cell import SWEPT, Labels
from lesion.studies.ablation.result import Agreement, Loss, Material, Screen
from lesion.studies.ablation.sweep import is_inner

METHOD = "Before anything was generated, the gold solutions were scored under every cut, each in one pass."
RHO = decimals(2)


class Screened(Labels):
    """A task that was screened; what each edit takes of its solutions (`Loss`) stands beside it."""

    items: int = column("Solutions")


Of = tuple[Screened, Screen]


@rule
def foretells(every: Sequence[Of]) -> Iterable[Claim]:
    """How well each screen foretells the drops of generated accuracy.

    Says: The order of N blocks by what gold solutions of A lose agrees with that by drops: ρ. | … is not shown to agree
    with that by drops: ρ. | Whether … agrees with that by drops cannot be told: one side ranks nothing.
    Needs: Spearman's ρ over the places that have both, with a bootstrap interval over items that lies above 0
    """
    labels = [of for of, _ in every]
    for of, screen in every:
        sentences = [_agreement(of, each, several=len(screen.agreement) > 1) for each in screen.agreement[:2]]
        if sentences:
            yield Claim(tuple(sentences), (of,), subject(of, labels, but="task"))


def _agreement(of: Screened, agreement: Agreement, *, several: bool) -> str:
    noun = wording.UNIT_NAMES[agreement.unit] if is_inner(agreement.unit) else "block"
    edits = f" ({wording.edit_name(agreement.unit, agreement.factor)})" * several
    order = f"the order of {wording.counted(agreement.layers, noun)}{edits} by what gold solutions of {of.task} lose"
    tied = f" ({agreement.tied} have equal drops)" * bool(agreement.tied)
    if agreement.rho.value is None:
        return f"Whether {order} agrees with that by drops cannot be told: one side ranks nothing{tied}."
    agrees = "agrees" if (agreement.rho.low or 0.0) > 0 else "is not shown to agree"
    return f"{wording.capital(order)} {agrees} with that by drops: ρ {RHO.text(agreement.rho)}{tied}."


def part(material: Material) -> Part | None:
    """What the gold solutions lose under every cut; None where the study has no screen."""
    every = [
        (Screened(model=model, task=result.task, items=result.screen.items), result.screen)
        for model, result in material.summary.results
        if result.screen is not None
    ]
    if not every:
        return None
    records = [(of, loss) for of, screen in every for loss in screen.losses]
    rows = Rows(
        "screen", records, (Screened, Loss), "The screen",
        "Nats of log-probability that a token of the gold solutions loses on average, with bootstrap intervals over"
        " items; rank 1 loses most.", most="size",
    )  # fmt: skip
    marks = (
        Profile("lost", "layer", panel=SWEPT, only={"part": None}, name="screen"),
        Map("lost", "part", "layer", panel=SWEPT, only={"drawable": True}, name="screen-parts", wide=True),
    )
    wide = len({(of.model, of.task) for of, _ in records}) > 1
    return Part("Did the screen foretell the drops?", rows, marks, foretells(every), METHOD, "Screen", wide=wide)
