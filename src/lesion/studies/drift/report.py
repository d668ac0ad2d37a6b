"""The result of a drift study: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from typing_extensions import override

from lesion.core.options import asking
from lesion.core.result import StudyResult, progress_line
from lesion.report import plots, theme, wording
from lesion.report.blocks import Check, Folded, Series
from lesion.report.checks import untried
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves
from lesion.report.parts import Part
from lesion.report.rows import Record, Rows, parts_of
from lesion.report.table import Table
from lesion.report.values import WHOLE_SHARE, Mean, decimals
from lesion.report.wording import ALPHA, SPACE
from lesion.studies.drift.result import (
    CHECKS,
    Curve,
    CurveShape,
    Departure,
    DriftOfModel,
    DriftSummary,
    Layer,
    Leaving,
    OfModel,
    Tokens,
    Went,
    token_text,
    within,
)
from lesion.studies.drift.token_drift import named

NMI = decimals(2)
SLOPE = decimals(3)
NAMED = 2
"""So many classes, and so many tokens, are named among those that left."""
WIDE = 0.5
"""A place whose interval is wider than this share of all layers cannot be told."""


@rule
def how_much_they_leave(summary: DriftSummary) -> Iterable[Claim]:
    """How far NMI falls, and how much of that is occurrences of one token spreading.

    Says: Tokens leave their first clusters: agreement with the first clusters (NMI) falls by A after layer 1, with
    tokens kept whole by B. | Mostly, occurrences of one token move apart: agreement …. | Whole tokens
    leave too, by more than runs differ. | Whether whole tokens leave too cannot be told. | Agreement with the first
    clusters (NMI) is not seen to fall after layer 1.
    Needs: means over runs; mostly: less than half of the fall of NMI is left once every occurrence is in its token's
    most common cluster; as wholes: what is left is more than the standard deviations between runs at both ends
    """
    known = [model for model in summary.models if len(_later(model, "nmi")) > 1]
    if not known:
        return
    start, falls = f"after layer{SPACE}{summary.study.reference + 1}", [_fall(model, "nmi") for model in known]
    rows = tuple((model, model.curve, layer) for model in known for layer in model.curve.layers[1:])
    sentences = [f"Agreement with the first clusters (NMI) is not seen to fall {start}."]
    if max(falls) > 0:
        left = [_fall(model, "by_token") for model in known]
        mostly = all(by_token < fall / 2 for fall, by_token in zip(falls, left, strict=True))
        what = "Mostly, occurrences of one token move apart" if mostly else "Tokens leave their first clusters"
        beyond = [model for model in known if _is_beyond(_later(model, "by_token"))]
        where = f", in {len(beyond)} of {len(known)} models" * (len(known) > 1)
        more = f"Whole tokens leave too, by more than runs differ{where}."
        untold = "Whether whole tokens leave too cannot be told."
        sentences = [
            f"{what}: agreement with the first clusters (NMI) falls by {wording.from_to(falls, NMI)} {start}, with"
            f" tokens kept whole by {wording.from_to(left, NMI)}.",
            more if beyond else untold,
        ]
    yield Claim(tuple(sentences), rows)


def _later(model: DriftOfModel, measure: str) -> list[Mean]:
    """A measure after the reference layer, where it agrees with itself."""
    values = [getattr(layer, measure) for layer in model.curve.layers[1:]]
    return [value for value in values if value is not None]


def _fall(model: DriftOfModel, measure: str) -> float:
    first, *_, last = _later(model, measure)
    return first.mean - last.mean


def _is_beyond(values: Sequence[Mean]) -> bool:
    first, last = values[0], values[-1]
    return first.std is not None and last.std is not None and first.mean - first.std > last.mean + last.std


@rule
def where_they_leave(summary: DriftSummary) -> Iterable[Claim]:
    """Whether the fall of NMI is even, and the step or bend that it has instead.

    Says: The fall of NMI is not even (p): an extra step of D over block L; a bend at layer M. | An even fall is not
    rejected (p). | Whether the fall is even cannot be tested: there is one run, or too few layers.
    Needs: a test over runs that rejects a straight line, and a step or hinge whose p, which includes the search over
    places, is at most 0.05
    """
    shapes = [(model, shape) for model in summary.models if (shape := model.curve.shape)]
    tested = [(model, shape) for model, shape in shapes if shape.chosen != "untested"]
    if not tested:
        if summary.models:
            yield Claim(("Whether the fall is even cannot be tested: there is one run, or too few layers.",))
        return
    rows = tuple((model, line) for model, _ in tested if (line := model.curve.line))
    uneven = [(model, shape) for model, shape in tested if shape.chosen != "line"]
    p = [shape.line.p for _, shape in uneven or tested if shape.line.p is not None]
    tests, several = f" (p{SPACE}{wording.from_to(p, wording.p_value)})" if p else "", len(tested) > 1
    if not uneven:
        yield Claim((f"An even fall is not rejected{' in any model' * several}{tests}.",), rows)
        return
    where = f" in {len(uneven)} of {len(tested)} models" * several
    models = [model for model, _ in uneven]
    kinds = [text for kind in ("step", "hinge") if (text := _kind(models, kind, several))]
    neither = sum(model.curve.departure is None for model in models)
    kinds += [f"neither a step nor a bend is found{f' in {neither}' * several}"] * bool(neither)
    sentences = [f"The fall of NMI is not even{where}{tests}: {'; '.join(kinds)}."]
    doubts = []
    if alike := sum(bool(shape.departure and shape.is_either) for _, shape in uneven):
        doubts.append(f"in {alike} a bend and a step fit equally well")
    if unsure := [model.name for model in models if _is_wide(model)]:
        doubts.append(f"where it is in {wording.listed(unsure)} cannot be told")
    yield Claim((*sentences, *[f"{wording.capital('; '.join(doubts))}."] * bool(doubts)), rows)


def _kind(models: Sequence[DriftOfModel], kind: str, several: bool) -> str:
    """`an extra step of 0.08 over block 2`, `a bend at layer 3.4 [2.9, 4.2] in 2`."""
    of_kind = [at for model in models if (at := model.curve.departure) and at.kind == kind]
    if not of_kind:
        return ""
    count = f" in {len(of_kind)}" if several else ""
    size = wording.from_to([abs(at.size) for at in of_kind if at.size is not None], SLOPE)
    if kind == "step":
        return f"an extra step of {size} over {wording.numbered('block', sorted({at.block for at in of_kind}))}{count}"
    if several:
        return f"a bend at layers {wording.from_to([at.layer for at in of_kind], decimals(1))}{count}"
    before, after = (SLOPE(None if slope is None else -slope) for slope in of_kind[0].slopes)
    place = decimals(1).cell(of_kind[0].layer, of_kind[0].low, of_kind[0].high)
    return f"a bend at layer {place}, from a fall of {before} a layer to {after}"


def _is_wide(model: DriftOfModel) -> bool:
    at = model.curve.departure
    return at is not None and (at.high or 0.0) - (at.low or 0.0) > WIDE * model.blocks


@rule
def at_critical_blocks(summary: DriftSummary) -> Iterable[Claim]:
    """How many steps and bends lie within critical blocks, against chance.

    Says: N of these M places lie within critical blocks; chance gives C (p), so no link is shown. | N of these M places
    lie within critical blocks; chance gives C (p), so more do than by chance, if models are independent.
    Needs: a layer study of the same models; places whose whole interval is within critical blocks, against the share of
    possible places that are, by Poisson's binomial at 0.05, models taken for independent
    """
    known = [(model, at) for model in summary.models if model.critical_blocks and (at := model.curve.departure)]
    if not known:
        return
    chances = [model.within_by_chance() for model, _ in known]
    hits = sum(reach(model, at) == "lies within" for model, at in known)
    p = at_least(hits, chances)
    link = "so no link is shown" if p > ALPHA else "so more do than by chance, if models are independent"
    text = f"{hits} of these {len(known)} places lie within critical blocks"
    if len(known) == 1:
        text = f"It {reach(*known[0])} the critical {wording.numbered('block', known[0][0].critical_blocks)}"
    chance = f"chance gives {decimals(1)(sum(chances))} (p{SPACE}{wording.p_value(p)})"
    yield Claim(
        (f"{text}; {chance}, {link}.",), tuple((model, line) for model, _ in known if (line := model.curve.line))
    )


UNSURE = "cannot be placed in or out of"


def reach(model: DriftOfModel, departure: Departure) -> str:
    """`lies within` where the whole interval of a hinge or step is in critical blocks, `lies outside` where none is."""
    if departure.low is None or departure.high is None:
        return UNSURE
    places = np.linspace(departure.low, departure.high, 401).tolist()
    if departure.kind == "step":
        places = [block + 0.5 for block in range(int(departure.low), int(departure.high) + 1)]
    inside = [within(place, model.critical_blocks) for place in places]
    sure = {(True, True): "lies within", (False, False): "lies outside"}
    return sure.get((all(inside), any(inside)), UNSURE)


def at_least(hits: int, chances: Sequence[float]) -> float:
    """The chance of so many hits or more in independent trials with these chances (Poisson's binomial)."""
    tally = np.array([1.0])
    for chance in chances:
        tally = np.convolve(tally, [1 - chance, chance])
    return float(tally[hits:].sum())


@rule
def which_tokens_leave(summary: DriftSummary) -> Iterable[Claim]:
    """The classes and tokens that leave their cluster more often than all tokens do, the surest first.

    Says: Between layers L and M, S of all tokens leave their cluster; more do of the classes C, of the tokens T.
    Needs: classes: Wilson's interval above the overall share; tokens: at least five occurrences and a one-sided
    binomial test against the overall share, corrected by Holm over all types, at 0.05
    """
    for model in summary.models:
        tokens = model.tokens
        overall = tokens.overall.share.value or 0.0
        classes = [each for each in tokens.surest_classes if (each.share.low or 0.0) > overall][:NAMED]
        types = named(tokens.types, overall, sum(each.count for each in tokens.classes))[:NAMED]
        leavers = {
            "classes": [f"{each.kind} ({WHOLE_SHARE.text(each.share)})" for each in classes],
            "tokens": [f"“{token_text(each.token)}” ({WHOLE_SHARE.text(each.share)})" for each in types],
        }
        parts = [f"of the {kind} {wording.listed(names)}" for kind, names in leavers.items() if names]
        more = "; more do " * bool(parts) + "; ".join(parts)
        text = (
            f"Between layers {tokens.start} and {tokens.end}, {WHOLE_SHARE.text(overall)} of all tokens leave their"
            f" cluster{more}."
        )
        rows = tuple((model, tokens, each) for each in (*classes, *types))
        yield Claim((text,), rows, wording.among(model.name, [other.name for other in summary.models]))


METHOD = (
    "The hidden states of prompts and the models' own solutions are clustered at every layer by k-means; normalised"
    " mutual information (NMI) says how much those clusters still tell about the clusters of layer 0."
)
READING = (
    f"{METHOD} It is 1 where the two are the same up to names. Many clusters of few tokens agree by chance: shuffled"
    " tokens show how much. After Nepal et al. (2025), who draw 50 clusters over five runs of twenty problems.",
    "Layer 0 is what enters block 0, layer l the output of block l − 1. With rotary positions its vectors are token"
    " identity alone, so that NMI falls wherever occurrences of one token spread. Tokens whole: every occurrence is put"
    " into the most common cluster of its token; what still falls then is tokens of one first cluster that part.",
    "A bend (hinge, the paper's elbow) is where the slope changes, a step where the level does; their p include the"
    " search over places. At a critical block it does not show that one causes the other.",
    "Tokens: clusters of two layers are matched one to one so that most tokens stay. k-means alone moves tokens, so a"
    " share is to be compared with that of all tokens. Intervals are too narrow: words of one text go together.",
)
SHAPES_CAPTION = (
    "Line: p of an even fall. Shape: the step or hinge chosen where the line is rejected; beside it the best of both."
    " 80 % power from: the smallest change that 80 % of such studies would find. Apart: layers from the nearest"
    " critical block, negative before it. As near by chance: the share of all places that are."
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
        return plots.layered(*bands, super().chart(records, every))

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
    CHAPTER = (METHOD, "Drift")
    READING = READING
    TESTED = (
        "A step or bend is called where a test over runs rejects a straight line, and its own p, which includes the"
        " search over places, is at most .05."
    )

    measured: int = 0

    @override
    def done(self) -> list[str]:
        return [progress_line("clustered", self.measured, self.planned, " runs")] if self.planned else []

    @property
    @override
    def basis(self) -> str:
        study, models = self.summary.study, self.summary.models
        tokens = [run.tokens for model in models for run in model.runs]
        amount = f" ({wording.span(min(tokens), max(tokens))} tokens each)" if tokens else ""
        clusters = ", ".join(map(str, sorted({model.clusters for model in models})))
        sizes = [size for model in models if (s := model.curve.shape) and (size := s.step.detectable) is not None]
        missed = f" Steps of NMI under {NMI(max(sizes))} can be missed." if sizes else ""
        runs, problems = wording.counted(study.runs, "run"), wording.counted(study.items, "problem")
        return (
            f"{runs} of {problems}{amount}, {clusters} clusters; bands: ± one standard deviation between runs.{missed}"
        )

    @override
    def checks(self) -> list[Check]:
        models, checks = self.summary.models, []
        if ceilings := [model.curve.ceiling for model in models if model.curve.ceiling is not None]:
            checks.append(
                Check("good", f"Two clusterings of one layer agree to an NMI of {NMI(min(ceilings))} or more.")
            )
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
        models = [model.name for model in study.models]
        return untried(what, "drift", models, [study.task.name], option, asking(study, option))

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        first = f"layer {summary.study.reference}"
        drawn = [(model, curve, layer) for model, curve in _curves(summary) for layer in curve.layers]
        layers = Rows("drift", drawn, (DriftOfModel, Curve, Layer), "All layers")
        shapes = [(model, line) for model, curve in _curves(summary) if (line := curve.line) is not None]
        leaving = [(m, m.tokens, t) for m in summary.models for t in (*m.tokens.surest_classes, *m.tokens.types)]
        flow = Rows(
            "flow", [(model, model.tokens, pair) for model in summary.models for pair in model.tokens.went],
            (OfModel, Tokens, Went), "Where the tokens of every cluster went",
            "Clusters of the first run are named by their most common tokens. Its own: the cluster it is matched with.",
        )  # fmt: skip
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
                    Curves(CHECKS, "layer", panel="name", name="similarity", axis="similarity", high=1.0, only=only,
                           caption=f"Similarity of the vectors with those of {first}, without clusters."),
                    Curves("with_class", "layer", "name", name="classes", only=only, **axis,
                           caption="NMI with the classes of tokens (digit, word, …)."),
                    Curves("nmi", "layer", "clusters", panel="name", name="clusters", **axis),
                ),
                how_much_they_leave(summary),
            ),
            Part(
                "Is the fall even, and is it steeper at critical blocks?",
                Rows("shapes", shapes, (DriftOfModel, CurveShape), "Shapes", SHAPES_CAPTION),
                claims=(*where_they_leave(summary), *at_critical_blocks(summary)),
                short="Shapes",
            ),
            Part("Which tokens left their cluster?",
                 Rows("tokens", leaving, (OfModel, Tokens, Leaving), "Classes and tokens"), (),
                 which_tokens_leave(summary), short="Tokens", own=(Folded(flow.title, (Table.of(flow),)),), wide=True),
        )  # fmt: skip


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
