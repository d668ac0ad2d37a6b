"""Short names of models and tasks."""

from __future__ import annotations

import pytest

from lesion.report.claims import Claim
from lesion.report.marks import Map
from lesion.report.names import Names, names_in, short_names
from lesion.report.parts import Part, page
from lesion.report.rows import Row, Rows, column
from lesion.report.table import Table


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (("bundled:llama-base", "bundled:qwen2-base"), ("llama-base", "qwen2-base")),
        (("/models/a/weights.Q4_1.gguf", "org/tiny", "../noise/"), ("weights.Q4_1", "tiny", "noise")),
        ((r"C:\models\tiny", "."), ("tiny", ".")),
        (("org/tiny", "org/tiny@step1", "org/tiny@step2"), ("tiny", "tiny@step1", "tiny@step2")),
        (("org/tiny@step9",), ("tiny",)),
        (("org/tiny (float32)", "org/tiny (bfloat16)"), ("tiny (float32)", "tiny (bfloat16)")),
        (("/one/tiny", "/two/tiny"), ("one/tiny", "two/tiny")),
        (("primer:arithmetic", "jsonl:/home/me/days.jsonl", "capitals.csv.gz"), ("arithmetic", "days", "capitals")),
        (("a/q.jsonl", "b/q.jsonl"), ("a/q", "b/q")),
        (("gsm8k:/data/gsm8k/test.jsonl", "mmlu:/data/mmlu?form=text"), ("gsm8k", "mmlu")),
        (("gsm8k:/one/test.jsonl", "gsm8k:/two/test.jsonl"), ("gsm8k:one/test", "gsm8k:two/test")),
        (("arithmetic:add?shots=2&sets=4", "arithmetic:copy?sets=4"), ("arithmetic:add", "arithmetic:copy")),
        (
            ("arithmetic:add?shots=2&sets=4", "arithmetic:add?shots=4&sets=4"),
            ("arithmetic:add?shots=2", "arithmetic:add?shots=4"),
        ),
        (("primer:atlas", "primer:atlas?form=contrast"), ("atlas", "atlas?form=contrast")),
        (("shuffled:primer:atlas", "fewshot:4:jsonl:/a/days.jsonl"), ("shuffled:atlas", "fewshot:4:days")),
        (("harness:arc_easy", "ioi", "python:mine"), ("harness:arc_easy", "ioi", "mine")),
    ],
)
def test_a_name_is_as_short_as_tells_it_apart(full: tuple[str, ...], short: tuple[str, ...]) -> None:
    names = short_names(full)
    assert tuple(names[name] for name in full) == short


def test_names_in_a_text_are_short_and_commands_keep_the_full_ones() -> None:
    names = Names(("bundled:llama-base", "jsonl:/x/days.jsonl", "bundled:llama-base@2"))
    text = "On jsonl:/x/days.jsonl bundled:llama-base; bundled:llama-base@2, not bundled:llama-based."
    assert names(text) == "On days llama-base; llama-base@2, not bundled:llama-based."
    assert names("`lesion ablate bundled:llama-base`: bundled:llama-base.") == (
        "`lesion ablate bundled:llama-base`: llama-base."
    )
    assert names.note == "llama-base is bundled:llama-base, days is jsonl:/x/days.jsonl and llama-base@2 is" + (
        " bundled:llama-base@2"
    )


class Line(Row):
    """A line about a model and a task."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)
    layer: int = column("Block")
    drop: float = column("Drop")


LINES = tuple(
    Line(model=f"bundled:{model}", task="jsonl:/x/days.jsonl", layer=layer, drop=0.1 * layer)
    for model in ("llama", "qwen")
    for layer in range(3)
)


class Studied(Row):
    """A summary with a model and lines."""

    lines: tuple[Line, ...] = LINES


def test_people_read_short_names_and_files_keep_the_full_ones() -> None:
    names = Names(tuple(dict.fromkeys(names_in(Studied()))))
    part = Part(
        "What does bundled:llama need?",
        Rows("lines", LINES, (Line,)),
        (Map("drop", "layer", "model"),),
        (Claim(("Block 2 of bundled:llama is critical for jsonl:/x/days.jsonl.",), subject="bundled:llama"),),
    ).in_short(names)
    assert part.title == "What does llama need?"
    assert part.claims[0].text == "llama: Block 2 of llama is critical for days."
    chart = part.figures()[0].panels[0].charts[0].to_dict()
    assert "bundled:" not in str(chart)
    table = Table.of(part.rows).in_short(names)
    assert next(cell.text for cell in next(table.shown)[1]) == "llama"
    assert set(table.frame["model"]) == {"bundled:llama", "bundled:qwen"}
    blocks = page("q", "", [part], version="", facts=(("seed", "0"),)).sections[-1].blocks
    assert any("llama is bundled:llama" in item for block in blocks for item in getattr(block, "items", ()))
