"""Functions of Python made from methods: what they say of themselves, and the study that a call makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

import lesion
from commandline import lesion as command
from lesion.core.method import Method
from lesion.models.load import wrap
from tiny import tiny, tokenizer

FUNCTIONS = (
    *("ablate", "drift", "effects", "isolate", "evaluate", "truncate", "tune", "interact", "patch", "overlay"),
    "compare",
)


@pytest.fixture
def study_of(monkeypatch) -> Callable[..., Any]:
    """The study that a call of a function would run."""
    monkeypatch.setattr(Method, "run", lambda self, study, folder, **context: study)
    return lambda function, *arguments, **options: function(*arguments, **options)


@pytest.fixture
def half():
    return wrap(tiny("llama").half(), tokenizer(), "tiny:half")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_help_of_python_knows_no_flags_and_no_lists_of_the_command(name):
    text = getattr(lesion, name).__doc__
    assert "Args:" in text
    assert not re.search(r"--[a-z]|comma|repeatable", text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "flag", "syntax"),
    [("ablate", "--task", "Repeatable."), ("isolate", "--keep", "Comma-separated list. Default: 0.05.")],
)
def test_the_help_of_the_command_says_how_lists_are_typed(capsys, name, flag, syntax):
    text = " ".join(command(capsys, name, "--help").out.replace("│", " ").split())
    assert syntax in text.partition(f"{flag} ")[2].partition(" --")[0]


@pytest.mark.parametrize(
    ("option", "given", "actual"),
    [("dtype", "float32", "float16"), ("device", "cuda", "cpu"), ("device", "cuda:1", "cpu")],
)
def test_a_dtype_or_device_that_a_loaded_model_does_not_have_is_refused(study_of, half, option, given, actual):
    said = f"tiny:half is loaded already, and its {option} is {actual}, not {given}; leave {option} out"
    with pytest.raises(lesion.UsageError, match=said):
        study_of(lesion.ablate, half, "primer:atlas", **{option: given})


@pytest.mark.parametrize("given", [{}, {"dtype": "float16", "device": "cpu"}])
def test_a_dtype_and_device_that_the_loaded_model_has_are_taken(study_of, half, given):
    study = study_of(lesion.ablate, half, "primer:atlas", **given)
    assert (study.dtype, study.device) == tuple(given.values() or ("auto", "auto"))


def test_workers_have_devices_of_their_own(study_of, half, monkeypatch):
    monkeypatch.setattr("lesion.core.functions.opened", lambda choice, watcher: nullcontext())
    engine = lesion.EngineChoice(workers=1)
    assert study_of(lesion.ablate, half, "primer:atlas", device="cuda", engine=engine).device == "cuda"


def test_the_names_of_options_and_of_keys_are_both_taken(study_of):
    wanted = study_of(lesion.ablate, "bundled:llama-base", tasks="primer:atlas")
    assert study_of(lesion.ablate, models="bundled:llama-base", task="primer:atlas") == wanted
    assert study_of(lesion.drift, "bundled:llama-base", tasks="primer:atlas").task.name == "primer:atlas"
    with pytest.raises(lesion.UsageError, match="unexpected keyword argument 'task'"):
        lesion.ablate("bundled:llama-base", tasks="primer:atlas", task="primer:atlas")
    with pytest.raises(lesion.UsageError, match=r"unexpected keyword argument 'taskk' \(nearest: tasks"):
        lesion.ablate("bundled:llama-base", taskk="primer:atlas")


def test_choices_of_blocks_and_seeds_of_a_tuning_may_be_several(study_of):
    study = study_of(lesion.tune, "m", "primer:arithmetic", layers=["critical", "random", "0-3"], seed=[0, 1])
    assert (study.arms, study.seeds) == (("critical", "random", "0-3"), (0, 1))
    assert study_of(lesion.tune, "m", "primer:arithmetic", layers=[0, 1, 4]).arms == ("0-1,4",)
