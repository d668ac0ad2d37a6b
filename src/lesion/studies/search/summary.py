"""From the answers of a search to its numbers: candidates, choices with what luck gives, and tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lesion.core.rates import approximate
from lesion.core.study_file import TaskChoice
from lesion.models.load import Model
from lesion.models.order import order_text
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean
from lesion.statistics.luck import p_of_best
from lesion.statistics.paired import accuracy, holm
from lesion.studies.search.candidates import BETTER, Candidate
from lesion.studies.search.result import (
    CandidateRow,
    CandidateTest,
    ContestChoice,
    Luck,
    RandomCandidate,
    SearchSummary,
    TaskSplit,
    Verdict,
)
from lesion.studies.search.search import Contest, Search
from lesion.studies.truncation.result import SearchedModel
from lesion.studies.truncation.search import collapsed

SHARES = (1.0, 0.999, 0.99, 0.975, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01, 0.001)
"""Of the draws, at which what luck gives is told."""


def summarise(search: Search, model: Model) -> SearchSummary:
    """The summary of a search that has run."""
    study = search.study
    by_luck = next((contest.by_luck for contest in search.contests if contest.by_luck is not None), None)
    return SearchSummary(
        approximate=approximate(study.decoding.stop_loops),
        earlier=search.earlier,
        study=study,
        model=SearchedModel.of(study.model.name, model),
        tasks=tuple(
            TaskSplit(
                name=choice.name, kind=task.kind, control=choice in search.controls,
                screen_items=len(search.screen.get(choice, ())), choice_items=len(search.choice.get(choice, ())),
                test_items=len(search.test[choice]),
            )
            for choice, task in (*search.tasks.items(), *search.controls.items())
        ),
        candidates=tuple(_row(search, contest, each) for contest in search.contests for each in contest.candidates),
        choices=tuple(_choice(contest, len(model.anatomy.blocks), study.level) for contest in search.contests),
        luck=() if by_luck is None else tuple(
            Luck(gain=float(gain), share=share)
            for share, gain in zip(SHARES, np.quantile(by_luck, [1 - share for share in SHARES]), strict=True)
        ),
        tests=tuple(_tests(search)),
        rivals=tuple(_rivals(search)),
    )  # fmt: skip


def _row(search: Search, contest: Contest, candidate: Candidate) -> CandidateRow:
    screen, screened = search.screened.get(candidate, (None, None))
    if candidate is contest.chosen:
        state = "chosen"
    elif candidate in contest.gain:
        state = "best, not chosen" if candidate is contest.best else "evaluated"
    else:
        state = f"screened out after {screened} items"
    return CandidateRow(
        **{name: getattr(candidate, name) for name in ("name", "family", "contest", "first", "length", "how")},
        model=search.networks.name(candidate.order), edit=str(candidate.edit), screen=screen, screened=screened,
        gain=contest.gain.get(candidate), gold_gain=contest.gold_gain.get(candidate), state=state,
        chosen=state == "chosen",
    )  # fmt: skip


def _choice(contest: Contest, blocks: int, level: float) -> ContestChoice:
    best, nothing, luck = contest.best, None, None
    if best is None:
        nothing = "Under every candidate the model gives one answer to nearly all items, and unedited it does not."
    elif contest.chosen is None:
        nothing = "No candidate has more items right than the unedited model on the items that choose."
    if best is not None and contest.by_luck is not None:
        low, median, high = np.quantile(contest.by_luck, [(1 - level) / 2, 0.5, (1 + level) / 2])
        luck = Estimate(value=median, low=low, high=high, p=p_of_best(contest.gain[best], contest.by_luck))
    written = best is not None and best.written != tuple(range(blocks))
    return ContestChoice(
        contest=contest.name,
        candidate=best.name if best else None,
        nothing=nothing,
        candidates=len(contest.candidates),
        finalists=len(contest.finalists),
        gain=contest.gain[best] if best else None,
        luck=luck,
        order=order_text(best.written) if best and written else "",
        edit=str(best.damped) if best and str(best.damped) != "baseline" else "",
    )


def _tests(search: Search) -> Iterator[CandidateTest]:
    """The chosen candidates on test items; p corrected over the tasks of those that are to be better, and for earlier
    searches.
    """
    chosen = [(contest, contest.chosen) for contest in search.contests if contest.chosen is not None]
    pairs = [(contest, each, choice) for contest, each in chosen for choice in (*search.tasks, *search.controls)]
    margins = sum(_has_margin(search, contest, choice) for contest, _, choice in pairs)
    tests = [_test(search, contest, each, choice, margins) for contest, each, choice in pairs]
    better = [place for place, (contest, _, choice) in enumerate(pairs) if not _has_margin(search, contest, choice)]
    p = [tests[place].gain.p or 0.0 for place in better]
    looks = search.earlier + 1
    several = [min(1.0, looks * each) for each in holm(p)]
    corrected = dict(zip(better, several, strict=True)) if len(better) > 1 or looks > 1 else {}
    for place, test in enumerate(tests):
        yield test.model_copy(update={"gain": test.gain.model_copy(update={"p_corrected": corrected.get(place)})})


def _has_margin(search: Search, contest: Contest, choice: TaskChoice) -> bool:
    return contest.name != BETTER or choice in search.controls


def _test(search: Search, contest: Contest, candidate: Candidate, choice: TaskChoice, margins: int) -> CandidateTest:
    study, items = search.study, search.test[choice]
    before, after = (search.networks.answers(each, choice, items) for each in (None, candidate))
    within = _has_margin(search, contest, choice)
    level = 1 - (1 - study.level) / ((margins if within else 1) * (search.earlier + 1))
    gain = Estimate.dropped(before.right, after.right, level).negative
    return CandidateTest(
        task=choice.name, contest=contest.name, candidate=candidate.name,
        model=search.networks.name(candidate.order), edit=str(candidate.edit), control=choice in search.controls,
        items=len(items), baseline=float(before.right.mean()), accuracy=Estimate.of(accuracy(after.right, study.level)),
        gain=gain, gold_gain=Estimate.of(mean(after.gold - before.gold, study.level)),
        verdict=_verdict(gain, study.margin / 100) if within else None, one_answer=collapsed(after, before)[2],
    )  # fmt: skip


def _verdict(gain: Estimate, margin: float) -> Verdict:
    low, high = gain.low or 0.0, gain.high or 0.0
    return "no worse" if low > -margin else "worse" if high < -margin else "cannot be told"


def _rivals(search: Search) -> Iterator[RandomCandidate]:
    level = search.study.level
    for contest in search.contests:
        for rival in search.rivals[contest.name]:
            for choice in search.tasks:
                items = search.test[choice]
                before, chosen, after = (
                    search.networks.answers(each, choice, items).right for each in (None, contest.chosen, rival)
                )
                yield RandomCandidate(
                    task=choice.name, contest=contest.name, name=rival.name,
                    model=search.networks.name(rival.order), edit=str(rival.edit), items=len(items),
                    accuracy=Estimate.of(accuracy(after, level)),
                    gain=Estimate.dropped(before, after, level).negative,
                    beyond=Estimate.dropped(after, chosen, level).negative,
                )  # fmt: skip
