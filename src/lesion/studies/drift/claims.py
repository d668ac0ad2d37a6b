"""What a drift study claims: how much tokens leave their first clusters, where, at critical blocks, and which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import WHOLE_SHARE, Form, decimals
from lesion.report.values import Mean
from lesion.report.wording import ALPHA, SPACE
from lesion.studies.drift.critical_blocks import within
from lesion.studies.drift.result import Departure, DriftOfModel, DriftSummary, Leaving
from lesion.studies.drift.token_drift import named, token_text

NMI = decimals(2)
SLOPE = decimals(3)
NAMED = 2
"""So many classes, and so many tokens, are named among those that left."""
NOT_FALLING = "Agreement with the first clusters (NMI) is not seen to fall {start}."
FALLING = "{what}: agreement with the first clusters (NMI) falls by {fall} {start}, with tokens kept whole by {whole}."
WHAT = ("Tokens leave their first clusters", "Mostly, occurrences of one token spread")
IDENTITY = "Agreement with the tokens themselves falls as well, by {fall}."
WHOLE = "Tokens leave as wholes too, beyond the spread between runs{where}."
WHOLE_UNTOLD = "Whether tokens leave as wholes too cannot be told."
UNEVEN = "The fall of NMI is not even{where}{p}: {kinds}."
EVEN = "An even fall is not rejected{where}{p}."
UNTESTED = "Whether the fall is even cannot be tested: there is one run, or too few layers."
LEAVE = "Between layers {start} and {end}, {share} of all tokens leave their cluster{more}."
FIRST = 0.25
"""A hinge or step within this many layers after the first step still marks the end of that step."""
WIDE = 0.5
"""A place whose interval is wider than this share of all layers cannot be told."""


@rule(
    *(FALLING.replace("{what}", what) for what in WHAT),
    IDENTITY,
    WHOLE,
    WHOLE_UNTOLD,
    NOT_FALLING,
    needs="means over runs; mostly: less than half of the fall of NMI is left once every occurrence is in its token's"
    " most common cluster; as wholes: what is left is more than the standard deviations between runs at both ends",
)
def how_much_they_leave(summary: DriftSummary) -> Iterable[Claim]:
    """How far NMI falls, how much of that is occurrences of one token spreading, and what is more."""
    known = [model for model in summary.models if len(_later(model, "nmi")) > 1]
    if not known:
        return
    start, falls = f"after layer{SPACE}{summary.reference + 1}", [_fall(model, "nmi") for model in known]
    rows = tuple((model, model.curve, layer) for model in known for layer in model.curve.layers[1:])
    if max(falls) <= 0:
        yield Claim((NOT_FALLING.format(start=start),), rows)
        return
    whole = [model for model in known if len(_later(model, "by_token")) > 1]
    if not whole:
        yield Claim((f"Agreement with the first clusters (NMI) falls by {_range(falls)} {start}.",), rows)
        return
    left = [_fall(model, "by_token") for model in whole]
    mostly = all(by_token < _fall(model, "nmi") / 2 for model, by_token in zip(whole, left, strict=True))
    sentences = [FALLING.format(what=WHAT[mostly], fall=_range(falls), start=start, whole=_range(left))]
    if identity := [_fall(model, "with_token") for model in known if len(_later(model, "with_token")) > 1]:
        sentences.append(IDENTITY.format(fall=_range(identity)))
    beyond = [model for model in whole if _is_beyond(_later(model, "by_token"))]
    where = "" if len(known) == 1 else f", in {_of(len(beyond), len(known))} models"
    sentences.append(WHOLE.format(where=where) if beyond else WHOLE_UNTOLD)
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


@rule(
    UNEVEN,
    EVEN,
    UNTESTED,
    needs="a test over runs that rejects a straight line, and a step or hinge whose p, which includes the search over"
    f" places, is at most {ALPHA:g}",
)
def where_they_leave(summary: DriftSummary) -> Iterable[Claim]:
    """Whether the fall of NMI is even, and the step or bend that it has instead."""
    if not summary.models:
        return
    tested = [model for model in summary.models if (shape := model.curve.shape) and shape.chosen != "untested"]
    if not tested:
        yield Claim((UNTESTED,))
        return
    rows = tuple((model, line) for model in tested if (line := model.curve.line))
    uneven = [model for model in tested if model.curve.shape and model.curve.shape.chosen != "line"]
    p = [shape.line.p for model in uneven or tested if (shape := model.curve.shape) and shape.line.p is not None]
    tests = f" (p{SPACE}{_p_range(p)})" if p else ""
    several = len(tested) > 1
    if not uneven:
        yield Claim((EVEN.format(where=" in any model" if several else "", p=tests),), rows)
        return
    where = f" in {_of(len(uneven), len(tested))} models" if several else ""
    kinds = [text for kind in ("step", "hinge") if (text := _kind(uneven, kind, several))]
    neither = [model for model in uneven if model.curve.departure is None]
    if neither:
        kinds.append("neither a step nor a bend is found" + (f" in {len(neither)}" if several else ""))
    sentences = [UNEVEN.format(where=where, p=tests, kinds="; ".join(kinds))]
    earliest = summary.reference + 1 + FIRST
    elsewhere = [model for model in uneven if (at := model.curve.departure) and at.layer <= earliest]
    doubts = [f"in {len(elsewhere)} it marks only the end of the first step"] if elsewhere else []
    if alike := [model for model in uneven if (shape := model.curve.shape) and shape.departure and shape.is_either]:
        doubts.append(f"in {len(alike)} a bend and a step fit equally well")
    if unsure := [model.name for model in uneven if _is_wide(model)]:
        doubts.append(f"where it is in {wording.listed(unsure)} cannot be told")
    if doubts:
        sentences.append(f"{wording.capital('; '.join(doubts))}.")
    yield Claim(tuple(sentences), rows)


def _kind(models: Sequence[DriftOfModel], kind: str, several: bool) -> str:
    """`an extra step of 0.08 over block 2`, `a bend at layer 3.4 [2.9, 4.2] in 2`."""
    own = [at for model in models if (at := model.curve.departure) and at.kind == kind]
    if not own:
        return ""
    count = f" in {len(own)}" if several else ""
    size = _range([abs(at.size) for at in own if at.size is not None], SLOPE)
    if kind == "step":
        return f"an extra step of {size} over {wording.numbered('block', sorted({at.block for at in own}))}{count}"
    if several:
        return f"a bend at layers {_range([at.layer for at in own], decimals(1))}{count}"
    before, after = (SLOPE(None if slope is None else -slope) for slope in own[0].slopes)
    place = decimals(1).cell(own[0].layer, own[0].low, own[0].high)
    return f"a bend at layer {place}, from a fall of {before} a layer to {after}"


def _is_wide(model: DriftOfModel) -> bool:
    at = model.curve.departure
    return at is not None and (at.high or 0.0) - (at.low or 0.0) > WIDE * model.blocks


@rule(
    "N of M steps and bends lie within critical blocks; chance gives C, so no link is shown.",
    "N of M steps and bends lie within critical blocks; chance gives C: more than chance.",
    needs="a layer study of the same models; places whose whole interval is within critical blocks, against the share"
    f" of possible places that are, by Poisson's binomial at {ALPHA:g}, models taken for independent",
)
def at_critical_blocks(summary: DriftSummary) -> Iterable[Claim]:
    """How many steps and bends lie within critical blocks, against chance."""
    known = [(model, at) for model in summary.models if model.critical_blocks and (at := model.curve.departure)]
    if not known:
        return
    chances = [model.within_by_chance() for model, _ in known]
    hits = sum(reach(model, at) == "lies within" for model, at in known)
    p = at_least(hits, chances)
    link = "so no link is shown" if p > ALPHA else "so more do than by chance, if models are independent"
    numbers = f"chance gives {decimals(1)(sum(chances))} (p{SPACE}{wording.p_value(p)}), {link}"
    rows = tuple((model, line) for model, _ in known if (line := model.curve.line))
    text = f"{wording.capital(_of(hits, len(known)))} of these places lie within critical blocks"
    if len(known) == 1:
        text = f"It {reach(*known[0])} the critical {wording.numbered('block', known[0][0].critical_blocks)}"
    yield Claim((f"{text}; {numbers}.",), rows)


def reach(model: DriftOfModel, departure: Departure) -> str:
    """`lies within` where the whole interval of a hinge or step is in critical blocks, `lies outside` where none is."""
    if departure.low is None or departure.high is None:
        return "cannot be placed in or out of"
    places = np.linspace(departure.low, departure.high, 401).tolist()
    if departure.kind == "step":
        places = [block + 0.5 for block in range(int(departure.low), int(departure.high) + 1)]
    inside = [within(place, model.critical_blocks) for place in places]
    return "lies within" if all(inside) else "cannot be placed in or out of" if any(inside) else "lies outside"


def at_least(hits: int, chances: Sequence[float]) -> float:
    """The chance of so many hits or more in independent trials with these chances (Poisson's binomial)."""
    tally = np.array([1.0])
    for chance in chances:
        tally = np.convolve(tally, [1 - chance, chance])
    return float(tally[hits:].sum())


@rule(
    LEAVE,
    needs="classes: Wilson's interval above the overall share; tokens: at least five occurrences and a one-sided"
    f" binomial test against the overall share, corrected by Holm over all types, at {ALPHA:g}",
)
def which_tokens_leave(summary: DriftSummary) -> Iterable[Claim]:
    """The classes and tokens that leave their cluster more often than all tokens do, the surest first."""
    for model in summary.models:
        tokens = model.tokens
        overall = tokens.overall.share.value or 0.0
        classes = [each for each in tokens.surest_classes if (each.share.low or 0.0) > overall][:NAMED]
        types = named(tokens.types, overall, sum(each.count for each in tokens.classes))[:NAMED]
        parts = [
            f"of the {kind} {wording.listed([_leaver(each) for each in more])}"
            for kind, more in (("classes", classes), ("tokens", types))
            if more
        ]
        more = f"; more do {'; '.join(parts)}" if parts else ""
        text = LEAVE.format(start=tokens.start, end=tokens.end, share=WHOLE_SHARE.text(overall), more=more)
        subject = model.name if len(summary.models) > 1 else ""
        yield Claim((text,), tuple((model, tokens, each) for each in (*classes, *types)), subject)


def _leaver(leaving: Leaving) -> str:
    name = leaving.kind if leaving.token is None else f"“{token_text(leaving.token)}”"
    return f"{name} ({WHOLE_SHARE.text(leaving.share)})"


def _range(values: Sequence[float], form: Form = NMI) -> str:
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def _p_range(values: Sequence[float]) -> str:
    low, high = wording.p_value(min(values)), wording.p_value(max(values))
    return low if low == high else f"{low} to {high}"


def _of(part: int, whole: int) -> str:
    return f"all {whole}" if part == whole else f"{part} of {whole}" if part else f"none of {whole}"
