"""Running a search: what it refuses, what it will cost, the search itself, the edit that it leaves, and its numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lesion.core import cells
from lesion.core.baseline import baseline_first
from lesion.core.cached_answers import for_golds, gold_tasks, with_golds
from lesion.core.rates import approximate
from lesion.core.run import Evaluation, Run
from lesion.core.study_file import TaskChoice
from lesion.core.values import SUMMARY, alike
from lesion.edits.edit import BASELINE
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.order import Order, order_text
from lesion.models.reordered import in_order
from lesion.report.values import Estimate
from lesion.statistics.contrasts import mean, perplexity, perplexity_ratio
from lesion.statistics.luck import p_of_best
from lesion.statistics.paired import accuracy, holm
from lesion.studies.search.report import SearchResult
from lesion.studies.search.result import (
    AtTemperature,
    CandidateRow,
    CandidateTest,
    ContestChoice,
    Forbidden,
    OfChosen,
    RandomCandidate,
    SearchSummary,
    TaskSplit,
    TextTest,
    Verdict,
)
from lesion.studies.search.search import (
    BETTER,
    RIVALS,
    Candidate,
    Contest,
    Networks,
    Search,
    candidates,
    running,
    without_effect,
)
from lesion.studies.search.study import SearchStudy
from lesion.studies.search.temperature import TEMPERATURES, AtTemperatures, at_temperatures
from lesion.studies.truncation.forbidding import FORBIDDEN, KINDS, Forbidding
from lesion.studies.truncation.result import SearchedModel, Unit
from lesion.studies.truncation.run import ONE_ANSWER, begun, leave_edit, refuse_unfit_items
from lesion.studies.truncation.search import collapsed, screen_tasks, split
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_passage
from lesion.tasks.task import Item
from lesion.tasks.wrapped import guessing


def run_search(study: SearchStudy, run: Run) -> SearchResult:
    """Search for a layout; a folder of the same questions takes further candidates and other shares of items."""
    tasks = {choice: find(choice.name) for choice in study.tasks}
    controls = {choice: find(choice.name) for choice in study.controls}
    by_perplexity = running(tasks)
    if by_perplexity and (others := [choice for choice in tasks if choice not in by_perplexity]):
        raise UsageError(
            f"{next(iter(by_perplexity)).name} chooses by perplexity and {others[0].name} by accuracy, which have no"
            " mean; make one of them a --control."
        )
    model, layers, items = begun(study, run, tasks, controls)
    if "truncate" in study.family:
        model.refuse_packed("truncated")
    everyone = candidates(study, model.anatomy, layers)
    for note in without_effect(study, model.anatomy, layers, everyone):
        run.watcher.note(note)
    everyone = _of_possible_orders(run, model, everyone)
    answered = {choice: task for choice, task in {**tasks, **controls}.items() if task.kind != "score"}
    # What is wrong with an item is said before hours of search.
    refuse_unfit_items(study, model, answered, items)
    with run.evaluation(study, items, tasks={**tasks, **controls}) as evaluation:
        evaluation.ask(gold_tasks(answered))
        evaluation.add(study.model.name, model)
        parts = split(tasks, {choice: items[choice] for choice in tasks}, study.validation)
        most = max(map(len, alike(everyone, "contest")))
        screened = study.screen != "none" and most > study.screen
        halves = {choice: len(own) // 2 if screened else 0 for choice, own in parts.validation.items()}
        search = Search(
            study, everyone, Networks(evaluation, study.model, model), tasks, controls,
            screen={choice: own[: halves[choice]] for choice, own in parts.validation.items()},
            choice={choice: own[halves[choice] :] for choice, own in parts.validation.items()},
            test={**parts.test, **{choice: items[choice] for choice in controls}},
            earlier=_earlier(run, study),
        )  # fmt: skip
        evaluation.later = _costs(search)
        asked = {**with_golds(tasks), **controls, **(screen_tasks(tasks) if search.rounds else {})}
        own = {choice: evaluation.items_of(choice) for choice in asked}
        search.networks.evaluate((), asked, own, "answers without an edit", estimated=True)
        evaluation.later = {}
        baseline_first(evaluation, study.model, model, None, anyway=study.anyway)
        if BETTER in {contest.name for contest in search.contests} and not by_perplexity:
            right = [search.networks.answers(None, choice, drawn).right for choice, drawn in search.choice.items()]
            if all(each.all() for each in right):
                run.watcher.note(
                    f"{study.model.name} has all {sum(map(len, right)):,} items right that choose, so that no"
                    " candidate can be better; give harder ones."
                )
        search.run()
        summary = summarise(search, model)
        rivals: dict[str, Any] = {"forbidden": tuple(_forbidden(search, evaluation, summary))}
        rivals["temperatures"] = tuple(_at_temperatures(search, run, summary))
        summary = summary.model_copy(update=rivals)
        # A file keeps edits of weights; orders and scaled places are text.
        cut = next((each.chosen for each in search.contests if each.chosen and each.chosen.family == "truncate"), None)
        leave_edit(run.folder, summary, cut.edit if cut else None, model)
        return SearchResult(run.folder, summary, evaluation.evaluated, search.networks.requested)


def _earlier(run: Run, study: SearchStudy) -> int:
    """How many other searches have tested their choices in the folder."""
    before = SearchResult.as_written(run.folder) if (run.folder / SUMMARY).is_file() else None
    if before is None:
        return 0
    tested = bool(before.summary.tests or before.summary.texts)
    return before.summary.earlier + (before.summary.study != study and tested)


def _of_possible_orders(run: Run, model: Model, everyone: list[Candidate]) -> list[Candidate]:
    """The candidates without those of orders that the architecture cannot have, of which a note says how many they are;
    refused where these are all of a family, or where the engine has none of them, before anything is evaluated.
    """
    own = tuple(range(len(model.anatomy.blocks)))
    errors: dict[Order, LesionError] = {}
    orders = dict.fromkeys(candidate.order for candidate in everyone if candidate.order != own)
    if orders:
        run.refuse_elsewhere("Other orders of blocks are evaluated")
    for order in orders:
        try:
            in_order(model, order)
        except LesionError as error:
            errors[order] = error
    possible = [candidate for candidate in everyone if candidate.order not in errors]
    for family, first in {c.family: errors[c.order] for c in reversed(everyone) if c.order in errors}.items():
        count = sum(candidate.family == family for candidate in everyone)
        left = sum(candidate.family == family for candidate in possible)
        if not left:
            raise LesionError(f"{first} Leave {family} out of --family, or give other --layers or --lengths.")
        run.watcher.note(f"{family}: {count - left} of {count} candidates cannot be made and are left out. {first}")
    return possible


def _costs(search: Search) -> Mapping[str, int]:
    """How many answers to each task the search gives at most after the unedited model's: each contest shows a gain."""
    counts: Counter[str] = Counter()
    sizes, before = [len(contest.candidates) for contest in search.contests], 0
    for seen, left in search.rounds:
        for choice in screen_tasks(search.tasks):
            counts[choice.name] += (seen - before) * sum(size for size in sizes if size > left)
        sizes, before = [min(size, left) for size in sizes], seen
    choosing, testing = for_golds(search.choice), for_golds(search.test)
    for choice in with_golds(search.tasks):
        counts[choice.name] += sum(sizes) * len(choosing[choice]) + len(sizes) * len(testing[choice])
    for choice, task in search.tasks.items():
        counts[choice.name] += RIVALS * len(sizes) * len(search.test[choice])
        if task.kind == "score" and BETTER in {contest.name for contest in search.contests}:
            every = sum(len(items[choice]) for items in (search.screen, search.choice, search.test))
            counts[choice.name] += 2 * every  # at temperatures: of the unedited model and of what is to be better
        if task.kind in KINDS:
            counts[choice.name] += len(FORBIDDEN) * (len(search.screen[choice]) + len(search.choice[choice]))
            counts[choice.name] += (1 + len(sizes)) * len(search.test[choice])
    for choice in search.controls:
        counts[choice.name] += len(sizes) * len(search.test[choice])
    return counts


