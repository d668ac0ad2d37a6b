"""`lesion plan`, `run`, `report` and `export`: study files of any kind, and the folders that studies leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.commands import DeviceMap, Dry, Every, GpusPerWorker, Push, Ray, Track, TrustRemoteCode, Workers
from lesion.cli.running import run, show
from lesion.cli.terminal import say
from lesion.core.options import schema
from lesion.core.study_file import Questions, StudyFile, shipped, study_file
from lesion.engines.config import EngineChoice
from lesion.errors import LesionError, UsageError, nearest
from lesion.plain import plain

_TIME = re.compile(
    r"((?:About |Under )?[a-z -]*(?:minutes?|hour)[a-z ]*?) on (?:a|one|two)(?: free)? CPU cores?", re.IGNORECASE
)
_GPU = re.compile(r"One GPU with ([0-9]+ GB) or more")


def run_study(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY.toml|NAME]", help="A study file, or the name of a study of --list.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies shipped with the package.")] = False,
    showing: Annotated[bool, typer.Option("--show", help="Print the study file instead of running it.")] = False,
    schemata: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of study files of a kind: layers, drift, …")
    ] = False,
    workers: Workers = None,
    ray: Ray = None,
    gpus_per_worker: GpusPerWorker = 1,
    device_map: DeviceMap = None,
    trust_remote_code: TrustRemoteCode = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output folder; running again into it continues the study.")
    ] = None,
    every: Every = False,
    dry_run: Dry = False,
    track: Track = None,
    push: Push = None,
) -> None:
    """Run a study file, or a study shipped with the package."""
    from lesion.registry import load_study, method_of

    if listing:
        for line in listed_studies():
            say(line)
    elif schemata:
        _print_schema(study)
    elif study is None:
        raise UsageError("Say which study to run: a file, or one of `lesion run --list`.")
    elif showing:
        _print(study_file(study).read_text("utf-8"))
    else:
        plan = load_study(study)
        engine = getattr(plan, "engine", None) or "transformers"
        choice = EngineChoice(engine, workers, ray, gpus_per_worker, device_map, trust_remote_code)
        run(method_of(plan), plan, out, choice, every=every, dry=dry_run, track=track, push=push)


def _print_schema(kind: str | None) -> None:
    from lesion.registry import methods

    known = {kind or "layers": method for kind, method in methods().items()}
    if kind not in known:
        near = nearest(kind, known) if kind else ""
        raise UsageError(f"Say which kind of study{near}: `lesion run --schema KIND`, of {', '.join(known)}.")
    _print(json.dumps(schema(known[kind].study), indent=2))


def _print(text: str) -> None:
    for line in text.splitlines():
        say(line)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a study.")], every: Every = False
) -> None:
    """Regenerate report.html from an output folder."""
    from lesion.core.preflight import refuse_no_folder

    refuse_no_folder(folder)
    from lesion.registry import recall
    from lesion.report.publishing import received

    with received(folder):
        show(recall(folder), every=every)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of a study.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the paper's files.")],
    inspect_log: Annotated[bool, typer.Option("--inspect-log", help="Every answer as logs of inspect_ai.")] = False,
    every_eval_ever: Annotated[
        bool, typer.Option("--every-eval-ever", help="Every answer in the schema of Every Eval Ever.")
    ] = False,
    eval_results: Annotated[
        bool, typer.Option("--eval-results", help="Benchmarks as .eval_results of a model's repository on the hub.")
    ] = False,
) -> None:
    """Write what a paper takes (figures, a table, a paragraph, BibTeX), or logs for others."""
    from lesion.core.preflight import refuse_no_folder
    from lesion.registry import recall

    refuse_no_folder(folder)
    chosen = {"inspect-log": inspect_log, "every-eval-ever": every_eval_ever, "eval-results": eval_results}
    if logs := [name for name, wanted in chosen.items() if wanted]:
        from lesion.sharing.logs import write

        written, left = write(folder, out, logs)
        if left:
            say(f"note: left out, since nothing in it is right or wrong: {', '.join(left)}", error=True)
    else:
        written = recall(folder).export(out)
    for path in written:
        say(str(path))


def plan(
    study: Annotated[str, typer.Argument(metavar="STUDY.toml", help="A layer study with tables of hypotheses.")],
    out: Annotated[Path, typer.Option("--out", help="Folder in which the study will run.")],
) -> None:
    """Write down what a layer study expects, with a hash, before it has any answer."""
    from lesion.core.database import FILE as DATABASE
    from lesion.core.layers import parse_layers
    from lesion.core.store import Store
    from lesion.edits.place import address
    from lesion.edits.units import scale_at
    from lesion.models.load import peek
    from lesion.registry import load_study
    from lesion.report import wording
    from lesion.report.names import short_names
    from lesion.report.values import WHOLE_SHARE
    from lesion.statistics.power import LOSS
    from lesion.studies.ablation.analyses import plan as shown
    from lesion.studies.ablation.plan import FILE, prospects, read, refuse_not_evaluated, register
    from lesion.studies.ablation.study import Study

    planned = load_study(study)
    if not isinstance(planned, Study):
        raise UsageError(f"{study} is a study of kind {getattr(planned, 'kind', '')}; a plan is of a layer study.")
    for chosen in planned.models:
        blocks = peek(chosen.source, revision=chosen.revision)
        if blocks is not None:
            layers = parse_layers(planned.edits.layers, blocks, chosen.name)
            places = {address(layer, unit) for layer in layers for unit in planned.edits.unit}
            # How many heads or experts a block has is known with the model alone.
            inner = [each.place for each in planned.hypotheses if scale_at(each.place, 0.0)]
            places |= {place for place in inner if int(place.partition(".")[0]) in layers}
            refuse_not_evaluated(planned, chosen.name, places)
    expected = prospects(planned)
    if expected:
        tests = wording.counted(expected[0].tests, "test")
        taken = WHOLE_SHARE.text(LOSS["critical"])
        say(f"Power of {tests} by the unedited model's accuracy, if critical takes {taken} of it and spared nothing:")
        for line in shown.powers(expected, short_names(choice.name for choice in planned.tasks)):
            say(f"  {line}")
    there = 0
    if (out / DATABASE).is_file():
        with Store.read(out) as store:
            tasks = {each.task for each in planned.hypotheses}
            there = int(store.answers()["task"].isin(tasks).sum())
    note = register(out, planned, there)
    say(note or f"{out / FILE} is the plan of this study already.")
    written = read(out)
    say(f"SHA-256 {written['sha256'] if written else ''}")
    say(f"Run it: lesion run {study} --out {out}")


def listed_studies() -> Iterator[str]:
    """The studies shipped with the package, with what they ask and how large they are, a line each."""
    from lesion.registry import faults, load_study, method_of

    yield _line("study", "kind", "models", "items", "needs", "question")
    for name, file in shipped().items():
        try:
            study = load_study(name)
        except LesionError as error:  # the file of another package, whose method cannot be used
            yield _line(name, "–", "–", "–", "–", plain(str(error)))
            continue
        models = len(getattr(study, "models", ())) or int(hasattr(study, "model"))
        kind = method_of(study).kind or "layers"
        yield _line(name, kind, str(models or "–"), _items(study), _needs(file), plain(study.title or ""))
    yield ""
    yield "items: of all tasks; every model is asked each of them once unedited and once for every edit."
    yield "lesion run NAME --show prints a study; lesion run NAME --out DIR runs it."
    for fault in faults():
        yield f"note: {fault}"


def _line(name: str, kind: str, models: str, count: str, needed: str, question: str) -> str:
    return f"{name:36} {kind:10} {models:>6}  {count:>6}  {needed:28}  {question}".rstrip()


def _items(study: StudyFile) -> str:
    """How many items a study asks, over all tasks, or all runs of a drift study; a dash where it asks none."""
    if isinstance(study, Questions):
        counts = [study.items_of(task) for task in study.tasks]
        return "all" if None in counts else f"{sum(filter(None, counts)):,}" if counts else "–"
    count = getattr(study, "items", None)
    return "–" if count is None else f"{getattr(study, 'runs', 1) * count:,}"


def _needs(file: Path) -> str:
    """The time or the hardware that the comment at the head of a study file states; a dash where it states none."""
    head = [line.lstrip("# ") for line in file.read_text("utf-8").splitlines() if line.startswith("#")]
    comment = " ".join(" ".join(head).split())
    if gpu := _GPU.search(comment):
        return f"a GPU, {gpu[1]}"
    return " ".join(time[1].split()).lower() if (time := _TIME.search(comment)) else "–"
