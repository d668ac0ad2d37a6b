"""What must not become public: paths are shortened, and a last check refuses whatever else tells of a machine."""

from __future__ import annotations

import base64
import functools
import getpass
import html
import json
import os
import re
import socket
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import lesion
from lesion.core import database
from lesion.errors import LesionError
from lesion.plain import short
from lesion.report import drawing
from lesion.report.names import FILES

_HEAD, _TAIL = r"(?:^|(?<=:)|(?<=path=))", r"[^?]*?(?=(?:@[^/\\@]+)?(?: \(\w+\))?(?:[?&].*)?$)"
_ABSOLUTE = re.compile(rf"{_HEAD}(?:~[\w.-]*[/\\]|[A-Za-z]:[/\\]|/(?!/)|\\\\){_TAIL}")
"""A path in the name of a model or task, up to its revision, dtype or options."""
_RELATIVE = re.compile(rf"{_HEAD}(?:\.{{1,2}}[/\\])*(?!\.{{1,2}}[/\\])[^/\\:?@]+[/\\](?!/){_TAIL}")
"""The same of a relative path with folders in it, or OWNER/NAME of a repository."""
HUB_FILE = re.compile(r"\w[\w.-]*/[\w.-]+:")
"""How a file of a repository begins, `OWNER/NAME:FILE.gguf`."""
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]+)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL", re.IGNORECASE)
_COMMON = {"root", "user", "users", "admin", "ubuntu", "debian", "runner", "jovyan", "nobody", "home", "localhost"}
"""Names of users and machines that tell of nobody; they are looked for within addresses and paths alone."""
_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"}
"""Folders that every machine has."""
_BLOB = re.compile(r"[A-Za-z0-9+/=]{200,}")
LONG = 16
"""Characters of a text from which on it is looked for in what goes out without texts."""


def public_names(names: Iterable[str], texts: Iterable[str] = ()) -> dict[str, str]:
    """Every path with folders in names of models and tasks, every absolute one in other texts: its last part."""
    known: dict[str, str] = {}
    names = [*names]
    paths = [match[0] for name in (*names, *texts) for match in _ABSOLUTE.finditer(name)]
    paths += [match[0] for name in names for match in _RELATIVE.finditer(name) if _leads_to_a_file(match[0])]
    for path in dict.fromkeys(paths):
        stem, dot, ending = re.split(r"[/\\]", path.rstrip("/\\"))[-1].partition(".")
        name, number = f"{stem}{dot}{ending}" or "path", 2
        while name in known.values():
            name, number = f"{stem}-{number}{dot}{ending}", number + 1
        known[path] = name
    return known


def _leads_to_a_file(name: str) -> bool:
    """Whether a name with folders is none of a repository."""
    if HUB_FILE.match(name):
        return False
    deep = name.startswith(".") or "\\" in name or name.count("/") > 1
    return deep or bool(FILES.search(name)) or name.endswith(".edit") or os.path.exists(name)


