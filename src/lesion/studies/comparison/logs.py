"""Item-level logs of other programs, read as answers of unedited models.

inspect_ai (`.eval` and JSON), lm-evaluation-harness and lmms-eval (`--log_samples`), Every Eval Ever (`*_samples.jsonl`
by the schema instance_level_eval 0.2), and plain JSON Lines or CSV with a column for the item and one for right or
wrong or a score.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from lesion import files
from lesion.core.database import FILE
from lesion.edits.edit import BASELINE
from lesion.errors import LesionError, UsageError
from lesion.outputs import MARK
from lesion.plain import short
from lesion.report import wording
from lesion.studies.comparison.result import Unit

UNNAMED = "items"
"""The task of a plain file that names none, where no other side has a single task to which it could belong."""
ENDINGS = (".eval", ".json", ".jsonl", ".csv", ".tsv")
AGAIN = "copy or download it again, or write it anew"
_SAMPLES = re.compile(
    r"(?:(?P<before>\d{8}_\d{6})_)?samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.:-]+))?\.jsonl"
)
_LOGS = re.compile(rf"{_SAMPLES.pattern}|_samples\.jsonl|^\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d[+-]\d\d-\d\d_.+\.json$")
"""Names of logs beside `*.eval`: of the harness, of Every Eval Ever, and JSON of inspect_ai."""
_VERDICTS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai: correct, incorrect, partial, no answer
_WORDS = {
    **dict.fromkeys(("true", "yes", "correct", "right", "pass", "passed"), 1.0),
    **dict.fromkeys(("false", "no", "incorrect", "wrong", "fail", "failed"), 0.0),
}
_COLUMNS = {
    "item": ("id", "item", "item_id", "sample_id", "question_id", "doc_id", "index", "idx"),
    "question": ("question", "query", "problem", "prompt", "input", "instruction", "sentence", "text"),
    "value": ("correct", "is_correct", "right", "score", "acc", "accuracy", "exact_match", "passed", "value"),
    "gold": ("gold", "target", "reference", "expected"),
    "text": ("answer", "response", "output", "prediction", "completion"),
    "group": ("group", "template", "subject", "category"),
    "model": ("model", "model_name", "model_id"),
    "task": ("task", "dataset", "benchmark"),
}
"""What columns may be called, the likeliest first."""


class Entry(NamedTuple):
    """One judged answer of a log; the value is None where none was given."""

    model: str
    task: str
    item: str
    question: str
    gold: str
    group: str
    text: str
    parsed: str | None
    value: float | None
    prompt: str


class Log(NamedTuple):
    """The answers of one file, what a reader of them should know, what wrote and judged them, how they were decoded.

    `named`: whether the log itself names its model.
    """

    entries: list[Entry] | pd.DataFrame
    notes: list[str]
    engine: str
    judge: str
    decoding: str = ""
    named: bool = True


def is_log(place: Path) -> bool:
    """Whether what was named is a file, or a folder in which no study lies but logs do."""
    return place.is_file() or (
        place.is_dir() and not any((place / name).exists() for name in (FILE, MARK)) and bool(_files(place))
    )


def _files(place: Path) -> list[Path]:
    """The logs of a folder and of those in it, in the order of their names, which begin or end with their date."""
    found = (path for path in place.rglob("*") if path.suffix == ".eval" or _LOGS.search(path.name))
    return sorted((path for path in found if path.is_file()), key=lambda path: path.name)


def read_log(place: Path, notes: list[str]) -> list[tuple[pd.DataFrame, dict[str, Unit]]]:
    """The models of a log or of a folder of logs: answers as of `Store.answers`, and unit of each scored task."""
    parts: dict[tuple[str, str], tuple[Path, pd.DataFrame, Unit | None]] = {}
    for path in [place] if place.is_file() else _files(place):
        with files.understood(path, AGAIN):
            log = _read(path)
        notes += log.notes
        where = "" if log.named else str(path.absolute())
        about = {"engine": log.engine, "judge": log.judge, "decoding": log.decoding, "where": where}
        frame = pd.DataFrame(log.entries, columns=Entry._fields, dtype=object).assign(**about)
        for (model, task), rows in frame.groupby(["model", "task"], sort=False):
            if (earlier := parts.pop((str(model), str(task)), None)) is not None:
                notes.append(
                    f"{place} has two logs of {task} with {model}: {path.name} is compared, and {earlier[0].name} is"
                    " left out; name the files to compare them."
                )
            parts[str(model), str(task)] = path, *_judged(rows, path.name, str(task), notes)
    models: dict[str, list[tuple[str, pd.DataFrame, Unit | None]]] = {}
    for (model, task), (_, rows, unit) in parts.items():
        models.setdefault(model, []).append((task, rows, unit))
    return [
        (_as_stored(pd.concat([rows for _, rows, _ in every])), {task: unit for task, _, unit in every if unit})
        for every in models.values()
    ]


def _judged(rows: pd.DataFrame, file: str, task: str, notes: list[str]) -> tuple[pd.DataFrame, Unit | None]:
    """The answers of a task, one an item, and the unit of their scores; None: each is right or wrong."""
    missing = int(rows["value"].isna().sum())
    if missing == len(rows):
        raise UsageError(f"{file}, {task}: no answer has a score; score the log first, such as with `inspect score`.")
    rows = rows.assign(share=1.0)
    if repeated := bool(rows["item"].duplicated().any()):
        several = rows.groupby("item", sort=False)[["question", "group"]].nunique().max(axis=1) > 1
        if several.any():
            raise UsageError(
                f"{file}, {task}: the id {short(str(several.idxmax()), 60)} stands for several questions; give every"
                " question an id of its own, such as with the name of its group."
            )
        rows["share"] = rows["value"].notna().groupby(rows["item"]).transform("mean")
    if missing:
        notes.append(f"{file}, {task}: {wording.counted(missing, 'answer')} without a score left out.")
        rows = rows[rows["value"].notna()]
    values = rows["value"].astype(float)
    unit: Unit = "points" if values.isin((0.0, 1.0)).all() else "score"
    if repeated and rows["item"].duplicated().any():
        shares = values.groupby(rows["item"], sort=False).mean()
        items = wording.counted(len(shares), "item")
        notes.append(
            f"{file}, {task}: {len(rows):,} answers to {items}; an item counts once, by the mean of its answers."
        )
        rows = rows.drop_duplicates("item")
        values = shares.loc[rows["item"]].set_axis(rows.index)
    verdicts = bool(values.isin((0.0, 1.0)).all())
    scores = [()] * len(rows) if verdicts else [(value,) for value in values]
    scored = rows.assign(correct=values == 1.0, scores=pd.Series(scores, index=rows.index, dtype=object))
    return scored, None if verdicts else unit


def _as_stored(rows: pd.DataFrame) -> pd.DataFrame:
    """The columns that `Store.answers` has, `judge`, and `prompt`: a digest of what was asked, where the log has it.

    `share`: of the answers to an item, how many have a score.
    """
    of = rows["model"] + rows["where"]  # files that name no model are not of one for being called alike
    fingerprints = {model: hashlib.sha256(model.encode()).hexdigest()[:16] for model in of.unique()}
    return rows.rename(columns={"model": "model_name"}).assign(
        key=rows["task"] + "\n" + rows["item"],
        model="log of " + of.map(fingerprints),
        edit=str(BASELINE), prompt_style="as logged", tokens=0, finish="",
        ranks=pd.Series([()] * len(rows), index=rows.index, dtype=object),
    ).reset_index(drop=True)  # fmt: skip


def _read(path: Path) -> Log:
    """A log by what its name and its first row say that it is."""
    if path.suffix == ".eval":
        return _inspect(path, *_archive(path))
    if path.suffix not in ENDINGS:
        raise UsageError(
            f"{path} is no log that is read here; name a file that ends in {wording.listed(ENDINGS, 'or')}."
        )
    if path.suffix in (".csv", ".tsv"):
        return _plain(path, _table(path))
    text = files.read_text(path)
    if path.suffix == ".json" and not text.lstrip().startswith("["):
        log = files.read_object(path)
        if "eval" not in log or "status" not in log:
            raise UsageError(
                f"{path} holds no samples: it is no log of inspect_ai. Of lm-evaluation-harness name the"
                " samples_*.jsonl beside it, which --log_samples writes."
            )
        return _inspect(path, log, log.get("samples") or [])
    rows = json.loads(text) if path.suffix == ".json" else _rows(path, text)
    if not all(type(row) is dict for row in rows):
        raise UsageError(f"{path} is a list of something else than objects; give every item one.")
    first = rows[0] if rows else {}
    if {"sample_id", "evaluation_name", "evaluation"} <= set(first):
        return _every_eval_ever(rows)
    if {"doc_id", "target"} <= set(first) and {"resps", "filtered_resps"} & set(first):
        return _harness(path, rows)
    keys = dict.fromkeys(str(key) for row in rows for key in row)
    return _plain(path, {key: [row.get(key) for row in rows] for key in keys})


def _table(path: Path) -> dict[str, list[Any]]:
    text = io.StringIO(files.read_text(path))
    head = text.getvalue().partition("\n")[0]
    separator = "\t" if path.suffix == ".tsv" else next((mark for mark in ",;\t" if mark in head), ",")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of fields that it would leave out
            table = pd.read_csv(
                text, sep=separator, dtype=object, keep_default_na=False, skipinitialspace=True, index_col=False
            )
    except pd.errors.EmptyDataError:
        return {}
    except (pd.errors.ParserWarning, pd.errors.ParserError):
        raise UsageError(f"{path} has rows with more fields than its first line names; mend the file.") from None
    return {str(name): table[name].tolist() for name in table}


def _rows(path: Path, text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        row = None
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
        if type(row) is not dict:
            raise LesionError(f"{path}, line {number}: this is no JSON object, as of a file cut off; {AGAIN}.")
        rows.append(row)
    return rows


def _archive(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The header and the samples of an `.eval` file, a zip of JSON."""
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise LesionError(f"{path} is no whole .eval file, as of a copy that was cut off; {AGAIN}.") from None
    names = archive.namelist()
    if "header.json" not in names:
        raise UsageError(f"{path} is not finished: it has no header. Finish it with `inspect eval-retry {path}`.")
    samples = (json.loads(_member(archive, name)) for name in names if name.startswith("samples/"))
    return json.loads(_member(archive, "header.json")), samples


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of a zip. inspect_ai packs with Zstandard, which Python reads from 3.14 on, and pyarrow anywhere."""
    info = archive.getinfo(name)
    if info.file_size > files.SUMMARY_BYTES:
        raise ValueError(f"{name} has {info.file_size:,} bytes, more than are read here")
    try:
        if info.compress_type != 93:
            return archive.read(info)
        import pyarrow as pa

        assert archive.fp is not None
        archive.fp.seek(info.header_offset)
        head = archive.fp.read(30)
        archive.fp.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
        packed = archive.fp.read(info.compress_size)
        data = pa.decompress(packed, decompressed_size=info.file_size, codec="zstd", asbytes=True)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise ValueError(f"{name} in it cannot be unpacked") from error
    if zlib.crc32(data) != info.CRC:
        raise ValueError(f"{name} in it is damaged")
    return bytes(data)


def _inspect(path: Path, header: Mapping[str, Any], samples: Any) -> Log:
    about, status = header["eval"], header["status"]
    if status != "success":
        why = short(" ".join(str((header.get("error") or {}).get("message", "")).split()), 120)
        raise UsageError(
            f"{path} is not finished (status {status}{f': {why}' * bool(why)}). Finish it with `inspect eval-retry"
            f" {path}`."
        )
    settings = {**((header.get("plan") or {}).get("config") or {}), **(about.get("model_generate_config") or {})}
    entries, names, chosen, failed = [], dict[str, None](), None, 0
    for sample in samples:
        scores = sample.get("scores") or {}
        failed += bool(sample.get("error"))
        names.update(dict.fromkeys(scores))
        score = scores.get(next(iter(names), "")) or {}
        value = score.get("value")
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            chosen = next(iter(value), None) if chosen is None else chosen
            value = value.get(chosen)
        choices = sample.get("choices") or ()
        given = _text(sample["input"])
        entries.append(
            Entry(
                str(about["model"]),
                str(about["task"]),
                str(sample["id"]),
                "\n".join((given, *map(str, choices))),
                _text(sample.get("target")),
                _group(sample.get("metadata")),
                _text((sample.get("output") or {}).get("completion")),
                score.get("answer"),
                _value(value),
                "",
            )
        )
    if not entries:
        raise UsageError(f"{path} holds no samples; run it with --log-samples, which is the default.")
    task = entries[0].task
    notes = _chosen(task, "scorers", list(names))
    if chosen is not None:
        notes.append(f"{task}: a score holds several values; {chosen} is compared.")
    if failed:
        notes.append(f"{path.name}, {task}: {wording.counted(failed, 'sample')} ended in an error.")
    judge = next(iter(names), "") + ("" if chosen is None else f" ({chosen})")
    return Log(entries, notes, "inspect_ai", judge, _settings(settings))


def _harness(path: Path, rows: Sequence[Mapping[str, Any]]) -> Log:
    """Samples of lm-evaluation-harness and lmms-eval: a row per document and filter, with the metrics beside it."""
    named = _SAMPLES.fullmatch(path.name)
    task = named["task"] if named else path.stem
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    first = rows[0]
    known = ("filter", "doc_id", "doc", "target", "arguments", "input", "resps", "filtered_resps", "metrics")
    metrics = [key for key in first.get("metrics") or first if key not in known and not key.endswith("_hash")]
    metrics = [key for key in metrics if _value(_inner(first.get(key))) is not None]
    if not metrics:
        raise UsageError(f"{path} has no metric that is a number for each item; compare a task that has one.")
    results, settings = _results(path, named), ""
    told = str(results.get("model_name") or results.get("model_name_sanitized") or "")
    model = told or path.absolute().parent.name
    rising = (results.get("higher_is_better") or {}).get(task) or {}
    metrics.sort(key=lambda metric: rising.get(metric) is False)
    sign = -1 if rising.get(metrics[0]) is False else 1
    entries = []
    for row in rows:
        if str(row.get("filter", "none")) != filters[0]:
            continue
        doc, arguments = row.get("doc"), row.get("arguments")
        call = next(iter(arguments.values()), None) if isinstance(arguments, dict) else None
        if not settings and isinstance(call, dict) and isinstance(call.get("arg_1"), dict):
            settings = _settings(call["arg_1"])
        doc = doc if isinstance(doc, dict) else {}
        question = next((str(doc[key]) for key in _COLUMNS["question"] if isinstance(doc.get(key), str)), "")
        answers = row.get("filtered_resps")
        text = _text(answers[0] if isinstance(answers, list) and len(answers) == 1 else answers)
        item = str(row["doc_id"])
        if not question:
            question = json.dumps(doc, sort_keys=True, ensure_ascii=False) if doc else str(row.get("input", ""))
        gold, prompt = _text(row.get("target")), str(row.get("prompt_hash") or "")
        value = _value(_inner(row.get(metrics[0])))
        value = None if value is None else sign * value
        entries.append(Entry(model, task, item, question, gold, _group(doc), text, text, value, prompt))
    notes = [*_chosen(task, "metrics", metrics), *_chosen(task, "filters", filters)]
    if sign < 0:
        notes.append(f"{task}: of {metrics[0]} less is better; scores are compared with a minus before them.")
    return Log(entries, notes, "lm_eval", f"{'−' * (sign < 0)}{metrics[0]} ({filters[0]})", settings, named=bool(told))


def _results(path: Path, named: re.Match[str] | None) -> dict[str, Any]:
    """The results that were written with the samples, of a named model; empty where none are there."""
    date = (named["date"] or named["before"]) if named else None
    for results in sorted(path.parent.glob("*results*.json")):
        if date is not None and date in results.name:
            about = files.read_object(results)
            if about.get("model_name") or about.get("model_name_sanitized"):
                return about
    return {}


def _every_eval_ever(rows: Sequence[Mapping[str, Any]]) -> Log:
    results: dict[str, Any] = {}  # of a sample that several results count, the first
    entries = []
    for row in rows:
        task, judged = str(row["evaluation_name"]), row["evaluation"]
        result = row.get("evaluation_result_id")
        if results.setdefault(task, result) != result:
            continue
        answers, asked = row.get("answer_attribution") or [{}], row["input"]
        value = judged.get("score") if judged.get("score") is not None else judged.get("is_correct")
        entries.append(
            Entry(
                str(row["model_id"]),
                task,
                str(row["sample_id"]),
                _text(asked.get("raw")),
                _text(asked.get("reference")),
                _group(row.get("metadata")),
                _text((row.get("output") or {}).get("raw")),
                answers[-1].get("extracted_value"),
                _value(value),
                "",
            )
        )
    left = len(rows) - len(entries)
    notes = [f"{wording.counted(left, 'row')} with further results of the same samples left out."] if left else []
    return Log(entries, notes, "Every Eval Ever", ", ".join(filter(None, map(str, results.values()))))


def _plain(path: Path, table: Mapping[str, list[Any]]) -> Log:
    """A table with a row an item; `answer` is the right one where there is none by another name, but two answers."""
    if not any(table.values()):
        raise UsageError(f"{path} is empty; {AGAIN}.")
    names = {str(key).strip().lower(): key for key in table}
    found = {
        field: next((names[name] for name in known if name in names), None) for field, known in _COLUMNS.items()
    }  # fmt: skip
    others = [names[name] for name in _COLUMNS["text"] if name in names]
    if found["gold"] is None and len(others) > 1 and str(others[0]).strip().lower() == "answer":
        found["gold"], found["text"] = others[:2]
    for what, fields in (("item", ("item", "question")), ("value", ("value",))):
        if all(found[field] is None for field in fields):
            known = wording.listed([name for field in fields for name in _COLUMNS[field]][:6])
            has = short(wording.listed(list(map(str, names.values()))), 200)
            raise UsageError(f"{path} has no column for the {what}: it has {has}; call one of them {known}.")
    given = table[str(found["value"])]
    of_text = {raw: _value(raw) for raw in {raw for raw in given if isinstance(raw, str)}}
    values = [of_text[raw] if isinstance(raw, str) else _value(raw) for raw in given]
    for number, (raw, value) in enumerate(zip(given, values, strict=True), start=1):
        if value is None and raw not in (None, ""):
            raise UsageError(
                f"{path}, row {number}: {short(str(raw), 60)} in the column {found['value']} is neither right or wrong"
                " nor a number; write true or false, 1 or 0, or a score."
            )
    none = [""] * len(given)

    def column(field: str, otherwise: list[str] = none) -> list[str]:
        name = found[field]
        if name is None:
            return otherwise
        return [_text(own) or other for own, other in zip(table[name], otherwise, strict=True)]

    questions, texts = column("question"), column("text")
    items = column("item", questions)
    if "" in items:
        raise UsageError(
            f"{path}, row {items.index('') + 1}: there is no {found['item'] or found['question']}; give every row one."
        )
    model, task = column("model", [path.stem] * len(given)), column("task", [UNNAMED] * len(given))
    columns = (
        model, task, items, questions, column("gold"), column("group"), texts, [text or None for text in texts],
        values, none,
    )  # fmt: skip
    entries = pd.DataFrame(dict(zip(Entry._fields, columns, strict=True)), dtype=object)
    return Log(entries, [], path.suffix[1:], f"the column {found['value']}", named=found["model"] is not None)


def _chosen(task: str, what: str, names: Sequence[str]) -> list[str]:
    """What is said where a log judges its answers in several ways."""
    return [f"{task}: of the {what} {wording.listed(list(names))}, {names[0]} is compared."] if len(names) > 1 else []


def _group(about: Any) -> str:
    """What items of one group share, where a log says it."""
    about = about if isinstance(about, dict) else {}
    return next((_text(about[name]) for name in _COLUMNS["group"] if about.get(name) not in (None, "")), "")


def _inner(value: Any) -> Any:
    """The number in a metric of lmms-eval, which may stand in an object with what it is gathered by."""
    return value.get("score") if isinstance(value, dict) else value


def _value(value: Any) -> float | None:
    if isinstance(value, str):
        value = _VERDICTS.get(value.strip(), _WORDS.get(value.strip().lower(), value))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number == number and abs(number) != float("inf") else None


def _settings(settings: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in sorted(settings.items()) if value is not None}, ensure_ascii=False)


def _text(value: Any) -> str:
    """A text as it is, texts and the contents of messages one a line, nothing as an empty text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(map(_text, value))
    if isinstance(value, dict):
        return _text(value.get("content", value.get("text")))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)
