"""Reference pages, made from the declarations as the site is built: commands, study files, results, claims."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

import lesion
from lesion.cli.main import _command
from lesion.core.method import Method
from lesion.core.options import options_of, schema
from lesion.registry import methods
from lesion.report.claims import RULES
from lesion.report.rows import Row, columns_of
from lesion.tasks.benchmarks import BENCHMARKS
from lesion.tasks.catalogue import NAMES
from lesion.tasks.generated import FAMILIES

ROOT = Path(__file__).parents[1]
GROUPS = {
    "Models": ["load", "Model", "reordered", "observe", "calibration", "reference", "read_reference"],
    "Studies": [
        "ablate",
        "isolate",
        "evaluate",
        "truncate",
        "search",
        "drift",
        "effects",
        "tune",
        "interact",
        "patch",
        "overlay",
        "compare",
        "study",
        "result",
    ],
    "Edits": [
        *("applied", "apply", "gated", "parse", "read_edit", "save_edit", "save_reordered", "perturb", "distance"),
        "BASELINE",
        *("ScaleBlock", "ScaleAttention", "ScaleMlp", "ScaleHead", "ScaleGroup", "ScaleNeuron", "ScaleExpert"),
        *("ScaleMatrix", "Replace", "Truncate"),
        *("ScaleParameters", "Compose"),
    ],
    "Selections of weights": ["MathNeuro", "Wanda", "LAPE", "Magnitude", "Listed", "Random"],
    "Tasks": ["find_task", "task"],
    "Results": [
        *(
            "AblationResult",
            "IsolationResult",
            "TruncationResult",
            "SearchResult",
            "DriftResult",
            "TuningResult",
            "OverlayResult",
        ),
        *("EffectsResult", "InteractionResult", "PatchingResult"),
    ],
    "Engines and errors": ["EngineChoice", "LesionError", "UsageError"],
}
OWN = ("lesion", "lesion_labs")
"""The packages of this repository."""
TITLES = {
    None: "layers",
    "recall": "recall (lab)",
    "memory": "memory (lab)",
}


def pages() -> dict[str, str]:
    """The text of every generated page, by its place in the site."""
    return {
        "reference/commands.md": commands(),
        "reference/study-files.md": study_files(),
        "reference/results.md": results(),
        "explanation/claims.md": claims(),
        "reference/python.md": python(),
        "reference/tasks.md": tasks(),
        "reference/architectures.md": architectures(),
    }


def _methods() -> dict[str | None, Method[Any]]:
    """The methods of this repository; others that are installed are documented elsewhere."""
    return {kind: method for kind, method in methods().items() if method.study.__module__.partition(".")[0] in OWN}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _escaped(text: str) -> str:
    """Plain text as Markdown: what looks like a tag or a link stays text."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<>\[\]*_])", r"\\\1", part) for part in parts)


# Commands


def commands() -> str:
    """Every command with its arguments and options, as `--help all` lists them."""
    text = [
        "# Commands\n",
        "Generated from the command line itself. `lesion COMMAND --help all` shows the same. A model is `bundled:NAME`,"
        " a local folder or a hub id; what a task is called: [tasks](../tasks.md).\n",
        "`--debug` with any command shows the traceback of an error. Exit codes: 0 done, 2 wrong use, 1 failed,"
        " 130 interrupted, 143 told to end.\n",
    ]
    for name, command in _leaves(_command(every=True), "lesion"):
        text += [f"## {name}\n", _escaped(inspect.cleandoc(command.help or "")) + "\n"]
        text += list(_panels(command))
    return "\n".join(text)


