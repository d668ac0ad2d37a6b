"""Running text in a layer study: how many times its perplexity becomes under every edit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, column, subject
from lesion.report.values import Estimate
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import PERPLEXITY, RATIO, AblationSummary, TextResult, TextUnderEdit
from lesion.studies.ablation.sweep import Factor

MOST = 3
"""So many places are named that raise a perplexity most."""
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


Sweep = tuple[Scored, TextResult, Unit, Factor]
"""A text with a unit and factor under which it has cells."""


def sweeps(summary: AblationSummary) -> list[Sweep]:
    """Every text with every unit and factor under which it has cells."""
    return [
        (
            Scored(model=model.model, task=text.task, texts=text.texts, tokens=text.tokens, baseline=text.baseline),
            text,
            unit,
            factor,
        )
        for model in summary.models
        for text in model.texts
        for unit, factor in dict.fromkeys((cell.unit, cell.factor) for cell in text.cells)
    ]


def rows(summary: AblationSummary) -> Rows:
    """One line per model, text, unit, factor and place: `perplexity.csv`."""
    scored = {(of.model, of.task): of for of, *_ in sweeps(summary)}
    texts = [(scored.get((model.model, text.task)), text) for model in summary.models for text in model.texts]
    records = [(of, cell) for of, text in texts for cell in text.cells]
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    return Rows(
        "perplexity", records, (Scored, TextUnderEdit), "Running text under every cut",
        f"Perplexity and its ratio to that of the unedited model, with {level} intervals from the spread between texts."
        " p: the ratio is 1 (Student's test on the same texts), Holm-corrected over the places of one model, text, unit"
        " and factor.", most="size",
    )  # fmt: skip


@rule(
    "The perplexity of T is multiplied by N without block L and by M without block K.",
    "Least, it is multiplied by M without block K.",
    "It is not a finite number without block K.",
    needs="the largest ratios, with their intervals from the spread between texts",
)
def what_raises_it(every: Sequence[Sweep]) -> Iterable[Claim]:
    """The places without which a text is hardest to predict, and the one that matters least."""
    scored = [of for of, *_ in every]
    edits = {(unit, factor) for _, _, unit, factor in every}
    for of, text, unit, factor in every:
        cells = text.of(unit, factor)
        known = sorted((cell for cell in cells if cell.ratio.value is not None), key=lambda cell: -cell.size)
        broken = [wording.place(unit, cell.layer, cell.part) for cell in cells if cell.ratio.value is None]
        so_far = f" ({len(text.cells)} of {text.planned} cuts so far)" if len(text.cells) < text.planned else ""
        sentences = []
        if known:
            most = wording.listed([f"by {RATIO.text(cell.ratio)} {_under(cell)}" for cell in known[:MOST]])
            unedited = f"unedited {PERPLEXITY.text(of.baseline)}"
            sentences.append(f"The perplexity of {of.task} is multiplied {most}; {unedited}{so_far}.")
        if len(known) > MOST:
            sentences.append(f"Least, it is multiplied by {RATIO.text(known[-1].ratio)} {_under(known[-1])}.")
        if broken:
            more = f" and {len(broken) - MOST} more" if len(broken) > MOST else ""
            where = wording.listed(broken[:MOST], "or") + more
            sentences.append(f"It is not a finite number {_changed(where, factor)}.")
        about = subject(of, scored).removesuffix(of.task).removesuffix(" · ")
        how = wording.edit_name(unit, factor) if len(edits) > 1 else ""
        yield Claim(tuple(sentences), tuple((of, cell) for cell in cells), " · ".join(filter(None, (about, how))))


def _under(cell: TextUnderEdit) -> str:
    return _changed(wording.place(cell.unit, cell.layer, cell.part), cell.factor)


def _changed(place: str, factor: Factor) -> str:
    return f"without {place}" if factor == 0 else f"with {place} {wording.changed(factor)}"


def part(material: Material) -> Part | None:
    """A curve per text over the blocks, and a map of inner units; None without running text."""
    every = sweeps(material.summary)
    if not every:
        return None
    panel = ("model", "unit", "factor")
    marks = (
        Curves(
            "ratio", "layer", "task", panel=panel, only={"part": None}, ratio=True, name="perplexity",
            caption="Perplexity without each block, as many times that of the unedited model (line at 1).",
        ),
        Map(
            "rise", "part", "layer", shown="ratio", panel=("task", *panel), only={"drawable": True},
            name="perplexity-parts", wide=True,
            caption="Perplexity without each part, as many times that of the unedited model.",
        ),
    )  # fmt: skip
    told = what_raises_it(every)
    return Part("What do the cuts do to running text?", rows(material.summary), marks, told, METHOD, "Text")
