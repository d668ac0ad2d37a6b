"""What editors and type checkers read of the functions of studies: `make stubs` writes `src/lesion/functions.pyi`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from lesion import functions
from lesion.core.functions import KINDS, PLACES, documented, parameters, places
from lesion.registry import methods

FILE = Path(functions.__file__).with_suffix(".pyi")


def stub() -> str:
    """The text of the file: a definition for every method of this package that has a command of its own."""
    imports = set(PLACES.items())
    text = []
    for method in methods().values():
        name = method.command.replace("-", "_")
        if not name or " " in name or not method.study.__module__.startswith("lesion.studies."):
            continue
        for option in method.options:
            imports |= set(places(option.annotation, option.metadata))
        module, _, result = method.result.partition(":")
        imports.add((result, module))
        text += [f"def {name}(", *_lines(parameters(method)), f") -> {result}:"]
        docstring = documented(method).replace("\\", "\\\\")
        text += [textwrap.indent(f'"""{docstring}\n"""', "    ", lambda line: bool(line.strip())), ""]
    body = "\n".join(text)
    modules: dict[str, list[str]] = {}
    for name, module in sorted(imports, key=lambda each: each[::-1]):
        modules.setdefault(module, []).append(name)
    lines = [f"from {module} import {', '.join(names)}" for module, names in modules.items()]
    return f'# ruff: noqa\n# fmt: off\n"""{functions.__doc__}"""\n\n' + "\n".join(lines) + "\n\n" + body


def _lines(made: Sequence[inspect.Parameter]) -> Iterator[str]:
    """The parameters as they stand in a definition, one a line."""
    star = False
    for each in made:
        if each.kind is KINDS.KEYWORD_ONLY and not star:
            star = True
            yield "    *,"
        star = star or each.kind is KINDS.VAR_POSITIONAL
        mark = "*" if each.kind is KINDS.VAR_POSITIONAL else ""
        value = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"    {mark}{each.name}: {each.annotation}{value},"


if __name__ == "__main__":
    FILE.write_text(stub(), encoding="utf-8")
