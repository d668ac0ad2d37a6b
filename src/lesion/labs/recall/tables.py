"""The tables of the recall laboratory, and what it prints in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from lesion.labs.recall import study_findings
from lesion.labs.recall.findings import phases
from lesion.labs.recall.result import MatrixCuts, Measures, RecallSummary, Spread
from lesion.labs.recall.study_findings import decimals, group_name
from lesion.labs.recall.study_result import CutSpreads, Group, RecallStudySummary
from lesion.report import wording
from lesion.report.table import Column, Table, plain

TITLES = {
    "clean_accuracy": "accuracy",
    "p_noise": "p τ",
    "p_correct": "p ȳ",
    "clean_loss": "clean loss",
    "noisy_loss": "noisy loss",
}
SHORT = TITLES | {"clean_accuracy": "clean acc."}
COMPARED = {"clean_accuracy": "accuracy", "p_noise": "p τ"}
"""Measures beside which those of random projections stand."""
FULL = "full model"

Row = dict[str, Any]


def predictions(summary: RecallSummary) -> Table:
    """What the full model predicts at the questions on noisy sequences, against what follows."""
    shares = summary.training[-1].table
    frame = pd.DataFrame(
        {
            "predicted": ["τ is predicted", "another is predicted"],
            "noise": [shares.predicted_noise_label_noise, shares.predicted_other_label_noise],
            "other": [shares.predicted_noise_label_other, shares.predicted_other_label_other],
        }
    )
    return Table(
        "",
        frame,
        (
            Column("predicted", "On noisy sequences", number=False),
            Column("noise", "τ follows", wording.percent),
            Column("other", "another follows", wording.percent),
        ),
        title="What is predicted and what follows",
        caption=f"The full model's most probable token against the token that follows, in % of"
        f" {wording.counted(summary.questions.noisy, 'question')}. Noise is drawn independently: nothing in a sequence"
        " tells where it will be.",
    )


def spectra(summary: RecallSummary) -> Table:
    """The largest singular values of every matrix before and after training."""
    rows = []
    for matrix, spectrum in summary.spectra.items():
        first, second, third, *_ = (*spectrum.values, None, None)
        values = {"largest": first, "second": second, "third": third}
        rows.append({"matrix": matrix, "before": spectrum.before, **values, "noise": spectrum.noise})
    two = _form(2)
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("matrix", "Matrix", number=False),
            Column("before", "Largest before", two),
            Column("largest", "Largest", two),
            Column("second", "Second", two),
            Column("third", "Third", two),
            Column("noise", "Its top writes τ, |cos|", two),
        ),
        title="Spectra",
        caption="Singular values of the untrained and of the trained matrix. The cosine is between the first left"
        " singular vector and the logit direction of τ (its row of W_U less the mean row); of random vectors it would"
        f" be about {summary.recipe.width**-0.5:.2f}. Matrices that do not write into the residual stream have none.",
    )


def truncations(summary: RecallSummary, *, brief: bool = False) -> Table:
    """The full model, and every replacement of every matrix beside the mean of random projections of its rank.

    Args:
        brief: for a terminal: the central matrices alone, and random projections without lowest and highest.
    """
    rows = [_row(FULL, None, None, summary.full)]
    for cuts in summary.central if brief else summary.cuts.values():
        rows += _of_matrix(cuts)
    titles = SHORT if brief else TITLES
    three = _three(bare=brief)
    return Table(
        "",
        pd.DataFrame(rows).astype({"keep": float, "rank": "Int64"}),
        (
            Column("what", "" if brief else "What", number=False),
            Column("keep", "kept" if brief else "Kept", _kept),
            *(() if brief else (Column("rank", "Rank", plain),)),
            *(Column(measure, title, three) for measure, title in titles.items()),
            *(
                Column(
                    f"random_{measure}",
                    f"random {title}",
                    three,
                    row=None if brief else _random(measure),
                )
                for measure, title in {**COMPARED, **({"clean_accuracy": "acc."} if brief else {})}.items()
            ),
        ),
        title="Truncations",
        caption="On clean sequences except for the noisy loss; losses in nats. Random: projections of the same rank,"
        " mean with the lowest and the highest draw; the draws one by one are in summary.json.",
        mark=lambda row: row["what"] == FULL,
    )


def _of_matrix(cuts: MatrixCuts) -> list[Row]:
    rows = [
        _row(f"{cuts.matrix} deleted", None, cuts.deleted.rank, cuts.deleted),
        _row(f"{cuts.matrix} less top", None, cuts.without_top.rank, cuts.without_top),
    ]
    for side, of_side in (("top", cuts.top), ("bottom", cuts.bottom)):
        for row in of_side:
            random = {measure: cuts.drawn(row.rank, measure) if side == "top" else None for measure in COMPARED}
            rows.append(_row(f"{cuts.matrix} {side}", row.keep, row.rank, row, random))
    return rows


def _row(
    what: str,
    keep: float | None,
    rank: int | None,
    measures: Measures,
    random: Mapping[str, Spread | None] | None = None,
) -> Row:
    row: Row = {"what": what, "keep": keep, "rank": rank}
    row |= {measure: measures.of(measure) for measure in TITLES}
    for measure in COMPARED:
        spread = (random or {}).get(measure)
        row |= {
            f"random_{measure}": spread and spread.mean,
            f"random_{measure}_least": spread and spread.least,
            f"random_{measure}_most": spread and spread.most,
        }
    return row


def group(group: Group, *, brief: bool = False) -> Table:
    """The full model and every replacement of every matrix, means over seeds with the lowest and the highest.

    Args:
        brief: for a terminal: the central matrices without random projections, and fewer measures.
    """
    rows = [_spreads({"what": FULL, "matrix": None, "keep": None, "rank": None}, group.full, None)]
    rows += [_of_seeds(row) for row in group.truncated if not brief or _shown_briefly(group, row)]
    title = f"{group_name(group)}; {wording.counted(len(group.seeds), 'seed')}"
    frame = pd.DataFrame(rows).astype({"keep": float, "rank": "Int64"}).assign(group=group_name(group))
    three = _three(bare=True)
    if brief:
        columns: tuple[Column, ...] = (
            Column("what", "", number=False),
            Column("keep", "kept", _kept),
            Column("clean_accuracy", "acc.", three),
            Column("p_noise", "p τ", row=_spread("p_noise", bare=True)),
            Column("noisy_loss", "noisy loss", three),
            Column("beyond_p_noise", "p τ beyond random", row=_spread("beyond_p_noise", bare=True, signed=True)),
        )
    else:
        columns = (
            Column("what", "What", number=False),
            Column("keep", "Kept", _kept),
            Column("rank", "Rank", plain),
            *(Column(measure, heading, row=_spread(measure)) for measure, heading in TITLES.items()),
            *(
                Column(
                    f"beyond_{measure}",
                    f"beyond random: {heading}",
                    row=_spread(f"beyond_{measure}", signed=True),
                )
                for measure, heading in COMPARED.items()
            ),
        )
    return Table("", frame, columns, title=title, caption=GROUP_CAPTION, mark=lambda row: row["what"] == FULL)


GROUP_CAPTION = (
    "Means over seeds with the lowest and the highest. Beyond random: the difference to a random projection of the same"
    " rank of the same seed's model."
)


def _shown_briefly(group: Group, row: CutSpreads) -> bool:
    return row.matrix in group.central and row.control != "random"


def _of_seeds(row: CutSpreads) -> Row:
    kind = {"deletion": "deleted", "drop-top": "less top", "random": "random"}.get(row.control or "", row.side or "")
    keep = None if row.control in ("deletion", "drop-top") else row.keep
    start = {"what": f"{row.matrix} {kind}", "matrix": row.matrix, "keep": keep, "rank": row.rank}
    return _spreads(start, row, row)


def _spreads(start: Row, measures: Any, row: CutSpreads | None) -> Row:
    full = dict(start)
    for measure in TITLES:
        full |= _columns(measure, measures.of(measure))
    for measure in COMPARED:
        full |= _columns(f"beyond_{measure}", row.beyond.of(measure) if row is not None and row.beyond else None)
    return full


def _columns(name: str, spread: Spread | None) -> Row:
    names = ("mean", "std", "least", "most")
    headings = (name, f"{name}_std", f"{name}_least", f"{name}_most")
    return {heading: spread and getattr(spread, part) for heading, part in zip(headings, names, strict=True)}


def _spread(name: str, *, signed: bool = False, bare: bool = False) -> Callable[[Any], str]:
    """What writes a mean over seeds with the lowest and the highest; nothing where there is none."""

    def write(row: Mapping[str, Any]) -> str:
        if row[name] is None:
            return ""
        spread = Spread(mean=row[name], std=row[f"{name}_std"], least=row[f"{name}_least"], most=row[f"{name}_most"])
        return study_findings.spread_text(spread, signed=signed, bare=bare)

    return write


def _random(measure: str) -> Callable[[Any], str]:
    """What writes the mean of random projections with the lowest and the highest draw."""

    def write(row: Mapping[str, Any]) -> str:
        mean, least, most = (row[f"random_{measure}{part}"] for part in ("", "_least", "_most"))
        return "" if mean is None else f"{mean:.3f}{wording.SPACE}[{least:.3f},{wording.SPACE}{most:.3f}]"

    return write


def _three(*, bare: bool = False) -> Callable[[Any], str]:
    return lambda value: "" if value is None else decimals(value, bare=bare)


def _form(digits: int) -> Callable[[Any], str]:
    return lambda value: wording.DASH if value is None else f"{value:.{digits}f}"


def _kept(keep: float | None) -> str:
    return "" if keep is None else wording.keep(keep)


def text(summary: RecallSummary | RecallStudySummary) -> RenderableType:
    """The terminal's account of a training or a study, within 80 columns."""
    return _training_text(summary) if isinstance(summary, RecallSummary) else _study_text(summary)


