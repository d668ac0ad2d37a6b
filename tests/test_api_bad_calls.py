"""Whatever Python calls the public functions with: they begin, or end in a LesionError that says what is wrong.

Every argument of every function is given odd values, so many of them drawn for each; with LESION_ALL_CALLS=1 all of
them, which are 13,000 calls and take a minute. Nothing is run: what begins a study, or reads weights, is
replaced by what says that it was reached, so that a call either gets there or is refused before.
"""

import inspect
import itertools
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import lesion
from commandline import questions
from lesion import api
from lesion.activations import contributions, observation
from lesion.core.method import Method
from lesion.core.values import Summary
from lesion.edits.files import checkpoint, perturbed
from lesion.engines.engine import Decoding
from lesion.errors import LesionError
from lesion.models import load as loading
from lesion.studies.ablation.report import AblationResult

EACH = 8


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


ODD: dict[str, Any] = {
    "None": None, "True": True, "False": False, "zero": 0, "negative": -1, "huge": 10**400, "longest": 10**5000,
    "fraction": 1.5, "nan": float("nan"), "infinite": float("-inf"), "complex": 1j, "empty text": "", "space": " ",
    "null": "a\0b", "long text": "x" * 300, "longer text": "x/" * 3000, "escape": "\x1b[31mred\u202e",
    "surrogate": "\ud800", "another alphabet": "٣", "number as text": "1_0",
    "nobody's home": "~nobody-of-this-name/x", "parent": "../..", "bytes": b"all", "empty list": [],
    "list of lists": [[]], "list of None": [None], "mixed list": ["primer:atlas", 3, None], "nested": [[[1, "a"]]],
    "empty dict": {}, "dict": {"a": 1}, "dict of odd keys": {1: None}, "mapping": MappingProxyType({"items": -1}),
    "set": {1, "a"}, "range": range(3), "object": object(), "unprintable": Unprintable(), "class": int,
    "function": len, "module": lesion, "ellipsis": ..., "exception": ValueError("x"), "decimal": Decimal("0.5"),
    "ratio": Fraction(1, 3), "path": Path("nowhere/at/all"), "empty path": Path(), "numpy int": np.int64(3),
    "numpy nan": np.float32("nan"), "numpy bool": np.bool_(True), "numpy text": np.str_("x"),
    "matrix": np.ones((2, 2)), "no rows": np.ones((0, 3)), "time": np.datetime64("2026-01-01"),
    "tensor": torch.tensor(2), "gradient": torch.ones(2, requires_grad=True), "meta": torch.ones(2, device="meta"),
    "series": pd.Series([1, 2]), "frame": pd.DataFrame({"a": [1]}), "missing": pd.NA, "dtype": torch.int8,
}  # fmt: skip
MADE: dict[str, Callable[[], Any]] = {
    "generator": lambda: (each for each in (1, "a")),
    "endless": itertools.count,
    "failed iterator": lambda: iter([[]] * 3),
}


