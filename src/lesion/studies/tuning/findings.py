"""What the numbers of a tuning say, in sentences: whether it pays, against what, and what it costs elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lesion.report import wording
from lesion.report.wording import signed

Summary = Mapping[str, Any]
FEW = 10
"""So many different choices of random blocks or fewer are said to be few."""
BADGES = {"pays": "yes", "does not pay": "no", "cannot tell": ""}
"""The class of a verdict's badge."""


@dataclass(frozen=True)
class Finding:
    """A subject, what is found, and what else belongs to it; `badge` is a verdict in a word and its class."""

    subject: str
    headline: str
    sentences: tuple[str, ...] = ()
    badge: tuple[str, str] | None = None


def change(one: Mapping[str, Any]) -> str:
    """A change in points with its interval: `+3.8 points [1.2, 6.4]`."""
    return f"{signed(one['mean'])} points {wording.interval(one['low'], one['high'])}"


def blocks(arm: Mapping[str, Any]) -> str:
    """The blocks of an arm: `blocks 0 and 2`; of one that is drawn, how many, since every seed has its own."""
    sets = [tuple(one) for one in arm["blocks"]]
    if len(set(sets)) > 1:
        return f"{wording.counted(len(sets[0]), 'block')}, drawn anew by every seed"
    name = "block" if len(sets[0]) == 1 else "blocks"
    return f"{name} {wording.layer_runs(sets[0], last=' and')}"


def findings(summary: Summary) -> list[Finding]:
    """The findings: the verdict where there is one, each arm's gain, and the damage."""
    found = []
    if summary["verdict"] is not None:
        found.append(_verdict(summary))
    found.append(_gains(summary))
    if summary["controls"]:
        found.append(_damage(summary))
    return found


def verdict(summary: Summary) -> str:
    """The verdict as one sentence, with the comparison that decided it."""
    word, reason = summary["verdict"]["word"], summary["verdict"]["reason"]
    main = _against(summary, "random")
    full = _gain(summary, "all-full")
    gain = _gain(summary, "critical")
    told = f"{change(main)} against {_random(summary)}" if main is not None else ""
    if reason == "better":
        return f"Tuning the critical blocks pays: {told}."
    if reason == "no better":
        return f"Tuning the critical blocks does not pay: {told}, so that they are at most a trifle better."
    if reason == "nothing learned":
        return (
            f"Whether tuning the critical blocks pays cannot be told: not even all blocks in full gained beyond doubt"
            f" in these steps ({change(full or {})}), so there was nothing to compare."
        )
    if reason == "no gain":
        return (
            f"Whether tuning the critical blocks pays cannot be told: they gain more than others, {told}, but"
            f" they do not gain beyond doubt themselves ({change(gain or {})})."
        )
    if word != "cannot tell":
        return f"Tuning the critical blocks: {word}."
    return f"Whether tuning the critical blocks pays cannot be told: {told}, and that interval holds both answers."


def _random(summary: Summary) -> str:
    """The random blocks in words: those that are not critical, where the draw was among these."""
    pool, blocks = summary["random_from"], summary["model"]["blocks"]
    return "random blocks" if len(pool) == blocks else "random blocks that are not critical"


def _choices(summary: Summary) -> list[str]:
    """Which blocks the random ones are drawn from, and how many different choices there are; none without that arm."""
    pool = summary["random_from"]
    if pool is None:
        return []
    size = next(len(arm["blocks"][0]) for arm in summary["arms"] if arm["arm"] == "random")
    choices = math.comb(len(pool), size)
    few = (
        f" There are {choices} such choices: the comparison says something of these blocks, and little of critical"
        f" blocks in general."
    )
    return [
        f"Random blocks are {size} of {wording.listed([str(block) for block in pool])}, drawn anew by every seed."
        f"{few if choices <= FEW else ''}"
    ]


def _verdict(summary: Summary) -> Finding:
    arms = {arm["arm"]: arm for arm in summary["arms"]}
    sentences = []
    least, adapter, full = (_against(summary, name) for name in ("least", "all-adapter", "all-full"))
    if least is not None:
        sentences.append(f"Against the least critical blocks: {change(least)}.")
    if adapter is not None:
        rank = arms["all-adapter"]["rank"]
        sentences.append(f"Against adapters on all blocks with as many parameters (rank {rank}): {change(adapter)}.")
    if full is not None:
        times = arms["all-full"]["parameters"] / max(1, arms["critical"]["parameters"])
        sentences.append(f"Against all blocks in full, {times:.1f} times the parameters: {change(full)}.")
    sentences += [*_choices(summary), _rule(summary)]
    word = summary["verdict"]["word"]
    return Finding("Does it pay?", verdict(summary), tuple(sentences), (word, BADGES.get(word, "")))