def _training_text(summary: RecallSummary) -> RenderableType:
    caption = (
        "top, bottom: the largest or smallest singular values kept. random: projections of the same rank, mean of"
        f" draws. Noisy loss: for a model that knows ȳ, the least is {decimals(summary.floor)} nats. Other matrices:"
        " summary.json."
    )
    sentences = (Text(sentence) for sentence in phases(summary))
    return Lines(_terminal(truncations(summary, brief=True)), Text(caption, style="dim"), *sentences)


def _study_text(summary: RecallStudySummary) -> RenderableType:
    parts: list[RenderableType] = []
    for of_seeds in summary.groups:
        parts += [_terminal(group(of_seeds, brief=True)), Text(study_findings.phases(of_seeds) + "\n")]
    caption = (
        "Means over seeds, in brackets the lowest and the highest. Beyond random: p(τ) less that behind a random"
        " projection of the same rank, mean of the draws of a seed."
    )
    return Lines(*parts, Text(caption, style="dim"))


def _terminal(table: Table) -> RenderableType:
    """The table within 80 columns: only headings wrap."""
    made = table.terminal()
    made.padding = (0, 1, 0, 0)
    for shown, column in zip(made.columns, table.columns, strict=True):
        shown.no_wrap = column.title.partition(" ")[0] not in ("clean", "noisy", "random")
    return made
