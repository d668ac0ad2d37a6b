"""The store of a study: one durable SQLite row per answer, one writer at a time, any number of readers.

What would stand beside answers of another study, or of other prompts, is refused here.
"""

from __future__ import annotations

import datetime
import json
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pandas as pd

from lesion.core import database, shared
from lesion.core.database import insertion, with_checksum
from lesion.core.lock import FolderLock
from lesion.core.options import IN_IDENTITY, keys
from lesion.core.row import Asked, StoredAnswer, answer_key, numbers_from_json, numbers_to_json, storable
from lesion.core.study_file import ModelChoice, StudyFile, variable_keys
from lesion.core.values import Summary, read_summary
from lesion.errors import LesionError
from lesion.plain import short
from lesion.report.wording import counted

if TYPE_CHECKING:  # imported from there
    from lesion.core.inference import PendingAnswer
    from lesion.models.load import Model


_ADVICE = "Give another folder with --out, or put the files back that changed."


class Store:
    """The answers of a study in `FOLDER/answers.sqlite`: from `Store.open` or `Store.read`, under `with`.

    A folder takes further studies whose answers are comparable (`StudyFile.basis`). Of all its answers, `answers` and
    `items` have those to the items that the latest study asks.

    Example:
        >>> with Store.open(folder, study.basis(), study.to_toml()) as store:
        ...     if key not in store.keys():
        ...         store.write([row])
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: FolderLock | None) -> None:
        self.folder = folder
        self.file = folder / database.FILE
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(
        cls,
        folder: str | Path,
        basis: str,
        study_text: str,
        kind: str = "layers",
        asked: Mapping[str, Sequence[Asked]] | None = None,
    ) -> Store:
        """Open the store of a study for writing, made when it is not there; alone until it is closed.

        `basis` is what all answers of a folder share (`StudyFile.basis`): a store with answers takes only studies of
        the same; one without any, say from a run with a wrong layer, is taken over. `study_text` is the study as TOML;
        that of the latest run counts. `asked` are the items of every task that this study asks, in their order; None:
        those of the study before.
        """
        folder = Path(folder)
        shared.refuse_going_on(folder)
        file = folder / database.FILE
        lock = FolderLock(folder, kind)
        connection: sqlite3.Connection | None = None
        try:
            with database.advice(file):
                connection = database.connect_to_write(file)
                if not database.has_tables(connection):
                    with database.transaction(connection):
                        database.create_tables(connection)
                        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                        connection.execute(insertion("study"), with_checksum(basis, storable(study_text), made))
                stored_basis, stored_text = connection.execute("SELECT hash, text FROM study").fetchone()
                unanswered = connection.execute("SELECT 1 FROM answers LIMIT 1").fetchone() is None
                if not unanswered:
                    _refuse_incomparable(folder, basis == stored_basis, stored_text, study_text)
                store = cls(folder, connection, lock)
                with database.transaction(connection):
                    _take_over(connection, basis, study_text, anew=unanswered)
                    if asked is not None:
                        connection.execute("DELETE FROM asked")
                        for task, items in asked.items():
                            store._ask(task, items)
        except BaseException:
            if connection is not None:
                connection.close()
            lock.release()
            raise
        return store

    @classmethod
    def read(cls, folder: str | Path) -> Store:
        """Open a store for reading only; works while another process writes, and sees what was committed."""
        folder = Path(folder)
        with database.advice(folder / database.FILE):
            return cls(folder, database.connect_to_read(folder / database.FILE), None)

    def close(self) -> None:
        """Let go of the file and of the lock. Doing it twice is doing it once."""
        try:
            with database.advice(self.file):
                self._connection.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def study(self) -> tuple[str, str]:
        """The basis and the TOML text of the latest study of the store."""
        ((stored_hash, stored_text),) = self._rows("SELECT hash, text FROM study")
        return str(stored_hash), str(stored_text)

    @property
    def made(self) -> str:
        """When the store was made, in ISO 8601."""
        return str(self._rows("SELECT made FROM study")[0][0])

    def add_model(self, fingerprint: str, name: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Note a model before its answers are written; of one that is known already the metadata are replaced.

        `metadata` are anything JSON can hold: revision, dtype, family, number of blocks; None: those that are known.
        """
        with database.advice(self.file), database.transaction(self._connection):
            text = None if metadata is None else json.dumps(dict(metadata), sort_keys=True)
            self._add_model(fingerprint, storable(name), text)

    def _add_model(self, fingerprint: str, name: str, metadata: str | None = None) -> None:
        known = self._connection.execute(
            "SELECT position, fingerprint, name, metadata FROM models WHERE fingerprint = ? OR name = ?",
            (fingerprint, name),
        ).fetchall()
        for _, known_fingerprint, known_name, _ in known:
            if known_fingerprint != fingerprint:
                raise LesionError(
                    f"The weights of {name} are not those that this study began with (fingerprint "
                    f"{fingerprint}, before {known_fingerprint}): the checkpoint changed, or its dtype did. "
                    f"Give another folder with --out; the answers in {self.folder} stay as they are."
                )
            if known_name != name:
                raise LesionError(
                    f"{name} and {known_name} are the same weights (fingerprint {fingerprint}); list only one. The"
                    f" answers in {self.folder} are those of {known_name}: they go on under that name."
                )
        position, *_, before = known[0] if known else (self._next("models"), None)
        if before is None or metadata not in (None, before):
            # Not deleted and written anew: answers refer to the row.
            values = with_checksum(position, fingerprint, name, metadata or "{}")
            statement = f"{insertion('models')} ON CONFLICT (position) DO UPDATE SET metadata = ?4, checksum = ?5"
            self._connection.execute(statement, values)

    def _next(self, table: str) -> int:
        """The position of the next row of a table."""
        return int(self._connection.execute(f"SELECT coalesce(max(position), 0) + 1 FROM {table}").fetchone()[0])

    def add_items(self, task: str, items: Iterable[Asked]) -> None:
        """Note further items that the study asks of a task, in the order in which reports will show them.

        Call it with all items of a run before asking `keys`: the key of an answer names an item by its id, so
        this is where a data file that changed between two runs is found out.
        """
        with database.advice(self.file), database.transaction(self._connection):
            self._ask(task, items)

    def _ask(self, task: str, items: Iterable[Asked]) -> None:
        for asked in items:
            item = asked.item
            self._add_item(task, item.id, item.question, item.gold, item.group, asked.digest)

    def _add_item(self, task: str, item: str, question: str, gold: str, group: str, digest: str = "") -> None:
        task, item, *facts = (storable(text) for text in (task, item, question, gold, group))
        known = self._connection.execute(
            'SELECT position, question, gold, "group", digest FROM items WHERE task = ? AND item = ?', (task, item)
        ).fetchone()
        position, before = (self._next("items"), "") if known is None else (known[0], known[4])
        if known is not None and (list(known[1:4]) != facts or (digest and before not in ("", digest))):
            how = "reads differently from" if list(known[1:4]) != facts else "is judged or put otherwise than"
            hint = ""
            if item.isdecimal() and ".jsonl" in task and list(known[1:4]) != facts:
                hint = (
                    ' A line without an "id" is named by its number: if lines were removed, moved or added before line'
                    f" {item}, put them back, or use a new folder and give every line an id, with which lines may move."
                )
            raise LesionError(
                f"Item {item} of {task} {how} when it was stored in {self.folder}: the "
                f"data has changed, and answers to both would be mixed. Give another folder with --out.{hint}"
            )
        if known is None or (digest and not before):
            # Not deleted and written anew: answers refer to the row.
            statement = f"{insertion('items')} ON CONFLICT (position) DO UPDATE SET digest = ?7, checksum = ?8"
            self._connection.execute(statement, with_checksum(position, task, item, *facts, digest))
        there = self._connection.execute("SELECT 1 FROM asked WHERE task = ? AND item = ?", (task, item))
        if there.fetchone() is None:
            self._connection.execute(insertion("asked"), with_checksum(self._next("asked"), task, item))

    def asked_as(self, model: str) -> dict[str, tuple[str, str]]:
        """How a model was asked until now: decoding and prompt style of the answers to each task."""
        rows = self._rows("SELECT task, decoding, prompt_style FROM answers WHERE model = ? GROUP BY task", model)
        return {task: (decoding, style) for task, decoding, style in rows}

    def answered(self, model: str) -> dict[tuple[str, str], list[tuple[str, str, str, str]]]:
        """The answers of a model by task and item: key, edit, decoding and prompt style of each."""
        query = "SELECT task, item, key, edit, decoding, prompt_style FROM answers WHERE model = ?"
        answers: dict[tuple[str, str], list[tuple[str, str, str, str]]] = {}
        for task, item, *answer in self._rows(query, model):
            answers.setdefault((task, item), []).append(tuple(answer))
        return answers

    def write(self, rows: Iterable[StoredAnswer]) -> int:
        """Store answers and commit at once: after the return they survive the death of the process.

        All rows of one call are stored or none. A key that is there already keeps its first answer.

        Returned is how many of the rows were new.
        """
        rows = list(rows)
        # Many rows are of one model and of a few items: each is looked up once.
        models = dict.fromkeys((row.model, storable(row.model_name)) for row in rows)
        items = dict.fromkeys((row.task, row.item, row.question, row.gold, row.group) for row in rows)
        with database.advice(self.file), database.transaction(self._connection):
            for model in models:
                self._add_model(*model)
            for item in items:
                self._add_item(*item)
            if not rows:
                return 0
            return self._connection.executemany(
                f"{insertion('answers')} ON CONFLICT (key) DO NOTHING", map(_values, rows)
            ).rowcount

    def keys(self) -> set[str]:
        """The keys of all stored answers."""
        return {key for (key,) in self._rows("SELECT key FROM answers")}

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM answers")[0][0])

    def answers(self, *, model: str | None = None, task: str | None = None) -> pd.DataFrame:
        """The stored answers to the items that the study asks, ordered by model, task, edit and item.

        The order does not depend on that in which they came.

        Returns:
            One row per answer with the columns key, model, model_name, edit, task, item, decoding,
            prompt_style, text, tokens, finish, correct (bool), parsed (None: no answer could be read), scores
            (tuple of floats, empty for generated answers), ranks (tuple of ints, empty for all but contrasts), engine,
            group, question, gold.
        """
        frame = self._frame(
            """
            SELECT a.key, a.model, m.name AS model_name, a.edit, a.task, a.item, a.decoding, a.prompt_style,
            a.text,
                   a.tokens, a.finish, a.correct, a.parsed, a.scores, a.ranks, a.engine,
                   i."group", i.question, i.gold
            FROM answers AS a JOIN models AS m ON m.fingerprint = a.model
                 JOIN items AS i ON i.task = a.task AND i.item = a.item
                 JOIN asked AS q ON q.task = a.task AND q.item = a.item
            WHERE (:model IS NULL OR m.name = :model) AND (:task IS NULL OR a.task = :task)
            ORDER BY m.position, a.task, a.edit, a.decoding, a.prompt_style, q.position
            """,
            {"model": model, "task": task},
        )
        frame["correct"] = frame["correct"].astype(bool)
        frame["tokens"] = frame["tokens"].astype("int64")
        for column in ("scores", "ranks"):
            frame[column] = pd.Series([numbers_from_json(text) for text in frame[column]], dtype=object)
        return frame

    def items(self) -> pd.DataFrame:
        """The items that the study asks, in their order: columns task, item, question, gold, group."""
        return self._frame(
            """
            SELECT i.task, i.item, i.question, i.gold, i."group"
            FROM asked AS q JOIN items AS i ON i.task = q.task AND i.item = q.item ORDER BY q.position
            """,
            {},
        )

    def left_out(self) -> tuple[list[str], dict[str, int]]:
        """What earlier studies asked and the latest does not: tasks, and of tasks that it asks how many items."""
        rows = self._rows(
            """
            SELECT i.task, count(*), EXISTS (SELECT 1 FROM asked AS t WHERE t.task = i.task)
            FROM items AS i LEFT JOIN asked AS q ON q.task = i.task AND q.item = i.item
            WHERE q.item IS NULL GROUP BY i.task ORDER BY min(i.position)
            """
        )
        # What is made of a task stands beside that task, which is named too.
        rows = [row for row in rows if not row[0].startswith(("gold:", "forbid ", "relation:", "early:"))]
        return [task for task, _, asked in rows if not asked], {task: count for task, count, asked in rows if asked}

    def edits(self) -> list[str]:
        """The edits under which there are answers to items that the study asks, as text, in alphabetical order."""
        query = "SELECT DISTINCT a.edit FROM answers AS a JOIN asked AS q ON q.task = a.task AND q.item = a.item"
        return [edit for (edit,) in self._rows(f"{query} ORDER BY a.edit")]

    def models(self) -> pd.DataFrame:
        """The models in the order in which they were noted: columns fingerprint, name, metadata (a dict)."""
        frame = self._frame("SELECT fingerprint, name, metadata FROM models ORDER BY position", {})
        frame["metadata"] = pd.Series([json.loads(text) for text in frame["metadata"]], dtype=object)
        return frame

    def _rows(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        with database.advice(self.file):
            return self._connection.execute(query, parameters).fetchall()

    def _frame(self, query: str, parameters: Mapping[str, str | None]) -> pd.DataFrame:
        with database.advice(self.file):
            cursor = self._connection.execute(query, dict(parameters))
            rows = cursor.fetchall()
        columns = [description[0] for description in cursor.description]
        # Plain objects: pandas' own string type would turn None, "no answer could be read", into NaN.
        return pd.DataFrame(rows, columns=columns, dtype=object)


def _values(row: StoredAnswer) -> tuple[str | int | None, ...]:
    """A row as the table of answers has it."""
    return with_checksum(
        row.key,
        row.model,
        row.edit,
        storable(row.task),
        storable(row.item),
        storable(row.decoding),
        row.prompt_style,
        storable(row.text),
        row.tokens,
        row.finish,
        int(row.correct),
        None if row.parsed is None else storable(row.parsed),
        numbers_to_json(row.scores),
        numbers_to_json(row.ranks),
        row.engine,
    )


def _take_over(connection: sqlite3.Connection, basis: str, study_text: str, *, anew: bool) -> None:
    """Put the study in the place of the stored one; `anew`: what was noted of its models and items is void."""
    made = connection.execute("SELECT made FROM study").fetchone()[0]
    connection.execute("DELETE FROM study")
    connection.execute(insertion("study"), with_checksum(basis, storable(study_text), made))
    if anew:
        connection.execute("DELETE FROM asked")
        connection.execute("DELETE FROM items")
        connection.execute("DELETE FROM models")


def _refuse_incomparable(folder: Path, comparable: bool, stored: str, given: str) -> None:
    """Refuse a study whose answers would be mixed with others; `comparable`: what all of them share is the same."""
    differing = _difference(stored, given)
    if not comparable or differing:
        because = differing or "this version samples answers in another way"
        raise LesionError(
            f"{folder} holds the answers of another study ({because}). Give another folder with --out, or run the study"
            " that was started there; more items, tasks, models or edits of that are welcome."
        )


def _difference(stored: str, given: str) -> str:
    """What tells two study texts apart: `seed: 0 there, 1 here`; empty where answers to both are comparable.

    Tasks and models that both have are compared in how they are asked.
    """
    try:
        there, here = tomllib.loads(stored), tomllib.loads(given)
    except tomllib.TOMLDecodeError:
        return ""
    may_differ = variable_keys(here.get("kind"))
    words = [differences(there, here, sorted((there.keys() | here.keys()) - may_differ))]
    for key, name in (("tasks", "name"), ("models", "source")):
        theirs, ours = _by_name(there.get(key), name), _by_name(here.get(key), name)
        if key in may_differ:
            words += [differences(theirs, ours, sorted(theirs.keys() & ours.keys()))]
    return "; ".join(filter(None, words))


def _by_name(entries: object, name: str) -> dict[str, dict[str, Any]]:
    """How each task or model of a study is asked, by its name; how many items and what it is called do not count."""
    named = {}
    for entry in entries if isinstance(entries, list) else []:
        table = dict(entry) if isinstance(entry, dict) else {name: entry}
        key = " ".join(str(table.pop(part)) for part in (name, "revision", "dtype") if part in table)
        named[key] = {part: value for part, value in table.items() if part not in ("items", *ModelChoice.LABELS)}
    return named


def refuse_other_prompts(store: Store, model: Model, cells: Iterable[PendingAnswer]) -> None:
    """Refuse to go on where stored answers to an item were given to another prompt than the one that is sent now."""
    pending = {(cell.choice.name, cell.item.id): cell for cell in cells}
    stored = store.answered(model.fingerprint) if pending else {}
    others: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for (task, item), cell in pending.items():
        for key, edit, decoding, style in stored.get((storable(task), storable(item)), ()):
            if key != answer_key(model.fingerprint, edit, task, item, decoding, style, cell.digest):
                others[task] += 1
                examples.setdefault(task, item)
                break
    if others:
        words = [f"{counted(count, 'item')} of {task}" for task, count in others.items()]
        task, item = next(iter(examples.items()))
        raise LesionError(
            f"{store.folder} holds answers of {model.name} to other prompts than those that are sent now"
            f" ({'; '.join(words)}; item {short(item, 60)} of {task} for one): its chat template, its tokenizer or the"
            f" solved examples have changed since, and answers to both would be mixed. {_ADVICE}"
        )


def refuse_other_spelling(store: Store, model: Model, before: str | None, now: str) -> None:
    """Refuse to go on where answers of a model were read or ended otherwise than they are now."""
    if before not in (None, now) and store.answered(model.fingerprint):
        raise LesionError(
            f"{store.folder} holds answers of {model.name} that another tokenizer read: since then, the text of a token"
            f" or the tokens that end an answer have changed (tokenizer.json, eos_token). {_ADVICE}"
        )


_LONGEST = 160
"""A value that is longer, in characters, is cut."""


def differences(there: Mapping[str, object], here: Mapping[str, object], keys: Iterable[str]) -> str:
    """`items: 100 there, 200 here; …` for the keys whose values, as JSON has them, differ; empty where none does.

    Of a table, the keys in it: `decoding.top_p: 1.0 there, 0.9 here`.
    """
    return "; ".join(_differing(there, here, keys, ""))


def _differing(there: Mapping[str, object], here: Mapping[str, object], keys: Iterable[str], table: str) -> list[str]:
    words: list[str] = []
    for key in keys:
        theirs, ours = there.get(key), here.get(key)
        if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            words += _differing(theirs, ours, sorted(theirs.keys() | ours.keys()), f"{table}{key}.")
        elif theirs != ours:
            words.append(f"{table}{key}: {_text(theirs)} there, {_text(ours)} here")
    return words


def refuse_another(
    folder: Path,
    what: str,
    there: StudyFile | None,
    here: StudyFile,
    *,
    same: bool | None = None,
    compared: Iterable[str] = (),
    otherwise: str = "",
) -> None:
    """Refuse a folder of another study of one kind: its results would stand beside these, or be lost.

    `same` says whether they may share a folder, by default whether what all answers there share is the same; `compared`
    are the keys whose differences are named, by default those of the identity; `otherwise` is what differs where none
    of these does.
    """
    if there is None or (there.basis() == here.basis() if same is None else same):
        return
    shared = keys(type(here), IN_IDENTITY)
    names = compared or [name for name in type(here).model_fields if name in shared]
    theirs, ours = (study.model_dump(mode="json", by_alias=False) for study in (there, here))
    differing = differences(theirs, ours, names) or otherwise
    because = f" ({differing})" if differing else ""
    raise LesionError(
        f"{folder} holds another {what}{because}. Give another folder with --out, or run the study that was started"
        " there."
    )


def study_there(summary: type[Summary], folder: Path) -> Any:
    """The study whose summary lies in a folder; None without one, and where it is damaged: there is nothing to lose."""
    try:
        return getattr(read_summary(summary, folder, "run the same command again"), "study", None)
    except LesionError:
        return None


def _text(value: object) -> str:
    """A value as a person would list it: no brackets, and of a table what is set."""
    return "not set" if value is None else short(_listed(value), _LONGEST)


def _listed(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_listed(part) for part in value.values() if part is not None)
    return ", ".join(map(_listed, value)) if isinstance(value, list) else str(value)
