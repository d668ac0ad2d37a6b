"""Does it work on a card, and is it the same as on a CPU: engines on many families, and every kind of study."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import lesion
from accelerator_findings import Findings, Left
from lesion.edits.edit import Edit
from lesion.edits.text import parse
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load, wrap
from lesion.studies.isolation.study import SelectionMethod

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # the tiny models of the tests

BUNDLED = ("bundled:llama-base", "bundled:qwen2-base")
PROMPTS = (
    "12 + 7 =",
    "Question: Tom has 3 apples and buys 4 more. How many does he have?\nAnswer:",
    "The capital of",
    "3 * 4 = 12\n5 * 6 =",
)
# The bundled models are stored in float16: by itself a card takes that, and a CPU takes float32.
DTYPE: Final = "float32"
TRUNCATIONS = ("1.mlp.up top 0.25", "1.attention.o top 0.5", "0.attention.q top 0.5")
HEADS = ("1.attention.head.1 x0", "0.attention.head.0 x0.5")
ANSWER = 16


def texts_of_edits(model: Model) -> list[str]:
    """The baseline, every block, attention and MLP at 0, and some of every other kind."""
    numbers = range(len(model.anatomy.blocks))
    places = [f"{number}{unit}x0" for number in numbers for unit in ("", ".attention ", ".mlp ")]
    return ["0x1", *places, "1x0.5", *HEADS, *TRUNCATIONS, "1.mlp.neuron.3 x0"]


def known_edits(model: Model) -> dict[str, Edit]:
    """Those of `texts_of_edits` whose places the model has."""
    known = {}
    for text in texts_of_edits(model):
        try:
            edit = parse(text)
            with lesion.applied(model, edit):
                pass
            known[text] = edit
        except lesion.LesionError:
            continue
    return known


def answers_of(model: Model, edits: dict[str, Edit], prompts: Sequence[tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """What the engine answers, all edits in one call."""
    requests = [
        Request(f"{text}|{index}", prompt, edit, Decoding(ANSWER))
        for text, edit in edits.items()
        for index, prompt in enumerate(prompts)
    ]
    return {answer.key: tuple(answer.token_ids) for answer in TransformersEngine(model).answer(requests)}


def compared(name: str, device: str, make: Callable[[str], Model], note: Findings) -> None:
    """The answers of a model on the device against those on the CPU."""
    began = time.perf_counter()
    here, there = make("cpu"), make(device)
    vocabulary = here.network.get_input_embeddings().num_embeddings
    prompts = [tuple(token % vocabulary for token in here.tokenizer(text)["input_ids"]) for text in PROMPTS]
    edits = known_edits(here)
    expected, received = answers_of(here, edits, prompts), answers_of(there, edits, prompts)
    differ = sorted(key for key in expected if expected[key] != received.get(key))
    note(name, {
        "edits": len(edits), "answers": len(expected), "different": len(differ), "examples": differ[:5],
        "distinct": len(set(expected.values())), "seconds": time.perf_counter() - began,
    })  # fmt: skip


def bundled(name: str, device: str) -> Model:
    """A bundled model in float32."""
    return load(name, device=device, dtype=DTYPE)


def engines(options: Any, note: Findings, left: Left) -> None:
    """Bundled models and tiny ones of many families, token for token."""
    makers: dict[str, Callable[[str], Model]] = {name: partial(bundled, name) for name in BUNDLED}
    try:
        tiny = import_module("tiny")
    except ImportError as error:
        note("families", {"skipped": f"{error}"})
    else:

        def wrapped(family: str, device: str) -> Model:
            return wrap(tiny.tiny(family).to(device), tiny.tokenizer(), f"tiny:{family}")

        makers |= {f"tiny:{family}": partial(wrapped, family) for family in tiny.FAMILIES}
    for name, make in makers.items():
        if left() < 10:
            note(name, {"skipped": f"{left():.0f} s are left"})
        else:
            note.attempt(name, partial(compared, name, options.device, make, note))


def studies() -> dict[str, Callable[[str], Any]]:
    """Every kind of study at a small size, by the device; each gives its table."""
    base = "bundled:llama-base"
    silent: dict[str, Any] = {"progress": False, "dtype": DTYPE}

    def ablate(device: str, tasks: Any, **settings: Any) -> Any:
        result = lesion.ablate(base, tasks, items=6, layers=[0, 3], anyway=True, device=device, **settings, **silent)
        columns = ["edit", "task", "item", "text", "finish", "correct"]
        return result.answers[columns].sort_values(columns[:3]).reset_index(drop=True)

    return {
        "blocks": lambda device: ablate(device, ["primer:arithmetic", "primer:atlas"]),
        "branches": lambda device: ablate(device, "primer:arithmetic", unit=["attention", "mlp", "head"]),
        "groups": lambda device: ablate(device, "primer:arithmetic", unit=["group"]),
        "contrasts": lambda device: ablate(device, "primer:atlas?form=contrast"),
        "sampled": lambda device: ablate(device, "primer:arithmetic", temperature=0.8),
        "mean": lambda device: ablate(device, "primer:arithmetic", replace="mean"),
        "screen": lambda device: ablate(device, "primer:arithmetic", screen=True),
        "drift": lambda device: (
            lesion.drift(
                base, "primer:arithmetic", clusters=8, runs=1, items=6, starts=2, device=device, **silent
            ).table_full
        ),
        "isolate": lambda device: _selected(device, ["mathneuro", "wanda", "magnitude", "lape"]),
        "evaluate": lambda device: _evaluated(device),
        "truncate": lambda device: (
            lesion.truncate(
                base,
                "primer:atlas",
                matrices="mlp.up",
                layers=[3, 4],
                keep=(0.5, 0.1),
                items=10,
                device=device,
                **silent,
            ).table_full
        ),
        "effects": lambda device: (
            lesion.effects(
                base, "primer:atlas", items=3, unit=["block", "attention", "mlp", "head"], device=device, **silent
            ).table_full
        ),
        "patch": lambda device: (
            lesion.patch(base, "induction", items=2, layers=[2], device=device, **silent).table_full
        ),
        "interact": lambda device: (
            lesion.interact(
                base, "primer:arithmetic", items=6, layers=[1, 3, 5], anyway=True, device=device, **silent
            ).table_full
        ),
        "optimal": lambda device: (
            lesion.ablate(
                base, "primer:arithmetic", items=3, layers=[3], replace="optimal", anyway=True, device=device, **silent
            ).table_full
        ),
    }


def _isolation(device: str, methods: Sequence[SelectionMethod]) -> Any:
    return lesion.isolate(
        "bundled:llama-base", "primer:arithmetic", ["primer:atlas"], share=0.1, samples=8, methods=list(methods),
        device=device, dtype=DTYPE, progress=False,
    )  # fmt: skip


def _selected(device: str, methods: Sequence[SelectionMethod]) -> Any:
    """How many weights each method selects in each matrix."""
    return _isolation(device, methods).table_full


def _evaluated(device: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        result = lesion.isolate(
            "bundled:llama-base", "primer:arithmetic", ["primer:atlas"], share=0.1, samples=8, device=device,
            dtype=DTYPE, out=folder, progress=False,
        )  # fmt: skip
        del result
        edit = next(Path(folder).glob("*.edit"))
        return lesion.evaluate(
            "bundled:llama-base", edit, "primer:arithmetic", factor=[0.0, 1.1], random_controls=1, items=6,
            device=device, dtype=DTYPE, progress=False,
        ).table_full  # fmt: skip


def difference(some: Any, other: Any) -> dict[str, Any]:
    """Of two tables: rows, and the columns that are not the same, numbers with the largest difference."""
    if list(some.columns) != list(other.columns) or len(some) != len(other):
        return {"shapes": [list(some.shape), list(other.shape)]}
    numbers, cells = {}, {}
    for column in some.columns:
        mine, yours = some[column], other[column]
        if mine.dtype.kind in "fiu":
            apart = (mine.astype(float) - yours.astype(float)).abs().max()
            if apart > 0 or bool((mine.isna() != yours.isna()).any()):
                numbers[column] = float(apart)
        elif changed := int((mine.map(str) != yours.map(str)).sum()):
            cells[column] = changed
    return {"rows": len(some), "largest_differences": numbers, "cells_different": cells}


def every_study(options: Any, note: Findings, left: Left) -> None:
    """Every kind of study on the CPU and on the device."""
    without_pictures()
    for name, run in studies().items():
        if left() < 10:
            note(name, {"skipped": f"{left():.0f} s are left"})
            continue

        def both(name: str = name, run: Callable[[str], Any] = run) -> None:
            began = time.perf_counter()
            there = run(options.device)
            middle = time.perf_counter()
            note(f"{name} ran", {"rows": len(there), "device_seconds": middle - began})
            if name != "optimal":  # minutes on a CPU
                here = run("cpu")
                note(name, {**difference(here, there), "cpu_seconds": time.perf_counter() - middle})

        note.attempt(name, both)


def without_pictures() -> None:
    """Reports without pictures where the library that draws them is not installed: it is large, and nothing here."""
    try:
        import vl_convert  # noqa: F401
    except ImportError:
        empty = ModuleType("vl_convert")
        empty.vegalite_to_svg = lambda *args, **kwargs: "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"  # type: ignore[attr-defined]
        empty.svg_to_png = lambda *args, **kwargs: b""  # type: ignore[attr-defined]
        empty.javascript_bundle = lambda *args, **kwargs: ""  # type: ignore[attr-defined]
        sys.modules["vl_convert"] = empty
