"""The store of a study: one durable SQLite row per answer, one writer at a time, any number of readers."""

from __future__ import annotations

import datetime
import json
import sqlite3
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from lesion.core.database import (
    FILE,
    advice,
    connect_to_read,
    connect_to_write,
    create_tables,
    has_tables,
    transaction,
)
from lesion.core.differences import differences
from lesion.core.integrity import insertion, with_checksum
from lesion.core.lock import FolderLock
from lesion.core.row import Row, ranks_from_json, ranks_to_json, scores_from_json, scores_to_json, storable
from lesion.core.study_file import silent_keys
from lesion.errors import LesionError
from lesion.tasks.task import Item


class Store:
    """The answers of one study in `FOLDER/answers.sqlite`: from `Store.open` or `Store.read`, under `with`.

    Example:
        >>> with Store.open(folder, study.identity(), study.to_toml()) as store:
        ...     if key not in store.keys():
        ...         store.write([row])
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: FolderLock | None) -> None:
        self.folder = folder
        self.file = folder / FILE
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, folder: str | Path, study_hash: str, study_text: str, kind: str = "layers") -> Store:
        """Open the store of a study for writing, made when it is not there; alone until it is closed.

        Args:
            folder: where the study lives; made with its parents.
            study_hash: identity of the study (`Study.identity`): a store with answers belongs to one study only;
                one without any, say from a run with a wrong layer, is taken over.
            study_text: the study as TOML, kept to be shown and compared; that of the latest run counts.
            kind: what the folder is of, one of `lesion.outputs.KINDS`.

        Raises:
            LesionError: another process writes there; the store was made by another study; the folder cannot be
                written; the file is damaged, not a store, or the disk is full. Nothing in the folder is lost.
        """
        folder = Path(folder)
        file = folder / FILE
        lock = FolderLock(folder, kind)
        connection: sqlite3.Connection | None = None
        try:
            with advice(file):
                connection = connect_to_write(file)
                if not has_tables(connection):
                    with transaction(connection):
                        create_tables(connection)
                        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                        connection.execute(insertion("study"), with_checksum(study_hash, storable(study_text), made))
                stored_hash, stored_text = connection.execute("SELECT hash, text FROM study").fetchone()
                unanswered = connection.execute("SELECT 1 FROM answers LIMIT 1").fetchone() is None
                if unanswered or stored_hash == study_hash:
                    stored_hash = study_hash
                    with transaction(connection):
                        _take_over(connection, study_hash, study_text, anew=unanswered)
            if stored_hash != study_hash:
                raise LesionError(
                    f"{folder} holds the answers of another study{_difference(stored_text, study_text)}. "
                    "Give another folder with --out, or run the study that was started there."
                )
        except BaseException:
            if connection is not None:
                connection.close()
            lock.release()
            raise
        return cls(folder, connection, lock)

    @classmethod
    def read(cls, folder: str | Path) -> Store:
        """Open a store for reading only; works while another process writes, and sees what was committed.

        Raises:
            LesionError: there is no store, or it is damaged or not a store.
        """
        folder = Path(folder)
        with advice(folder / FILE):
            return cls(folder, connect_to_read(folder / FILE), None)

    def close(self) -> None:
        """Let go of the file and of the lock. Doing it twice is doing it once."""
        try:
            with advice(self.file):
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
        """The identity and the TOML text of the study that made the store."""
        with advice(self.file):
            stored_hash, stored_text = self._connection.execute("SELECT hash, text FROM study").fetchone()
        return str(stored_hash), str(stored_text)

    def add_model(self, fingerprint: str, name: str, metadata: Mapping[str, Any] | None = None) -> None:
        """Note a model before its answers are written; one that is known already keeps its first metadata.

        Args:
            fingerprint: fingerprint of the weights.
            name: the name as typed.
            metadata: anything JSON can hold: revision, dtype, family, number of blocks.

        Raises:
            LesionError: the name stands for other weights than when the store was made, or the same weights are
                there under another name.
        """
        with advice(self.file), transaction(self._connection):
            self._add_model(fingerprint, storable(name), json.dumps(dict(metadata or {}), sort_keys=True))

    def _add_model(self, fingerprint: str, name: str, metadata: str) -> None:
        known = self._connection.execute(
            "SELECT fingerprint, name FROM models WHERE fingerprint = ? OR name = ?", (fingerprint, name)
        ).fetchall()
        for known_fingerprint, known_name in known:
            if known_fingerprint != fingerprint:
                raise LesionError(
                    f"The weights of {name} are not those that this study began with (fingerprint "
                    f"{fingerprint}, before {known_fingerprint}): the checkpoint changed, or its dtype did. "
                    f"Give another folder with --out; the answers in {self.folder} stay as they are."
                )
            if known_name != name:
                raise LesionError(
                    f"{name} and {known_name} are the same weights (fingerprint {fingerprint}); list only one."
                )
        if not known:
            self._connection.execute(
                insertion("models"), with_checksum(self._next("models"), fingerprint, name, metadata)
            )

    def _next(self, table: str) -> int:
        """The position of the next row of a table."""
        return int(self._connection.execute(f"SELECT coalesce(max(position), 0) + 1 FROM {table}").fetchone()[0])

    def add_items(self, task: str, items: Iterable[Item]) -> None:
        """Note the items of a task before they are asked, in the order in which reports will show them.

        Call it with all items of a run before asking `keys`: the key of an answer names an item by its id, so
        this is where a data file that changed between two runs is found out.

        Raises:
            LesionError: an item of that id reads differently from when it was stored.
        """
        with advice(self.file), transaction(self._connection):
            for item in items:
                self._add_item(task, item.id, item.question, item.gold, item.group)

    def _add_item(self, task: str, item: str, question: str, gold: str, group: str) -> None:
        task, item, *facts = (storable(text) for text in (task, item, question, gold, group))
        known = self._connection.execute(
            'SELECT question, gold, "group" FROM items WHERE task = ? AND item = ?', (task, item)
        ).fetchone()
        if known is None:
            self._connection.execute(insertion("items"), with_checksum(self._next("items"), task, item, *facts))
        elif list(known) != facts:
            raise LesionError(
                f"Item {item} of {task} reads differently from when it was stored in {self.folder}: the "
                "data has changed, and answers to both would be mixed. Give another folder with --out."
            )

    def write(self, rows: Iterable[Row]) -> int:
        """Store answers and commit at once: after the return they survive the death of the process.

        All rows of one call are stored or none. A key that is there already keeps its first answer.

        Returns:
            How many of the rows were new.

        Raises:
            LesionError: the disk is full or the file cannot be written (every earlier row is safe); a model or an
                item contradicts what is stored (`add_model`, `add_items`).
        """
        rows = list(rows)
        # Many rows are of one model and of a few items: each is looked up once.
        models = dict.fromkeys((row.model, storable(row.model_name)) for row in rows)
        items = dict.fromkeys((row.task, row.item, row.question, row.gold, row.group) for row in rows)
        with advice(self.file), transaction(self._connection):
            for model in models:
                self._add_model(*model, "{}")
            for item in items:
                self._add_item(*item)
            if not rows:
                return 0
            return self._connection.executemany(
                f"{insertion('answers')} ON CONFLICT (key) DO NOTHING", map(_values, rows)
            ).rowcount

    def keys(self) -> set[str]:
        """The keys of all stored answers."""
        with advice(self.file):
            return {key for (key,) in self._connection.execute("SELECT key FROM answers")}

    def __len__(self) -> int:
        with advice(self.file):
            return int(self._connection.execute("SELECT count(*) FROM answers").fetchone()[0])

    def answers(self, *, model: str | None = None, task: str | None = None) -> pd.DataFrame:
        """The stored answers, ordered by model, task, edit and item whatever the order in which they came.

        Args:
            model: only this model (name as typed).
            task: only this task.

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
            WHERE (:model IS NULL OR m.name = :model) AND (:task IS NULL OR a.task = :task)
            ORDER BY m.position, a.task, a.edit, a.decoding, a.prompt_style, i.position
            """,
            {"model": model, "task": task},
        )
        frame["correct"] = frame["correct"].astype(bool)
        frame["tokens"] = frame["tokens"].astype("int64")
        frame["scores"] = pd.Series([scores_from_json(text) for text in frame["scores"]], dtype=object)
        frame["ranks"] = pd.Series([ranks_from_json(text) for text in frame["ranks"]], dtype=object)
        return frame

    def items(self) -> pd.DataFrame:
        """The items in the order in which they were noted: columns task, item, question, gold, group."""
        return self._frame('SELECT task, item, question, gold, "group" FROM items ORDER BY position', {})

    def models(self) -> pd.DataFrame:
        """The models in the order in which they were noted: columns fingerprint, name, metadata (a dict)."""
        frame = self._frame("SELECT fingerprint, name, metadata FROM models ORDER BY position", {})
        frame["metadata"] = pd.Series([json.loads(text) for text in frame["metadata"]], dtype=object)
        return frame

    def _frame(self, query: str, parameters: Mapping[str, str | None]) -> pd.DataFrame:
        with advice(self.file):
            cursor = self._connection.execute(query, dict(parameters))
            rows = cursor.fetchall()
        columns = [description[0] for description in cursor.description]
        # Plain objects: pandas' own string type would turn None, "no answer could be read", into NaN.
        return pd.DataFrame(rows, columns=columns, dtype=object)


def _values(row: Row) -> tuple[str | int | None, ...]:
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
        scores_to_json(row.scores),
        ranks_to_json(row.ranks),
        row.engine,
    )


def _take_over(connection: sqlite3.Connection, study_hash: str, study_text: str, *, anew: bool) -> None:
    """Put the study in the place of the stored one; `anew`: what was noted of its models and items is void."""
    made = connection.execute("SELECT made FROM study").fetchone()[0]
    connection.execute("DELETE FROM study")
    connection.execute(insertion("study"), with_checksum(study_hash, storable(study_text), made))
    if anew:
        connection.execute("DELETE FROM items")
        connection.execute("DELETE FROM models")


def _difference(stored: str, given: str) -> str:
    """What tells two study texts apart: ` (items: 100 there, 200 here)`, or nothing if nothing is found."""
    try:
        there, here = tomllib.loads(stored), tomllib.loads(given)
    except tomllib.TOMLDecodeError:
        return ""
    # These do not decide any answer, so they are not why the identities differ.
    silent = silent_keys(here.get("kind"))
    differing = differences(there, here, sorted((there.keys() | here.keys()) - silent))
    if not differing and here.get("decoding", {}).get("temperature", 0) > 0:
        return (
            ": the same questions of it, but this version samples answers in another way, or the data has changed since"
            " (items, answers, judge or token limit)"
        )
    if not differing:
        return ": the same questions of it, on data that has changed since (items, answers, judge or token limit)"
    return f" ({differing})"
