"""The result of a drift study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.report import blocks as page_blocks
from lesion.report import plots, theme, wording
from lesion.report.blocks import Check, Folded, Page, Prose, Series
from lesion.report.checks import untried
from lesion.report.files import fragment
from lesion.report.forms import WHOLE_SHARE, decimals
from lesion.report.marks import Curves
from lesion.report.parts import Part
from lesion.report.rows import Record, Rows, parts_of
from lesion.report.story import Chapter
from lesion.report.table import Table
from lesion.studies.drift import claims, token_drift
from lesion.studies.drift.result import (
    CHECKS,
    Curve,
    CurveShape,
    DriftOfModel,
    DriftSummary,
    Layer,
    Leaving,
    OfModel,
    Tokens,
    Went,
)

METHOD = (
    "The hidden states of prompts and the models' own solutions are clustered at every layer by k-means; normalised"
    " mutual information (NMI) says how much those clusters still tell about the clusters of layer 0."
)
READING = (
    f"{METHOD} It is 1 where the two are the same up to names. Many clusters of few tokens agree by chance: shuffled"
    " tokens show how much. After Nepal et al. (2025), who draw 50 clusters over five runs of twenty problems.",
    "Layer 0 is what enters block 0, layer l the output of block l − 1, so block c stands between the layers c and"
    " c + 1. Layer 0 agrees with itself by definition. With rotary positions its vectors are token identity alone, so"
    " that NMI falls wherever occurrences of one token spread. Tokens whole: every occurrence is put into the most"
    " common cluster of its token; what still falls then is tokens of one first cluster that part.",
    "A bend (hinge, the paper's elbow) is where the slope changes, a step where the level does. Both are fitted to all"
    " runs, each with a line of its own; their p include the search over places. A curve that bends slowly has a hinge"
    " too, with a wide interval.",
    "A step or bend at a critical block does not show that one causes the other. Models of one base are not independent"
    " evidence.",
    "Cosine (mean over tokens) and CKA (linear, centred) need no clusters. Where they fall over the same blocks, the"
    " drift is not made by k-means.",
    "Tokens: clusters of two layers are matched one to one so that most tokens stay. k-means alone moves tokens, so a"
    " share is to be compared with that of all tokens. Intervals take occurrences for independent, which those of one"
    " text are not: they are too narrow.",
)
LAYERS_CAPTION = (
    "Mean ± standard deviation over runs. Layer 0 is what enters block 0, layer l the output of block l − 1."
)
SHAPES_CAPTION = (
    "Line: p of an even fall. Shape: the step or hinge chosen where the line is rejected; beside it the best of both."
    " 80 % power from: the smallest change that 80 % of such studies would find. Critical block: the nearest. Apart:"
    " layers from it, negative before it, 0 within it. As near by chance: the share of all places that are."
)


BAND = 0.16
"""The opacity of what stands behind the curves, on the chart and in its key."""


@dataclass(frozen=True)
class AtPlaces(Curves):
    """Curves of a model before its critical blocks and the interval of its hinge or step."""

    @override
    @plots.unvalidated
    def chart(self, records: Sequence[Record], every: Sequence[Record]) -> alt.LayerChart:
        across = self.across(every)
        bands = [
            alt.Chart(pd.DataFrame(places, columns=["start", "through"]))
            .mark_rect(color=colour, opacity=BAND)
            .encode(x=plots.x(across, "start"), x2=alt.X2(field="through"))
            for _, colour, places in _bands(records[0])
        ]
        return alt.layer(*bands, super().chart(records, every))

    @override
    def legend(self, records: Sequence[Record]) -> tuple[Series, ...]:
        drawn = {name: colour for record in records for name, colour, places in _bands(record) if places}
        return *super().legend(records), *(Series(name, colour=colour, area=BAND) for name, colour in drawn.items())


def _bands(record: Record) -> tuple[tuple[str, str, list[tuple[float, float]]], ...]:
    """What stands behind the curves of a model: its name, its colour, and from where to where it goes."""
    model, curve, *_ = parts_of(record)
    assert isinstance(model, DriftOfModel)
    assert isinstance(curve, Curve)
    blocks, reach = [(float(block), block + 1.0) for block in model.critical_blocks], []
    if (at := curve.departure) is not None:
        low, high = (at.layer if end is None else end for end in (at.low, at.high))
        # A step is as wide as its block, and a hinge wide enough to be seen.
        reach = [(float(int(low)), int(high) + 1.0) if at.kind == "step" else (low, max(high, low + 0.04))]
    return ("critical block", theme.SOFT, blocks), ("step or bend", theme.LOSS, reach)


@dataclass(frozen=True)
class DriftResult(StudyResult[DriftSummary]):
    """A drift study: its numbers.

    Attributes:
        evaluated: own solutions generated in this run, without those stored before.
        planned: runs of a model under a number of clusters that the study consists of; 0 where it was not run now.
        measured: of these, how many were clustered now.
        table: one row per model, number of clusters and layer: mean and standard deviation over runs, as `drift.csv`.
            Cosine, CKA and the agreement with labels (columns `nmi with LABEL`) do not depend on the number of clusters
            or are measured under the drawn one alone; in other rows they are missing.
    """

    SUMMARY = DriftSummary
    EYEBROW = "representation drift"
    READING = READING

    measured: int = 0

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per model and token type or class between two layers, as `tokens.csv`."""
        return self._tokens().frame

    @override
    def done(self) -> list[str]:
        return [progress_line("clustered", self.measured, self.planned, " runs")] if self.planned else []

    @override
    def chapter(self) -> Chapter:
        return Chapter.of(self.shown_parts, METHOD, "Drift")

    @property
    @override
    def basis(self) -> str:
        study, models = self.summary.study, self.summary.models
        tokens = [run.tokens for model in models for run in model.runs]
        amount = f" ({wording.span(min(tokens), max(tokens))} tokens each)" if tokens else ""
        clusters = ", ".join(map(str, sorted({model.clusters for model in models})))
        sizes = [size for model in models if (s := model.curve.shape) and (size := s.step.detectable) is not None]
        missed = f" Steps of NMI under {decimals(2)(max(sizes))} would be missed." if sizes else ""
        runs, problems = wording.counted(study.runs, "run"), wording.counted(study.items, "problem")
        return (
            f"{runs} of {problems}{amount}, {clusters} clusters; bands: ± one standard deviation between runs.{missed}"
        )

    @override
    def checks(self) -> list[Check]:
        models, checks = self.summary.models, []
        if ceilings := [model.curve.ceiling for model in models if model.curve.ceiling is not None]:
            alike = decimals(2)(min(ceilings))
            checks.append(Check("good", f"Two clusterings of one layer agree to an NMI of {alike} or more."))
        lowest = [f"{model.name}: {wording.numbered('layer', low)}" for model in models if (low := lost(model))]
        text = f"Like shuffled tokens: {'; '.join(lowest)}." if lowest else "Every layer is above shuffled tokens."
        checks.append(Check("bad" if lowest else "good", text))
        if self.summary.study.runs == 1:
            checks.append(self._untried("A test over several runs", "--runs 5"))
        if models and all(model.critical is None for model in models):
            checks.append(self._untried("A comparison with critical blocks", "--study FOLDER"))
        return checks

    def _untried(self, what: str, option: str) -> Check:
        study = self.summary.study
        return untried(what, "drift", [model.name for model in study.models], [study.task.name], option)

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        first = f"layer {summary.reference}"
        drawn = [(model, curve, layer) for model, curve in _curves(summary) for layer in curve.layers]
        layers = Rows("drift", drawn, (DriftOfModel, Curve, Layer), "All layers", LAYERS_CAPTION)
        shapes = [(model, line) for model, curve in _curves(summary) if (line := curve.line) is not None]
        only = {"clusters": tuple({model.clusters for model in summary.models})}
        axis: dict[str, Any] = {"axis": "NMI", "low": 0.0, "high": 1.0}
        caption = (
            f"NMI of the clusters at each layer with those of {first}, with the tokens themselves, and with those of"
            f" {first} where each token is kept whole. Grey: critical blocks; shaded: step or bend with its interval."
        )
        return (
            Part(
                "Do tokens leave their first clusters, and where?",
                layers,
                (
                    AtPlaces(("nmi", "with_token", "by_token", "null"), "layer", panel="name", only=only,
                             caption=caption, **axis),
                    *(
                        Curves(measure, "layer", "name", name=measure, high=1.0, only=only,
                               caption=f"{wording.capital(CHECKS[measure])} with {first}, without clusters.")
                        for measure in CHECKS
                    ),
                    Curves("with_class", "layer", "name", name="classes", only=only, **axis,
                           caption="NMI with the classes of tokens (digit, word, …)."),
                    Curves("nmi", "layer", "clusters", panel="name", name="clusters", **axis,
                           caption="Under every number of clusters."),
                ),
                claims.how_much_they_leave(summary),
            ),
            Part(
                "Is the fall even, and is it steeper at critical blocks?",
                Rows("shapes", shapes, (DriftOfModel, CurveShape), "Shapes", SHAPES_CAPTION),
                claims=(*claims.where_they_leave(summary), *claims.at_critical_blocks(summary)),
                short="Shapes",
            ),
            Part("Which tokens left their cluster?", claims=claims.which_tokens_leave(summary), short="Tokens",
                 own=_explorer(summary), wide=True),
        )  # fmt: skip

    def _tokens(self) -> Table:
        leaving = [(m, m.tokens, t) for m in self.summary.models for t in (*m.tokens.surest_classes, *m.tokens.types)]
        return Table.of(Rows("tokens", leaving, (OfModel, Tokens, Leaving)))

    @override
    def page(self) -> Page:
        went = [(model, model.tokens, pair) for model in self.summary.models for pair in model.tokens.went]
        page, flow = super().page(), Table.of(Rows("flow", went, (OfModel, Tokens, Went)))
        return replace(page, tables=(*page.tables, self._tokens(), flow))


def lost(model: DriftOfModel) -> list[int]:
    """The layers at which NMI, less a standard deviation, is no higher than the null reaches."""
    return [
        layer.layer
        for layer in model.curve.layers
        if layer.nmi and layer.null_high and layer.nmi.mean - (layer.nmi.std or 0.0) <= layer.null_high.mean
    ]


def _curves(summary: DriftSummary) -> list[tuple[DriftOfModel, Curve]]:
    """Every curve with its model; of each model the drawn one comes first."""
    return [
        (model, curve)
        for model in summary.models
        for curve in sorted(model.curves, key=lambda curve: curve.clusters != model.clusters)
    ]


def _explorer(summary: DriftSummary) -> tuple[page_blocks.Block, ...]:
    """The tokens that left, each with its occurrences."""
    if not summary.models:
        return ()
    template = Path(__file__).parent / "tokens.html.jinja"
    markup = fragment(
        template,
        models=summary.models,
        share=WHOLE_SHARE,
        shown=token_drift.shown,
        token_text=token_drift.token_text,
    )
    about = Prose(("Open a row to read occurrences that left; the vertical line is the share of all tokens.",))
    return (Folded("Every class and token, with occurrences that left", (about, page_blocks.Part(markup))),)
