"""What the rivals of a truncation say, in sentences: what it adds beyond them, and whether a spectrum matters."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import ALPHA
from lesion.studies.truncation.numbers import percent_estimate, points_change
from lesion.studies.truncation.result import FORCED, Rival, TruncationSummary


def rival_name(rival: Rival) -> str:
    """A rival in words: `3 wrong first tokens forbidden (“ the”, “ a”, “ is”)`."""
    if rival.what == "forbidden":
        count = wording.counted(len(rival.forbidden), "wrong first token")
        return f"{count} forbidden ({', '.join(f'“{wording.short(text, 12)}”' for text in rival.forbidden)})"
    if rival.what in FORCED:
        kind = "texts of the item" if rival.what == "pair" else "answers of its relation"
        among = f"{rival.candidates:.0f} {kind}"
        return f"forced choice among {among} (chance {wording.percent(rival.chance)})"
    if rival.what == "subspace":
        return f"random subspace of that rank, draw {rival.draw}"
    return f"{rival.rival.replace('×0 + ', ', ').removesuffix('×0')} deleted" if rival.what == "branch" else rival.rival


def fitted(summary: TruncationSummary, task: str) -> Rival | None:
    """How many first tokens it is best to forbid on validation items; None where forbidding none is as good."""
    return next((rival for rival in summary.rivals if rival.task == task and rival.fitted), None)


def beyond_forbidding(summary: TruncationSummary, task: str) -> str:
    """What the edit adds to forbidding the unedited model's frequent wrong first tokens, in a sentence; or nothing."""
    rivals = [rival for rival in summary.rivals if rival.task == task and rival.what == "forbidden"]
    best = fitted(summary, task)
    if best is not None and best.beyond is not None:
        count = wording.counted(len(best.forbidden), "frequent wrong first token")
        adds = f"adds {points_change(best.beyond)} on top"
        if not best.beaten:
            adds += ": no gain beyond the form of the answer is shown"
        return f"Forbidding {count} instead gives {wording.percent(best.accuracy.value)}; the cut {adds}."
    if rivals:
        return "Forbidding its frequent wrong first tokens does not help the unedited model on validation items."
    return ""


def beyond_form(summary: TruncationSummary, task: str) -> str:
    """Whether the forced choice falls where the free answers do, in a sentence; nothing without such a choice."""
    forced = next((rival for rival in summary.rivals if rival.task == task and rival.what in FORCED), None)
    if forced is None or not (text := _forced(forced)):
        return ""
    falls = forced.beyond is not None and (forced.beyond.high or 0) < 0 and (forced.beyond.p or 0) <= ALPHA
    shows = "the choice falls as well" if falls else "no loss beyond the form of the answer is shown"
    return f"On {text.removesuffix('.')}: {shows}."


def spectrum(summary: TruncationSummary, gains: Sequence[str], losses: Sequence[str] = ()) -> list[Finding]:
    """Whether an edit beats all of its rivals on the tasks on which it gains; else nothing in the spectrum is shown to
    matter. Of tasks on which it loses the rivals are told alone.
    """
    headlines, sentences = [], []
    for task in (*gains, *losses):
        rivals = [
            rival for rival in summary.rivals if rival.task == task and (rival.what != "forbidden" or rival.fitted)
        ]
        if not rivals:
            continue
        if task in gains:
            every = f"the cut beats all {len(rivals)} of its rivals"
            beaten = all(rival.beaten for rival in rivals)
            headlines.append(f"{task}: {every if beaten else 'nothing in the spectrum is shown to matter'}.")
        edited = next((rival.edited for rival in rivals if rival.what not in FORCED), None)
        text = "" if edited is None else f"The cut gives {percent_estimate(edited)}; "
        sentences.append(f"{task}: {text}{wording.listed(_levels(rivals))}.")
        sentences += [_forced(rival) for rival in rivals if rival.what in FORCED]
    return [Finding("Rivals of the cut", tuple(headlines), tuple(sentences))] if sentences else []


def _levels(rivals: Sequence[Rival]) -> list[str]:
    """Accuracies of what stands in the place of the edit, random subspaces as a range."""
    drawn = [rival.accuracy.value or 0.0 for rival in rivals if rival.what == "subspace"]
    levels = [f"{rival_name(rival)} {wording.percent(rival.accuracy.value)}" for rival in rivals
              if rival.what in ("branch", "factor")]  # fmt: skip
    if drawn:
        ends = f"{wording.points(min(drawn))} to {wording.percent(max(drawn))}"
        levels.insert(0, f"{len(drawn)} random subspaces of that rank {ends}")
    return levels


def _forced(rival: Rival) -> str:
    if rival.edited is None or rival.beyond is None:
        return ""
    return (
        f"{rival.task}, {rival_name(rival)}: {wording.percent(rival.accuracy.value)} →"
        f" {percent_estimate(rival.edited)}, {points_change(rival.beyond)},"
        f" p{wording.SPACE}{wording.p_value(rival.beyond.p)} (n = {rival.items:,})."
    )
