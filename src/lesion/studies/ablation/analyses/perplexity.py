"""Running text in a layer study: how many times its perplexity becomes under every edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.values import Estimate
from lesion.studies.ablation.cell import Labels, under
from lesion.studies.ablation.result import PERPLEXITY, RATIO, AblationSummary, Material, TextResult, TextUnderEdit

MOST = 3
"""So many places are named that raise a perplexity most."""
TIMES = "Perplexity without each place, as many times that of the unedited model."
METHOD = (
    "Running text is scored, not answered: perplexity is the exponential of the mean negative log-probability of a"
    " token, over all texts together, beside that of the unedited model on the same texts. No block is called critical"
    " by it."
)


class Scored(Labels):
    """A task of running text; its perplexity under an edit (`TextUnderEdit`) stands beside it.

    Attributes:
        texts, tokens: how many were scored; baseline: the perplexity of the unedited model.
    """

    texts: int = column()
    tokens: int = column()
    baseline: Estimate = column(
        "Unedited", PERPLEXITY, key="baseline_perplexity", ends=("baseline_low", "baseline_high")
    )


Sweep = tuple[Scored, TextResult, list[TextUnderEdit]]
"""A text with its cells under one unit and factor."""


def sweeps(summary: AblationSummary) -> list[Sweep]:
    """Every text with every unit and factor under which it has cells."""
    every = []
    for name, text in ((model.model, text) for model in summary.models for text in model.texts):
        scored = Scored(model=name, task=text.task, texts=text.texts, tokens=text.tokens, baseline=text.baseline)
        every += [(scored, text, cells) for cells in alike(text.cells, "unit", "factor")]
    return every


def rows(summary: AblationSummary) -> Rows:
    """One line per model, text, unit, factor and place: `perplexity.csv`."""
    return Rows(
        "perplexity", [(of, cell) for of, _, cells in sweeps(summary) for cell in cells], (Scored, TextUnderEdit),
        "Every cut",
        "Perplexity and its ratio to that of the unedited model, with intervals from the spread between texts."
        " p: the ratio is 1 (Student's test on the same texts), Holm-corrected over the places of one model, text, unit"
        " and factor.", most="size",
    )  # fmt: skip


@rule
def what_raises_it(every: Sequence[Sweep]) -> Iterable[Claim]:
    """The places without which a text is hardest to predict.

    Says: The perplexity of T is multiplied by N without block L and by M without block K. | It is not a finite number
    without block K.
    Needs: the largest ratios, with their intervals from the spread between texts
    """
    scored = [of for of, *_ in every]
    edits = {(cells[0].unit, cells[0].factor) for *_, cells in every}
    for of, text, cells in every:
        unit, factor = cells[0].unit, cells[0].factor
        known = sorted((cell for cell in cells if cell.ratio.value is not None), key=lambda cell: -cell.size)
        broken = [cell.place for cell in cells if cell.ratio.value is None]
        sentences = []
        if known:
            so_far = f" ({len(text.cells)} of {text.planned} cuts so far)" * (len(text.cells) < text.planned)
            most = [f"by {RATIO.text(cell.ratio)} {under(cell.place, factor)}" for cell in known[:MOST]]
            text_and_ratios = f"The perplexity of {of.task} is multiplied {wording.listed(most)}"
            sentences.append(f"{text_and_ratios}; unedited {PERPLEXITY.text(of.baseline)}{so_far}.")
        if broken:
            more = f" and {len(broken) - MOST} more" * (len(broken) > MOST)
            where = wording.listed(broken[:MOST], "or") + more
            sentences.append(f"It is not a finite number {under(where, factor)}.")
        about = subject(of, scored, but="task")
        how = wording.edit_name(unit, factor) * (len(edits) > 1)
        yield Claim(tuple(sentences), tuple((of, cell) for cell in cells), " · ".join(filter(None, (about, how))))


def part(material: Material) -> Part | None:
    """A curve per text over the blocks, and a map of inner units; None without running text."""
    every = sweeps(material.summary)
    if not every:
        return None
    panel = ("model", "unit", "factor")
    marks = (
        Curves(
            "ratio", "layer", "task", panel=panel, only={"part": None}, ratio=True, name="perplexity",
            caption=TIMES,
        ),
        Map(
            "rise", "part", "layer", shown="ratio", panel=("task", *panel), only={"drawable": True},
            name="perplexity-parts", wide=True, caption=TIMES,
        ),
    )  # fmt: skip
    lines = rows(material.summary)
    return Part("What do the cuts do to running text?", lines, marks, what_raises_it(every), METHOD, "Text")