def _at_temperatures(search: Search, run: Run, summary: SearchSummary) -> Iterator[AtTemperature]:
    """The perplexities that the test shows to fall beside those of the unedited model at a temperature."""
    falls = [text for text in summary.texts if not text.control and text.gain.side == 1]
    if falls and run.elsewhere:
        run.watcher.note(
            "A temperature, the trivial rival, is tested in this process alone, on transformers; leave --workers, --ray"
            " and other engines out."
        )
        return
    chosen = {contest.name: contest.chosen for contest in search.contests}
    for text in falls:
        (choice,) = (each for each in search.tasks if each.name == text.task)
        candidate, test = chosen[text.contest], search.test[choice]
        fitting = [*search.screen[choice], *search.choice[choice]]
        alone, both = (_scores_at(search, run, each, choice, [*fitting, *test]) for each in (None, candidate))
        best, own = (int(each[: len(fitting)].sum(axis=0).argmax()) for each in (alone, both))
        tokens, level = search.networks.texts(None, choice, test)[1], _within(search)
        before, after, tempered, together = (
            scores[len(fitting) :, place] for scores, place in ((alone, 0), (both, 0), (alone, best), (both, own))
        )
        yield AtTemperature(
            **text.model_dump(include=set(OfChosen.model_fields)), texts=len(test),
            temperature=TEMPERATURES[best], own=TEMPERATURES[own], perplexity=perplexity(tempered, tokens).value,
            ratio=Estimate.of(perplexity_ratio(before, tempered, tokens, level)),
            instead=Estimate.of(perplexity_ratio(tempered, after, tokens, level)),
            beyond=Estimate.of(perplexity_ratio(tempered, together, tokens, level)),
        )  # fmt: skip


