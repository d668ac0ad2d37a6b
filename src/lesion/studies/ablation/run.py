"""Running a layer study: which edits are evaluated, in which order, screened and stopped; the numbers so far."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lesion.core.baseline import NothingToShow, baseline_first
from lesion.core.cached_answers import gold_of, gold_tasks
from lesion.core.database import FILE
from lesion.core.inference import PendingAnswer, answer_cells
from lesion.core.layers import parse_layers
from lesion.core.preflight import refuse_unfit_styles
from lesion.core.row import StoredAnswer
from lesion.core.run import Evaluation, Pending, Run, refuse_scored
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice
from lesion.engines.engine import Engine
from lesion.errors import UsageError
from lesion.models.load import Model, peek
from lesion.studies.ablation.early import answer_early, early_tasks
from lesion.studies.ablation.invariance.families import from_base
from lesion.studies.ablation.plan import hold, refuse_not_evaluated, register
from lesion.studies.ablation.recall import summarised
from lesion.studies.ablation.references import References, pending_of, references_of
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.screening import ITEMS, chosen_edits, no_screen
from lesion.studies.ablation.stopping import Stopping, Verdicts
from lesion.studies.ablation.study import StopPlan, Study
from lesion.studies.ablation.sweep import PlaceEdit, by_kind, referring, refuse_many_neurons, sweep
from lesion.tasks.catalogue import find
from lesion.tasks.early import TOKENS
from lesion.tasks.prompts import resolve
from lesion.tasks.style import Style
from lesion.tasks.wrapped import gold_name, guessing

SCORED = (
    " and nothing can be decided; leave it out, or ask it without --stop-when. `lesion evaluate` compares"
    " log-probabilities."
)
"""What to do where a task has no accuracy that could be decided on."""


def notes_on_other_plan(folder: Path, plan: StopPlan) -> list[str]:
    """Notes where stored answers were looked at before under another effect, level or rule than `plan` has."""
    if not (folder / FILE).exists():
        return []
    with Store.read(folder) as store:
        before = tomllib.loads(store.study[1]).get("stop") if len(store) else None
    if before is None:
        return []
    settings = (before["effect"], before["level"], before.get("rule", plan.rule))
    if settings == (plan.effect, plan.level, plan.rule):
        return []
    by = "" if settings[2] == plan.rule else f" by {settings[2]}"
    error = "family-wise error" if plan.rule == "e-Holm" else "false discovery rate"
    return [
        f"The answers there were looked at before with effect {before['effect']:g} and level {before['level']:g}{by}."
        f" The {error} is limited for an effect and a rule that are chosen before anybody looks."
    ]


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
                verdicts.add(rows)
                yield rows
        if not stopping.look(verdicts):
            break


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


def screen(
    evaluation: Evaluation, chosen: ModelChoice, model: Model, edits: Sequence[PlaceEdit], references: References
) -> None:
    """Score the gold solutions of tasks that generate, under no edit and under each, and keep them as `gold:TASK`."""
    generating = {choice: task for choice, task in evaluation.tasks.items() if task.kind == "generate"}
    for choice in evaluation.tasks:
        if choice not in generating:
            evaluation.run.watcher.note(no_screen(choice.name))
    items = {gold_of(choice): evaluation.items[choice][:ITEMS] for choice in generating}
    evaluation.ask(gold_tasks(generating), items)
    pending = pending_of(evaluation, chosen, model, edits, references, gold_tasks(generating), items)
    evaluation.planned += pending.total
    evaluation.answer(chosen, model, pending, "answers of the screen")


def pending_at_top(
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
    top: int,
) -> Pending:
    """What is left to answer where generation is limited to what the screen ranks first (`chosen_edits`).

    Tasks that generate nothing are answered under every edit.
    """
    generating = {choice: task for choice, task in evaluation.tasks.items() if task.kind == "generate"}
    others = {choice: task for choice, task in evaluation.tasks.items() if choice not in generating}
    ids = {choice.name: [item.id for item in evaluation.items[choice]] for choice in generating}
    kept = chosen_edits(evaluation.store.answers(model=chosen.name), ids, edits, top)
    parts = [
        pending_of(evaluation, chosen, model, own, references, tasks)
        for own, tasks in ((kept, generating), (edits, others))
    ]
    return Pending(sum(part.total for part in parts), {**parts[0].cells, **parts[1].cells})


def run_ablation(study: Study, run: Run) -> AblationResult:
    """Evaluate every place of every model; where evaluation stopped, what is planned is what its table looks at."""
    items = run.drawn(study)
    refuse_doubled(study)
    if study.stop is not None:
        refuse_scored({choice: find(choice.name) for choice in study.tasks}, SCORED)
        for note in notes_on_other_plan(run.folder, study.stop):
            run.watcher.note(note)
    _look_ahead(study, run)
    hold(run.folder, study)
    plan: dict[str, Sequence[PlaceEdit]] = {}
    stopped: list[NothingToShow] = []
    with run.evaluation(study, items) as evaluation:
        expected = {each.task for each in study.hypotheses}
        there = int(evaluation.store.answers()["task"].isin(expected).sum()) if expected else 0
        if (growth := register(run.folder, study, there)) is not None:
            run.watcher.note(growth)
        chances = {choice.name: guessing(evaluation.tasks[choice], of_task) for choice, of_task in items.items()}
        for number, chosen in enumerate(study.models, start=1):
            model = run.load(study, chosen)
            layers = parse_layers(study.edits.layers, len(model.anatomy.blocks), chosen.name)
            swept = study.edits
            refuse_many_neurons(model.anatomy, swept.unit, layers, study.screen_top)
            edits = sweep(model.anatomy, swept.unit, layers, swept.factor, swept.kinds)
            refuse_not_evaluated(study, chosen.name, {edit.address for edit in edits})
            of_tasks = references_of(evaluation, chosen, model, edits)
            digests = {task: {source: of.digest for source, of in of_tasks[task].items()} for task in chances}
            edits = [referring(edit, digests) for edit in edits]
            plan[chosen.name] = edits
            complaint = {"complaint": model.complaint(chosen.name)} if model.not_finite else {}
            words = int(model.network.config.get_text_config(decoder=True).vocab_size)
            about = {"edits": [str(edit) for edit in edits], "guessing": chances, "vocabulary": words, **complaint}
            about |= {"references": digests} if swept.kinds else {}
            about |= (
                {"without_chat": _without_chat(study, evaluation, chosen, model)} if model.has_chat_template else {}
            )
            far = from_base(study, run, chosen)
            about |= {} if far is None else {"distance": far}
            evaluation.add(chosen.name, model, **about)
            others = (len(study.models) - number) * (1 + len(edits))
            evaluation.later = {choice.name: others * len(of_task) for choice, of_task in items.items() if others}
            try:
                _evaluate(study, evaluation, chosen, model, edits, of_tasks)
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
    """The tasks whose prompts are not put into the chat template that a model has."""
    styles = {
        choice.name: resolve(model, task, study.prompt_style_of(chosen, choice))
        for choice, task in evaluation.tasks.items()
        if task.kind == "generate"
    }
    return [task for task, style in styles.items() if Style.parse(style).name != "chat"]


def _early_to_come(study: Study, pending: Pending) -> str:
    """What early answers will ask after the chains that are still to come, of which not all have to be so long."""
    most = len(study.early_answers) * len(pending.cells)
    return (
        f"Up to {most:,} early answers follow these, each at most {TOKENS} tokens behind a chain; how long they take is"
        " said then."
    )


def _evaluate(
    study: Study,
    evaluation: Evaluation,
    chosen: ModelChoice,
    model: Model,
    edits: Sequence[PlaceEdit],
    references: References,
) -> None:
    """Have one model give all answers that it has not given."""
    # What is wrong with an item is said before anything is evaluated.
    pending = pending_of(evaluation, chosen, model, edits, references)
    if study.stop is None:
        baseline_first(evaluation, chosen, model, max(map(len, by_kind(edits)), default=0), anyway=study.anyway)
        pending = evaluation.still(pending)
    if study.screens:
        screen(evaluation, chosen, model, edits, references)
    if study.screen_top is not None:
        pending = pending_at_top(evaluation, chosen, model, edits, references, study.screen_top)
    ids = {choice.name: [item.id for item in items] for choice, items in evaluation.items.items()}
    if study.stop is None:
        if study.early_answers and pending.cells:
            evaluation.run.watcher.note(_early_to_come(study, pending))
        evaluation.answer(chosen, model, pending)
        evaluation.planned += pending.total
        if study.early_answers:
            every = pending_of(evaluation, chosen, model, edits, references, stored=())
            answer_early(evaluation, chosen, model, every.cells, study.early_answers)
        return
    stopping = Stopping(study.stop, ids, edits)

    def answers(engine: Engine, cells: Mapping[str, PendingAnswer]) -> Iterator[list[StoredAnswer]]:
        return answer_until_decided(stopping, engine, model, chosen.name, cells, evaluation.store)

    what = "answers at most, fewer where all is decided sooner"
    evaluation.answer(chosen, model, pending, what, by=answers, estimated=False)
    evaluation.run.watcher.note(f"{chosen.name}: {stopping.progress()}")
    evaluation.planned += stopping.answers


def _look_ahead(study: Study, run: Run) -> None:
    """What is wrong with a later model is said before the first one works for hours."""
    for chosen in study.models[1:]:
        if chosen.name in run.loaded:
            continue
        refuse_unfit_styles(study, chosen, trust_remote_code=run.trusts_code)
        blocks = peek(chosen.source, revision=chosen.revision, trust_remote_code=run.trusts_code)
        if blocks is not None:
            parse_layers(study.edits.layers, blocks, chosen.name)
