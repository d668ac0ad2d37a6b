"""Functions of Python made from methods: what they say of themselves, and the study that a call makes."""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import lesion
from commandline import lesion as command
from lesion import functions, registry
from lesion.core.method import Method
from lesion.models.load import wrap
from tiny import tiny, tokenizer

sys.path.append(str(Path(__file__).parents[2] / "docs"))

import stubs

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
    [("ablate", "--task", "Repeatable."), ("isolate", "--share", "Comma-separated list. Default: 0.05.")],
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_default_is_that_of_the_study(study_of, name):
    required = {"model": "bundled:llama-base", "tasks": "primer:atlas", "task": "primer:arithmetic", "edits": ["3x0"]}
    required |= {"skill": "primer:arithmetic", "controls": "primer:atlas"}
    function = getattr(lesion, name)
    parameters = inspect.signature(function).parameters.values()
    folders = ("a", "b") if any(each.kind is each.VAR_POSITIONAL for each in parameters) else ()
    needed = {each.name: required[each.name] for each in parameters if each.default is each.empty and not folders}
    wanted = study_of(function, *folders, **needed)
    for each in parameters:
        if each.default is not each.empty and each.name not in ("stop_when", "stop_rule"):
            assert study_of(function, *folders, **needed, **{each.name: each.default}) == wanted, each.name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_option_of_the_command_is_an_argument(name):
    method = next(method for method in registry.methods().values() if method.command == name)
    parameters = inspect.signature(getattr(lesion, name)).parameters
    assert {option.python for option in method.options} | {"out", "progress", "watcher"} == parameters.keys()
    for option in method.options:
        assert re.search(rf"\b{option.python}[:,] ", getattr(lesion, name).__doc__)


def test_what_editors_read_is_what_the_studies_declare():
    assert stubs.FILE.read_text(encoding="utf-8") == stubs.stub(), "stale; run `make stubs`"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_editors_read_has_the_arguments_and_the_page_of_the_function(name):
    tree = ast.parse(Path(functions.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    (node,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    function = getattr(lesion, name)
    assert inspect.cleandoc(ast.get_docstring(node, clean=False) or "") == inspect.cleandoc(function.__doc__)
    written = {each.arg: each.annotation for each in (*node.args.args, *node.args.kwonlyargs, node.args.vararg) if each}
    for each in inspect.signature(function).parameters.values():
        assert ast.unparse(written[each.name]) == each.annotation
    defaults = [ast.literal_eval(each) for each in node.args.kw_defaults]
    assert defaults == [inspect.signature(function).parameters[each.arg].default for each in node.args.kwonlyargs]
    assert (function.__module__, function.__name__) == ("lesion.functions", name)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("tasks", ["nothing:such", ["nothing:such"]])
def test_every_function_of_tasks_takes_them_under_one_name(name, tasks):
    function = getattr(lesion, name)
    if {"task", "tasks"}.isdisjoint(inspect.signature(function).parameters) or name == "compare":
        return
    needed = {"isolate": {"skill": "primer:atlas", "controls": "primer:reading"}, "evaluate": {"edits": "3x0"}}
    with pytest.raises(lesion.UsageError, match="There is no task 'nothing:such'"):
        function("bundled:llama-base", tasks=tasks, **needed.get(name, {}))


@pytest.mark.parametrize("name", ["drift", "tune"])
def test_of_a_study_of_one_task_several_are_refused(name):
    with pytest.raises(lesion.UsageError, match="task must be text"):
        getattr(lesion, name)("bundled:llama-base", tasks=["primer:atlas", "primer:reading"])
