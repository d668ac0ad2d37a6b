"""Whatever a person types and whatever file is received: it is read, or refused in one clear paragraph, nothing else.

The examples are valid texts and files, damaged by character, by value or by byte, as hypothesis draws them; they are
the same in every run.
"""

import contextlib
import io
import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from commandline import questions, save, undrawn, write
from lesion.cli.main import code
from lesion.cli.parsing import numbers, whole
from lesion.core.layers import canonical_layers, parse_layers
from lesion.edits.edit import ScaleBlock, ScaleParameters, Truncate
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.selections.topk import Magnitude
from lesion.edits.text import parse
from lesion.engines.config import EngineChoice
from lesion.errors import LesionError
from lesion.files import named
from lesion.models.load import load
from lesion.models.source import find as find_model
from lesion.registry import load_study
from lesion.studies.overlay.summary import summarise
from lesion.tasks.catalogue import canonical, find


def few(examples: int) -> Callable:
    """So many examples, the same ones every time; a failing one is shown as it is."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def check(text: str) -> None:
    """A message is a paragraph, perhaps with faults listed below it, and nothing in it acts on a terminal."""
    first, *below = text.split("\n")
    assert 15 < len(first) <= 1000, text[:2000]
    assert all(line.startswith("  ") for line in below), text
    acting = [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs")]
    assert set(acting) <= {"\n", "\u200c", "\u200d"}, ascii(text[:1000])


def held(function: Callable[..., Any], *arguments: Any) -> None:
    """A call returns, or raises a LesionError that says what is wrong."""
    try:
        function(*arguments)
    except LesionError as error:
        check(str(error))


# -- texts

DEEP, BIG, HALF = "[" * 3000 + "]" * 3000, "9" * 5000, '"\\ud800"'
PIECES = st.sampled_from(
    ["", " ", "\x1b[31m", "\u202e", "\n", "\0", "٣", "1_0", "½", "nan", "-1", "9" * 40, "x" * 3000, "×", ":", "?", "..",
     "~", "/", "%s", "{}"]
)  # fmt: skip


@st.composite
def damaged_texts(draw, valid: tuple[str, ...]) -> str:
    """A valid text with pieces of it replaced, doubled or dropped; seldom any text at all."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.text(max_size=30))
    text = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 4)))
        text = text[:start] + draw(st.one_of(PIECES, st.just(text[start:end] * 2))) + text[end:]
    return text


@few(60)
@given(
    damaged_texts(("0×0", "3.attention×0.5", "2.mlp.up keep 0.5 top", "0×0 + 1.mlp×2", "a@0123×0", "1.mlp.down ⌊0.1⌋"))
)
def test_text_forms_of_edits(text):
    held(parse, text)
    held(Truncate, text, 0.5)


@few(60)
@given(damaged_texts(("all", "0-3,7", "1,2,3", "5", "0 - 3")))
def test_layers(text):
    held(canonical_layers, text)
    held(parse_layers, text, 8, "a model")


@few(60)
@given(damaged_texts(("0.5,0.25", "1e-3", "10", "100,200")))
def test_numbers(text):
    held(numbers, text, float, "--keep")
    held(numbers, text, int, "--samples")
    held(whole, text)


@few(80)
@given(
    damaged_texts(
        ("primer:arithmetic", "primer:atlas?form=contrast", "gold:primer:atlas", "fewshot:4:primer:reading",
         "mmlu:a?form=text", "race:/a/b", "jsonl:/a/b.jsonl", "gsm8k:/a", "triviaqa:a?rule=exact", "ioi?tempting=and",
         "text:/a", "harness:arc?shots=2")
    )
)  # fmt: skip
def test_names_of_tasks(text):
    held(canonical, text)
    # What is no word of the hub's own is looked up there; this test asks nobody.
    if text.partition(":")[2]:
        held(find, text)


@few(40)
@given(damaged_texts(("bundled:llama-base", "/a/b", "~/model", "../model", "a/b")))
def test_names_of_models_and_paths(text):
    held(named, text)
    held(find_model, text)


@few(30)
@given(damaged_texts(("transformers", "vllm", "auto")))
def test_options_of_engines(text):
    held(EngineChoice, text)
    held(lambda: EngineChoice(ray=text))


# -- values

ODD = st.sampled_from(
    [None, True, -1, 0, 1.5, 10**30, 1e308, float("nan"), float("inf"), "", "\x1b[31mred", "\u202etxt",
     "a\nlesion: forged", "x" * 3000, [], {}, [[]], {"a": {"b": [1]}}, "1_0", "../../x", "@deep@", "@big@", "@half@"]
)  # fmt: skip


@st.composite
def damaged_json(draw, text: str) -> str:
    """A JSON text with one value in it dropped, renamed, or replaced by an odd one."""
    value = json.loads(text)
    holder, depth = value, draw(st.integers(0, 6))
    while depth and (inner := [each for each in _entries(holder) if isinstance(each[1], dict | list) and each[1]]):
        holder, depth = draw(st.sampled_from(inner))[1], depth - 1
    entries = _entries(holder)
    if not entries:
        return _written(draw(ODD))
    key, old = draw(st.sampled_from(entries))
    way = draw(st.integers(0, 3))
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[f"{key}\x1b"] = holder.pop(key)
    else:
        holder[key] = draw(st.one_of(ODD, st.just([old]), st.just({"a": old})))
    return _written(value)