@pytest.fixture(scope="module")
def good(llama, tmp_path_factory) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public callable with arguments that are right."""
    place = tmp_path_factory.mktemp("calls")
    task = str(questions(place / "sums.jsonl", 4))
    share = lesion.Magnitude(0.1)
    file = lesion.read_edit(lesion.save_edit(place / "cut.edit", lesion.ScaleParameters(share), llama))
    sums = lesion.find_task("arithmetic:add?digits=1&shots=1&sets=1")
    texts = lesion.calibration(llama, lesion.find_task(task), 2)
    inputs = lesion.observe(llama, texts)[0]
    more = lesion.calibration(llama, lesion.find_task(str(questions(place / "more.jsonl", 12))), 12)
    reference = lesion.reference(llama, texts, vectors=3)
    result = AblationResult(place, Summary(kind="layers"), 0)
    return {
        "ablate": (lesion.ablate, {"model": llama, "tasks": task}),
        "check": (lesion.check, {"model": llama, "tasks": task}),
        "verify": (lesion.verify, {"model": llama, "edits": "0×0"}),
        "drift": (lesion.drift, {"model": llama, "task": task}),
        "effects": (lesion.effects, {"model": llama, "tasks": task}),
        "isolate": (lesion.isolate, {"model": llama, "skill": task, "controls": "primer:atlas"}),
        "evaluate": (lesion.evaluate, {"model": llama, "edits": file, "tasks": task}),
        "truncate": (lesion.truncate, {"model": llama, "tasks": task}),
        "search": (lesion.search, {"model": llama, "tasks": task}),
        "tune": (lesion.tune, {"model": llama, "task": task}),
        "interact": (lesion.interact, {"model": llama, "tasks": task}),
        "study": (lesion.study, {"source": "demo", "out": place / "out"}),
        "patch": (lesion.patch, {"model": llama, "tasks": task}),
        "overlay": (lesion.overlay, {"seed": 0}),
        "compare": (lesion.compare, {"level": 0.9}),
        "task": (lesion.task, {"name": "sums", "questions": [{"prompt": "?", "answer": "1"}]}),
        "result": (lesion.result, {"folder": place}),
        "load": (lesion.load, {"source": "bundled:llama-base"}),
        "applied": (lesion.applied, {"model": llama, "edit": "0×0"}),
        "gated": (lesion.gated, {"model": llama}),
        "parse": (lesion.parse, {"text": "0×0"}),
        "read_edit": (lesion.read_edit, {"path": place / "cut.edit"}),
        "save_edit": (
            lesion.save_edit,
            {"path": place / "new.edit", "edit": lesion.ScaleParameters(share), "model": llama},
        ),
        "apply": (lesion.apply, {"source": "bundled:llama-base", "edits": [file], "out": place / "applied"}),
        "perturb": (
            lesion.perturb,
            {"base": "bundled:llama-base", "like": "bundled:llama-rlvr", "out": place / "noisy"},
        ),
        "distance": (lesion.distance, {"base": "bundled:llama-base", "child": "bundled:llama-rlvr"}),
        "reordered": (lesion.reordered, {"model": llama, "order": "0-1"}),
        "save_reordered": (
            lesion.save_reordered,
            {"source": "bundled:llama-base", "order": "0-3", "out": place / "reordered"},
        ),
        "find_task": (lesion.find_task, {"name": task}),
        "aligned": (lesion.aligned, {"task": sums, "item": sums.load()[0]}),
        "calibration": (lesion.calibration, {"model": llama, "task": lesion.find_task(task), "samples": 2}),
        "observe": (lesion.observe, {"model": llama, "calibration": texts}),
        "reference": (lesion.reference, {"model": llama, "calibration": texts}),
        "optimal_reference": (
            lesion.optimal_reference,
            {"model": llama, "calibration": more, "places": ["0"], "steps": 1},
        ),
        "read_reference": (lesion.read_reference, {"path": reference.save(place / "texts.safetensors")}),
        "Replace": (lesion.Replace, {"address": "0", "kind": "mean", "reference": reference}),
        "EngineChoice": (lesion.EngineChoice, {}),
        "ScaleBlock": (lesion.ScaleBlock, {"layer": 0}),
        "ScaleAttention": (lesion.ScaleAttention, {"layer": 0}),
        "ScaleMlp": (lesion.ScaleMlp, {"layer": 0}),
        "ScaleHead": (lesion.ScaleHead, {"layer": 0, "head": 0}),
        "ScaleGroup": (lesion.ScaleGroup, {"layer": 0, "group": 0}),
        "ScaleNeuron": (lesion.ScaleNeuron, {"layer": 0, "neuron": 0}),
        "ScaleExpert": (lesion.ScaleExpert, {"layer": 0, "expert": 0}),
        "ScaleMatrix": (lesion.ScaleMatrix, {"layer": 0, "matrix": "mlp.up"}),
        "ScaleParameters": (lesion.ScaleParameters, {"selection": share}),
        "Truncate": (lesion.Truncate, {"address": "0.mlp.up", "keep": 0.5}),
        "Compose": (lesion.Compose, {}),
        "Magnitude": (lesion.Magnitude, {"keep": 0.1}),
        "Wanda": (lesion.Wanda, {"source": inputs, "keep": 0.1}),
        "MathNeuro": (lesion.MathNeuro, {"skill": inputs, "controls": [inputs], "keep": 0.1}),
        "LAPE": (lesion.LAPE, {"skill": inputs, "controls": [inputs], "keep": 0.1}),
        "Random": (lesion.Random, {"like": share}),
        "Listed": (lesion.Listed, {"weights": ("0.mlp.up[0,1]",)}),
        "AblationResult.report": (result.report, {}),
        "EditFile.fit": (file.fit, {"model": llama}),
        "EditFile.with_factor": (file.with_factor, {"factor": 0.5}),
        "Selection.fixed": (share.fixed, {"model": llama}),
        "Decoding": (Decoding, {}),
    }


NAMES = [
    *(name for name in lesion.__all__ if callable(getattr(lesion, name))),
    *("AblationResult.report", "EditFile.fit", "EditFile.with_factor", "Selection.fixed", "Decoding"),
]
# Made by the package, or errors of it: nobody calls them.
GIVEN = {"LesionError", "UsageError", "Model", "Watcher"} | {name for name in lesion.__all__ if name.endswith("Result")}


REFUSED = {"compare", "overlay", "result", "AblationResult.report"}  # here there is nothing to report on


class Reached(Exception):  # noqa: N818
    """The arguments were taken, and work would begin."""


@pytest.fixture(autouse=True)
def nothing_is_run(monkeypatch):
    def reached(*_: Any, **__: Any) -> Any:
        raise Reached

    for module, names in {
        api: ("method_of",),
        Method: ("run",),
        loading: ("_read",),
        checkpoint: ("survey",),
        perturbed: ("survey",),
        observation: ("probe",),
        contributions: ("run_in_batches",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, reached)
    monkeypatch.setattr(lesion.EngineChoice, "distributed", property(lambda _: False))


def outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """What a call ends in; anything but a value, the beginning of work, or a clear refusal is raised."""
    try:
        value = call(**arguments)
        if isinstance(value, AbstractContextManager) and not isinstance(value, Path):
            with value:
                pass
        if isinstance(value, lesion.ScaleBlock | lesion.ScaleParameters | lesion.Truncate | lesion.Compose):
            str(value)
        return "value"
    except Reached:
        return "reached"
    except LesionError as error:
        text = str(error)
        assert text.strip(), "an empty message"
        assert len(text) < 2000, f"{len(text):,} characters: {text[:200]}"
        return "refused"


def drawn(place: str) -> list[str]:
    """The odd values that an argument is given; over all arguments each has its turn many times."""
    every = [*ODD, *MADE]
    return every if os.environ.get("LESION_ALL_CALLS") else random.Random(place).sample(every, EACH)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in GIVEN])
def test_every_argument_takes_odd_values_or_refuses_them(name, good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, right = good[name]
    assert outcome(call, right) in ("value", "reached") or name in REFUSED
    parameters = inspect.signature(call).parameters.values()
    faults = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL or parameter.name == "watcher":
            continue
        for odd in drawn(f"{name} {parameter.name}"):
            given = MADE[odd]() if odd in MADE else ODD[odd]
            try:
                outcome(call, {**right, parameter.name: given})
            except BaseException as error:
                faults.append(f"{parameter.name}={odd}: {type(error).__name__}: {str(error)[:100]}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in GIVEN])
def test_missing_unknown_and_too_many_arguments_are_refused(name, good):
    call, right = good[name]
    if name in ("compare", "overlay"):
        return
    with pytest.raises(LesionError, match="unexpected keyword argument 'nosuch'"):
        call(**right, nosuch=1)
    with pytest.raises(LesionError, match="too many positional arguments"):
        call(*[1] * 60)
    if any(p.default is p.empty for p in inspect.signature(call).parameters.values()):
        with pytest.raises(LesionError, match="missing a required argument"):
            call()


@pytest.mark.parametrize("odd", [*ODD, *MADE])
def test_folders_laid_over_each_other_and_selections_joined_refuse_what_they_are_not(odd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = MADE[odd]() if odd in MADE else ODD[odd]
    with pytest.raises((LesionError, Reached)):  # a text may be the name of a folder
        lesion.overlay(given, given)
    with pytest.raises((LesionError, Reached)):
        lesion.compare(given, given)
    for joined in ("__or__", "__and__", "__sub__"):
        with pytest.raises(LesionError):
            getattr(lesion.Magnitude(0.1), joined)(given)


@pytest.mark.parametrize("odd", drawn("watcher"))
def test_what_is_no_watcher_is_refused_before_anything_begins(odd, good):
    given = MADE[odd]() if odd in MADE else ODD[odd]
    for name in ("ablate", "drift", "effects", "isolate", "evaluate", "truncate", "tune", "study", "apply", "observe"):
        call, right = good[name]
        assert outcome(call, {**right, "watcher": given}) == ("reached" if given is None else "refused")
