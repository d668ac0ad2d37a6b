"""Drift studies made for tests: curves with a hinge and noise, counted tokens, everything by a seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lesion.report.values import Estimate, Mean
from lesion.statistics.paired import wilson
from lesion.studies.drift.result import (
    Curve,
    Departure,
    Destination,
    DriftOfModel,
    DriftSummary,
    Example,
    Flow,
    Layer,
    Leaving,
    Line,
    Run,
    Shape,
    Tokens,
    distance,
)
from lesion.studies.drift.study import DriftStudy

TASK = "primer:arithmetic"
VARIANTS = ("base", "instruct", "distill", "rlvr")
BLOCKS = {"llama": 8, "qwen2": 10}
CRITICAL = {"llama": (2, 3), "qwen2": (6,)}
KNEE = {"llama": 3.4, "qwen2": 4.0}
WORDS = (
    ("Alice", "capitalised word"), (" 7", "digit"), ("1", "digit"), (" +", "operator"), (".", "punctuation"),
    (" apples", "word"), (" the", "word"), ("\n", "white space"), ("ing", "piece of a word"), ("<|end|>", "special"),
    (" then", "word"), ("=", "operator"), ("4", "digit"), (" Bob", "capitalised word"), (" per", "word"),
)  # fmt: skip


def study(
    families: Sequence[str] = ("llama", "qwen2"), variants: Sequence[str] = VARIANTS,
    clusters: Sequence[int] = (50, 10, 30, 70), critical: bool = True, bend: bool = True, runs: int = 5,
) -> DriftSummary:  # fmt: skip
    """The summary of a study over these models; without `bend` the curves are straight lines."""
    names = [f"bundled:{family}-{variant}" for family in families for variant in variants]
    return DriftSummary(
        version="0.5.0",
        identity="d" * 64,
        study=DriftStudy.make(
            name="drift-made", title="Representation drift of made models", models=names or ["bundled:llama-base"],
            task=TASK, clusters=list(clusters), runs=runs,
        ),
        models=[model(family, variant, clusters, critical, bend, runs) for family in families for variant in variants],
        notes=["The made models were not trained."],
    )  # fmt: skip


def changed(
    summary: DriftSummary,
    number: int = 0,
    *,
    curve: Mapping[str, Any] | None = None,
    shape: Mapping[str, Any] | None = None,
    study: Mapping[str, Any] | None = None,
    **entries: Any,
) -> DriftSummary:
    """The summary with entries of one model replaced, and the nearest critical block measured anew.

    Args:
        summary: of which models.
        number: of the model.
        curve: entries of the curve that is drawn.
        shape: entries of that curve's shape; those of `line`, `hinge` and `step` replace the ones named alone.
        study: entries of the study.
        entries: of the model.
    """
    data = summary.model_dump(mode="json")
    data["study"] |= study or {}
    of_model = data["models"][number] | entries
    drawn = next(one for one in of_model["curves"] if one["clusters"] == of_model["clusters"])
    drawn |= curve or {}
    for key, value in (shape or {}).items():
        drawn["shape"][key] = drawn["shape"][key] | value if isinstance(value, Mapping) else value
    data["models"][number] = near(DriftOfModel.model_validate(of_model))
    return DriftSummary.model_validate(data)


def near(model: DriftOfModel) -> DriftOfModel:
    """The model with the critical block that is nearest to each curve's hinge or step."""
    curves = []
    for curve in model.curves:
        at, shape = curve.departure, curve.shape
        nearest = None if at is None or shape is None else distance(at.layer, model.critical_blocks, shape.possible)
        curves.append(curve.model_copy(update={"nearest": nearest}))
    return model.model_copy(update={"curves": tuple(curves)})


def model(family: str, variant: str, clusters: Sequence[int], critical: bool, bend: bool, runs: int) -> DriftOfModel:
    """One model of the study."""
    draw = np.random.default_rng([ord(letter) for letter in family + variant])
    blocks = BLOCKS[family]
    knee = KNEE[family] + draw.normal(0, 0.25)
    drawn = 50 if 50 in clusters else clusters[0]
    curves = [
        curve(k, blocks, knee if bend else None, runs, np.random.default_rng(draw.integers(1 << 30)), whole=k == drawn)
        for k in clusters
    ]
    return near(
        DriftOfModel(
            name=f"bundled:{family}-{variant}",
            family=family,
            variant=variant,
            fingerprint=f"{family}-{variant}",
            blocks=blocks,
            clusters=drawn,
            curves=curves,
            critical={TASK: CRITICAL[family]} if critical else None,
            compared=TASK if critical else None,
            runs=[
                Run(run=run, items=20, tokens=2000 + 13 * run, prompt_tokens=1500, solution_tokens=500 + 13 * run)
                for run in range(runs)
            ],
            tokens=Tokens(
                start=3, end=4, overall=leaving("all", 1000, 310), types=types(draw), classes=classes(draw),
                flow=flow(draw),
            ),
        )
    )  # fmt: skip