def _entries(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []


def _written(value: Any) -> str:
    text = json.dumps(value)
    for mark, instead in (("@deep@", DEEP), ("@big@", BIG), ("@half@", HALF)):
        text = text.replace(json.dumps(mark), instead)
    return text


@st.composite
def damaged_bytes(draw, data: bytes) -> bytes:
    """Bytes of which some are changed, dropped or doubled, or that end early."""
    start = draw(st.integers(0, len(data)))
    size = draw(st.sampled_from([1, 4, 64]))
    instead = draw(st.one_of(st.binary(max_size=size), st.just(data[start : start + size] * 2), st.just(b"")))
    return data[:start] + instead + (b"" if draw(st.integers(0, 4)) == 0 else data[start + size :])


QUESTION = {"id": "high1", "question": "What?", "answer": "2\n#### 2"}
PASSAGE = {
    "id": "high1.txt",
    "article": "Snow.",
    "questions": ["Which?"],
    "options": [["a", "b", "c", "d"]],
    "answers": ["A"],
}
FORMATS = {
    "gsm8k:x.jsonl": QUESTION,
    "math500:x.jsonl": {"problem": "p", "solution": "s", "answer": "1", "subject": "x", "level": 1, "unique_id": "u"},
    "triviaqa:x.jsonl": {"id": "1", "question": "Who?", "golden_answers": ["a", "b"]},
    "nq_open:x.jsonl": {"question": "who", "answer": ["a", "b"]},
    "race:x.json": [PASSAGE],
    "mmlu:x.json": [{"question": "q", "subject": "s", "choices": ["a", "b", "c", "d"], "answer": 1}],
    "ioi:x.json": [{"case_id": 1, "prompt": "Then Ann and Bob went. Bob gave it to", "answer": "Ann"}],
    "facts:x.json": [{"known_id": 0, "subject": "Rome", "attribute": "Italy", "prompt": "Rome is in",
                      "relation_id": "P30", "template": "{} is in"}],
    "jsonl:x.jsonl": {"id": "1", "prompt": "1 + 1 =", "answer": "2", "aliases": ["two"], "choices": None},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_data_sets(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(FORMATS[name])
    file = tmp_path / name.partition(":")[2]

    @few(60)
    @given(
        st.one_of(
            damaged_json(text).map(lambda one: one.encode("utf-8", "surrogatepass")), damaged_bytes(text.encode())
        )
    )
    def run(data):
        file.write_bytes(data)
        held(lambda: [item.question.encode() for item in find(name).load()])

    run()


CSV = b'Which?,red,green,"bl""ue",grey,B\nAnd?,1,2,3,4,A\n'


@few(24)
@given(damaged_bytes(CSV))
def test_tables_of_mmlu(tmp_path_factory, data):
    file = tmp_path_factory.getbasetemp() / "fruit_test.csv"
    file.write_bytes(data)
    held(lambda: find(f"mmlu:{file}").load())


STUDIES = {
    "layers": {"name": "a", "models": ["m"], "tasks": ["primer:atlas"], "items": 2, "decoding": {"temperature": 0.0},
               "edits": {"layers": [0], "factor": 0.0, "unit": "block"}},
    "isolation": {"kind": "isolation", "name": "a", "model": "m", "skill": "primer:atlas", "controls": ["primer:text"],
                  "share": [0.1], "samples": 2},
    "truncation": {"kind": "truncation", "name": "a", "model": "m", "tasks": ["primer:atlas"], "keep": [0.5],
                   "screen": {"items": 2, "best": 1, "random": 1}},
    "drift": {"kind": "drift", "name": "a", "models": [{"source": "m", "family": "f", "variant": "v"}],
              "task": "primer:atlas", "clusters": [3]},
    "tuning": {"kind": "tuning", "name": "a", "model": "m", "task": "primer:atlas", "arms": ["critical"], "budget": 1,
               "learning_rates": [1e-3]},
    "recall": {"kind": "recall", "name": "a", "preset": "quick", "noise": [0.5], "seed": [0]},
}  # fmt: skip


def _toml(value: Any) -> str:
    """JSON as an inline value of TOML: the same but for `:` and null."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return {"NaN": "nan", "Infinity": "inf", "null": "[]"}.get(json.dumps(value), json.dumps(value))


def _study(value: Any) -> str:
    if not isinstance(value, dict):
        return f"a = {_toml(value)}"
    text = "\n".join(f"{json.dumps(key)} = {_toml(entry)}" for key, entry in value.items())
    for mark, instead in (("@deep@", DEEP), ("@big@", BIG), ("@half@", HALF)):
        text = text.replace(json.dumps(mark), instead)
    return text


@pytest.mark.parametrize("kind", STUDIES)
def test_study_files(kind, tmp_path):
    file = tmp_path / "study.toml"
    text = _study(STUDIES[kind])
    marks = (DEEP, BIG, HALF)
    values = damaged_json(json.dumps(STUDIES[kind])).filter(lambda one: not any(mark in one for mark in marks))
    long = st.sampled_from(marks).map(lambda one: text.replace('"a"', one, 1).encode())
    texts = st.one_of(values.map(lambda one: _study(json.loads(one)).encode()), long, damaged_bytes(text.encode()))

    @few(24)
    @given(texts)
    def run(data):
        file.write_bytes(data)
        held(load_study, file)

    run()


# -- received files and folders


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A tiny model, an edit of it, and a study of it of each of several kinds."""
    folder = tmp_path_factory.mktemp("fuzz")
    model = str(save(folder / "model"))
    sums = str(questions(folder / "sums.jsonl", 6))
    rows = ({"id": f"{n}", "prompt": f"{n} = ", "answer": f"{n}", "tempting": "t"} for n in range(6))
    pairs = str(write(folder / "pairs.jsonl", rows))
    save_edit(folder / "a.edit", ScaleParameters(Magnitude(0.1), 0.0), load(model))
    short = "--items 2 --max-new-tokens 2"
    for name, line in {
        "layers": f"ablate {model} --task {sums} {short} --layers 0,1",
        "evaluation": f"evaluate {model} --task {sums} --edit {folder / 'a.edit'} {short} --random-controls 1",
        "truncation": f"truncate {model} --task {pairs} --matrices mlp.up --keep 0.5 --layers 0 --items 6",
        "drift": f"drift {model} --task {sums} --clusters 3 --runs 1 --starts 1 {short}",
    }.items():
        status, said = command([*line.split(), "--out", str(folder / name)])
        assert status == 0, said
    return folder


def command(arguments: list[str]) -> tuple[int, str]:
    """A command's exit code, and what it wrote on standard error."""
    out, err = io.StringIO(), io.StringIO()
    with undrawn(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = code(arguments)
    check_streams(out.getvalue() + err.getvalue())
    return status, err.getvalue()


def check_streams(text: str) -> None:
    acting = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs")}
    assert acting <= {"\n", "\t", "\u200c", "\u200d"}, ascii(text[:2000])


def answered(arguments: list[str]) -> None:
    """A command succeeds, or is refused in a paragraph."""
    status, said = command(arguments)
    assert "did not foresee" not in said, said
    assert status in (0, 1, 2)
    if status:
        check(said.partition("lesion: ")[2].rstrip("\n"))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("layers", "summary.json"),
        ("evaluation", "summary.json"),
        ("evaluation", "plan.json"),
        ("truncation", "summary.json"),
        ("drift", "summary.json"),
    ],
)
def test_folders_of_studies(kind, name, place, tmp_path):
    folder = Path(shutil.copytree(place / kind, tmp_path / "received"))
    file = folder / name
    data = file.read_bytes()

    @few(5)
    @given(st.one_of(damaged_json(data.decode()).map(str.encode), damaged_bytes(data)))
    def run(damaged):
        file.write_bytes(damaged)
        answered(["report", str(folder)])
        held(summarise, [folder, place / "drift"])
        file.write_bytes(data)

    run()


def test_stores(place, tmp_path):
    folder = Path(shutil.copytree(place / "layers", tmp_path / "received"))
    file = folder / "answers.sqlite"
    data = file.read_bytes()

    @few(24)
    @given(damaged_bytes(data))
    def run(damaged):
        for beside in folder.glob("answers.sqlite-*"):
            beside.unlink()
        file.write_bytes(damaged)
        answered(["report", str(folder)])

    run()


@few(40)
@given(st.data())
def test_edit_files(place, data):
    file = place / "damaged.edit"
    file.write_bytes(data.draw(damaged_bytes((place / "a.edit").read_bytes())))
    held(read_edit, file)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_configurations_of_models(name, place, tmp_path):
    folder = Path(shutil.copytree(place / "model", tmp_path / "model"))
    file = folder / name
    text = file.read_text(encoding="utf-8")

    @few(30)
    @given(st.one_of(damaged_json(text).map(str.encode), damaged_bytes(text.encode())))
    def run(data):
        file.write_bytes(data)
        answered(["show", str(folder)])

    run()


def test_indexes_of_shards(place, tmp_path):
    from tiny import tiny

    folder = Path(shutil.copytree(place / "model", tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    tiny("llama").save_pretrained(folder, max_shard_size="40KB")
    file = folder / "model.safetensors.index.json"
    text = file.read_text(encoding="utf-8")

    @few(30)
    @given(st.one_of(damaged_json(text).map(str.encode), damaged_bytes(text.encode())))
    def run(data):
        file.write_bytes(data)
        answered(["show", str(folder)])
        held(lambda: load(folder))

    run()


@few(30)
@given(st.one_of(ODD, st.binary(max_size=3), st.complex_numbers(), st.text(max_size=5)))
def test_values_from_python(value):
    for function in (ScaleBlock, Magnitude, EngineChoice, parse, find, read_edit, load):
        held(function, value)
