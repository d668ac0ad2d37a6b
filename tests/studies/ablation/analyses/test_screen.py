"""What is claimed of screens, an outcome each, and the rows behind them."""

import pytest

from lesion.report import wording
from lesion.report.values import Estimate
from lesion.studies.ablation.analyses.screen import Screened, foretells
from lesion.studies.ablation.result import Agreement, Amount, Loss, Screen

LOSSES = [
    Loss(layer=layer, unit="block", factor=0.0, lost=Estimate(value=lost), lost_per_answer=lost, nonfinite=0, rank=rank)
    for layer, (lost, rank) in enumerate([(0.5, 2), (0.9, 1)])
]


def screen(rho: Estimate, tied: int = 0) -> Screen:
    agreement = Agreement(unit="block", factor=0.0, layers=8, tied=tied, rho=rho)
    amount = Amount(answers=80, tokens=400)
    return Screen(items=10, scored=amount, generated=amount, baseline=-1.0, losses=LOSSES, agreement=(agreement,))


def claimed(*screens: Screen) -> list[list[str]]:
    every = [(Screened(model="m", task=f"t{number}", items=10), each) for number, each in enumerate(screens)]
    return [[text.replace(wording.SPACE, " ") for text in claim.sentences] for claim in foretells(every)]


@pytest.mark.parametrize(
    ("rho", "says"),
    [
        (
            Estimate(value=0.9, low=0.7, high=1.0),
            "The order of 8 blocks by what gold solutions of t0 lose agrees with that by drops: ρ 0.90 [0.70, 1.00].",
        ),
        (
            Estimate(value=0.4, low=-0.1, high=0.8),
            "The order of 8 blocks by what gold solutions of t0 lose is not shown to agree with that by drops: ρ 0.40"
            " [−0.10, 0.80].",
        ),
        (Estimate(value=0.9), "… is not shown to agree with that by drops: ρ 0.90."),
        (Estimate(value=None), "Whether … agrees with that by drops cannot be told: one side ranks nothing."),
    ],
)
def test_a_screen_foretells_the_drops_where_its_interval_says_so(rho, says):
    ((first,),) = claimed(screen(rho))
    start, gap, end = says.partition("…")
    assert first == says if not gap else first.startswith(start) and first.endswith(end)


def test_equal_drops_are_counted():
    ((order,),) = claimed(screen(Estimate(value=0.9, low=0.7, high=1.0), tied=3))
    assert order.endswith("(3 have equal drops).")
