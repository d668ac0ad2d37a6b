"""What goes out, made anew in a folder of its own: a study without its machine, and without its texts unless wanted.

Nothing is taken out of finished files. The store is written again row by row, with short names and, without texts, with
empty ones; page, figures and tables are then made from that store, as of any folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from lesion import files
from lesion.atomic import keep
from lesion.core import database, shared
from lesion.core.lock import is_held
from lesion.core.result import StudyResult
from lesion.core.store import Store
from lesion.edits.files.folder import MADE
from lesion.errors import LesionError, UsageError
from lesion.outputs import LOCK
from lesion.plain import short
from lesion.registry import methods, recall
from lesion.report.names import FILES, names_in
from lesion.report.publishing import received
from lesion.sharing import privacy
from lesion.tasks.catalogue import unwrapped

CARD = "README.md"
STUDY = "study.toml"
ANSWERS = "data/answers.parquet"
WRITTEN = (".html", ".csv", ".svg", ".json", ".toml")
"""Endings of files of text that name the folder, models and tasks."""
PLAN = "hypotheses.json"
TENSORS, EDIT = ".safetensors", ".edit"
KEPT = (".json", ".sqlite", ".edit", TENSORS)
OWN = {
    *("summary.json", "lesion.json", "proofs.json", PLAN, "plan.json", "tuning.json", "screen.json"),
    *("truncated.json", STUDY, database.FILE),
}
INNER = ("cells", "layers", "references")
"""What a study keeps: endings, files by name, and folders. Whatever else lies in its folder stays there."""
WEIGHTS = ("model", "checkpoints")
"""Folders in which models lie: they are pushed by themselves."""
VOCABULARY = ("tokenizer", "vocab", "merges", "added_tokens")
"""How files of a model's vocabulary begin, in which every word may stand; that of its settings is none."""
SETTINGS = "tokenizer_config.json"
MOST_ROWS, MOST_FIGURES = 12, 3
"""Of a card."""
TEXTS: Mapping[str, tuple[str, ...]] = {"items": ("question", "gold", "digest"), "answers": ("text", "parsed")}
"""Columns of a store that hold texts."""
_ACTS = re.compile(r"([\\`*_\[\]<>#|~!$])")


