"""Running a layer study: which edits are evaluated, in which order, and the numbers of the answers so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lesion.core.baseline import NothingToShow, baseline_first
from lesion.core.inference import PendingAnswer
from lesion.core.layers import parse_layers
from lesion.core.preflight import refuse_unfit_styles
from lesion.core.row import StoredAnswer
from lesion.core.run import Evaluation, Run, refuse_scored
from lesion.core.study_file import ModelChoice
from lesion.engines.engine import Engine
from lesion.models.load import Model, peek
from lesion.studies.ablation.invariance.families import from_base
from lesion.studies.ablation.kinds.references import References, pending_of, references_of
from lesion.studies.ablation.plan.plan import hold, refuse_not_evaluated, register
from lesion.studies.ablation.recall import summarised
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.screen.run import pending_at_top, refuse_doubled, screen
from lesion.studies.ablation.stopping.run import SCORED, answer_until_decided, notes_on_other_plan
from lesion.studies.ablation.stopping.stopping import Stopping
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.sweep import PlaceEdit, by_kind, referring, refuse_many_neurons, sweep
from lesion.tasks.catalogue import find
from lesion.tasks.guessing import guessing
from lesion.tasks.prompts import resolve
from lesion.tasks.style import Style


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
        evaluation.answer(chosen, model, pending)
        evaluation.planned += pending.total
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
