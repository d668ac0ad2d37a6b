"""What a tuning study claims: whether tuning the critical blocks pays, what every arm gains, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import CHANGE, SHARE
from lesion.studies.tuning.result import WORTH, ArmResult, TuningSummary
from lesion.studies.tuning.study import ALL_FULL, CRITICAL, RANDOM

FEW = 10
"""So many different choices of random blocks or fewer are said to be few."""
UNKNOWN = "Whether tuning the critical blocks pays cannot be told"


@rule(
    "Tuning the critical blocks pays: D points against random blocks.",
    "Tuning the critical blocks does not pay: D points against random blocks, at best less than a point.",
    "Whether tuning the critical blocks pays cannot be told: nothing was learned, no gain is sure, or both may be.",
    needs="critical and random blocks, tuned on the same items by the same steps. It pays where critical minus random"
    " blocks and the gain of critical blocks lie above 0 by their intervals (over items and seeds); it does not where"
    f" the former lies below {CHANGE.text(WORTH)}",
)
def does_it_pay(summary: TuningSummary) -> Iterable[Claim]:
    """The verdict with the comparison that decided it, then the other comparisons."""
    main, gain, full = summary.against(RANDOM), summary.arm(CRITICAL), summary.arm(ALL_FULL)
    if summary.verdict is None or main is None or gain is None:
        return
    # Where too few others are left, random blocks are drawn from all.
    everywhere = len(summary.random_from or ()) == summary.model.blocks
    compared = f"{CHANGE.text(main)} against random blocks{'' if everywhere else ' that are not critical'}"
    nothing = "" if full is None else f"even all blocks in full have no clear gain, {CHANGE.text(full.gain)}"
    first = {
        "better": f"Tuning the critical blocks pays: {compared}.",
        "no better": f"Tuning the critical blocks does not pay: {compared}, at best less than a point.",
        "nothing learned": f"{UNKNOWN}: {nothing}.",
        "no gain": f"{UNKNOWN}: {compared}, but no clear gain, {CHANGE.text(gain.gain)}.",
        "undecided": f"{UNKNOWN}: {compared}.",
    }[summary.verdict.reason]
    lines = [line for line in summary.difference_lines if line.other != summary.difference_lines[0].other]
    others = [f"{CHANGE.text(line.difference)} against {line.other}" for line in lines]
    sentences = [first, *([f"Critical blocks have {wording.listed(others)}."] if others else [])]
    choices = summary.random_choices or 0
    if choices <= FEW:
        sentences.append(
            f"Random blocks are one of only {choices} choices, which says little about critical blocks in general."
        )
    yield Claim(tuple(sentences), tuple(summary.difference_lines))


@rule(
    "Tuning blocks B helps on T: D points.",
    "Tuning blocks B harms T: D points.",
    "Tuning makes no clear difference on T: D points.",
    "N of M choices of blocks gain on T: A and B.",
    "None of M choices of blocks is shown to gain on T.",
    needs="an interval of the change on the same test items that lies on that side of 0, over items and seeds",
)
def what_is_gained(summary: TuningSummary) -> Iterable[Claim]:
    """What the only arm gains on the studied task, or which of several do."""
    task, arms = summary.baseline[0].task, summary.arms
    rows = tuple(line for line in summary.arm_lines if line[1].task == task)
    if len(arms) == 1:
        change = arms[0].gain
        effect = f"Tuning {arms[0].label} makes no clear difference on"
        if change.low > 0 or change.high < 0:
            effect = f"Tuning {arms[0].label} {'helps on' if change.low > 0 else 'harms'}"
        before, after = SHARE.text(summary.baseline[0].accuracy, False), SHARE.text(arms[0].tasks[0].accuracy)
        yield Claim((f"{effect} {task}: {CHANGE.text(change)}, {before} → {after}.",), rows)
        return
    gaining = [arm for arm in arms if arm.gain.low > 0]
    first = f"None of {len(arms)} choices of blocks is shown to gain on {task}."
    if gaining:
        first = f"{len(gaining)} of {len(arms)} choices of blocks gain on {task}: {_named(gaining)}."
    most = max(arms, key=lambda arm: arm.gain.value)
    strongest = f"Most is gained by {most.label}: {CHANGE.text(most.gain)}."
    harmed = [arm for arm in arms if arm.gain.high < 0]
    yield Claim((first, strongest, *([f"Harmed: {_named(harmed)}."] if harmed else [])), rows)


def _named(arms: Sequence[ArmResult]) -> str:
    return wording.listed([arm.label for arm in arms])


@rule(
    "Tuning costs accuracy on T (blocks B): D points.",
    "No loss on T is shown; at worst D points (blocks B).",
    needs="an interval of the change on the control that lies below 0, over items and seeds; the worst that no interval"
    " excludes",
)
def what_it_costs(summary: TuningSummary) -> Iterable[Claim]:
    """What the controls lost: the largest loss that is shown, or how large one could be."""
    changes = [(arm, task) for arm in summary.arms for task in arm.tasks[1:]]
    damaged = [(arm, task) for arm, task in changes if task.change.high < 0]
    if damaged:
        arm, task = min(damaged, key=lambda pair: pair[1].change.value)
        sentences = [f"Tuning {arm.label} costs accuracy on {task.task}: {CHANGE.text(task.change)}."]
        if len(changes) > 1:
            sentences.append(f"A loss is shown in {len(damaged)} of {len(changes)} pairs of tuned blocks and controls.")
    else:
        arm, task = min(changes, key=lambda pair: pair[1].change.low)
        names = wording.listed([each.task for each in summary.baseline[1:]], "or")
        sentences = [
            f"No loss on {names} is shown; at worst {CHANGE.text(task.change.low)} ({arm.label} on {task.task})."
        ]
    yield Claim(tuple(sentences), tuple((arm, task) for arm, task in damaged or [(arm, task)]))
