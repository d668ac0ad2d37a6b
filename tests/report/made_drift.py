"""Drift studies made for tests: curves with a hinge and noise, counted tokens, everything by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

VARIANTS = ("base", "instruct", "distill", "rlvr")
BLOCKS = {"llama": 8, "qwen2": 10}
CRITICAL = {"llama": [2, 3], "qwen2": [6]}
KNEE = {"llama": 3.4, "qwen2": 4.0}
WORDS = (
    ("Alice", "capitalised word"), (" 7", "digit"), ("1", "digit"), (" +", "operator"), (".", "punctuation"),
    (" apples", "word"), (" the", "word"), ("\n", "white space"), ("ing", "piece of a word"), ("<|end|>", "special"),
    (" then", "word"), ("=", "operator"), ("4", "digit"), (" Bob", "capitalised word"), (" per", "word"),
)  # fmt: skip


def study(
    families: Sequence[str] = ("llama", "qwen2"), variants: Sequence[str] = VARIANTS,
    clusters: Sequence[int] = (50, 10, 30, 70), critical: bool = True, bend: bool = True, runs: int = 5,
) -> dict[str, Any]:  # fmt: skip
    """The summary of a study over these models; without `bend` the curves are straight lines."""
    return {
        "study": {
            "name": "drift-made", "title": "Representation drift of made models", "seed": 0, "level": 0.95,
            "version": "0.5.0", "task": "primer:arithmetic", "clusters": list(clusters), "runs": runs, "items": 20,
            "layer_zero": "embedding", "normalise": "none", "nmi": "arithmetic", "part": "both", "solution": "own",
        },
        "models": [
            model(family, variant, clusters, critical, bend, runs) for family in families for variant in variants
        ],
        "notes": ["The made models were not trained."],
    }  # fmt: skip


def model(family: str, variant: str, clusters: Sequence[int], critical: bool, bend: bool, runs: int) -> dict[str, Any]:
    draw = np.random.default_rng([ord(letter) for letter in family + variant])
    blocks = BLOCKS[family]
    knee = KNEE[family] + draw.normal(0, 0.25)
    by = [
        curve(k, blocks, knee if bend else None, runs, np.random.default_rng(draw.integers(1 << 30))) for k in clusters
    ]
    return {
        "model": f"bundled:{family}-{variant}", "family": family, "variant": variant, "blocks": blocks, **by[0],
        "by_clusters": by, "critical": CRITICAL[family] if critical else None,
        "runs": [{"run": run, "tokens": 2000 + 13 * run, "items": 20} for run in range(runs)],
        "tokens": tokens(draw), "classes": classes(draw), "overall": 0.31, "ceiling": 0.94, "flow": flow(draw),
    }  # fmt: skip


def curve(clusters: int, blocks: int, knee: float | None, runs: int, draw: np.random.Generator) -> dict[str, Any]:
    """One model's layers under one number of clusters."""
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
    rows = []
    for layer in layers:
        row: dict[str, Any] = {"layer": int(layer)}
        for name, values in (("nmi", nmi), ("null", null), ("cosine", cosine), ("cka", cka)):
            row[name] = float(values[:, layer].mean())
            row[f"{name}_std"] = float(values[:, layer].std(ddof=1)) if runs > 1 else None
        row["labels"] = {
            "token class": {"nmi": 0.45 - 0.03 * float(layer), "std": 0.01},
            "token": {"nmi": 0.8 - 0.05 * float(layer), "std": 0.012},
        }
        rows.append(row)
    return {
        "clusters": clusters, "layers": rows,
        "shape": {
            "chosen": "line" if knee is None else "hinge", "first": 1, "last": blocks,
            "line": {"p": 0.41, "f": 1.1, "degrees": [blocks - 2, 4 * (blocks - 1)], "f_p": 0.4} if knee is None else
            {"p": 0.001, "f": 31.0, "degrees": [blocks - 2, 4 * (blocks - 1)], "f_p": 1e-9},
            "hinge": {
                "layer": at, "low": max(2.0, at - spread), "high": min(blocks - 1.0, at + spread), "size": -0.06,
                "gain": 0.9, "slopes": [-0.015, -0.075], "p": 0.002 if knee is not None else 0.41, "detectable": 0.02,
            },
            "step": {
                "layer": 5.5, "low": 4.5, "high": 6.5, "size": -0.1, "gain": 0.5, "slopes": [-0.03, -0.03], "p": 0.03,
                "detectable": 0.04,
            },
            "share": 0.97,
        },
    }  # fmt: skip


def tokens(draw: np.random.Generator) -> list[dict[str, Any]]:
    found = []
    for index, (token, kind) in enumerate(WORDS):
        count = int(draw.integers(12, 240))
        left = int(draw.binomial(count, 0.9 * (index + 1) / len(WORDS)))
        examples = [
            {"before": f"Question: Alice has {n} apples and", "token": token, "after": " more.\nShe then buys",
             "item": f"arithmetic-{n}"}
            for n in range(3)
        ]  # fmt: skip
        row = {"from": 3, "to": 4, "token": token, "class": kind, "count": count, "left": left, "share": left / count}
        found.append(row | {"examples": examples})
    return sorted(found, key=lambda row: -row["share"])


def classes(draw: np.random.Generator) -> list[dict[str, Any]]:
    found = []
    for kind in dict.fromkeys(kind for _, kind in WORDS):
        count = int(draw.integers(80, 900))
        left = int(draw.binomial(count, draw.uniform(0.1, 0.8)))
        found.append({"from": 3, "to": 4, "class": kind, "count": count, "left": left, "share": left / count})
    return found


def flow(draw: np.random.Generator) -> list[dict[str, Any]]:
    found = []
    for index in range(12):
        parts = draw.multinomial(int(draw.integers(20, 200)), draw.dirichlet([4.0, 1.0, 0.5, 0.3]))
        into = [
            {"cluster": f"“{WORDS[(index + n) % len(WORDS)][0]}” “{WORDS[(index + n + 4) % len(WORDS)][0]}”",
             "count": int(many), "matched": n == 0}
            for n, many in enumerate(parts)
        ]  # fmt: skip
        named = " ".join(f"“{WORDS[(index + n) % len(WORDS)][0]}”" for n in range(3))
        found.append({"from": 3, "to": 4, "cluster": named, "count": int(parts.sum()), "into": into})
    return found
