"""The screen of a layer study: what gold solutions lose under each edit, how well that foretells, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import decimals
from lesion.report.marks import Map, Profile
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screen.result import Loss, Screen
from lesion.studies.ablation.sweep import is_inner

METHOD = (
    "Before anything was generated, the gold solutions were scored under every cut, each in one pass. No block is"
    " called critical by it."
)
RHO = decimals(2)


class Screened(Labels):
    """A task that was screened; what each edit takes of its solutions (`Loss`) stands beside it."""

    items: int = column("Solutions")


Of = tuple[Screened, Screen]


def screens(summary: AblationSummary) -> list[Of]:
    """Every screen of a summary; none where the study has no screen."""
    return [
        (Screened(model=model, task=result.task, items=result.screen.items), result.screen)
        for model, result in summary.results
        if result.screen is not None
    ]


@rule(
    "The order of N blocks by what gold solutions of A lose agrees with that by drops: ρ.",
    "… is not shown to agree with that by drops: ρ.",
    "Whether … agrees with that by drops cannot be told: one side ranks nothing.",
    "The screen scored N solutions in S seconds; M answers took T seconds.",
    needs="Spearman's ρ over the places that have both, with a bootstrap interval over items that lies above 0",
)
def foretells(every: Sequence[Of], seconds: dict[str, Any]) -> Iterable[Claim]:
    """How well each screen foretells the drops of generated accuracy, and what that saved."""
    labels = [of for of, _ in every]
    for of, screen in every:
        sentences = []
        for agreement in screen.agreement[:2]:
            noun = wording.UNIT_NAMES[agreement.unit] if is_inner(agreement.unit) else "block"
            where = f"{wording.counted(agreement.layers, noun)}"
            if len(screen.agreement) > 1:
                where += f" ({wording.edit_name(agreement.unit, agreement.factor)})"
            order = f"the order of {where} by what gold solutions of {of.task} lose"
            agrees = "agrees" if (agreement.rho.low or 0.0) > 0 else "is not shown to agree"
            text = f"{wording.capital(order)} {agrees} with that by drops: ρ {RHO.text(agreement.rho)}"
            if agreement.rho.value is None:
                text = f"Whether {order} agrees with that by drops cannot be told: one side ranks nothing"
            tied = f" ({agreement.tied} have equal drops)" if agreement.tied else ""
            sentences.append(f"{text}{tied}.")
        own = [(other, of_task) for other, of_task in every if other.model == of.model]
        cost = _cost(of, [of_task for _, of_task in own], seconds) if own[0][0] is of else ""
        about = subject(of, labels).removesuffix(of.task).removesuffix(" · ")
        yield Claim((*sentences, *([cost] if cost else [])), (of,), about)


def _cost(of: Screened, own: Sequence[Screen], seconds: dict[str, Any]) -> str:
    """What the screens of a model cost beside what was generated."""
    spent = seconds.get(of.model) or {}

    def part(verb: str, name: str, what: str, answers: int) -> str:
        measured = spent.get(name)
        if not measured:
            return f"{verb} {wording.counted(answers, what)}"
        return f"{verb} {wording.counted(measured['answers'], what)} in {measured['seconds']:,.1f} seconds"

    scored = part("The screen scored", "screen", "solution", sum(screen.scored.answers for screen in own))
    generated = part("the study generated", "study", "answer", sum(screen.generated.answers for screen in own))
    return f"{scored}; {generated}."


def part(material: Material) -> Part | None:
    """What the gold solutions lose under every cut; None where the study has no screen."""
    every = screens(material.summary)
    if not every:
        return None
    records = [(of, loss) for of, screen in every for loss in screen.losses]
    rows = Rows(
        "screen", records, (Screened, Loss), "The screen",
        "Nats of log-probability that a token of the gold solutions loses on average, with bootstrap intervals over"
        " items; rank 1 loses most.", most="size",
    )  # fmt: skip
    panel = ("model", "task", "unit", "factor")
    marks = (
        Profile(
            "lost", "layer", panel=panel, only={"part": None}, name="screen",
            caption="Nats that a token of the gold solutions loses without each block.",
        ),
        Map(
            "lost", "part", "layer", panel=panel, only={"drawable": True}, name="screen-parts", wide=True,
            caption="Nats that a token of the gold solutions loses without each part, a row per block.",
        ),
    )  # fmt: skip
    told = foretells(every, material.seconds)
    return Part("Did the screen foretell the drops?", rows, marks, told, METHOD, "Screen")
