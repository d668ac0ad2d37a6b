"""Run the notebooks of docs/tutorials anew and store their outputs: `python docs/execute.py [NOTEBOOK …]`.

Every notebook runs in this process, in a folder that is removed afterwards. Nothing of the machine, of its paths or of
the time is stored, so that a second run leaves the files as they are.
"""

from __future__ import annotations

import ast
import contextlib
import html
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parent / "tutorials"
Notebook = dict[str, Any]
Output = dict[str, Any]


def read(path: Path) -> Notebook:
    """A notebook as JSON."""
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def executed(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of its cells, run in order in one namespace and a temporary folder.

    Raises:
        Exception: what a cell raised.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count, before = [], 0, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    count += 1
                    outputs = _run("".join(cell["source"]), namespace, count)
                    cell = {**cell, "execution_count": count, "outputs": outputs}
                cells.append(cell)
        finally:
            os.chdir(before)
    return {**notebook, "cells": cells}


def _run(source: str, namespace: dict[str, Any], count: int) -> list[Output]:
    """Run a cell; what it printed, and the value of its last line as a notebook shows it."""
    tree = ast.parse(source)
    final = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), namespace)
        if isinstance(final, ast.Expr):
            value = eval(compile(ast.Expression(final.value), f"cell {count}", "eval"), namespace)
    value = None if source.rstrip().endswith(";") else value
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in _shown(value).items()}
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> dict[str, str]:
    """A value as text, and as HTML or a picture where it has one."""
    bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {}
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    shown = {kind: text for kind, text in bundle.items() if kind == "image/svg+xml"}
    if hasattr(value, "_repr_html_") and not shown and (rich := value._repr_html_()) is not None:
        shown["text/html"] = rich
    return shown if "image/svg+xml" in shown else {**shown, "text/plain": repr(value)}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def page(notebook: Notebook) -> str:
    """The notebook as a page in Markdown; outputs as HTML."""
    return "\n\n".join(
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else _code(cell) for cell in notebook["cells"]
    )


def _code(cell: dict[str, Any]) -> str:
    parts = [f"```python\n{''.join(cell['source'])}\n```"]
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", [])})
        kind = next(kind for kind in ("image/svg+xml", "text/html", "text/plain") if kind in data)
        text = "".join(data[kind])
        if kind == "text/plain":
            text = f"<pre><code>{html.escape(text)}</code></pre>"
        # An empty line would end the HTML for Markdown.
        parts.append('<div class="output">' + "\n".join(line or "&#8203;" for line in text.split("\n")) + "</div>")
    return "\n\n".join(parts)


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all, and store them."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    for path in [TUTORIALS / f"{name}.ipynb" for name in names] or sorted(TUTORIALS.glob("*.ipynb")):
        notebook = executed(read(path))
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