def _rule(summary: Summary) -> str:
    study = summary["study"]
    seeds = wording.counted(len(study["seeds"]), "seed")
    return (
        f"It pays when critical blocks do better than random ones beyond doubt and gain beyond doubt themselves; it"
        f" does not pay when at best they are less than a point better; else it cannot be told. All arms: the same"
        f" {wording.counted(study['steps'], 'step')} of {study['rows']} rows in the same order, {seeds}, the learning"
        f" rate of each chosen on held-out training items."
    )


def _gains(summary: Summary) -> Finding:
    before = summary["baseline"][0]
    told = f"{wording.percent(before['accuracy'])} {wording.interval(before['low'], before['high'])}"
    sentences = []
    for arm in summary["arms"]:
        after = arm["tasks"][0]
        name = f"{arm['label'][0].upper()}{arm['label'][1:]}"
        which = "" if arm["arm"].startswith("all") or arm["arm"] == after else f" ({blocks(arm)})"
        sentences.append(f"{name}{which}: {wording.percent(after['accuracy'])}, {change(after['change'])}.")
    if len(summary["arms"]) == 1:
        arm = summary["arms"][0]
        after = arm["tasks"][0]
        headline = (
            f"{_sure(after['change'])} {summary['task']}: {told} before, {wording.percent(after['accuracy'])} after,"
            f" {change(after['change'])}."
        )
        size = wording.percent(arm["parameters"] / summary["model"]["parameters"])
        how = "in full" if arm["rank"] is None else f"by adapters of rank {arm['rank']}"
        return Finding(
            f"What {arm['label']} gain" if len(arm["blocks"][0]) > 1 else f"What {arm['label']} gains",
            headline,
            (
                f"Tuned: {blocks(arm)} of {summary['model']['blocks']} {how}, {arm['parameters']:,} numbers,"
                f" {size} of the model.",
                *_one_seed(summary),
            ),
        )
    return Finding(
        f"Gains on {summary['task']}",
        f"The untuned model has {told} of {wording.counted(before['items'], 'test item')} right.",
        (*sentences, *_one_seed(summary), *_ends(summary)),
    )


def _sure(one: Mapping[str, Any]) -> str:
    if one["low"] > 0:
        return "The tuning helps on"
    return "The tuning harms on" if one["high"] < 0 else "The tuning makes no sure difference on"


def _one_seed(summary: Summary) -> list[str]:
    if len(summary["study"]["seeds"]) > 1:
        return []
    return ["One seed: the intervals know the doubt about items, not that about another order of rows."]


def _ends(summary: Summary) -> list[str]:
    """Arms whose best learning rate is the smallest or largest that was tried."""
    found = []
    for end in ("smallest", "largest"):
        names = [arm["label"] for arm in summary["arms"] if arm["end"] == end and len(arm["rates"]) > 2]
        if names:
            found.append(
                f"The {end} learning rate was the best for {wording.listed(names)}: a better one may lie beyond."
            )
    return found


def _damage(summary: Summary) -> Finding:
    """What the controls lost: damaged only where the whole interval lies below 0."""
    damaged, sentences = [], []
    for arm in summary["arms"]:
        told = []
        for task in arm["tasks"][1:]:
            told.append(f"{task['task']} {change(task['change'])}")
            if task["change"]["high"] < 0:
                damaged.append(f"{arm['label']} ({task['task']})")
        sentences.append(f"{arm['label'][0].upper()}{arm['label'][1:]}: {'; '.join(told)}.")
    names = wording.listed(list(summary["controls"]))
    if damaged:
        headline = f"Something was lost elsewhere beyond doubt: {wording.listed(damaged)}."
    else:
        headline = f"Nothing was lost beyond doubt on {names}."
    return Finding("What it costs elsewhere", headline, tuple(sentences))


def _against(summary: Summary, second: str) -> Mapping[str, Any] | None:
    pairs: Sequence[Mapping[str, Any]] = summary["differences"]
    return next((one for one in pairs if (one["first"], one["second"]) == ("critical", second)), None)


def _gain(summary: Summary, name: str) -> Mapping[str, Any] | None:
    return next((arm["tasks"][0]["change"] for arm in summary["arms"] if arm["arm"] == name), None)
