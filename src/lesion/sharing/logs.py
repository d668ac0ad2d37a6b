"""Stored answers in the formats of other programs: logs of inspect_ai, Every Eval Ever, results for a model's page.

Each model under each edit is a model of its own there, and each task that is right or wrong a log.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd

from lesion.atomic import keep
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.errors import UsageError
from lesion.models.source import BUNDLED
from lesion.report import wording
from lesion.statistics.paired import wilson
from lesion.tasks.benchmarks import BENCHMARKS
from lesion.tasks.early import EARLY
from lesion.tasks.style import Style

JUDGE = "lesion"
LEVEL = 0.95
_STOPS = {"stop": "stop", "length": "max_tokens", "loop": "stop", "nonfinite": "unknown"}
"""How an answer ended, in the words of inspect_ai."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w.-]+)?")


@dataclass(frozen=True)
class Run:
    """The answers of one model under one edit to one task."""

    model: str
    source: str
    edit: str
    task: str
    made: datetime
    answers: pd.DataFrame

    @property
    def name(self) -> str:
        """What files of inspect_ai are called: after the time, the task with the model, and what tells runs apart."""
        made = self.made.isoformat(timespec="seconds").replace(":", "-")
        return f"{made}_{_safe(f'{self.task}-{self.model}')}_{self.identity}"

    @property
    def identity(self) -> str:
        """What tells its answers from others, in the form of a random UUID, which Every Eval Ever asks for."""
        return str(UUID(bytes=hashlib.sha256("\n".join(self.answers["key"]).encode()).digest()[:16], version=4))

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.answers["correct"].mean())

    @property
    def settings(self) -> dict[str, Any]:
        """How answers were decoded."""
        decoding = str(self.answers["decoding"].iloc[0])
        found = {key: re.search(rf"\b{short}=([\d.]+)", decoding) for key, short in _DECODED.items()}
        values = {key: float(match[1]) for key, match in found.items() if match}
        if "max_tokens" in values:
            values["max_tokens"] = int(values["max_tokens"])
        return {"temperature": 0.0, **values}

    @property
    def about(self) -> dict[str, str]:
        """What no field of those formats takes."""
        first = self.answers.iloc[0]
        return {
            "edit": self.edit,
            **{name: str(first[name]) for name in ("model_name", "prompt_style", "decoding", "engine")},
            "fingerprint": str(first["model"]),
        }


_DECODED = {"temperature": "T", "top_p": "p", "max_tokens": "max"}


def write(folder: Path, out: Path, formats: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Write the answers of a study's folder in `formats`; the paths, and the tasks that are left out: scored ones."""
    runs, left = read(folder)
    files: dict[str, str] = {}
    if "inspect-log" in formats:
        files |= {f"inspect/{run.name}.json": inspect_log(run) for run in runs}
    if "every-eval-ever" in formats:
        for run in runs:
            files |= every_eval_ever(run)
    if "eval-results" in formats:
        files |= eval_results(runs)
    for name, text in files.items():
        keep(out / name, text)
    return [out / name for name in files], left


def read(folder: Path) -> tuple[list[Run], list[str]]:
    """The runs of a folder, and the tasks whose answers are neither right nor wrong."""
    with Store.read(folder) as store:
        answers, made = store.answers(), datetime.fromisoformat(store.made)
    answers = answers[~answers["task"].str.startswith(EARLY)]
    scored = (answers["scores"].map(len) == 1) & (answers["ranks"].map(len) == 0)
    left = sorted({str(task) for task in answers.loc[scored, "task"]} - {f"gold:{task}" for task in answers["task"]})
    places = answers[~scored].groupby(["model_name", "task", "edit"], sort=False)
    runs = []
    for (model, task, edit), rows in places:
        name = str(model) if edit == str(BASELINE) else f"{model} with {edit}"
        runs.append(Run(name, str(model), str(edit), str(task), made, rows))
    if not runs:
        raise UsageError(f"{folder} has no answers that are right or wrong.")
    return runs, left


def inspect_log(run: Run) -> str:
    """A log of inspect_ai as JSON (version 2 of its format)."""
    made, count, right = run.made.isoformat(), len(run.answers), run.accuracy
    error = (right * (1 - right) / (count - 1)) ** 0.5 if count > 1 else 0.0
    metrics = {name: {"name": name, "value": value} for name, value in (("accuracy", right), ("stderr", error))}
    score = {"name": JUDGE, "scorer": JUDGE, "scored_samples": count, "unscored_samples": 0, "metrics": metrics}
    log = {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": run.identity,
            "run_id": run.identity,
            "task_id": run.identity,
            "created": made,
            "task": run.task,
            "dataset": {"name": run.task, "samples": count, "sample_ids": list(run.answers["item"])},
            "model": run.model,
            "model_generate_config": run.settings,
            "config": {"epochs": 1},
            "packages": {"lesion": version("lesion")},
            "metadata": run.about,
            "scorers": [{"name": JUDGE}],
        },
        "plan": {"name": "lesion", "steps": [{"solver": "generate"}], "config": run.settings},
        "results": {"total_samples": count, "completed_samples": count, "scores": [score]},
        "stats": {"started_at": made, "completed_at": made},
        "samples": [_sample(run, row) for row in run.answers.itertuples(index=False)],
    }
    return json.dumps(log, ensure_ascii=False) + "\n"