def _leaves(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        inner = f"{path} {name}"
        if hasattr(command, "commands"):
            yield from _leaves(command, inner)
        else:
            yield inner, command


def _panels(command: Any) -> Iterator[str]:
    panels: dict[str, list[list[str]]] = {}
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        panel = getattr(parameter, "rich_help_panel", None) or "What"
        panels.setdefault(panel, []).append(_parameter(parameter))
    for panel in sorted(panels, key=lambda name: name != "What"):
        if len(panels) > 1:
            yield f"**{panel}**\n"
        yield table(["option", "value", "meaning"], panels[panel])


def _parameter(parameter: Any) -> list[str]:
    flag = getattr(parameter, "is_flag", False)
    argument = parameter.param_type_name == "argument"
    name = (parameter.metavar or parameter.name).upper() if argument else ", ".join(parameter.opts)
    value = "" if argument or flag else parameter.metavar or _kind(parameter.type_descriptor.annotation)
    # The help text ends in the default where the study declares it; typer's own defaults are added.
    help = _escaped(parameter.help or "")
    default = getattr(parameter, "show_default", False) and parameter.default
    if default and isinstance(default, str | int | float) and not flag and "Default:" not in help:
        help += f" Default: {default}."
    return [f"`{name}`", value, ("**Required.** " if parameter.required else "") + help]


def _kind(annotation: Any) -> str:
    """What is typed as the value of an option."""
    inner = next(iter(get_args(annotation)), annotation)
    if inspect.isclass(inner) and issubclass(inner, StrEnum):
        return ", ".join(f"`{value}`" for value in inner)
    return {int: "whole number", float: "number", Path: "path"}.get(inner, "text")


# Study files


def study_files() -> str:
    """The keys of study files of every kind."""
    text = [
        "# Study files\n",
        "A study file is TOML: `lesion run my-study.toml --out results/`. Nearly every key below is also an option of"
        " the command and an argument in Python. `lesion run demo --show` prints a file to start from, and"
        " `lesion run --schema KIND` prints the JSON Schema for an editor.\n",
        "Generated from that schema. **Bold** keys are required. Options with the same words in several kinds mean the"
        " same.\n",
    ]
    for kind, method in _methods().items():
        document = schema(method.study)
        text += [f"## {_title(kind)}\n", _escaped(_first(method.study)) + "\n"]
        if kind is None:
            text.append("A layer study has no `kind`.\n")
        text += list(_keys(document, document.get("$defs", {})))
    return "\n".join(text)


def _title(kind: str | None) -> str:
    return TITLES.get(kind, kind or "")


def _first(described: Any) -> str:
    return inspect.cleandoc(described.__doc__ or "").split("\n\n")[0]


def _keys(document: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    rows, tables = [], {}
    required = document.get("required", [])
    for key, described in document.get("properties", {}).items():
        inner = _table_of(described, known)
        if inner is not None:
            tables[key] = inner
        shown = f"**`{key}`**" if key in required else f"`{key}`"
        rows.append([shown, _values(described, known), _default(described), _escaped(described.get("description", ""))])
    yield table(["key", "value", "default", "meaning"], rows)
    for key, inner in tables.items():
        yield f"Keys of `{key}`:\n"
        yield from _keys(inner, known)


def _table_of(described: dict[str, Any], known: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the table that a key may be, alone or in a list; None where it is none."""
    if "$ref" in described:
        found = known[described["$ref"].rpartition("/")[2]]
        return found if "properties" in found else None
    for part in [*described.get("anyOf", []), described.get("items", {})]:
        if part and (inner := _table_of(part, known)) is not None:
            return inner
    return None


def _values(described: dict[str, Any], known: dict[str, Any]) -> str:
    if "$ref" in described:
        inner = known[described["$ref"].rpartition("/")[2]]
        return "table" if "properties" in inner else _values(inner, known)
    if "anyOf" in described:
        parts = dict.fromkeys(_values(part, known) for part in described["anyOf"] if part.get("type") != "null")
        return " or ".join(parts)
    if "const" in described:
        return f"`{described['const']}`"
    if "enum" in described:
        return ", ".join(f"`{value}`" for value in described["enum"])
    if described.get("type") == "array":
        return f"list of {_values(described.get('items', {}), known)}"
    names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
    return names.get(described.get("type", ""), described.get("type", "any"))


def _default(described: dict[str, Any]) -> str:
    default = described.get("default")
    if default is None or isinstance(default, dict) or default == []:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


# Results


def results() -> str:
    """The fields of `summary.json` of every kind."""
    text = [
        "# Results\n",
        "Every study writes `summary.json`; in Python the same values are `result.summary`. `lesion.ablate(...)` and"
        " the others return the result; `result.table` is its main table as a data frame. A number that is not finite"
        " is `null` in the file and `None` in Python.\n",
        "Generated from the classes of the results. *Column*: of the CSV files, of `result.table` and of the page's"
        " tables, with its heading there. What the words mean: [glossary](../glossary.md).\n",
    ]
    written: set[type[BaseModel]] = set()
    for kind, method in _methods().items():
        for summary in _summaries(method):
            text += [f"## {_title(kind)}: `{summary.__name__}`\n"]
            text += list(_fields(summary, written))
            text += list(_further_rows(summary, written))
    return "\n".join(text)


def _further_rows(summary: type[BaseModel], written: set[type[BaseModel]]) -> Iterator[str]:
    """Rows of the same room that tables have and `summary.json` has not."""
    room = summary.__module__.rpartition(".")[0]
    rows = (row for row in _rows(Row) if row.__module__.startswith(f"{room}.") and row not in written)
    for row in sorted((row for row in rows if columns_of(row)), key=lambda row: row.__name__):
        yield f"### `{row.__name__}` (tables alone)\n"
        yield from _fields(row, written)


def _rows(parent: type[Row]) -> Iterator[type[Row]]:
    for row in parent.__subclasses__():
        yield row
        yield from _rows(row)


def _columns(value: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Of every field or property that is a column: its key in files, with those beside it, and its heading."""
    if not issubclass(value, Row):
        return {}
    columns = {}
    for shown in columns_of(value):
        keys = [shown.key] if shown.many else [key for key, _ in shown.columns(None)]
        columns[shown.name] = ", ".join(f"`{key}`" for key in keys), shown.heading
    return columns


def _summaries(method: Method[Any]) -> list[type[BaseModel]]:
    for parent in method.result_class().__mro__:
        for base in getattr(parent, "__orig_bases__", ()):
            arguments = [part for given in get_args(base) for part in (given, *get_args(given))]
            classes = [part for part in arguments if inspect.isclass(part) and issubclass(part, BaseModel)]
            if classes:
                return classes
    return []


def _fields(value: type[BaseModel], written: set[type[BaseModel]]) -> Iterator[str]:
    written.add(value)
    meanings = _attributes(value)
    yield _escaped(_first(value)) + "\n"
    inner: dict[type[BaseModel], None] = {}
    rows = []
    columns = _columns(value)
    for name, field in value.model_fields.items():
        inner |= dict.fromkeys(_models_in(field.annotation))
        rows.append([f"`{name}`", f"`{_type_text(field.annotation)}`", _escaped(meanings.get(name, ""))])
    for name in (name for name in columns if name not in value.model_fields):
        rows.append([f"`{name}`", "derived", _escaped(_first(getattr(value, name)))])
    if columns:
        for row in rows:
            key, heading = columns.get(row[0].strip("`"), ("", ""))
            row[2:2] = [f"{key} ({heading})" if heading else key]
    yield table(["field", "type", *(["column"] if columns else []), "meaning"], rows)
    for part in inner:
        if (
            part not in written
            and part.__module__.startswith(("lesion.", "lesion_labs."))
            and not part.__module__.endswith(".study")
        ):
            yield f"### `{part.__name__}` {{ #{part.__module__.removeprefix('lesion.')}.{part.__name__} }}\n"
            yield from _fields(part, written)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _type_text(annotation: Any) -> str:
    text = annotation.__name__ if inspect.isclass(annotation) and not get_args(annotation) else str(annotation)
    text = re.sub(r"typing\.|\blesion(?:_labs)?(?:\.\w+)*\.|\bpathlib\.", "", text)
    text = re.sub(r"Annotated\[float \| None, BeforeValidator\([^]]*\]", "number", text)
    text = re.sub(r"Annotated\[([^,\[]+), .*?\)\]", r"\1", text)
    return re.sub(r"<[^>]*>", "", text).replace("NoneType", "None")


def _attributes(value: type[BaseModel]) -> dict[str, str]:
    """What docstrings of a class and of its parents say of each field under `Attributes:`."""
    meanings: dict[str, str] = {}
    for parent in reversed(value.__mro__):
        block = re.search(r"Attributes:\n((?:[ ]{4}.*\n?|\n)+)", inspect.cleandoc(parent.__dict__.get("__doc__") or ""))
        if block is None:
            continue
        for entry in re.split(r"\n(?=    \S)", block[1].rstrip()):
            for names, text in re.findall(r"^\s*(.+?): (.*)$", " ".join(entry.split())):
                meanings |= {name.strip("` "): text for name in names.split(",")}
    return meanings


# Claims


@dataclass(frozen=True)
class Rule:
    """A rule as its docstring tells it.

    Attributes:
        about: what it is about: the first line.
        says: what it can say, an outcome each, with its numbers left open (`Block L is critical for A.`).
        needs: the test, and its threshold, that must be there before it says so.
        module: where it is.
    """

    about: str
    says: tuple[str, ...]
    needs: str
    module: str

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Rule:
        """The rule of a function that is decorated as one."""
        about, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\nSays: ")
        says, needs = (" ".join(text.split()) for text in rest.partition("\nNeeds: ")[::2])
        outcomes = tuple(filter(None, says.split(" | ")))
        return cls(about.partition("\n")[0], outcomes, needs, function.__module__)


def rules() -> dict[str, list[Rule]]:
    """Every rule by which a page says something, by kind of study."""
    for method in _methods().values():
        method.result_class()  # reads the modules in which its rules are
    found: dict[str, list[Rule]] = {}
    for each in map(Rule.of, RULES.values()):
        package, *rooms = each.module.split(".")
        if package in OWN:
            found.setdefault(rooms[1] if rooms[0] == "studies" else rooms[0], []).append(each)
    return dict(sorted(found.items()))


def claims() -> str:
    """Every claim that a page, a terminal or `result.verdict` can make, when it makes it, and what it needs to."""
    text = [
        "# Claims\n",
        "Every sentence that a study says of its numbers is made by a rule. A claim has at most three sentences: what"
        " holds, the strongest number with its interval, and what cannot be told. *Not shown* never means *not so*:"
        " where the items are too few, it is said that it cannot be told.\n",
        "Generated from the rules themselves, with the outcomes that each can have. L, M, N stand for numbers, A and B"
        " for tasks.\n",
    ]
    for room, own in rules().items():
        text.append(f"## {room.capitalize()}\n")
        rows = []
        for each in own:
            says = "<br>".join(map(_outcome, each.says))
            rows.append([f"**{_escaped(each.about)}**", says, _escaped(each.needs)])
        text.append(table(["about", "can say", "needs"], rows))
    return "\n".join(text)


def _outcome(text: str) -> str:
    """The template of a sentence for readers: what is filled in slanted, a clause that may be missing as dots."""
    return re.sub(r"{(\w+)}", r"*\1*", re.sub(r"(?<=[\w}])({\w+})+", " …", _escaped(text)))


# Python


def python() -> str:
    """The public names of `lesion`, in groups; a name in no group stands at the end."""
    groups = {head: [name for name in names if name in lesion.__all__] for head, names in GROUPS.items()}
    rest = sorted(set(lesion.__all__) - {name for names in groups.values() for name in names})
    functions = {method.result_class().__name__: method for method in _methods().values()}
    text = [
        "# Python\n",
        "Generated from the docstrings. Everything here is reached as `lesion.NAME`. The functions of studies also take"
        " the options listed below them, by name; they mean the same as [the command's options](commands.md).\n",
    ]
    for head, names in (groups | {"Others": rest}).items():
        text += [f"## {head}\n"] if names else []
        if head == "Results":
            text.append("::: lesion.core.result.StudyResult\n    options:\n      heading: what every result has\n")
        for name in names:
            place = ".".join(lesion._HOMES[name])
            text += [f"::: {place}\n    options:\n      heading: lesion.{name}\n      toc_label: {name}\n"]
            text += [_options_of(name, functions)] if head == "Studies" else []
    return "\n".join(text)


def _options_of(name: str, functions: dict[str, Method[Any]]) -> str:
    """The options that a function of a study takes, folded."""
    returned = inspect.signature(getattr(lesion, name)).return_annotation
    method = functions.get(getattr(returned, "__name__", str(returned)))
    if name == "study" or method is None:
        return ""
    rows = [
        [f"`{option.name}`", option.default_text and f"`{option.default_text}`", _escaped(option.help)]
        for option in options_of(method.study)
    ]
    inner = table(["option", "default", "meaning"], rows)
    return f'??? note "Options of lesion.{name}"\n\n' + "".join(f"    {line}\n" for line in inner.splitlines())


# Tasks


def tasks() -> str:
    """Every task with its options, and at which size of model its accuracy can tell something."""
    sizes = tomllib.loads((ROOT / "src/lesion/tasks/sizes.toml").read_text(encoding="utf-8"))
    text = [
        "# Tasks\n",
        "How each is judged, and what stands before and behind a name: [tasks](../tasks.md).\n",
        "A task is informative for a model whose unedited accuracy is neither at the floor (nothing to lose), nor at"
        " what guessing gives, nor at the ceiling. *Measured*: by this project, with the Wilson 95 % interval;"
        " SmolLM2 is SmolLM2-135M-Instruct, from 4-bit GGUF weights, in the task's own prompt style. *Published*: by"
        " the makers of the models named, with other prompts. *Expected*: from what is known of the field,"
        " not measured here. `lesion ablate` says of your model when its baseline is at an end.\n",
        table(
            ["task", "options", "informative from", "by", "evidence"],
            (
                [f"`{name}`", _task_options(name), *(sizes[name][key] for key in ("size", "by", "evidence"))]
                for name in (*NAMES, "harness:NAME")
            ),
        ),
    ]
    return "\n".join(text)


def _task_options(name: str) -> str:
    title = name.partition(":")[0]
    if title in FAMILIES:
        return "; ".join(
            f"`{key}`: {option.meaning} ({option.default})" for key, option in FAMILIES[title].options.items()
        )
    benchmark = BENCHMARKS.get(name)
    return f"`{benchmark.option}`: {', '.join(benchmark.settings)}" if benchmark and benchmark.option else ""


# Architectures


def architectures() -> str:
    """The families of `families.toml`, with the tiny models that the tests hold them to."""
    families = tomllib.loads((ROOT / "src/lesion/models/families.toml").read_text(encoding="utf-8"))
    tested = _tiny_models()
    rows = []
    for name, family in sorted(families.items()):
        types = family.get("types", [name])
        models = [f"`{tested[key]}`" for key in tested if key == name or key.startswith(f"{name}_tied")]
        notes = " ".join(note["text"] for note in family.get("notes", []))
        rows.append([f"`{name}`", ", ".join(f"`{kind}`" for kind in types), ", ".join(dict.fromkeys(models)), notes])
    suites = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"parametrize\([^\n]*FAMILIES", path.read_text(encoding="utf-8"))
    )
    unknown = tested.get("unknown", "")
    return "\n".join(
        [
            "# Architectures\n",
            "Generated from `src/lesion/models/families.toml` and from the tests. For every architecture below, the"
            " test suite makes a tiny model with random weights and checks it with its own transformers code: that"
            " every parameter belongs to a matrix or is listed with a reason, that block = input + attention + MLP,"
            " that every edit does what its definition says, that a batch under many edits answers like one edit at a"
            " time, and that weights are restored bit for bit.\n",
            table(["family", "`model_type` in config.json", "tested with", "notes"], rows),
            "A decoder outside this table is taken apart by [what a few tokens prove]"
            f"(../how-to/parts.md#which-architectures); `lesion show` says so. The tests hold that path to a made-up"
            f" architecture (`{unknown}`), and heads, neurons, experts and checkpoints to networks edited by hand in"
            " the families of `tests/edits/test_parts_of_architectures.py`. What cannot be proved is refused.\n",
            "Trained models of two families, `llama` and `qwen2`, come with the package (`bundled:llama-base`, …). Of"
            " the other families no trained model is part of the test suite.\n",
            "Test files that run over all of these models:\n",
            *(f"- `{suite}`" for suite in suites),
            "",
        ]
    )


def _tiny_models() -> dict[str, str]:
    """The transformers class of each of the tests' tiny models, read from their source."""
    tree = ast.parse((ROOT / "tests/tiny.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == "FAMILIES"
            and isinstance(node.value, ast.Dict)
        ):
            return {
                ast.literal_eval(key): ast.unparse(value.args[0]).rpartition(".")[2]
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None and isinstance(value, ast.Call)
            }
    raise ValueError("tests/tiny.py has no table FAMILIES")
