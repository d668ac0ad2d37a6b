"""What the numbers of a tuning say, in sentences: whether it pays, against what, and what it costs elsewhere."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import signed
from lesion.studies.tuning.result import Accuracy, ArmResult, Change, TuningSummary
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy

FEW = 10
"""So many different choices of random blocks or fewer are said to be few."""
MOODS = {"pays": "yes", "does not pay": "no"}
"""The mood of a verdict's badge."""


def change(difference: Change) -> str:
    """A change in points with its interval: `+3.8 points [1.2, 6.4]`."""
    return f"{signed(difference.value)} points {wording.interval(difference.low, difference.high)}"


def blocks(arm: ArmResult) -> str:
    """The blocks of an arm: `blocks 0 and 2`; where every seed has its own, how many."""
    first = arm.blocks[0]
    if len(set(arm.blocks)) > 1:
        return f"{wording.counted(len(first), 'block')}, drawn anew by every seed"
    return f"{'block' if len(first) == 1 else 'blocks'} {wording.layer_runs(first, last=' and')}"


def training(study: TuningStudy) -> str:
    """How a study trains: `completions, 40 steps of 16 items`."""
    steps, items = wording.counted(study.steps, "step"), wording.counted(study.rows, "item")
    if not study.reinforced:
        return f"completions (supervised), {steps} of {items}"
    return (
        f"a verifiable reward (GRPO), {steps} of {items} × {study.generations} answers drawn at temperature"
        f" {study.rollout_temperature:g}"
    )


def findings(summary: TuningSummary) -> list[Finding]:
    """The verdict where there is one, each arm's gain, and the damage."""
    decided = [] if summary.verdict is None else [_verdict(summary, summary.verdict.word)]
    gains = _gains(summary) if len(summary.arms) > 1 else _gain(summary, summary.arms[0])
    return [*decided, gains, *([_damage(summary)] if summary.study.controls else [])]


def verdict(summary: TuningSummary) -> str:
    """The verdict as one sentence, with the comparison that decided it."""
    main, gain, full = summary.against(RANDOM), summary.arm(CRITICAL), summary.arm(ALL_FULL)
    if summary.verdict is None or main is None or gain is None:
        return ""
    # Where too few others are left, random blocks are drawn from all.
    everywhere = len(summary.random_from or ()) == summary.model.blocks
    compared = f"{change(main)} against random blocks{'' if everywhere else ' that are not called critical'}"
    unknown = "Whether tuning the critical blocks pays cannot be told:"
    every = "" if full is None else f"even all blocks in full have no clear gain ({change(full.gain)})"
    return {
        "better": f"Tuning the critical blocks pays: {compared}.",
        "no better": f"Tuning the critical blocks does not pay: {compared}, at best less than a point.",
        "nothing learned": f"{unknown} {every}.",
        "no gain": f"{unknown} {compared}, but no clear gain ({change(gain.gain)}).",
        "undecided": f"{unknown} {compared}, which allows both answers.",
    }[summary.verdict.reason]


def _verdict(summary: TuningSummary, word: str) -> Finding:
    critical, adapters, full = (summary.arm(name) for name in (CRITICAL, ALL_ADAPTER, ALL_FULL))
    against = {LEAST: "the least critical blocks"}
    if adapters is not None:
        against[ALL_ADAPTER] = f"as many parameters in adapters on all blocks (rank {adapters.rank})"
    if full is not None and critical is not None:
        against[ALL_FULL] = (
            f"all blocks in full, {full.parameters / max(1, critical.parameters):.1f} times the parameters"
        )
    sentences = [
        f"Against {what}: {change(difference)}."
        for name, what in against.items()
        if (difference := summary.against(name)) is not None
    ]
    arm, choices = summary.arm(RANDOM), summary.random_choices
    if arm is not None and choices is not None:
        few = f" Only {choices} choices: this says little about critical blocks in general." if choices <= FEW else ""
        among = wording.listed(list(map(str, summary.random_from or ())))
        sentences.append(f"Random blocks are {len(arm.blocks[0])} of {among}, drawn anew by every seed.{few}")
    study = summary.study
    rate = "" if summary.held_out else f", learning rate {study.learning_rates[0]:g}"
    sentences.append(
        "Rule: it pays if critical minus random blocks and the gain of critical blocks lie above 0 by their intervals,"
        " not if the former lies below one point. Every arm:"
        f" {wording.counted(study.steps, 'step')}, {wording.counted(len(study.seeds), 'seed')}{rate}."
    )
    return Finding("Does it pay?", (verdict(summary),), tuple(sentences), (word, MOODS.get(word, "")))


