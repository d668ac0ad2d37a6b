"""Calls of the Python API with bad arguments: every public function, every argument, values of every wrong kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from campaign_cases import Case, Expect
from campaign_places import Places


class Hostile:
    """A value none of whose methods work."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


ODD: dict[str, Any] = {
    "None": None,
    "object": object(),
    "hostile": Hostile(),
    "bytes": b"a",
    "nan": float("nan"),
    "inf": float("inf"),
    "negative": -5,
    "bool": True,
    "complex": 1j,
    "huge": 10**400,
    "digits": 10**5000,
    "empty": "",
    "spaces": "  ",
    "escape": "\x1b[31m",
    "null": "a\0b",
    "half": "\ud800",
    "long": "x" * 5000,
    "list": [],
    "nested": [[[]]],
    "set": {1, 2},
    "dict": {"a": 1},
    "function": len,
    "type": int,
    "array": np.zeros((2, 2)),
    "numpy nan": np.float64("nan"),
    "decimal": Decimal("NaN"),
    "fraction": Fraction(1, 3),
    "path": Path("/nowhere/at/all"),
    "arabic": "٣",
    "slice": slice(3),
    "number text": "1_0",
    "tuple of None": (None,),
}


def calls(places: Places, model: Any) -> list[Case]:
    """All calls."""
    import lesion

    sums, controls, edit = str(places.sums), str(places.controls), lesion.read_edit(places.edits[0])
    edits: dict[str, Callable[[Any], Any]] = {
        "parse": lesion.parse,
        "applied": lambda value: _entered(lesion.applied(model, value)),
        "applied model": lambda value: _entered(lesion.applied(value, lesion.ScaleBlock(0))),
        "gated": lambda value: _entered(lesion.gated(value)),
        "ScaleBlock layer": lesion.ScaleBlock,
        "ScaleBlock factor": lambda value: lesion.ScaleBlock(0, value),
        "ScaleMlp layer": lesion.ScaleMlp,
        "ScaleAttention factor": lambda value: lesion.ScaleAttention(0, value),
        "ScaleParameters": lambda value: lesion.ScaleParameters(value),
        "ScaleParameters factor": lambda value: lesion.ScaleParameters(lesion.Magnitude(0.1), value),
        "Truncate address": lambda value: lesion.Truncate(value, 0.5),
        "Truncate keep": lambda value: lesion.Truncate("0.mlp.up", value),
        "Truncate side": lambda value: lesion.Truncate("0.mlp.up", 0.5, value),
        "Compose": lambda value: lesion.Compose((value,)),
        "Magnitude": lesion.Magnitude,
        "Wanda": lambda value: lesion.Wanda(value, 0.1),
        "MathNeuro": lambda value: lesion.MathNeuro(value, (), 0.1),
        "Random": lesion.Random,
        "Listed": lesion.Listed,
        "LAPE": lambda value: lesion.LAPE(value, (), 0.1),
        "read_edit": lesion.read_edit,
        "save_edit": lambda value: lesion.save_edit("x.edit", value, model),
        "save_edit path": lambda value: lesion.save_edit(value, lesion.ScaleParameters(lesion.Magnitude(0.1)), model),
        "find_task": lesion.find_task,
        "load": lesion.load,
        "load dtype": lambda value: lesion.load(str(places.model), dtype=value),
        "load device": lambda value: lesion.load(str(places.model), device=value),
        "load revision": lambda value: lesion.load(str(places.model), revision=value),
        "EngineChoice": lesion.EngineChoice,
        "EngineChoice workers": lambda value: lesion.EngineChoice(workers=value),
        "observe": lambda value: lesion.observe(value, value),
        "observe calibration": lambda value: lesion.observe(model, value),
        "calibration": lambda value: lesion.calibration(model, value, 2),
        "overlay": lambda value: lesion.overlay(value),
        "compare": lambda value: lesion.compare(value, value),
        "study": lambda value: lesion.study(value, "o"),
        "study out": lambda value: lesion.study("recall-quick", value),
        "apply": lambda value: lesion.apply(str(places.model), value, "o"),
    }
    # What is None, empty or a number by right.
    right = {
        ("load revision", "None"),
        ("EngineChoice workers", "None"),
        ("ScaleBlock factor", "negative"),
        ("ScaleBlock factor", "fraction"),
        ("ScaleAttention factor", "negative"),
        ("ScaleAttention factor", "fraction"),
        ("ScaleParameters factor", "negative"),
        ("ScaleParameters factor", "fraction"),
        ("Truncate keep", "fraction"),
        ("Magnitude", "fraction"),
        ("save_edit path", "long"),
        ("save_edit path", "arabic"),
    }
    found = []
    names = list(ODD)
    for turn, (name, call) in enumerate(edits.items()):
        for number in range(2 + turn % 2):
            kind = names[(turn * 7 + number * 9) % len(names)]
            if (name, kind) == ("study out", "arabic"):
                continue  # a good name of a folder, in which the study would run
            expect: Expect = "accepted" if (name, kind) in right else "refused"
            found.append(Case(f"{name} {kind}", function=_bound(call, ODD[kind]), expect=expect))
    return [*found, *_silent(places, model, edit), *_studies(places, model, sums, controls)]