def replaced(text: str, names: Mapping[str, str]) -> str:
    """A text in which names stand for paths, also as JSON has them."""
    for path in sorted(names, key=len, reverse=True):
        for form in dict.fromkeys((path, json.dumps(path)[1:-1])):
            text = text.replace(form, names[path])
    return text


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What tells of this machine or its user, each with what it is called."""
    home = os.path.expanduser("~")
    folders = [entry for entry in (os.listdir("/") if os.sep == "/" else ()) if entry not in _SYSTEM]
    here = "|".join(map(re.escape, folders)) or "(?!)"
    patterns = [
        ("something like a token", _TOKENS),
        ("a secret of this environment", _one_of(_secrets())),
        ("the home directory", re.compile(re.escape(home) + r"(?!\w)") if len(home) > 1 else re.compile("(?!)")),
        ("an absolute path", re.compile(rf"(?<![\w./<~-])/(?:{here})/\w[^\s\"'<>\\]*|\b[A-Z]:\\{{1,2}}\w[^\s\"'<>]*")),
    ]
    own = (file for file in Path(lesion.__file__).parent.rglob("*") if file.suffix in (".py", ".jinja", ".js"))
    words = "".join(file.read_text("utf-8") for file in own)
    for what, name in (("the user's name", _user()), ("the name of this machine", socket.gethostname())):
        whole = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        if name.lower() in _COMMON or len(name) < 3 or re.search(whole, words):  # a word of our own pages
            whole = rf"(?<=[/\\@]){re.escape(name)}(?=[/\\@])"
        patterns.append((what, re.compile(whole)))
    return tuple(patterns)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        return ""


def _secrets() -> list[str]:
    return [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8]


def _surely_private() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """What no vocabulary of a tokenizer holds by chance, as it may hold `/root`, and the word that is a password."""
    token, (secret, _), (home, pattern), *_ = _patterns()
    values = [value for value in _secrets() if len(value) >= LONG or not value.isalpha()]
    return token, (secret, _one_of(values)), (home, re.compile(pattern.pattern + r"[/\\]\w"))


def _one_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)) or "(?!)")


def refuse_private(
    files: Mapping[str, Path], texts: Iterable[str] = (), *, vocabularies: Collection[str] = (), advice: str
) -> None:
    """Refuse files that tell of this machine or its user, or hold one of the texts that are not to go out.

    Args:
        files: those that go out, by their names there.
        texts: questions and answers; those of fewer than `LONG` characters are not looked for.
        vocabularies: those of the files in which any word may stand; only what is surely private is looked for there.
        advice: what to do about a file that is refused, the beginning of a sentence that ends in "and push again".
    """
    lines = {max(text.splitlines(), key=len, default="").strip() for text in texts}
    forms = {form: line for line in lines if len(line) >= LONG for form in _forms(line)}
    for name, path in files.items():
        patterns = _surely_private() if name in vocabularies else _patterns()
        for place, content in _contents(path):
            for what, pattern in patterns:
                if (match := pattern.search(content)) is not None:
                    line = content.count("\n", 0, match.start()) + 1
                    where = f"{place}, line {line}" if "\n" in content else place
                    shown = "" if "token" in what or "secret" in what else f" ({short(match[0], 100)})"
                    raise LesionError(
                        f"{name}, {where}: this holds {what}{shown}. Nothing was sent. {advice} and push again."
                    )
            if (form := next((form for form in forms if form in content), None)) is not None:
                raise LesionError(
                    f"{name}, {place}: this holds the text of a question or an answer ({short(forms[form], 60)})."
                    " Nothing was sent. Push with --with-texts if it may become public; if the text is the id of its"
                    " item, give items other ids."
                )


def refuse_columns(files: Mapping[str, Path], columns: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse stores and tables of answers in which a column of texts holds one, however short."""
    for name, path in files.items():
        found: list[str] = []
        if path.suffix == ".sqlite":
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            try:
                pairs = [(table, each) for table, own in columns.items() for each in own]
                found = [
                    each
                    for table, each in pairs
                    if any(map(any, connection.execute(f"SELECT DISTINCT {each} FROM {table}")))
                ]
            finally:
                connection.close()
        elif path.suffix == ".parquet":
            import pyarrow.parquet

            found = [
                each for own in columns.values() for each in own if each in pyarrow.parquet.read_schema(path).names
            ]
        if found:
            raise LesionError(
                f"{name} holds texts in {found[0]}. Nothing was sent. Push with --with-texts if they may become public."
            )


def _forms(line: str) -> set[str]:
    """A line as a file may have it: plain, in JSON, in HTML."""
    return {line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], html.escape(line)}


def _contents(path: Path) -> Iterator[tuple[str, str]]:
    """The texts of a file with where each stands; what a page carries packed, unpacked; of weights the header."""
    if path.suffix in (".png", ".parquet"):  # pictures have no text, and a table has that of the store
        return
    if path.suffix == ".sqlite":
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            for table, columns in database.TABLES.items():
                for number, row in enumerate(connection.execute(f"SELECT {', '.join(columns)} FROM {table}"), 1):
                    yield f"row {number} of {table}", "\0".join(str(value) for value in row)
        finally:
            connection.close()
        return
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            yield "header", file.read(min(int.from_bytes(file.read(8), "little"), 1 << 26)).decode("latin-1")
            return
        text = file.read().decode("utf-8", "replace")
    yield "text", _BLOB.sub("", text) if path.suffix == ".html" else text
    for number, blob in enumerate(_BLOB.findall(text) if path.suffix == ".html" else (), 1):
        try:
            unpacked = zlib.decompress(base64.b64decode(blob)).decode("utf-8", "replace")
        except (ValueError, zlib.error):  # a picture, or a word of 200 letters
            unpacked = blob
        if unpacked != drawing.bundle():
            yield f"packed part {number}", unpacked
