"""Every type of decoder that transformers generates with, verified on a tiny random network of it.

    python benchmarks/architectures.py --out docs/results/architectures.md
    python benchmarks/architectures.py --out docs/results/architectures.md --engine vllm

Compared is what `lesion verify` compares, and what `drift`, `isolate`, `effects` and `patch` measure with plain hooks
on one text at a time. What is done is kept beside the table as JSON lines, and the same command goes on from there,
unless transformers or torch is another. What vLLM does is tried in an environment that has it. Each type is worked on
in a process of its own, since the code of some ends or hangs its process.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import re
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from pydantic import Field, ValidationError
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import architectures_ggufs as ggufs
import architectures_studies as studies
import architectures_zoo as zoo
from lesion.atomic import replace
from lesion.cli.terminal import Bar, say
from lesion.engines.config import ENGINES, EngineChoice, opened
from lesion.engines.engine import MakeEngine
from lesion.engines.transformers.engine import TransformersEngine, way_of
from lesion.errors import LesionError
from lesion.files import CACHE, reason
from lesion.models.load import Model, load, wrap
from lesion.progress import Watcher
from lesion.report.values import Value
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
    **{"drift": studies.drift, "isolate": studies.isolate, "effects": studies.effects, "patch": studies.patch}
}
COLUMNS = ("show", *dict.fromkeys(_KINDS.values()), *_STUDIES, "GGUF")
VLLM = {"baseline": "vLLM", **{column: f"vLLM {column}" for column in ("block", "branch", "head")}}
"""Columns that the engine vllm fills, by the names that the same comparisons have here."""
_MARKS = {"verified": "✓", "exact on the simple way": "✓ˢ", "not testable": "?", "": "–"}
_STUDY_NEEDS = re.compile(r"; (effects|patching) needs the fast way.*")
_UNREAD = re.compile(r"the architecture \S+, which")  # by llama.cpp's name for a type
_WORST = ("wrong", "refused", "exact on the simple way", "verified", "not testable")


class Family(Value):
    """What was verified of a type of decoder.

    Attributes:
        type: of the configuration.
        engine: whose answers were compared.
        versions: of transformers and torch, and of vLLM where that answered.
        way: how it answers; empty where nothing could be tried.
        states: by column; empty where the anatomy has none.
        notes: by column, why something was refused or not tested, or what is wrong.
    """

    type: str
    engine: str = "transformers"
    versions: str
    way: str = ""
    states: Mapping[str, str] = Field(default_factory=dict)
    notes: Mapping[str, str] = Field(default_factory=dict)


def families(
    out: Path, watcher: Watcher, types: Sequence[str] = zoo.NAMES, limit: float = LIMIT, engine: str = "transformers"
) -> tuple[Family, ...]:
    """Verify types of decoder and write a table of them.

    Args:
        out: the table, in Markdown; beside it stands a file of a JSON line for each type and engine, from which a later
            call goes on, with the same engine or another.
        types: of configurations of transformers; vLLM is tried with those that it has.
        limit: seconds that a type may take.
        engine: `transformers` or `vllm`, which has columns of its own.

    Returns:
        All types in the file, with the columns of both engines.
    """
    lines = out.with_suffix(".jsonl")
    libraries = versions(engine)
    types = [kind for kind in types if engine == "transformers" or _on_vllm(kind)]
    stored = {(each.type, each.engine): each for each in _stored(lines)}
    stored = {key: each for key, each in stored.items() if each.engine != engine or each.versions == libraries}
    watcher.begin("all families", len(types), sum((kind, engine) in stored for kind in types), "types of decoder")
    for kind in types:
        if (kind, engine) not in stored:
            stored[kind, engine] = family = _apart(kind, limit, engine, libraries)
            try:
                replace(lines, "".join(f"{each.model_dump_json()}\n" for each in stored.values()).encode())
            except OSError as error:
                raise LesionError(f"{lines} cannot be written: {reason(error)}") from error
            for column, state in family.states.items():
                if state == "wrong":
                    watcher.note(f"{kind}, {column}: wrong: {family.notes[column]}")
            watcher.answered(1)
    replace(out, table([stored[key] for key in sorted(stored)]).encode())
    return _merged(stored[key] for key in sorted(stored))


def _merged(done: Iterable[Family]) -> tuple[Family, ...]:
    """A line for each type, with what vLLM did beside the rest."""
    merged: dict[str, Family] = {}
    for each in done:  # "transformers" stands before "vllm"
        first = merged.setdefault(each.type, each)
        if first.states and each is not first:
            both = {"states": {**first.states, **each.states}, "notes": {**first.notes, **each.notes}}
            merged[each.type] = first.model_copy(update=both)
    return tuple(merged.values())


def versions(engine: str = "transformers") -> str:
    """Of the libraries whose code is verified."""
    here = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}"
    if engine == "transformers":
        return here
    with opened(EngineChoice(engine)):  # refuses where it is not installed
        return f"vLLM {importlib.import_module('vllm').__version__}, {here}"


def _on_vllm(kind: str) -> bool:
    from vllm import ModelRegistry

    names = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
    there = {*ModelRegistry.get_supported_archs()}
    return not there.isdisjoint([names] if isinstance(names, str) else names)


def _stored(lines: Path) -> Iterable[Family]:
    try:
        return [Family.model_validate_json(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, ValidationError) as error:
        raise LesionError(f"{lines} cannot be read: {reason(error)}. Remove it, or give another --out.") from error


def _apart(kind: str, limit: float, engine: str, libraries: str) -> Family:
    """A type, verified in a process that begins with the libraries loaded."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload([__name__, *(["vllm"] if engine == "vllm" else [])])
    # What the libraries lock stays with the server, which nobody misses.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    there, here = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(kind, engine, here), daemon=engine == "transformers")
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
        if engine == "vllm":
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if engine == "transformers":
        return Family(type=kind, versions=libraries, notes={"": why})
    return Family(type=kind, engine=engine, versions=libraries, states={"vLLM": "not testable"}, notes={"vLLM": why})