def _gain(summary: TuningSummary, arm: ArmResult) -> Finding:
    """What the only arm gains."""
    task, before, gain = summary.study.task, accuracy(summary.baseline[0].accuracy), arm.gain
    effect = "Tuning makes no clear difference on"
    if gain.low > 0 or gain.high < 0:
        effect = "Tuning helps on" if gain.low > 0 else "Tuning harms"
    how = "in full" if arm.rank is None else f"by adapters of rank {arm.rank}"
    share = wording.percent(arm.parameters / summary.model.parameters)
    return Finding(
        f"What {arm.label} gain{'s' if arm.label.startswith('block ') else ''}",
        (f"{effect} {task}: {before} before, {wording.percent(arm.tasks[0].accuracy)} after, {change(gain)}.",),
        (
            f"Tuned: {blocks(arm)} of {summary.model.blocks} {how}, {arm.parameters:,} parameters, {share} of the"
            " model.",
            _trained(summary),
            *_single_seed(summary),
        ),
    )


def _gains(summary: TuningSummary) -> Finding:
    before = summary.baseline[0]
    sentences = []
    for arm in summary.arms:
        which = f" ({blocks(arm)})" if arm.name in (CRITICAL, LEAST, RANDOM) else ""
        sentences.append(
            f"{wording.capital(arm.label)}{which}: {wording.percent(arm.tasks[0].accuracy)}, {change(arm.gain)}."
        )
    return Finding(
        f"Gains on {summary.study.task}",
        (f"Untuned: {accuracy(before.accuracy)} of {wording.counted(before.items, 'test item')}.",),
        (*sentences, _trained(summary), *_single_seed(summary), *_ends(summary)),
    )


def accuracy(value: Accuracy) -> str:
    """An accuracy with its interval: `85.0 % [81.2, 88.2]`."""
    return f"{wording.percent(value.value)} {wording.interval(value.low, value.high)}"


def _trained(summary: TuningSummary) -> str:
    """By what every arm was trained, and where that was the reward, how it rose."""
    rewards = []
    for arm in summary.arms if summary.study.reinforced else ():
        if course := arm.course("reward"):
            name = f"{arm.label} " if len(summary.arms) > 1 else ""
            rewards.append(f"{name}from {course[0][1]:.2f} to {course[-1][1]:.2f}")
    rose = f" Mean reward, first to last: {'; '.join(rewards)}." if rewards else ""
    return f"Trained by {training(summary.study)}.{rose}"


def _single_seed(summary: TuningSummary) -> list[str]:
    return [] if summary.several else ["One seed: the intervals cover items, not the order of training rows."]


def _ends(summary: TuningSummary) -> list[str]:
    """Arms whose best learning rate is the smallest or largest of at least three that were tried."""
    sentences = []
    for end in ("smallest", "largest"):
        names = [arm.label for arm in summary.arms if arm.end == end and len(arm.rates) > 2]
        if names:
            sentences.append(f"Best at the {end} learning rate: {wording.listed(names)}. A better one may lie beyond.")
    return sentences


def _damage(summary: TuningSummary) -> Finding:
    """What the controls lost: damaged only where the whole interval lies below 0."""
    damaged, sentences = [], []
    for arm in summary.arms:
        controls = arm.tasks[1:]
        damaged += [f"{arm.label} ({task.task})" for task in controls if task.change.high < 0]
        changes = "; ".join(f"{task.task} {change(task.change)}" for task in controls)
        sentences.append(f"{wording.capital(arm.label)}: {changes}.")
    headline = f"No clear loss on {wording.listed(list(summary.study.controls))}."
    if damaged:
        headline = f"Clear losses (interval below 0): {wording.listed(damaged)}."
    return Finding("What it costs elsewhere", (headline,), tuple(sentences))
