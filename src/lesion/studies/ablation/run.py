"""Running a layer study: which edits are evaluated, in which order, screened and stopped; the numbers so far."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lesion.core.baseline import NothingToShow, baseline_first
from lesion.core.cached_answers import gold_of, gold_tasks
from lesion.core.database import FILE
from lesion.core.inference import PendingAnswer, answer_cells, as_mathematics, prompt_digest
from lesion.core.layers import parse_layers
from lesion.core.row import StoredAnswer, answer_key
from lesion.core.run import Evaluation, Pending, Run, refuse_scored
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.core.values import alike
from lesion.engines.engine import Decoding, Engine
from lesion.errors import UsageError
from lesion.models.load import Model, peek
from lesion.studies.ablation.invariance.families import from_base
from lesion.studies.ablation.plan import hold, refuse_not_evaluated, register
from lesion.studies.ablation.recall import summarised
from lesion.studies.ablation.references import ModelSweep, references_of
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.screening import ITEMS, chosen_edits, no_screen
from lesion.studies.ablation.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import StopPlan, Study
from lesion.studies.ablation.sweep import PlaceEdit, referring, refuse_many_neurons, sweep
from lesion.tasks.catalogue import find
from lesion.tasks.early import TOKENS, EarlyAnswers, said
from lesion.tasks.prompts import resolve
from lesion.tasks.style import Style
from lesion.tasks.task import Task
from lesion.tasks.wrapped import gold_name, guessing

SCORED = (
    " and nothing can be decided; leave it out, or ask it without --stop-when. `lesion evaluate` compares"
    " log-probabilities."
)
"""What to do where a task has no accuracy that could be decided on."""
NOTHING: tuple[object, ...] = (None, "", [], {})
"""What is not stored of a model: that there is nothing of it."""


def note_other_plan(run: Run, plan: StopPlan) -> None:
    """Say that stored answers were looked at before under another effect, level or rule than `plan` has."""
    if not (run.folder / FILE).exists():
        return
    with Store.read(run.folder) as store:
        before = tomllib.loads(store.study[1]).get("stop") if len(store) else None
    if before is not None and (earlier := StopPlan(**before)) != plan:
        run.watcher.note(
            f"The answers there were looked at before with effect {earlier.effect:g}, level {earlier.level:g} and"
            f" {earlier.rule}. Wrong calls are limited for an effect and a rule that are chosen before anybody looks."
        )


def answer_until_decided(
    stopping: Stopping, engine: Engine, model: Model, name: str, cells: Mapping[str, PendingAnswer], store: Store
) -> Iterator[list[StoredAnswer]]:
    """Evaluate round after round until all is decided or answered; yields the rows that were stored together.

    `cells` are those of the full table that have no answer yet, by their key (`inference.pending_cells`).
    """
    stored = store.answers(model=name)
    verdicts = Verdicts(zip(*(stored[column] for column in ("task", "edit", "item", "correct")), strict=True))
    keys = {(cell.choice.name, str(cell.edit), cell.item.id): key for key, cell in cells.items()}
    while stops := stopping.round():
        wanted = (
            keys.get((task, edit, item))
            for task, items in stopping.items.items()
            for place, item in enumerate(items)
            for (other, edit), stop in stops.items()
            if other == task and stopping.reached[task, edit] <= place < stop
        )
        pending = {key: cells[key] for key in wanted if key is not None}
        if pending:
            for rows in answer_cells(engine, model, name, pending, store):
                verdicts.add((row.task, row.edit, row.item, row.correct) for row in rows)
                yield rows
        if not stopping.look(verdicts):
            break


def early_tasks(
    tasks: Mapping[TaskChoice, Task], limits: Sequence[int]
) -> dict[TaskChoice, list[tuple[TaskChoice, EarlyAnswers]]]:
    """The tasks of early answers to each task that has items judged as mathematics, one for every limit."""
    chains = {choice: task for choice, task in tasks.items() if any(as_mathematics(task, item) for item in task.load())}
    return {
        choice: [
            (choice.model_copy(update={"name": each.name}), each) for each in map(partial(EarlyAnswers, task), limits)
        ]
        for choice, task in chains.items()
    }


def answer_early(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, cells: Mapping[str, PendingAnswer], limits: Sequence[int]
) -> None:
    """Ask for the answers of chains that are longer than each limit.

    Args:
        cells: every cell of the study, by key; those that have no answer are left out.
    """
    wanted = early_tasks(evaluation.tasks, limits)
    for choice, asked in wanted.items():
        tasks = dict(asked)
        evaluation.ask(tasks, dict.fromkeys(tasks, evaluation.items[choice]))
    stored = evaluation.store.answers(model=chosen.name).set_index("key")
    tokens_said = said(stored["tokens"], stored["finish"])
    chains = dict(zip(stored.index, zip(stored["text"], tokens_said, strict=True), strict=True))
    pending: dict[str, PendingAnswer] = {}
    full: set[str] = set()
    for key, cell in cells.items():
        text, tokens = chains.get(key, ("", 0))
        for choice, early in wanted.get(cell.choice, ()):
            if tokens <= early.limit:
                continue
            prompt, sampling = early.asked(model.tokenizer, cell.prompt, text), cell.decoding
            if len(prompt) >= model.context:
                full.add(choice.name)
                continue
            decoding = Decoding(early.max_new_tokens, early.stop, sampling.temperature, sampling.top_p, sampling.seed)
            digest = prompt_digest(prompt, (), (), ())
            about = (str(cell.edit), choice.name, cell.item.id, str(decoding), cell.style, digest)
            own = replace(cell, task=early, choice=choice, decoding=decoding, prompt=prompt, digest=digest)
            pending[answer_key(model.fingerprint, *about)] = own
    if full:
        evaluation.run.watcher.note(
            f"The context of {chosen.name} ({model.context:,} tokens) has no room for some of"
            f" {', '.join(sorted(full))}: it is not shown. Give smaller --early-answers."
        )
    elif not pending:
        evaluation.run.watcher.note(
            f"No chain of {chosen.name} is longer than {min(limits):,} tokens, so that none is cut off: give a smaller"
            " --early-answers."
        )
    evaluation.planned += len(pending)
    evaluation.answer(chosen, model, evaluation.still(Pending(len(pending), pending)), "early answers")


def refuse_doubled(study: Study) -> None:
    """Refuse a screen of what the study asks as a task of its own, or one that limits a study which stops."""
    if study.screen_top is not None and study.stop is not None:
        raise UsageError(
            "--screen-top and --stop-when do not go together: what stopping decides is corrected over every edit, and"
            " edits that are not generated have no answers. Leave one of them out."
        )
    if study.early_answers and study.stop is not None:
        raise UsageError(
            "--early-answers and --stop-when do not go together: what is decided has no more chains. Leave one of them"
            " out."
        )
    if study.early_answers and not early_tasks({choice: find(choice.name) for choice in study.tasks}, (1,)):
        raise UsageError(
            "--early-answers cuts off chains of thought, and none of the tasks is judged as mathematics; leave it out,"
            " or add a task such as gsm8k."
        )
    names = {choice.name for choice in study.tasks}
    doubled = next((name for name in names if gold_name(name) in names), None)
    if study.screens and doubled is not None:
        raise UsageError(
            f"A screen of {doubled} is {gold_name(doubled)}, which this study asks already; leave out one or the other."
        )


def generating(evaluation: Evaluation) -> dict[TaskChoice, Task]:
    """The tasks whose answers are generated, and not scored."""
    return {choice: task for choice, task in evaluation.tasks.items() if task.kind == "generate"}


def screen(sweep: ModelSweep) -> None:
    """Score the gold solutions of tasks that generate, under no edit and under each, and keep them as `gold:TASK`."""
    evaluation = sweep.evaluation
    generated = generating(evaluation)
    for choice in evaluation.tasks:
        if choice not in generated:
            evaluation.run.watcher.note(no_screen(choice.name))
    items = {gold_of(choice): evaluation.items[choice][:ITEMS] for choice in generated}
    evaluation.ask(gold_tasks(generated), items)
    pending = sweep.pending(gold_tasks(generated), items)
    evaluation.planned += pending.total
    evaluation.answer(sweep.chosen, sweep.model, pending, "screen answers")


def pending_at_top(sweep: ModelSweep, top: int) -> Pending:
    """What is left to answer where generation is limited to what the screen ranks first (`chosen_edits`).

    Tasks that generate nothing are answered under every edit.
    """
    evaluation, generated = sweep.evaluation, generating(sweep.evaluation)
    others = {choice: task for choice, task in evaluation.tasks.items() if choice not in generated}
    ids = {choice.name: [item.id for item in evaluation.items[choice]] for choice in generated}
    kept = chosen_edits(evaluation.store.answers(model=sweep.chosen.name), ids, sweep.edits, top)
    first = replace(sweep, edits=kept).pending(generated, evaluation.items)
    second = sweep.pending(others, evaluation.items)
    return Pending(first.total + second.total, first.cells | second.cells)


def run_ablation(study: Study, run: Run) -> AblationResult:
    """Evaluate every place of every model; where evaluation stopped, what is planned is what its table looks at."""
    items = run.drawn(study)
    refuse_doubled(study)
    if study.stop is not None:
        refuse_scored({choice: find(choice.name) for choice in study.tasks}, SCORED)
        note_other_plan(run, study.stop)
    _look_ahead(study, run)
    hold(run.folder, study)
    plan: dict[str, Sequence[PlaceEdit]] = {}
    stopped: list[NothingToShow] = []
    with run.evaluation(study, items) as evaluation:
        if study.hypotheses:
            expected = {each.task for each in study.hypotheses}
            there = int(evaluation.store.answers()["task"].isin(expected).sum())
            if growth := register(run.folder, study, there):
                run.watcher.note(growth)
        chances = {choice.name: guessing(evaluation.tasks[choice], of_task) for choice, of_task in items.items()}
        for number, chosen in enumerate(study.models, start=1):
            model = run.load(study, chosen)
            layers = parse_layers(study.edits.layers, len(model.anatomy.blocks), chosen.name)
            swept = study.edits
            refuse_many_neurons(model.anatomy, swept.unit, layers, study.screen_top)
            edits = sweep(model.anatomy, swept.unit, layers, swept.factor, swept.kinds)
            refuse_not_evaluated(study, chosen.name, {edit.address for edit in edits})
            with run.watcher.preparing():
                of_tasks = references_of(evaluation, chosen, model, edits)
            digests = {task: {source: of.digest for source, of in of_tasks[task].items()} for task in chances}
            edits = plan[chosen.name] = [referring(edit, digests) for edit in edits]
            about = {
                "edits": [str(edit) for edit in edits],
                "guessing": chances,
                "vocabulary": int(model.network.config.get_text_config(decoder=True).vocab_size),
                "complaint": model.complaint(chosen.name),
                "references": {task: of_task for task, of_task in digests.items() if of_task},
                "without_chat": _without_chat(study, evaluation, chosen, model),
                "distance": from_base(study, run, chosen),
            }
            evaluation.add(chosen.name, model, **{key: value for key, value in about.items() if value not in NOTHING})
            others = (len(study.models) - number) * (1 + len(edits))
            evaluation.later = {choice.name: others * len(of_task) for choice, of_task in items.items() if others}
            try:
                _evaluate(study, ModelSweep(evaluation, chosen, model, edits, of_tasks))
            except NothingToShow as nothing:
                stopped.append(nothing)
                if len(stopped) == len(study.models):
                    raise
                evaluation.planned += sum(map(len, items.values()))
                for text in nothing.args:
                    run.watcher.note(text)
            del model  # makes room for the next
            evaluation.release()
        summary, _, _ = summarised(study, plan, evaluation.store)
    summary.write(run.folder)
    return AblationResult(run.folder, summary, evaluation.evaluated, evaluation.planned)


def _without_chat(study: Study, evaluation: Evaluation, chosen: ModelChoice, model: Model) -> list[str]:
    if not model.has_chat_template:
        return []
    styles = {
        choice.name: resolve(model, task, study.prompt_style_of(chosen, choice))
        for choice, task in generating(evaluation).items()
    }
    return [task for task, style in styles.items() if Style.parse(style).name != "chat"]


def _evaluate(study: Study, sweep: ModelSweep) -> None:
    evaluation, chosen, model = sweep.evaluation, sweep.chosen, sweep.model
    # What is wrong with an item is said before anything is evaluated.
    pending = sweep.pending(evaluation.tasks, evaluation.items)
    if study.stop is None:
        tests = max(map(len, alike(sweep.edits, "unit", "factor")), default=0)
        baseline_first(evaluation, chosen, model, tests, anyway=study.anyway)
        pending = evaluation.still(pending)
    if study.screens:
        screen(sweep)
    if study.screen_top is not None:
        pending = pending_at_top(sweep, study.screen_top)
    if study.stop is None:
        early = study.early_answers
        every = sweep.pending(evaluation.tasks, evaluation.items, stored=()).cells if early else {}
        if early and pending.cells:
            chains = early_tasks(evaluation.tasks, early)
            most = len(early) * sum(cell.choice in chains for cell in every.values())
            evaluation.run.watcher.note(
                f"Up to {most:,} early answers follow these, each at most {TOKENS} tokens behind a chain; how long they"
                " take is said then."
            )
        evaluation.answer(chosen, model, pending)
        evaluation.planned += pending.total
        if early:
            answer_early(evaluation, chosen, model, every, early)
        return
    ids = {choice.name: [item.id for item in items] for choice, items in evaluation.items.items()}
    stopping = Stopping(study.stop, ids, sweep.edits)

    def answers(engine: Engine, cells: Mapping[str, PendingAnswer]) -> Iterator[list[StoredAnswer]]:
        return answer_until_decided(stopping, engine, model, chosen.name, cells, evaluation.store)

    what = "answers at most, fewer where all is decided sooner"
    evaluation.answer(chosen, model, pending, what, by=answers, estimated=False)
    evaluation.run.watcher.note(f"{chosen.name}: {stopping.progress()}")
    evaluation.planned += stopping.answers


def _look_ahead(study: Study, run: Run) -> None:
    for chosen in run.unloaded(study.models, study):
        blocks = peek(chosen.source, revision=chosen.revision, trust_remote_code=run.trusts_code)
        if blocks is not None:
            parse_layers(study.edits.layers, blocks, chosen.name)