def curve(
    clusters: int, blocks: int, knee: float | None, runs: int, draw: np.random.Generator, *, whole: bool
) -> Curve:
    """One model's layers under one number of clusters, with `whole` also the measures that know of no clusters."""
    layers = np.arange(blocks + 1)
    level = 0.72 + 0.04 * np.log(clusters / 50)
    fall = 0.04 * layers if knee is None else 0.015 * layers + 0.06 * np.maximum(0, layers - knee)
    nmi = np.clip(level - fall + draw.normal(0, 0.015, (runs, blocks + 1)), 0.01, 1)
    nmi[:, 0] = 1.0
    null = np.abs(draw.normal(0.05 + 0.001 * clusters, 0.004, (runs, blocks + 1)))
    cosine = np.clip(np.exp(-0.3 * layers) + draw.normal(0, 0.01, (runs, blocks + 1)), -1, 1)
    cka = np.clip(1 - 0.75 * (layers / blocks) ** 1.5 + draw.normal(0, 0.01, (runs, blocks + 1)), 0, 1)
    cosine[:, 0] = cka[:, 0] = 1.0
    at = 3.7 if knee is None else knee + float(draw.normal(0, 0.1))
    spread = 0.3 if knee is not None else 2.2
    measures = {"nmi": nmi, "null": null, "by_token": nmi} | ({"cosine": cosine, "cka": cka} if whole else {})
    return Curve(
        clusters=clusters,
        layers=[
            Layer(
                layer=layer,
                **{name: Mean.of(values[:, layer]) for name, values in measures.items()},
                labels={
                    "token class": Mean(mean=0.45 - 0.03 * layer, std=0.01),
                    "token": Mean(mean=0.8 - 0.05 * layer, std=0.012),
                }
                if whole
                else {},
            )
            for layer in layers.tolist()
        ],
        shape=Shape(
            chosen="line" if knee is None else "hinge",
            first=1,
            last=blocks,
            line=Line(p=0.41, f=1.1, degrees=(blocks - 2, 4 * (blocks - 1)), f_p=0.4)
            if knee is None
            else Line(p=0.001, f=31.0, degrees=(blocks - 2, 4 * (blocks - 1)), f_p=1e-9),
            hinge=Departure(
                kind="hinge", layer=at, low=max(2.0, at - spread), high=min(blocks - 1.0, at + spread), size=-0.06,
                gain=0.9, slopes=(-0.015, -0.075), p=0.002 if knee is not None else 0.41, detectable=0.02,
            ),
            step=Departure(
                kind="step", layer=5.5, low=4.5, high=6.5, size=-0.1, gain=0.5, slopes=(-0.03, -0.03), p=0.03,
                detectable=0.04,
            ),
            share=0.97,
        ),
        ceiling=0.94,
    )  # fmt: skip


def leaving(kind: str, count: int, left: int, token: str | None = None, examples: Sequence[Example] = ()) -> Leaving:
    """A class of tokens, or a token type, with its counts."""
    low, high = wilson(left, count)
    share = Estimate(value=left / count, low=low, high=high)
    return Leaving(token=token, kind=kind, count=count, left=left, share=share, examples=examples)


def types(draw: np.random.Generator) -> list[Leaving]:
    """Token types, the largest share first."""
    rows = []
    for index, (token, kind) in enumerate(WORDS):
        count = int(draw.integers(12, 240))
        left = int(draw.binomial(count, 0.9 * (index + 1) / len(WORDS)))
        examples = [
            Example(
                before=f"Question: Alice has {n} apples and", token=token, after=" more.\nShe then buys",
                item=f"arithmetic-{n}", run=0, cluster=1, into=2,
            )
            for n in range(3)
        ]  # fmt: skip
        rows.append(leaving(kind, count, left, token, examples))
    return sorted(rows, key=lambda row: -(row.share.value or 0.0))


def classes(draw: np.random.Generator) -> list[Leaving]:
    """Every class of tokens."""
    rows = []
    for kind in dict.fromkeys(kind for _, kind in WORDS):
        count = int(draw.integers(80, 900))
        rows.append(leaving(kind, count, int(draw.binomial(count, draw.uniform(0.1, 0.8)))))
    return rows


def flow(draw: np.random.Generator) -> list[Flow]:
    """Clusters, and where their tokens went."""
    rows = []
    for index in range(12):
        parts = draw.multinomial(int(draw.integers(20, 200)), draw.dirichlet([4.0, 1.0, 0.5, 0.3])).tolist()
        into = [
            Destination(
                number=n, name=f"“{WORDS[(index + n) % len(WORDS)][0]}” “{WORDS[(index + n + 4) % len(WORDS)][0]}”",
                count=many, matched=n == 0,
            )
            for n, many in enumerate(parts)
            if many
        ]  # fmt: skip
        name = " ".join(f"“{WORDS[(index + n) % len(WORDS)][0]}”" for n in range(3))
        count = sum(parts)
        rows.append(Flow(number=index, name=name, count=count, left=count - parts[0], into=into, others=0))
    return rows