@dataclass(frozen=True)
class Shipment:
    """What goes out.

    Attributes:
        kind: of repository, `dataset` or `model`.
        files: by their names in the repository.
        about: what `shared.json` says of them.
        renamed: the short names that stand for paths.
        hidden: texts that must be in none of the files.
    """

    kind: str
    files: dict[str, Path]
    about: dict[str, Any]
    renamed: Mapping[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def sealed(self, place: Path) -> Shipment:
        """The same, checked (`privacy.refuse_private`), with `shared.json`, which has the hashes, below a folder."""
        vocabularies, advice = list[str](), "Remove it from the study (a name of a task or model, a note, an item)"
        if self.kind == "model":
            vocabularies = [name for name in self.files if name.startswith(VOCABULARY) and name != SETTINGS]
            advice = "Remove it from that file of the folder"
        privacy.refuse_private(self.files, self.hidden, vocabularies=vocabularies, advice=advice)
        if not self.about["texts"]:
            privacy.refuse_columns(self.files, TEXTS)
        hashes = {name: sha256(path) for name, path in sorted(self.files.items())}
        about = {"form": shared.FORM, **self.about, "version": version("lesion"), "files": hashes}
        keep(place / shared.FILE, json.dumps(about, indent=1) + "\n")
        return Shipment(self.kind, {**self.files, shared.FILE: place / shared.FILE}, about, self.renamed, self.hidden)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def study(folder: Path, place: Path, repository: str, *, texts: bool) -> Shipment:
    """What goes out of a study's folder, made below `place`.

    Raises:
        UsageError: the study only reads other folders; its page may hold texts, and they are not to go out.
        LesionError: the folder is damaged, not finished or at work; what was made still holds what must not go out.
    """
    if is_held(folder):
        raise LesionError(f"A study is running in {folder}; push it when it is finished.")
    with received(folder):
        result = recall(folder)
    if any(method.only_reads and method.folder_kind == result.summary.kind for method in methods().values()):
        raise UsageError(
            f"{folder} compares other folders. Push those; whoever fetches them makes it again with `lesion compare`"
            " or `lesion overlay`."
        )
    if not texts and not result.TEXTLESS:
        raise UsageError(
            f"A study of kind {result.summary.kind} may show words of what the model read on its page, and cannot go"
            " out without them. Look at its page, and push with --with-texts."
        )
    names, hidden = _names(folder, result), frozenset[str]()
    numbers = {} if texts else _numbers(folder / database.FILE)
    if names and (folder / PLAN).exists():
        raise UsageError(
            f"{folder} has a plan, whose hash holds {next(iter(names))} as it is written, and paths do not go out. Plan"
            " and run the study with relative names."
        )
    staged = place / folder.resolve().name

    digests = dict[str, str]()

    def public(text: str) -> str:
        return privacy.replaced(text, {**names, **digests})

    for path in _files(folder):
        if path.suffix == EDIT and names:
            digests |= _edit(path, staged / path.relative_to(folder), public)
    for path in _files(folder):
        target = staged / path.relative_to(folder)
        if path.suffix == ".sqlite":
            if texts or path.parent == folder:
                _store(path, target, public, numbers, texts=texts)
        elif path.suffix in (".json", ".toml"):
            if texts or path.parent == folder:
                keep(target, public(path.read_text("utf-8")))
        elif (texts or path.suffix == EDIT) and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    if (folder / database.FILE).is_file():
        with Store.read(folder) as store:
            keep(staged / STUDY, public(store.study[1]))
            answers = store.answers()
        _table(answers, staged / ANSWERS, public, numbers, texts=texts)
        if not texts:
            hidden = frozenset(answers["question"]) | frozenset(answers["gold"]) | frozenset(answers["text"])
            hidden -= {public(item) for item in answers["item"]}
    about = {"form": shared.FORM, "kind": result.summary.kind, "texts": texts, "renamed": bool(names)}
    keep(staged / shared.FILE, json.dumps(about))  # it says how the folder is read
    with received(folder):
        try:
            made = recall(staged)
            made.report()
        except LesionError as error:
            raise type(error)(str(error).replace(str(staged), str(folder))) from error
    for path in staged.rglob("*"):
        if path.suffix in WRITTEN and path.is_file():
            text = path.read_text("utf-8")
            if str(staged) in text:
                keep(path, text.replace(str(staged), staged.name))
    keep(staged / CARD, "\n".join(_card(made, staged, repository, names.values(), texts=texts)) + "\n")
    (staged / LOCK).unlink(missing_ok=True)
    (staged / shared.FILE).unlink()
    outgoing = {path.relative_to(staged).as_posix(): path for path in sorted(staged.rglob("*")) if path.is_file()}
    return Shipment("dataset", outgoing, about, names, hidden).sealed(staged)


def _files(folder: Path) -> Iterator[Path]:
    """What lesion wrote there and a run goes on from; what is made anew, models, and files of others are left out."""
    for path in sorted(folder.rglob("*")):
        first, *inner = path.relative_to(folder).parts
        ours = first in INNER and path.suffix in KEPT if inner else first in OWN or path.suffix in (".edit", TENSORS)
        hidden = any(part.startswith(".") or part in WEIGHTS for part in (first, *inner))
        if ours and not hidden and path.is_file() and not path.is_symlink():
            yield path


def _names(folder: Path, result: StudyResult[Any]) -> dict[str, str]:
    """The paths in names of models and tasks, and in other entries of the study, with what stands for them."""
    names, texts = [*names_in(result.summary)], list[str]()
    entries = getattr(result.summary, "study", None)
    if entries is not None:
        texts += files.texts(entries.model_dump(mode="json"))
    if (folder / database.FILE).is_file():
        with Store.read(folder) as store:
            names += [*store.models()["name"], *store.items()["task"].unique()]
            texts += files.texts(tomllib.loads(store.study[1]))
    for path in _files(folder):
        if path.suffix == EDIT:
            names += _named(path)
    return privacy.public_names(names, texts)


def _named(path: Path) -> Iterator[str]:
    """The models and tasks that an edit file names."""
    from lesion.edits.files import container

    with suppress(LesionError):  # of a file that is no edit; it goes out as it is, once it was checked
        header, _ = container.decode(path.read_bytes(), path.name)
        yield header["model"]["name"]
        for draw in (draw for inputs in header["inputs"] for draw in inputs["provenance"]):
            yield from (draw["model"], draw["data"])


def _edit(source: Path, target: Path, public: Callable[[str], str]) -> dict[str, str]:
    """Write an edit file with public names; its digest before, and the one that it has now."""
    from lesion.edits.files import container

    header, tensors = container.decode(source.read_bytes(), source.name)
    data = container.encode(json.loads(public(json.dumps(header))), tensors)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return {header["content"][:16]: container.decode(data, source.name)[0]["content"][:16]}


def _numbers(store: Path) -> dict[str, str]:
    """A number for every key of an answer: keys are hashes of what was asked, by which a guess could be confirmed."""
    if not store.is_file():
        return {}
    reading = database.connect_to_read(store)
    try:
        return {key: f"{at:08d}" for at, (key,) in enumerate(reading.execute("SELECT key FROM answers ORDER BY rowid"))}
    finally:
        reading.close()


def _store(
    source: Path, target: Path, public: Callable[[str], str], numbers: Mapping[str, str], *, texts: bool
) -> None:
    """Write a store again, row by row, with public names; without texts, all of them are empty, and keys numbers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = database.connect_to_read(source), sqlite3.connect(target, isolation_level=None)
    empty = {} if texts else TEXTS
    named = {
        "study": ("text",),
        "models": ("name", "metadata"),
        **dict.fromkeys(("items", "asked", "answers"), ("task",)),
    }
    try:
        with database.transaction(writing):
            database.create_tables(writing)
            for table, columns in database.TABLES.items():
                for row in reading.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY rowid"):
                    values = dict(zip(columns, row, strict=True))
                    values |= {name: public(values[name]) for name in named[table]}
                    if "key" in values:
                        values["key"] = numbers.get(values["key"], values["key"])
                    values |= {name: "" for name in empty.get(table, ()) if values[name] is not None}
                    writing.execute(database.insertion(table), database.with_checksum(*values.values()))
    finally:
        reading.close()
        writing.close()


def _table(
    answers: pd.DataFrame, target: Path, public: Callable[[str], str], numbers: Mapping[str, str], *, texts: bool
) -> None:
    """One row per answer as parquet; without texts, how long each was and whether an answer could be read."""
    frame = answers.assign(
        characters=answers["text"].str.len().astype("int64"),
        read=answers["parsed"].notna(),
        task=answers["task"].map({task: public(task) for task in answers["task"].unique()}),
        model_name=answers["model_name"].map({name: public(name) for name in answers["model_name"].unique()}),
        key=answers["key"].map(lambda key: numbers.get(key, key)),
        scores=answers["scores"].map(list),
        ranks=answers["ranks"].map(list),
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    frame.drop(columns=[] if texts else ["text", "parsed", "question", "gold"]).to_parquet(target, index=False)


def escaped(text: str) -> str:
    """A text in which nothing acts in Markdown."""
    return _ACTS.sub(r"\\\1", " ".join(text.split()))


def _card(
    result: StudyResult[Any], staged: Path, repository: str, renamed: Iterable[str], *, texts: bool
) -> Iterator[str]:
    yield "---"
    yield f"tags: [lesion, {json.dumps(result.summary.kind)}]"
    if (staged / ANSWERS).is_file():
        yield f"configs:\n- config_name: default\n  data_files: {ANSWERS}"
    yield "---"
    yield f"# {escaped(result.question)}\n"
    yield f"{escaped(result.verdict)}\n"
    for claim in result.findings[1:]:
        yield f"- {escaped(claim)}"
    for picture in sorted((staged / "figures").glob("*.png"))[:MOST_FIGURES]:
        yield f"\n![{picture.stem}](figures/{picture.name})"
    shown = result.shown().in_short(result.names)
    if shown.columns:
        yield "\n| " + " | ".join(escaped(column.title) for column in shown.columns) + " |"
        yield "|---" * len(shown.columns) + "|"
        for row in shown.records[:MOST_ROWS]:
            yield "| " + " | ".join(escaped(column.write(row)) for column in shown.columns) + " |"
        if len(shown.frame) > MOST_ROWS:
            yield f"\nThe first {MOST_ROWS} of {len(shown.frame):,} rows; all are in {shown.name}.csv."
    yield "\n## The whole study\n"
    yield "The page is `report.html`; it needs no server."
    if not texts:
        yield "Questions and answers are not in this repository: of each answer it has verdict and length."
    yield f"\n```\nlesion fetch {repository}"
    local = (unwrapped(name).partition("?")[0] for name in names_in(result.summary))
    needed = sorted({*renamed, *(name for name in local if FILES.search(name) and not privacy.HUB_FILE.match(name))})
    again = f"lesion run {repository.rpartition('/')[2]}/{STUDY} --out again"
    if (staged / STUDY).is_file() and not needed:
        yield again
    yield "```\n"
    if (staged / STUDY).is_file() and needed:
        those = ", ".join(f"`{name}`" for name in needed)
        yield f"To run it again, put what this repository lacks ({those}) into the current folder: `{again}`.\n"
    yield f"Made with lesion {result.summary.version}; `{shared.FILE}` has the SHA-256 of every file."


def checkpoint(folder: Path, place: Path, repository: str) -> Shipment:
    """What goes out of a checkpoint that `lesion apply` wrote: all of it, a card with tags, and how to make it again.

    Raises:
        UsageError: `lesion apply` did not write it.
        LesionError: its card or settings hold what must not go out.
    """
    made = files.stored_object(folder / MADE, "write the model again with `lesion apply`")
    if made is None:
        raise UsageError(
            f"{folder} holds a model that `lesion apply` did not write, and no study. Push it with `hf upload`."
        )
    there = {str(name): folder / str(name) for name in made.get("files") or ()}
    gone = [name for name, path in there.items() if not path.is_file() or path.is_symlink()]
    if gone or not there:
        lacks = short(gone[0]) if gone else "its files"
        raise UsageError(f"{folder} lacks {lacks}; write the model again with `lesion apply`.")
    from huggingface_hub import ModelCard

    from lesion.edits.files.card import front_and_rest
    from lesion.edits.files.reordering import RECIPE

    edits = [name for name in there if name.endswith(EDIT)]
    options = [option for option in made["options"] if option not in there]
    named = [made["model"], *options, *(each for name in edits for each in _named(there[name]))]
    names = privacy.public_names(named, files.texts(made))
    digests = dict[str, str]()
    for name in edits if names else ():
        digests |= _edit(there[name], place / name, lambda text: privacy.replaced(text, names))
        there[name] = place / name
    front, rest = front_and_rest(privacy.replaced((folder / CARD).read_text("utf-8"), {**names, **digests}))
    # Of a card without front matter huggingface_hub prints a warning.
    card = ModelCard((front or "---\n{}\n---\n") + rest, ignore_metadata_errors=True)
    about: Any = card.data
    base = made["model"]
    about.tags = [*dict.fromkeys([*(about.tags or ()), "lesion", "edited"])]
    if re.fullmatch(r"[\w.-]+/[\w.-]+", base) and base not in names:
        about.base_model = base
    keep(place / CARD, str(card))
    public = json.loads(privacy.replaced(json.dumps(made), names))
    keep(place / "reproduce" / "made.json", json.dumps(public, indent=1) + "\n")
    command = shlex.join(
        ["lesion", "apply", public["model"], *public["options"], "--out", repository.rpartition("/")[2]]
    )
    keep(place / "reproduce" / "command.txt", command + "\n")
    there.pop(MADE, None)
    if RECIPE in there:
        recipe = there[RECIPE].read_text("utf-8")
        own = privacy.public_names(json.loads(name) for name in re.findall(r'model: (".*")', recipe))
        keep(place / RECIPE, privacy.replaced(recipe, own))
        there[RECIPE] = place / RECIPE
    there |= {name: place / name for name in (CARD, "reproduce/made.json", "reproduce/command.txt")}
    return Shipment("model", there, {"kind": "checkpoint", "texts": True, "renamed": bool(names)}, names).sealed(place)


def shipment(folder: Path, place: Path, repository: str, *, texts: bool) -> Shipment:
    """What goes out of the folder of a study or of a checkpoint."""
    if not (folder / "config.json").is_file():
        return study(folder, place, repository, texts=texts)
    if texts:
        raise UsageError(f"{folder} holds a model, which has no questions and answers; leave out --with-texts.")
    return checkpoint(folder, place, repository)
