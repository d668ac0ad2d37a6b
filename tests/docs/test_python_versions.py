"""What Python 3.11 runs and Python 3.12 does not: where the suite runs on one of them alone, the source is read."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
INLINED = (ast.ListComp, ast.SetComp, ast.DictComp)
HIDING = """
def table(rows):
    kept = {name: row for name, row in rows}
    return kept | {name(row): row for row in kept}
"""


def hidden(source: str) -> set[str]:
    """Names that one comprehension of a function binds and another one reads from outside.

    Python 3.12 runs comprehensions in the frame of their function (PEP 709) and raises UnboundLocalError for these.
    """
    found: set[str] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            bound, read = set(), set()
            for comprehension in (node for node in ast.walk(function) if isinstance(node, INLINED)):
                names = [node for node in ast.walk(comprehension) if isinstance(node, ast.Name)]
                own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
                bound |= own
                read |= {name.func.id for name in _calls(comprehension) if isinstance(name.func, ast.Name)} - own
            found |= bound & read
    return found


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def test_a_name_that_one_comprehension_binds_and_another_calls_is_found():
    assert hidden(HIDING) == {"name"}
    assert hidden(HIDING.replace("name: row for name", "key: row for key")) == set()


def test_no_comprehension_hides_a_function_from_another():
    found = {
        str(file.relative_to(SOURCE)): names
        for file in SOURCE.rglob("*.py")
        if (names := hidden(file.read_text(encoding="utf-8")))
    }
    assert found == {}