def _bound(call: Callable[[Any], Any], value: Any) -> Callable[[], Any]:
    return lambda: call(value)


def _entered(manager: Any) -> None:
    with manager:
        pass


def _changed(model: Any, edit: Any) -> None:
    """An edit that is taken changes what the model computes."""
    import lesion

    tokens = model.tokenizer("1 + 1 =", return_tensors="pt")
    with torch.no_grad():
        before = model.network(**tokens).logits
        with lesion.applied(model, edit):
            if torch.equal(model.network(**tokens).logits, before):
                raise RuntimeError("the edit changed nothing, and nothing was said")


def _silent(places: Places, model: Any, edit: Any) -> Iterator[Case]:
    """What was once taken for an edit and changed nothing, and wrong names of arguments."""
    import lesion

    forms: dict[str, Any] = {"text of an edit": "0×0", "list of edits": [lesion.ScaleBlock(0)], "edit file": edit}
    for label, value in forms.items():
        changes = _bound(lambda edit: _changed(model, edit), value)
        yield Case(f"applied: {label}", function=changes, expect="accepted")
    wrong: dict[str, Any] = {
        "nonsense": "nonsense", "number": 5, "class": lesion.ScaleBlock,
        "layer of another model": lesion.ScaleBlock(99), "matrix of another model": lesion.Truncate("0.nosuch", 0.5),
    }  # fmt: skip
    for label, value in wrong.items():
        yield Case(f"applied: {label}", function=_bound(lambda edit: _entered(lesion.applied(model, edit)), value))
    for name in (
        "ablate",
        "isolate",
        "evaluate",
        "truncate",
        "tune",
        "drift",
        "overlay",
        "compare",
        "load",
        "study",
        "find_task",
        "parse",
    ):
        yield Case(f"{name}: nothing given", function=getattr(lesion, name))
        yield Case(f"{name}: an unknown argument", function=_unknown(getattr(lesion, name), str(places.model)))
    yield Case("an unknown name of the package", function=lambda: lesion.load("bundled:nosuch"))


def _unknown(function: Callable[..., Any], model: str) -> Callable[[], Any]:
    return lambda: function(model, nosuch=1)


def _studies(places: Places, model: Any, sums: str, controls: str) -> Iterator[Case]:
    """Every argument of the functions that run studies, two odd values each."""
    import inspect

    import lesion

    good: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "ablate": ((model, sums), {"items": 2, "layers": [0], "max_new_tokens": 2, "anyway": True}),
        "isolate": ((model, sums, controls), {"share": 0.1, "samples": 2}),
        "evaluate": (
            (model, str(places.edits[0]), sums),
            {"items": 2, "random_controls": 0, "max_new_tokens": 2, "anyway": True},
        ),
        "truncate": (
            (model, str(places.choices)),
            {"matrices": "mlp.up", "layers": 0, "keep": 0.5, "items": 6, "anyway": True},
        ),
        "tune": (
            (str(places.model), "primer:arithmetic"),
            {
                "layers": "0",
                "steps": 1,
                "rows": 2,
                "items": 2,
                "control_items": 2,
                "ablation_items": 2,
                "validation_items": 2,
                "max_new_tokens": 2,
            },
        ),
        "drift": ((model, sums), {"clusters": 3, "runs": 1, "starts": 1, "items": 2, "max_new_tokens": 2}),
    }
    bad = ("object", "hostile", "nan", "digits", "escape", "null", "dict", "complex", "bytes", "nested")
    for turn, (name, (given, options)) in enumerate(good.items()):
        function = getattr(lesion, name)
        for place, argument in enumerate(inspect.signature(function).parameters):
            kind = bad[(turn + place * 3) % len(bad)]

            def call(
                function: Any = function,
                given: Any = given,
                options: Any = options,
                argument: str = argument,
                place: int = place,
                value: Any = ODD[kind],
            ) -> None:
                positional = [value if number == place else one for number, one in enumerate(given)]
                named = {"out": "o", **options} if place < len(given) else {"out": "o", **options, argument: value}
                function(*positional, **named)

            # Of a model that is loaded, device and dtype are not asked for.
            expect: Expect = "either" if argument in ("device", "dtype") else "refused"
            yield Case(f"{name} {argument} {kind}", function=call, expect=expect)
