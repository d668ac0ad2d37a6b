"""Every example runs: Python of README.md, docs/ and docstrings; every `lesion …` line is one that the command takes.

Blocks of a page run one after another in one namespace, in a folder of their own, with fewer items than they say.
"""

import ast
import doctest
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import lesion
from commandline import coarse_figures
from lesion.cli.main import _command
from lesion_labs.planted.recipe import Recipe

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))

import gallery  # noqa: E402

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)

# Not run, and why. A new entry needs a reason as good as these.
NOT_RUN = {
    "docs/architecture.md": "parts of examples/logit_lens, which tests/examples installs and runs",
    "docs/how-to/lm-eval.md": "asks the harness for a data set of the hub; tests/test_harness_model.py runs the call",
    "lesion.api:study": "runs the whole demo, five minutes",
    "lesion.api:result": "reads a folder of the demo; docs/guide.md runs the call",
    "lesion.core.store:Store": "names what the code around it has",
    "lesion.functions:tune": "trains eight times; tests/studies/tuning trains in such calls",
    "lesion.functions:compare": "compares two finished folders; docs/how-to/compare.md runs the call",
    "lesion.functions:overlay": "compares folders of three finished studies",
}

# In place of what an example asks for, so that it takes a second.
SMALL: dict[str, dict[str, Any]] = {
    "ablate": {"items": 4, "layers": "2-3", "max_new_tokens": 16},
    "isolate": {"samples": 4},
    "evaluate": {"items": 4, "random_controls": 1, "max_new_tokens": 16},
    "truncate": {"items": 4, "layers": "2-3", "max_new_tokens": 16},
    "search": {"items": 12, "layers": "2-3", "screen": 1},
    "effects": {"items": 3, "unit": "block"},
    "interact": {"items": 4},
    "drift": {"items": 4, "clusters": 4, "runs": 2},
    "patch": {"items": 2, "layers": "6-7"},
    "verify": {"edits": "0×0"},
}


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    found = []
    for indent, language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language.strip() in languages:
            found.append("\n".join(line.removeprefix(indent) for line in text.splitlines()))
    return found


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def docstrings() -> Iterator[tuple[str, str]]:
    """Every docstring of the package that has an example, by `module:name`; those of studies stand in the stub."""
    for file in sorted((ROOT / "src").rglob("*.py*")):
        if file.suffix not in (".py", ".pyi"):
            continue
        text = file.read_text(encoding="utf-8")
        if ">>>" not in text:
            continue
        module = ".".join(file.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                docstring = ast.get_docstring(node)
                if docstring and ">>>" in docstring:
                    yield f"{module}:{getattr(node, 'name', '')}", docstring


DOCSTRINGS = dict(docstrings())


@pytest.fixture(scope="module")
def model() -> lesion.Model:
    return lesion.load("bundled:llama-base")


@pytest.fixture(scope="module")
def files(model: lesion.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has the files which examples name."""
    folder = tmp_path_factory.mktemp("files")
    questions = blocks(ROOT / "docs" / "tasks.md", "", "json")
    (folder / "questions.jsonl").write_text(max(questions, key=len), encoding="utf-8")
    lesion.save_edit(folder / "cut.edit", lesion.Truncate("3.mlp.up", 0.5), model)
    return folder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, files: Path, tmp_path: Path) -> Iterator[None]:
    """Studies with few items and short answers, in a folder that has the files which examples name."""

    def fewer(function: Callable[..., Any], changes: dict[str, Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            return function(*arguments, **(options | changes))

        return called

    for name, changes in SMALL.items():
        monkeypatch.setattr(lesion, name, fewer(getattr(lesion, name), dict(changes)), raising=False)
    monkeypatch.setattr("lesion_labs.planted.run.Recipe", partial(Recipe, steps=2))
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with coarse_figures():
        yield


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=named)
def test_python_of_a_page_runs(page: Path, small: None):
    if named(page) in NOT_RUN:
        pytest.skip(NOT_RUN[named(page)])
    namespace: dict[str, Any] = {"lesion": lesion}
    for number, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{named(page)}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("name", DOCSTRINGS)
def test_example_of_a_docstring_runs(name: str, model: lesion.Model, small: None):
    if name in NOT_RUN:
        pytest.skip(NOT_RUN[name])
    namespace = dict(vars(import_module(name.partition(":")[0]))) | {"lesion": lesion}
    if name != "lesion:":
        namespace["model"] = model
    for example in doctest.DocTestParser().get_examples(DOCSTRINGS[name]):
        if not example.want:
            exec(compile(example.source, name, "exec"), namespace)
            continue
        value = eval(compile(example.source.strip(), name, "eval"), namespace)
        assert repr(value) == example.want.strip(), name


def test_what_is_not_run_is_still_there():
    assert set(NOT_RUN) <= {*map(named, PAGES), *DOCSTRINGS}


def lines(page: Path) -> Iterator[str]:
    """The commands in the blocks of a page, without what stands before and behind them."""
    for block in blocks(page, "", "console", "bash", "sh", "toml"):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.strip().removeprefix("$ ")
            if command.startswith("lesion ") and not command.startswith("lesion:"):
                yield command


@pytest.mark.parametrize("page", [page for page in PAGES if [*lines(page)]], ids=named)
def test_commands_of_a_page_are_taken(page: Path):
    for line in lines(page):
        assert_taken(line)


def test_commands_of_the_gallery_are_taken():
    for shown in gallery.SHOWN:
        assert_taken(shown.command)


def assert_taken(line: str) -> None:
    arguments = shlex.split(line, comments=True)[1:]
    command = _command()
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, line
        command = command.commands[arguments.pop(0)]
    if "--help" in arguments or "--version" in arguments:
        return
    try:
        command.make_context("lesion", arguments, resilient_parsing=False)
    except Exception as error:
        pytest.fail(f"{line}: {error}")


def test_options_that_prose_names_exist():
    known = set(re.findall(r"--[a-z][a-z-]+", "".join(_options(_command())))) | {"--help", "--debug", "--version"}
    foreign = {"--model", "--model_args", "--tasks"}
    for page in PAGES:
        for span in re.findall(r"`(lesion [^`\n]+)`", page.read_text(encoding="utf-8")):
            unknown = {*re.findall(r"(--[a-z][a-z_-]+)", span)} - known - foreign
            assert not unknown, f"{named(page)}: {span}"


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (f"{option} " for option in parameter.opts)
    for inner in getattr(command, "commands", {}).values():
        yield from _options(inner)