def _work(kind: str, engine: str, pipe: Connection) -> None:
    if engine == "vllm":
        os.setpgrp()  # the processes that vLLM starts end with this one
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the process ends)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with TemporaryDirectory() as cache:
        os.environ[CACHE] = cache  # of the GGUF file
        pipe.send(family(kind, engine).model_dump_json())


def family(kind: str, engine: str = "transformers") -> Family:
    """What is verified of a type, here and now."""
    made = Family(type=kind, engine=engine, versions=versions(engine))
    columns = COLUMNS if engine == "transformers" else (*VLLM.values(),)
    try:
        network = zoo.made(kind, wide=engine == "vllm")
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
                states = dict.fromkeys(columns, "refused")
                return made.model_copy(update={"states": states, "notes": {columns[0]: str(refusal)}})
        results = _on_transformers(model, kind, folder) if engine == "transformers" else _through_vllm(model)
        worst = {c: min(results[c], key=lambda each: _WORST.index(each[0])) for c in columns if results.get(c)}
        states = {column: worst[column][0] if column in worst else "" for column in columns}
        notes = {column: note for column, (_, note) in worst.items()}
        if fault and engine == "transformers":
            states["export"], notes["export"] = "refused", fault
    way = way_of(model).kind.name.lower()
    notes = {column: note.replace(folder, kind) for column, note in notes.items() if note}
    return made.model_copy(update={"way": way, "states": states, "notes": notes})


Results = dict[str, list[tuple[str, str]]]
"""By column, states and their notes."""


def _on_transformers(model: Model, kind: str, folder: str) -> Results:
    right = "verified" if way_of(model).fast else "exact on the simple way"
    results = {"show": [_tried(lambda: _shown(model), "verified")], **_compared(model, TransformersEngine, right)}
    texts = tuple(text for text in prompts_of(model) if len(text) > 2)
    for column, study in _STUDIES.items():
        results[column] = [_tried(lambda study=study: study(model, texts), "verified")]  # type: ignore[misc]
    return {**results, "GGUF": _from_gguf(model, kind, Path(folder))}