def _sample(run: Run, row: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": row.text, "source": "generate"}
    system = Style.parse(row.prompt_style).system
    before = [{"role": "system", "content": system}] if system else []
    return {
        "id": row.item,
        "epoch": 1,
        "input": row.question,
        "target": row.gold,
        "messages": [*before, {"role": "user", "content": row.question}, said],
        "output": {
            "model": run.model,
            "choices": [{"message": said, "stop_reason": _STOPS[row.finish]}],
            "completion": row.text,
            "usage": {"output_tokens": row.tokens, "total_tokens": row.tokens},
        },
        "scores": {JUDGE: {"value": "C" if row.correct else "I", "answer": row.parsed}},
        "metadata": {"group": row.group} if row.group else {},
    }


def every_eval_ever(run: Run) -> dict[str, str]:
    """The two files of a run by the schema 0.3 of Every Eval Ever: what it gave in all, and a line per item."""
    on_hub = _HUB_ID.fullmatch(run.source) and not Path(run.source).exists()
    bundled = run.source.startswith(BUNDLED)
    owner, _, rest = run.model.partition("/") if on_hub else ("lesion" if bundled else "unknown", "", run.model)
    model = f"{owner}/{_safe(rest)}"
    identity = f"{run.task}/{run.model}/{run.made.timestamp():.0f}"
    rows = run.answers.itertuples(index=False)
    lines = "".join(json.dumps(_line(row, run.task, identity, model), ensure_ascii=False) + "\n" for row in rows)
    low, high = wilson(int(run.answers["correct"].sum()), len(run.answers), LEVEL)
    source = {"dataset_name": run.task, "source_type": "other"}
    if run.task in BENCHMARKS:
        hub = BENCHMARKS[run.task].hub
        source |= {"source_type": "hf_dataset", "hf_repo": hub.repository, "hf_split": hub.split}
    engine, _, release = run.about["engine"].partition(",")[0].partition(" ")
    availability = "open_weights" if on_hub or bundled else "unknown"
    interval = {"lower": low, "upper": high, "confidence_level": LEVEL, "method": "Wilson"}
    result = {
        "evaluation_result_id": "accuracy",
        "evaluation_name": run.task,
        "source_data": source,
        "metric_config": {"lower_is_better": False, "score_type": "continuous", "min_score": 0.0, "max_score": 1.0},
        "score_details": {
            "score": run.accuracy,
            "uncertainty": {"confidence_interval": interval, "num_samples": len(run.answers)},
        },
        "generation_config": {"generation_args": run.settings},
    }
    place = f"data/{_safe(run.task)}/{model}/{run.identity}"
    about = {
        "schema_version": "0.3.0",
        "evaluation_id": identity,
        "evaluation_timestamp": run.made.isoformat(),
        "retrieved_timestamp": f"{run.made.timestamp():.0f}",
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "lesion", "version": version("lesion")},
        "model_info": {
            "name": run.model,
            "id": model,
            "developer": owner,
            "inference_engine": {"name": engine, "version": release or "unknown"},
            "additional_details": {
                **run.about, "deployment_type": "self_deployed", "model_availability": availability,
            },
        },
        "evaluation_results": [result],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{place}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": hashlib.sha256(lines.encode()).hexdigest(),
            "total_rows": len(run.answers),
        },
    }  # fmt: skip
    whole = json.dumps(about, indent=1, ensure_ascii=False) + "\n"
    return {f"every_eval_ever/{place}.json": whole, f"every_eval_ever/{place}_samples.jsonl": lines}


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name.replace("×", "x")).strip("-.")


def _line(row: Any, task: str, identity: str, model: str) -> dict[str, Any]:
    read_as = {"turn_idx": 0, "source": "output.raw", "extraction_method": JUDGE, "is_terminal": True}
    return {
        "schema_version": "instance_level_eval_0.3.0",
        "evaluation_id": identity,
        "model_id": model,
        "evaluation_name": task,
        "evaluation_result_id": "accuracy",
        "sample_id": row.item,
        "sample_hash": hashlib.sha256((row.question + row.gold).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": row.question, "reference": [row.gold]},
        "output": {"raw": [row.text]},
        "messages": None,
        "answer_attribution": [] if row.parsed is None else [{**read_as, "extracted_value": row.parsed}],
        "evaluation": {"score": float(row.correct), "is_correct": bool(row.correct)},
        "metadata": {"group": row.group} if row.group else None,
    }


def eval_results(runs: Sequence[Run]) -> dict[str, str]:
    """For each model under each edit, the `.eval_results` of its repository: benchmarks of the hub alone."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

    files = {}
    for run in runs:
        if run.task not in BENCHMARKS:
            continue
        low, high = (100 * end for end in wilson(int(run.answers["correct"].sum()), len(run.answers), LEVEL))
        notes = (
            f"{wording.counted(len(run.answers), 'item')} drawn by lesion {version('lesion')}, 95 % interval {low:.1f}"
            f" to {high:.1f}, prompt style {run.answers['prompt_style'].iloc[0]}"
        )
        entry = EvalResultEntry(
            dataset_id=BENCHMARKS[run.task].hub.repository,
            task_id=BENCHMARKS[run.task].title,
            value=round(100 * run.accuracy, 2),
            date=run.made.date().isoformat(),
            notes=notes,
        )
        text = yaml_dump(eval_result_entries_to_yaml([entry]))
        files[f"eval_results/{_safe(run.model)}/.eval_results/{run.task}.yaml"] = text
    if not files:
        local = next((run.task for run in runs if run.task.partition(":")[0] in BENCHMARKS), None)
        if local is not None:
            raise UsageError(
                f"The questions of {local} come from a local file, and --eval-results are of benchmarks of the hub. Run"
                f" the study on {local.partition(':')[0]}, or leave --eval-results out."
            )
        raise UsageError(
            f"No task here is a benchmark of the hub, which --eval-results are of: {', '.join(sorted(BENCHMARKS))}."
        )
    return files
