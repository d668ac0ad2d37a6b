"""Families: every type of decoder that transformers generates with, verified on a tiny random network of it.

Each type is worked on in a process of its own, since the code of some ends or hangs its process.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from pydantic import Field, ValidationError

from lesion.atomic import replace
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.errors import LesionError
from lesion.files import reason
from lesion.models.load import Model, load, wrap
from lesion.progress import Watcher
from lesion.report.values import Value
from lesion.verification import studies, zoo
from lesion.verification.by_hand import NoReferenceError
from lesion.verification.verify import Verified, prompts_of, verified

LIMIT = 600.0
"""Seconds that a type may take."""
_KINDS = {
    **{"unedited": "baseline", "restored": "baseline", "block": "block", "attention": "branch", "mlp": "branch"},
    **{"head": "head", "group": "head", "expert": "expert", "neuron": "neuron", "matrix": "matrix", "saved": "export"},
    **{"truncation": "truncate"},
}
"""By what `verified` compares, the column in which it stands."""
_STUDIES: dict[str, Callable[[Model, studies.Texts], str]] = {
    **{"drift": studies.drift, "isolate": studies.isolate, "effects": studies.effects, "patch": studies.patch},
}
COLUMNS = ("show", *dict.fromkeys(_KINDS.values()), *_STUDIES)
_MARKS = {"verified": "✓", "exact on the simple way": "✓ˢ", "not testable": "?", "": "–"}
_STUDY_NEEDS = re.compile(r"; (effects|patching) needs keys and values of every block.*")
_WORST = ("wrong", "refused", "exact on the simple way", "verified", "not testable")


class Family(Value):
    """What was verified of a type of decoder.

    Attributes:
        type: of the configuration.
        versions: of transformers and torch.
        way: how it answers; empty where nothing could be tried.
        states: by column; empty where the anatomy has none.
        notes: by column, why something was refused or not tested, or what is wrong.
    """

    type: str
    versions: str
    way: str = ""
    states: Mapping[str, str] = Field(default_factory=dict)
    notes: Mapping[str, str] = Field(default_factory=dict)


def families(out: Path, watcher: Watcher, types: Sequence[str] = zoo.NAMES, limit: float = LIMIT) -> tuple[Family, ...]:
    """Verify types of decoder and write a table of them.

    Args:
        out: the table, in Markdown; beside it stands a file of a JSON line for each type, from which a later call goes
            on.
        watcher: who is told how it goes.
        types: of configurations of transformers.
        limit: seconds that a type may take.

    Raises:
        LesionError: a file cannot be written.
    """
    lines = out.with_suffix(".jsonl")
    stored = {family.type: family for family in _stored(lines) if family.versions == versions()}
    watcher.begin("all families", len(types), len(stored.keys() & {*types}), "types of decoder")
    for kind in types:
        if kind not in stored:
            stored[kind] = family = _apart(kind, limit)
            try:
                replace(lines, "".join(f"{each.model_dump_json()}\n" for each in stored.values()).encode())
            except OSError as error:
                raise LesionError(f"{lines} cannot be written: {reason(error)}") from error
            for column, state in family.states.items():
                if state == "wrong":
                    watcher.note(f"{kind}, {column}: wrong: {family.notes[column]}")
            watcher.answered(1)
    done = tuple(stored[kind] for kind in types)
    replace(out, table(done).encode())
    return done


def versions() -> str:
    """Of the libraries whose code is verified."""
    return f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"


def _stored(lines: Path) -> Iterable[Family]:
    try:
        return [Family.model_validate_json(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, ValidationError) as error:
        raise LesionError(f"{lines} cannot be read: {reason(error)}. Remove it, or give another --out.") from error


def _apart(kind: str, limit: float) -> Family:
    """A type, verified in a process that begins with the libraries loaded."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload([__name__])
    # What the libraries lock stays with the server, which nobody misses.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    there, here = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(kind, here), daemon=True)
    process.start()
    here.close()
    try:
        if there.poll(limit):
            return Family.model_validate_json(there.recv())
        why = f"it took more than {limit:.0f} seconds"
    except EOFError:
        process.join()
        why = f"its process ended by itself ({process.exitcode})"
    finally:
        process.kill()
    return Family(type=kind, versions=versions(), notes={"": why})


def _work(kind: str, pipe: Connection) -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the process ends)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    pipe.send(family(kind).model_dump_json())