def _from_gguf(model: Model, kind: str, folder: Path) -> list[tuple[str, str]]:
    """States of what is answered with the network read from a GGUF file of it; none where there can be none."""
    architecture = ggufs.architecture_of(kind)
    if architecture is None:
        return []

    network = model.network

    def read(model: Model, batch_size: int | str) -> TransformersEngine:
        file = ggufs.write(folder / f"{kind}.gguf", network, architecture)
        return TransformersEngine(load(file, device="cpu"), batch_size)

    right = "verified" if way_of(model).fast else "exact on the simple way"
    return [row for rows in _compared(model, read, right, ("block",)).values() for row in rows]


def _through_vllm(model: Model) -> Results:
    if getattr(model.network.config, "attn_logit_softcapping", None):
        model.network.set_attn_implementation("eager")  # the others leave it out
    with opened(EngineChoice("vllm")) as engines:
        compared = _compared(model, engines, "verified", ("block", "attention", "mlp", "head"))
    return {VLLM[column]: states for column, states in compared.items()}


def _compared(model: Model, make_engine: MakeEngine, right: str, kinds: Sequence[str] = ()) -> Results:
    """By column what `verified` finds; where it finds nothing, why."""
    results: Results = defaultdict(list)
    rows: list[Verified] = []

    def compared() -> str:
        rows.extend(verified(model, make_engine, kinds_of_edit=kinds))
        return ""

    outcome = _tried(compared, right)
    for row in rows:
        done = row.state in ("verified", "exact on the simple way")
        results[_KINDS[row.what]].append((right, "") if done else (row.state, f"{row.edit}: {row.note}"))
    return results if rows else {column: [outcome] for column in VLLM}


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
    merged = _merged(done)
    tried = [each for each in merged if each.states]
    columns = tuple(column for column in (*COLUMNS, *VLLM.values()) if any(each.states.get(column) for each in tried))
    heads = ("type", "way", *columns)
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for each in tried:
        states = [each.states.get(column, " ") for column in columns]
        marks = (_MARKS.get(state, state) for state in states)
        lines.append(f"| {each.type} | {each.way} | {' | '.join(marks)} |")
    counts = {column: Counter(each.states.get(column) for each in tried) for column in columns}
    totals = [
        f"| {state or 'there is none'} | {' | '.join(str(counts[column][state] or '') for column in columns)} |"
        for state in (*_WORST, "")
    ]
    reasons: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))
    for each in tried:
        for column, note in each.notes.items():
            # Effects and patching need the same.
            text = _STUDY_NEEDS.sub("", " ".join(note.replace(each.type, "MODEL").split()))
            text = _UNREAD.sub("an architecture that", text)
            noted, types = reasons[each.states[column], text]
            noted[column], types[each.type] = None, None
    all_of_vllm = " and ".join(VLLM.values())
    said = [
        f"- {state}, {' and '.join(noted).replace(all_of_vllm, 'vLLM (all columns)')}: {', '.join(types)}: {text}"
        for (state, text), (noted, types) in sorted(reasons.items(), key=lambda pair: _WORST.index(pair[0][0]))
    ]
    untried = [f"- {each.type}: {' '.join(each.notes[''].split())}" for each in merged if not each.states]
    return (
        Path(__file__)
        .with_suffix(".md")
        .read_text(encoding="utf-8")
        .format(
            **{
                engine: " and ".join(sorted({each.versions for each in done if each.engine == engine})) or "not run"
                for engine in ENGINES
            },
            on_vllm=sum(each.engine == "vllm" for each in done),
            count=len(tried),
            table="\n".join(lines),
            totals="\n".join([f"| state | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|", *totals]),
            said="\n".join(said),
            untried="\n".join(untried),
        )
    )


def main() -> None:
    """Write the table, print what was found in every column, and end with 1 where something is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("architectures.md"))
    parser.add_argument("--engine", choices=ENGINES, default="transformers")
    options = parser.parse_args()
    with Bar() as bar:
        done = families(options.out, bar, engine=options.engine)
    counts = {column: Counter(each.states.get(column) for each in done) for column in (*COLUMNS, *VLLM.values())}
    for column, states in counts.items():
        if any(states.keys() - {None, ""}):
            say(f"{column}: {', '.join(f'{count} {state}' for state, count in states.most_common() if state)}")
    untried = sum(not each.states for each in done)
    say(f"{len(done)} types of decoder, {untried} of them without a tiny configuration. Table: {options.out}")
    if any(states["wrong"] for states in counts.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
