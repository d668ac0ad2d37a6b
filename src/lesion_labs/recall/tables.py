"""The tables of the recall laboratory, and what it prints in a terminal."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from lesion.report import wording
from lesion.report.forms import Write
from lesion.report.forms import decimals as with_decimals
from lesion.report.table import Column, Table
from lesion_labs.recall import study_findings
from lesion_labs.recall.findings import phases
from lesion_labs.recall.result import Measures, RecallSummary, Spread
from lesion_labs.recall.study_findings import decimals, group_name, spread_text
from lesion_labs.recall.study_result import CutSpreads, Group, RecallStudySummary, Spreads

TITLES = {
    "clean_accuracy": "accuracy",
    "p_noise": "p τ",
    "p_correct": "p ȳ",
    "clean_loss": "clean loss",
    "noisy_loss": "noisy loss",
}
COMPARED = {"clean_accuracy": "accuracy", "p_noise": "p τ"}
"""Measures beside which those of random projections stand."""
FULL = "full model"
CONTROLS = {"deletion": "deleted", "drop-top": "less top", "random": "random"}
GROUP_CAPTION = (
    "Means over seeds with the lowest and the highest. Beyond random: the difference to a random projection of the same"
    " rank of the same seed's model."
)

Row = dict[str, object]


def predictions(summary: RecallSummary) -> Table:
    """What the full model predicts at the questions on noisy sequences, against what follows."""
    shares = summary.training[-1].table
    rows = [
        ("τ is predicted", shares.predicted_noise_label_noise, shares.predicted_noise_label_other),
        ("another is predicted", shares.predicted_other_label_noise, shares.predicted_other_label_other),
    ]
    return Table(
        "",
        pd.DataFrame(rows, columns=["predicted", "noise", "other"]),
        (
            Column("predicted", "On noisy sequences", number=False),
            Column("noise", "τ follows", wording.percent),
            Column("other", "another follows", wording.percent),
        ),
        title="What is predicted and what follows",
        caption="The full model's most probable token against the token that follows, in % of"
        f" {wording.counted(summary.questions.noisy, 'question')}. Noise is drawn independently: nothing in a sequence"
        " tells where it will be.",
    )


def spectra(summary: RecallSummary) -> Table:
    """The largest singular values of every matrix before and after training."""
    places = ("largest", "second", "third")
    rows = [
        {"matrix": matrix, "before": spectrum.before}
        | {place: dict(enumerate(spectrum.values)).get(number) for number, place in enumerate(places)}
        | {"noise": spectrum.noise}
        for matrix, spectrum in summary.spectra.items()
    ]
    titles = {"before": "Largest before", **{place: place.capitalize() for place in places}}
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("matrix", "Matrix", number=False),
            *(
                Column(key, title, with_decimals(2))
                for key, title in {**titles, "noise": "Its top writes τ, |cos|"}.items()
            ),
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
    rows = [{"what": FULL, "keep": None, "rank": None} | _measures(summary.full, {})]
    for matrix in summary.central if brief else dict.fromkeys(row.matrix for row in summary.truncated):
        cuts = [*summary.rows(matrix, "deletion"), *summary.rows(matrix, "drop-top")]
        cuts += [*summary.rows(matrix, side="top"), *summary.rows(matrix, side="bottom")]
        for row in cuts:
            beside = row.control is None and row.side == "top"
            random = {measure: summary.drawn(matrix, row.rank, measure) if beside else None for measure in COMPARED}
            keep = None if row.control else row.keep
            what = f"{matrix} {CONTROLS.get(row.control or '', row.side)}"
            rows.append({"what": what, "keep": keep, "rank": row.rank} | _measures(row, random))
    three = _three(bare=brief)
    if brief:
        columns = [Column("what", "", number=False), Column("keep", "kept", _kept)]
        titles, compared = TITLES | {"clean_accuracy": "clean acc."}, COMPARED | {"clean_accuracy": "acc."}
        columns += [Column(measure, title, three) for measure, title in titles.items()]
        columns += [Column(f"random_{measure}", f"random {title}", three) for measure, title in compared.items()]
    else:
        columns = [Column("what", "What", number=False), Column("keep", "Kept", _kept), Column("rank", "Rank")]
        columns += [Column(measure, title, three) for measure, title in TITLES.items()]
        columns += [_spread_column(f"random_{measure}", f"random {title}") for measure, title in COMPARED.items()]
    return Table(
        "",
        pd.DataFrame(rows).astype({"keep": float, "rank": "Int64"}),
        tuple(columns),
        title="Truncations",
        caption="On clean sequences except for the noisy loss; losses in nats. Random: projections of the same rank,"
        " mean with the lowest and the highest draw; the draws one by one are in summary.json.",
        mark=lambda row: row["what"] == FULL,
    )


def _measures(measures: Measures, random: Mapping[str, Spread | None]) -> Row:
    row: Row = {measure: measures.of(measure) for measure in TITLES}
    for measure in COMPARED:
        columns = _columns(f"random_{measure}", random.get(measure))
        row |= {name: value for name, value in columns.items() if not name.endswith("_std")}
    return row


def group(group: Group, *, brief: bool = False) -> Table:
    """The full model and every replacement of every matrix, means over seeds with the lowest and the highest.

    Args:
        brief: for a terminal: the central matrices without random projections, and fewer measures.
    """
    rows = [_spreads({"what": FULL, "matrix": None, "keep": None, "rank": None}, group.full, None)]
    rows += [
        _of_seeds(row)
        for row in group.truncated
        if not brief or (row.matrix in group.central and row.control != "random")
    ]
    name = group_name(group)
    frame = pd.DataFrame(rows).astype({"keep": float, "rank": "Int64"}).assign(group=name)
    if brief:
        columns = [
            Column("what", "", number=False),
            Column("keep", "kept", _kept),
            Column("clean_accuracy", "acc.", _three(bare=True)),
            _spread_column("p_noise", "p τ", bare=True),
            Column("noisy_loss", "noisy loss", _three(bare=True)),
            _spread_column("beyond_p_noise", "p τ beyond random", bare=True, signed=True),
        ]
    else:
        columns = [Column("what", "What", number=False), Column("keep", "Kept", _kept), Column("rank", "Rank")]
        columns += [_spread_column(measure, title) for measure, title in TITLES.items()]
        columns += [
            _spread_column(f"beyond_{measure}", f"beyond random: {title}", signed=True)
            for measure, title in COMPARED.items()
        ]
    title = f"{name}; {wording.counted(len(group.seeds), 'seed')}"
    return Table("", frame, tuple(columns), title=title, caption=GROUP_CAPTION, mark=lambda row: row["what"] == FULL)


def _of_seeds(row: CutSpreads) -> Row:
    keep = None if row.control in ("deletion", "drop-top") else row.keep
    what = f"{row.matrix} {CONTROLS.get(row.control or '', row.side)}"
    return _spreads({"what": what, "matrix": row.matrix, "keep": keep, "rank": row.rank}, row, row.beyond)


def _spreads(start: Row, measures: Spreads, beyond: Spreads | None) -> Row:
    row = dict(start)
    for measure in TITLES:
        row |= _columns(measure, measures.of(measure))
    for measure in COMPARED:
        row |= _columns(f"beyond_{measure}", beyond.of(measure) if beyond else None)
    return row


def _columns(name: str, spread: Spread | None) -> Row:
    parts = {name: "mean", f"{name}_std": "std", f"{name}_least": "least", f"{name}_most": "most"}
    return {column: spread and getattr(spread, part) for column, part in parts.items()}


def _spread_column(key: str, title: str, *, signed: bool = False, bare: bool = False) -> Column:
    """A mean with the lowest and the highest; empty where there is none."""

    def write(row: Mapping[str, float]) -> str:
        if row[key] is None:
            return ""
        std = row.get(f"{key}_std", 0.0)
        spread = Spread(mean=row[key], std=std, least=row[f"{key}_least"], most=row[f"{key}_most"])
        return spread_text(spread, signed=signed, bare=bare)

    return Column(key, title, row=write)


def _three(*, bare: bool = False) -> Write:
    return lambda value: "" if value is None else decimals(value, bare=bare)


def _kept(keep: float | None) -> str:
    return "" if keep is None else wording.keep(keep)


def text(summary: RecallSummary | RecallStudySummary) -> RenderableType:
    """The terminal's account of a training or a study, within 80 columns."""
    if isinstance(summary, RecallSummary):
        caption = (
            "top, bottom: the largest or smallest singular values kept. random: projections of the same rank, mean of"
            f" draws. Noisy loss: for a model that knows ȳ, the least is {decimals(summary.floor)} nats. Other"
            " matrices: summary.json."
        )
        sentences = map(Text, phases(summary))
        return Lines(_terminal(truncations(summary, brief=True)), Text(caption, style="dim"), *sentences)
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
