"""Running a search: what it refuses, what it will cost, the search itself, and the edit that it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lesion.core.baseline import baseline_first
from lesion.core.cached_answers import gold_of, gold_tasks
from lesion.core.inference import pending_cells
from lesion.core.layers import parse_layers
from lesion.core.run import Run, refuse_scored
from lesion.core.study_file import TaskChoice
from lesion.core.values import SUMMARY
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.models.order import Order
from lesion.models.reordered import in_order
from lesion.studies.search.candidates import BETTER, Candidate, candidates
from lesion.studies.search.report import SearchResult
from lesion.studies.search.search import RIVALS, Networks, Search
from lesion.studies.search.study import SearchStudy
from lesion.studies.search.summary import summarise
from lesion.studies.truncation.run import leave_edit, refuse_few
from lesion.studies.truncation.search import screen_tasks, split
from lesion.tasks.catalogue import find
from lesion.tasks.task import Task


def run_search(study: SearchStudy, run: Run) -> SearchResult:
    """Search for a layout; a folder of the same questions takes further candidates and other shares of items."""
    tasks = {choice: find(choice.name) for choice in study.tasks}
    controls = {choice: find(choice.name) for choice in study.controls}
    refuse_scored({**tasks, **controls}, "; give a task that is answered.")
    items = run.drawn(study, {**tasks, **controls})
    refuse_few({choice: items[choice] for choice in tasks})
    model = run.load(study, study.model, finite=True)
    if "truncate" in study.family:
        model.refuse_packed("truncated")
    layers = parse_layers(study.layers, len(model.anatomy.blocks), study.model.name)
    everyone = _of_possible_orders(run, model, candidates(study, model.anatomy, layers))
    # What is wrong with an item is said before hours of search.
    everything = {**tasks, **controls, **gold_tasks({**tasks, **controls})}
    pending_cells(study, study.model, model, everything, {**items, **{gold_of(c): i for c, i in items.items()}}, ())
    with run.evaluation(study, items, tasks={**tasks, **controls}) as evaluation:
        evaluation.ask(gold_tasks({**tasks, **controls}))
        evaluation.add(study.model.name, model)
        parts = split(tasks, {choice: items[choice] for choice in tasks}, study.validation)
        halves = {choice: len(own) // 2 if _screens(study, everyone) else 0 for choice, own in parts.validation.items()}
        search = Search(
            study, everyone, Networks(evaluation, study.model, model), tasks, controls,
            screen={choice: own[: halves[choice]] for choice, own in parts.validation.items()},
            choice={choice: own[halves[choice] :] for choice, own in parts.validation.items()},
            test={**parts.test, **{choice: items[choice] for choice in controls}},
            earlier=_earlier(run, study),
        )  # fmt: skip
        evaluation.later = _costs(search)
        asked = {**tasks, **controls, **_golds(search)}
        own = {choice: evaluation.items_of(choice) for choice in asked}
        search.networks.evaluate((), asked, own, "answers without an edit", estimated=True)
        evaluation.later = {}
        baseline_first(evaluation, study.model, model, None, anyway=study.anyway)
        right = {choice: search.networks.answers(None, choice, drawn).right for choice, drawn in search.choice.items()}
        if BETTER in {contest.name for contest in search.contests} and all(each.all() for each in right.values()):
            run.watcher.note(
                f"{study.model.name} has all {sum(map(len, right.values())):,} items right that choose, so that no"
                " candidate can be better; give harder ones."
            )
        search.run()
        summary = summarise(search, model)
        # A file keeps edits of weights; orders and scaled places are text.
        cut = next((each.chosen for each in search.contests if each.chosen and each.chosen.family == "truncate"), None)
        leave_edit(run.folder, summary, cut.edit if cut else None, model)
        return SearchResult(run.folder, summary, evaluation.evaluated, search.networks.requested)


def _earlier(run: Run, study: SearchStudy) -> int:
    """How many other searches have tested their choices in the folder."""
    before = SearchResult.as_written(run.folder) if (run.folder / SUMMARY).is_file() else None
    if before is None:
        return 0
    return before.summary.earlier + (before.summary.study != study and bool(before.summary.tests))


def _screens(study: SearchStudy, everyone: list[Candidate]) -> bool:
    """Whether a contest has more candidates than a screen leaves."""
    counts = Counter(candidate.contest for candidate in everyone)
    return study.screen != "none" and max(counts.values()) > study.screen


def _golds(search: Search) -> dict[TaskChoice, Task]:
    """Gold answers that are scored: of tasks that generate, and whatever the screen looks at."""
    generating = {choice: task for choice, task in search.tasks.items() if task.kind == "generate"}
    return {**gold_tasks(generating), **(screen_tasks(search.tasks) if search.rounds else {})}


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
    """How many answers to each task the search gives after the unedited model's."""
    counts: Counter[str] = Counter()
    sizes = {contest.name: len(contest.candidates) for contest in search.contests}
    before = 0
    for seen, left in search.rounds:
        for name, size in sizes.items():
            if size > left:
                for choice in screen_tasks(search.tasks):
                    counts[choice.name] += size * (seen - before)
                sizes[name] = left
        before = seen
    for choice, task in search.tasks.items():
        names = [choice.name, *([gold_of(choice).name] if task.kind == "generate" else [])]
        for name in names:
            counts[name] += sum(sizes.values()) * len(search.choice[choice]) + len(sizes) * len(search.test[choice])
        counts[choice.name] += RIVALS * len(sizes) * len(search.test[choice])
    for choice in search.controls:
        counts[choice.name] += len(sizes) * len(search.test[choice])
    return counts