def family(kind: str) -> Family:
    """What is verified of a type, here and now."""
    made = Family(type=kind, versions=versions())
    try:
        network = zoo.made(kind)
    except Exception as error:  # transformers' own: some types need packages, or are built in another way
        return made.model_copy(update={"notes": {"": _first_line(error)}})
    tokenizer = zoo.tokenizer()
    with TemporaryDirectory() as folder:
        try:
            network.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            model, fault = load(folder, device="cpu"), ""
        except Exception as error:  # of transformers too
            fault = _first_line(error)
            try:
                model = wrap(network, tokenizer, kind)
            except LesionError as refusal:
                states = dict.fromkeys(COLUMNS, "refused")
                return made.model_copy(update={"states": states, "notes": {"show": str(refusal)}})
        states, notes = _states(model)
        if fault:
            states["export"], notes["export"] = "refused", fault
    way = way_of(model).kind.name.lower()
    notes = {column: note.replace(folder, kind) for column, note in notes.items() if note}
    return made.model_copy(update={"way": way, "states": states, "notes": notes})


def _states(model: Model) -> tuple[dict[str, str], dict[str, str]]:
    """By column, the state and its note."""
    results: dict[str, list[tuple[str, str]]] = defaultdict(list)
    results["show"] = [_tried(lambda: _shown(model), "verified")]
    right = "verified" if way_of(model).fast else "exact on the simple way"
    rows: list[Verified] = []

    def compared() -> str:
        rows.extend(verified(model, TransformersEngine))
        return ""

    outcome = _tried(compared, right)
    for row in rows:
        results[_KINDS[row.what]].append((row.state, f"{row.edit}: {row.note}"))
    if not rows:
        results |= {column: [outcome] for column in ("baseline", "block", "branch")}
    texts = tuple(text for text in prompts_of(model) if len(text) > 2)
    for column, study in _STUDIES.items():
        results[column] = [_tried(lambda study=study: study(model, texts), "verified")]  # type: ignore[misc]
    worst = {
        column: min(results[column], key=lambda each: _WORST.index(each[0])) for column in COLUMNS if results[column]
    }
    notes = {column: note for column, (state, note) in worst.items() if state not in ("verified", right)}
    return {column: worst[column][0] if column in worst else "" for column in COLUMNS}, notes


def _tried(measure: Callable[[], str], right: str) -> tuple[str, str]:
    try:
        fault = measure()
    except NoReferenceError as error:
        return "not testable", str(error)
    except LesionError as error:
        return "refused", str(error)
    except Exception as error:  # what was not foreseen
        return "wrong", f"not foreseen: {_first_line(error)}"
    return ("wrong", fault) if fault else (right, "")


def _shown(model: Model) -> str:
    """What is wrong with what is shown of a model: every weight is in a matrix or named as uncovered, once."""
    held = {matrix.parameter for matrix in model.anatomy.scored.values()}
    named = [name for name, _ in model.anatomy.uncovered]
    missing = {name for name, _ in model.network.named_parameters()} - held - {*named}
    head = model.network.get_output_embeddings()
    own = {
        name for name, p in model.network.named_parameters() if head is not None and p is getattr(head, "weight", None)
    }
    return f"not shown: {', '.join(sorted(missing - own))}" if missing - own else ""


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else 'no reason given'}"


def table(done: Sequence[Family]) -> str:
    """Markdown: a line for every type that could be tried, and what was refused, by reason."""
    tried = [each for each in done if each.states]
    heads = ("type", "way", *COLUMNS)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for each in tried:
        marks = (_MARKS.get(each.states[column], each.states[column]) for column in COLUMNS)
        lines.append(f"| {each.type} | {each.way} | {' | '.join(marks)} |")
    counts = {column: Counter(each.states[column] for each in tried) for column in COLUMNS}
    totals = [
        f"| {state or 'the anatomy has none'} | {' | '.join(str(counts[column][state] or '') for column in COLUMNS)} |"
        for state in (*_WORST, "")
    ]
    reasons: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for each in tried:
        for column, note in each.notes.items():
            # Effects and patching need the same.
            text = _STUDY_NEEDS.sub("", " ".join(note.replace(each.type, "MODEL").split()))
            columns, types = reasons[each.states[column], text]
            columns[column], types[each.type] = None, None
    said = [
        f"- {state}, {' and '.join(columns)}: {', '.join(types)}: {text}"
        for (state, text), (columns, types) in sorted(reasons.items(), key=lambda pair: _WORST.index(pair[0][0]))
    ]
    untried = [f"- {each.type}: {' '.join(each.notes[''].split())}" for each in done if not each.states]
    return (
        Path(__file__)
        .with_name("families.md")
        .read_text(encoding="utf-8")
        .format(
            versions=" and ".join(dict.fromkeys(each.versions for each in done)),
            count=len(tried),
            table="\n".join(lines),
            totals="\n".join([f"| state | {' | '.join(COLUMNS)} |", "|---" * (1 + len(COLUMNS)) + "|", *totals]),
            said="\n".join(said),
            untried="\n".join(untried),
        )
    )