def _scores_at(
    search: Search, run: Run, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]
) -> Float[np.ndarray, "texts temperatures"]:
    """Log-probabilities of texts at `TEMPERATURES`, kept in the folder."""
    model, edit = search.networks.network(candidate)
    passages = [encode_passage(model, search.tasks[choice], item) for item in items]
    key = cells.key_of({"temperatures": [TEMPERATURES, model.fingerprint, str(edit), passages]})
    read = cells.read(run.folder, key, AtTemperatures)
    if read is None:
        run.watcher.begin(search.study.model.name, len(passages), 0, "texts at temperatures")
        read = at_temperatures(model, passages, edit, run.watcher.answered)
        cells.write(run.folder, key, read)
    return read.scores


def summarise(search: Search, model: Model) -> SearchSummary:
    """The summary of a search that has run."""
    study, unit = search.study, _unit(search)
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
        choices=tuple(
            _choice(contest, len(model.anatomy.blocks), study.level, by_perplexity=unit == "nats")
            for contest in search.contests
        ),
        tests=tuple(_tests(search)),
        texts=tuple(_texts(search)),
        rivals=tuple(_rivals(search)),
    )  # fmt: skip


def _row(search: Search, contest: Contest, candidate: Candidate) -> CandidateRow:
    screen, screened = search.screened.get(candidate, (None, None))
    gain, gold_gain = contest.gain.get(candidate), contest.gold_gain.get(candidate)
    if _unit(search) == "nats":
        gold_gain = None  # the gain is of log-probabilities itself
    states = dict.fromkeys(contest.gain, "evaluated") | {contest.best: "best, not chosen", contest.chosen: "chosen"}
    state = states.get(candidate, f"screened out after {screened} items")
    return CandidateRow(
        **{name: getattr(candidate, name) for name in ("name", "family", "contest", "first", "length", "how")},
        model=search.networks.name(candidate.order), edit=str(candidate.edit), screen=screen, screened=screened,
        gain=gain, gold_gain=gold_gain, state=state, chosen=state == "chosen", unit=_unit(search),
    )  # fmt: skip


