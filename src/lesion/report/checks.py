"""Checks that pages share: baseline off floor and ceiling, answers readable, what else was tried, and the command of
what was not.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from lesion.report import wording
from lesion.report.blocks import Check
from lesion.report.values import WHOLE_SHARE
from lesion.tasks.given import HEAD as GIVEN

FEW = 10
"""Fewer items than these are said to be few."""
GAIN = 6
"""So many items have to be repaired, and none broken, for one gain to be significant (2 / 2⁶ ≤ .05), or the reverse."""


def baselines(measured: Iterable[tuple[str, float | None, float, int]], gains: Iterable[str] = ()) -> Iterator[Check]:
    """Whether unedited accuracies leave room for a loss, and whether there are enough items.

    Args:
        measured: of every task its name, the accuracy in 0…1 (None where it has none), that of guessing, and how many
            items there are.
        gains: the tasks of which a gain is sought.
    """
    tasks = list(measured)
    few = [name for name, _, _, items in tasks if items < FEW]
    known = [(name, accuracy, guessing, items) for name, accuracy, guessing, items in tasks if accuracy is not None]
    low = [name for name, accuracy, guessing, _ in known if accuracy <= guessing]
    above = [(name, accuracy * items, (1 - accuracy) * items) for name, accuracy, _, items in known if name not in low]
    poor = [name for name, right, _ in above if right < GAIN - 0.5]
    full = [name for name, _, wrong in above if wrong < GAIN - 0.5 and name not in poor]
    if low:
        yield Check("bad", f"No better than guessing, so no loss can be seen: {wording.listed(low)}.")
    if poor:
        yield Check("bad", f"Fewer than {GAIN} items are right, so that no loss can show: {wording.listed(poor)}.")
    if full:
        few_wrong = f"Fewer than {GAIN} unedited answers are wrong, so a loss can show, but no gain"
        yield Check("bad" if set(full).intersection(gains) else "good", f"{few_wrong}: {wording.listed(full)}.")
    if known and not (low or poor or full):
        yield Check(
            "good", "The unedited model is right on some items and wrong on others, so that losses and gains can show."
        )
    if few:
        yield Check("bad", f"Fewer than {FEW} items, so chance decides much: {wording.listed(few)}.")


def untried(
    what: str, command: str, models: Iterable[str], tasks: Iterable[str], option: str, asking: Iterable[str] = ()
) -> Check:
    """What was not tried, with the command that does it.

    Args:
        what: as a noun: `Another kind of ablation`.
        command: of the command line: `ablate`.
        models, tasks: of the study.
        option: that makes the difference: `--replace mean`.
        asking: how the questions are put, as it is typed.
    """
    tasks = list(tasks)
    if any(name.startswith(f"{GIVEN}:") for name in tasks):  # a command cannot name them
        return Check("open", f"{what} was not tried.", "", option)
    words = ["lesion", command, *models, *flags("--task", tasks), *asking]
    return Check("open", f"{what}: `{shlex.join(words)} {option}`", command, option)


def second_skill(what: str, command: str, own: Sequence[str], task: str, asking: Iterable[str] = ()) -> Check:
    """That no other skill was tried, with the command that does it, on a task that any model can be given.

    Args:
        what: to try it for, as a noun.
        command: of the command line: `ablate`.
        own: the models, and what else stands before the tasks.
        task: the only one of the study.
    """
    common = ("primer:atlas", "primer:arithmetic") if own[0].startswith("bundled:") else ("induction", "arithmetic:add")
    second = next(name for name in common if name != task)
    return untried(what, command, own, (), shlex.join(flags("--task", (task, second))), asking)


def flags(flag: str, values: Iterable[str]) -> list[str]:
    """`--task A --task B` as words."""
    return [word for value in values for word in (flag, value)]


def readable(worst: float | None, under: str) -> Iterator[Check]:
    """Whether answers can be read.

    Args:
        worst: the largest share of answers, under any edit, that were cut off, or in which none could be read.
    """
    if worst is None:
        return
    share = WHOLE_SHARE.text(worst)
    if worst >= wording.STOPPING_SHARE:
        yield Check(
            "bad",
            f"{share} of the answers under {under} are cut off or unreadable: the form may be lost, not the skill.",
        )
    else:
        few = f"at most {share} are cut off or unreadable" if worst > 0 else "none is cut off or unreadable"
        yield Check("good", f"Answers can be read: {few}.")
