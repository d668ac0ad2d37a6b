"""Ways to damage a store, each a function of its file and a seed, for `damaged_stores.py` and the tests."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

PAGE = 4096


def _bytes(change: Callable[[bytearray, random.Random], None]) -> Callable[[Path, int], None]:
    def damage(file: Path, seed: int) -> None:
        content = bytearray(file.read_bytes())
        change(content, random.Random(seed))
        file.write_bytes(bytes(content))

    return damage


def _one_bit(content: bytearray, draw: random.Random) -> None:
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def _many_bits(content: bytearray, draw: random.Random) -> None:
    for _ in range(64):
        _one_bit(content, draw)


def _one_digit(content: bytearray, draw: random.Random) -> None:
    """Another digit in the place of one: what looks least like damage."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    place = draw.choice(places)
    content[place] = 48 + (content[place] - 48 + draw.randrange(1, 10)) % 10


def _zeroed_page(content: bytearray, draw: random.Random) -> None:
    start = PAGE * draw.randrange(len(content) // PAGE)
    content[start : start + PAGE] = bytes(PAGE)


def _random_bytes(content: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(content) - 64)
    content[start : start + 64] = draw.randbytes(64)


def _page_over_another(content: bytearray, draw: random.Random) -> None:
    source, target = (PAGE * draw.randrange(len(content) // PAGE) for _ in range(2))
    content[target : target + PAGE] = content[source : source + PAGE]


def _cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randrange(len(content)) :]


def _rows(*statements: str) -> Callable[[Path, int], None]:
    def damage(file: Path, seed: int) -> None:
        draw = random.Random(seed)
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        count = connection.execute("SELECT count(*) FROM answers").fetchone()[0]
        items = connection.execute("SELECT count(*) FROM items").fetchone()[0]
        values = {"a": draw.randint(1, count), "b": draw.randint(1, count), "item": draw.randint(1, items)}
        for statement in statements:
            connection.execute(statement, values)
        connection.commit()
        connection.close()

    return damage


def _log(change: Callable[[bytearray, random.Random], None]) -> Callable[[Path, int], None]:
    """Damage to the write-ahead log that a killed process left, with a last change in it."""

    def damage(file: Path, seed: int) -> None:
        connection = sqlite3.connect(file)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("DELETE FROM answers WHERE rowid = 1")
        connection.commit()
        log = file.with_name(file.name + "-wal")
        content, whole = bytearray(log.read_bytes()), file.read_bytes()
        connection.close()
        change(content, random.Random(seed))
        file.write_bytes(whole)
        log.write_bytes(bytes(content))

    return damage


ways: dict[str, Callable[[Path, int], None]] = {
    "one bit": _bytes(_one_bit),
    "64 bits": _bytes(_many_bits),
    "one digit": _bytes(_one_digit),
    "a page of zeros": _bytes(_zeroed_page),
    "64 random bytes": _bytes(_random_bytes),
    "a page over another": _bytes(_page_over_another),
    "cut off": _bytes(_cut),
    "verdict turned": _rows("UPDATE answers SET correct = 1 - correct WHERE rowid = :a AND :b AND :item"),
    "texts swapped": _rows(
        "UPDATE answers SET text = CASE rowid WHEN :a THEN (SELECT text FROM answers WHERE rowid = :b) ELSE"
        " (SELECT text FROM answers WHERE rowid = :a) END WHERE rowid IN (:a, :b) AND :item"
    ),
    "edit renamed": _rows("UPDATE answers SET edit = edit || '0' WHERE rowid = :a AND :b AND :item"),
    "answers deleted": _rows("DELETE FROM answers WHERE rowid IN (:a, :b) AND :item"),
    "item deleted": _rows("DELETE FROM items WHERE position = :item AND :a AND :b"),
    "items swapped": _rows(
        "UPDATE items SET position = -position WHERE position IN (1, :item) AND :a AND :b",
        "UPDATE items SET position = CASE WHEN position = -1 THEN :item ELSE 1 END WHERE position < 0 AND :a AND :b",
    ),
    "model renamed": _rows("UPDATE models SET name = name || 'x' WHERE :a AND :b AND :item"),
    "one bit of the log": _log(_one_bit),
    "the log cut off": _log(_cut),
}
"""By name; a seed gives one damage of it."""