def _unit(search: Search) -> Unit:
    """Of the gains that choose: points of accuracy, or log-probability of a token of running text."""
    return "nats" if running(search.tasks) else "points"


NO_SCORE = "With every candidate texts have no finite log-probability."
NO_BETTER = "No candidate evaluated in full has more items right than the unedited model on the items that choose."
NO_LOWER = "No candidate evaluated in full has a lower perplexity than the unedited model on the texts that choose."


def _choice(contest: Contest, blocks: int, level: float, *, by_perplexity: bool) -> ContestChoice:
    best, counts = contest.best, {"candidates": len(contest.candidates), "finalists": len(contest.finalists)}
    if best is None:
        return ContestChoice(contest=contest.name, nothing=NO_SCORE if by_perplexity else ONE_ANSWER, **counts)
    known: dict[str, Any] = {"candidate": best.name, "gain": contest.gain[best], **counts}
    if contest.chosen is None:
        known["nothing"] = NO_LOWER if by_perplexity else NO_BETTER
    if contest.by_luck is not None:
        low, median, high = np.quantile(contest.by_luck, [(1 - level) / 2, 0.5, (1 + level) / 2])
        p = p_of_best(contest.gain[best], contest.by_luck)
        known["luck"] = Estimate(value=median, low=low, high=high, p=p)
    if best.written != tuple(range(blocks)):
        known["order"] = order_text(best.written)
    if best.damped != BASELINE:
        known["edit"] = str(best.damped)
    return ContestChoice(contest=contest.name, **known)


def _tests(search: Search) -> Iterator[CandidateTest]:
    """The chosen candidates on test items; p of those that are to be better corrected over tasks and searches."""
    pairs = [pair for pair in _chosen(search) if pair[2] not in search.running]
    tests = [_test(search, contest, each, choice) for contest, each, choice in pairs]
    better = [place for place, (contest, _, choice) in enumerate(pairs) if not _has_margin(search, contest, choice)]
    p = [tests[place].gain.p or 0.0 for place in better]
    looks = search.earlier + 1
    several = [min(1.0, looks * each) for each in holm(p)]
    corrected = dict(zip(better, several, strict=True)) if len(better) > 1 or looks > 1 else {}
    for place, test in enumerate(tests):
        yield test.model_copy(update={"gain": test.gain.model_copy(update={"p_corrected": corrected.get(place)})})


def _chosen(search: Search) -> list[tuple[Contest, Candidate, TaskChoice]]:
    """Every chosen candidate with every task and control."""
    chosen = [(contest, contest.chosen) for contest in search.contests if contest.chosen is not None]
    return [(contest, each, choice) for contest, each in chosen for choice in (*search.tasks, *search.controls)]


def _within(search: Search) -> float:
    """The level of intervals that decide alone, of running text or against a margin: corrected for their number, and
    for earlier searches.
    """
    alone = sum(
        _has_margin(search, contest, choice) or choice in search.running for contest, _, choice in _chosen(search)
    )
    return 1 - (1 - search.study.level) / (alone * (search.earlier + 1))


def _texts(search: Search) -> Iterator[TextTest]:
    """The chosen candidates on running text; those on a task of the search beside random candidates of the kind."""
    study, networks = search.study, search.networks
    for contest, candidate, choice in _chosen(search):
        if choice not in search.running:
            continue
        items, rivals = search.test[choice], contest.rivals if choice in search.tasks else ()
        (before, tokens), (after, _), *others = (
            networks.texts(each, choice, items) for each in (None, candidate, *rivals)
        )
        ratio = Estimate.of(perplexity_ratio(before, after, tokens, _within(search)))
        most = 1 + study.margin / 100
        lost = math.inf if ratio.high is None else ratio.high
        broken = bool(np.isfinite(before).all() and not np.isfinite(after).all())
        worse = broken or (ratio.low or 0.0) > most
        verdict: Verdict = "no worse" if lost < most else "worse" if worse else "cannot be told"
        yield TextTest(
            task=choice.name, contest=contest.name, candidate=candidate.name,
            model=networks.name(candidate.order), edit=str(candidate.edit), texts=len(items), tokens=int(tokens.sum()),
            baseline=perplexity(before, tokens).value, perplexity=perplexity(after, tokens).value, ratio=ratio,
            verdict=verdict if _has_margin(search, contest, choice) else None, control=choice in search.controls,
            rivals=tuple(perplexity_ratio(before, other, tokens).value for other, _ in others),
        )  # fmt: skip


def _has_margin(search: Search, contest: Contest, choice: TaskChoice) -> bool:
    return contest.name != BETTER or choice in search.controls


def _test(search: Search, contest: Contest, candidate: Candidate, choice: TaskChoice) -> CandidateTest:
    study, items, networks = search.study, search.test[choice], search.networks
    before, after = (networks.answers(each, choice, items) for each in (None, candidate))
    within = _has_margin(search, contest, choice)
    level = _within(search) if within else 1 - (1 - study.level) / (search.earlier + 1)
    gain = Estimate.dropped(before.right, after.right, level).negative
    room = float(before.right.mean()) - guessing({**search.tasks, **search.controls}[choice], items)
    return CandidateTest(
        task=choice.name, contest=contest.name, candidate=candidate.name,
        model=networks.name(candidate.order), edit=str(candidate.edit), control=choice in search.controls,
        items=len(items), baseline=float(before.right.mean()), accuracy=Estimate.of(accuracy(after.right, study.level)),
        gain=gain, gold_gain=Estimate.of(mean(after.gold - before.gold, study.level)),
        verdict=_verdict(gain, study.margin / 100, room) if within else None, one_answer=collapsed(after, before)[2],
    )  # fmt: skip


def _verdict(gain: Estimate, margin: float, room: float) -> Verdict:
    """Whether a loss lies within the margin; not where that is all that there is above guessing."""
    low, high = gain.low or 0.0, gain.high or 0.0
    return "no worse" if low > -margin and room > margin else "worse" if high < -margin else "cannot be told"


def _rivals(search: Search) -> Iterator[RandomCandidate]:
    level = search.study.level
    for contest in search.contests:
        for rival in contest.rivals:
            for choice in (choice for choice in search.tasks if choice not in search.running):
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


def _forbidden(search: Search, evaluation: Evaluation, summary: SearchSummary) -> Iterator[Forbidden]:
    """The gains that the test shows beside those of the unedited model with its frequent wrong first tokens forbidden,
    so many as are best on the items that screen and choose.
    """
    networks, level = search.networks, search.study.level
    forbidding = Forbidding(evaluation, networks.unedited)
    gaining = {contest.name: contest.chosen for contest in search.contests if contest.chosen is not None}
    for choice, task in search.tasks.items():
        tests = [test for test in summary.tests if test.task == choice.name and test.shown == 1]
        if not tests:
            continue
        tried = forbidding.tried(choice, task, (*search.screen[choice], *search.choice[choice]))
        if not tried.choices:
            continue
        without, wanted = tried.choices[max(tried.best, 1) - 1], [gaining[test.contest] for test in tests]
        items = search.test[choice]
        networks.ask(wanted, {without: task}, {without: items})
        networks.evaluate(wanted, {without: task}, {without: items}, "answers of rivals")
        before, alone = (networks.answers(None, each, items).right for each in (choice, without))
        for test, candidate in zip(tests, wanted, strict=True):
            chosen, both = (networks.answers(candidate, each, items).right for each in (choice, without))
            yield Forbidden(
                task=choice.name, contest=test.contest, candidate=candidate.name, items=len(items),
                tokens=forbidding.texts(without), helps=tried.best > 0, accuracy=Estimate.of(accuracy(alone, level)),
                gain=Estimate.dropped(before, alone, level).negative,
                instead=Estimate.dropped(alone, chosen, level).negative, both=Estimate.of(accuracy(both, level)),
                beyond=Estimate.dropped(alone, both, level).negative,
            )  # fmt: skip
