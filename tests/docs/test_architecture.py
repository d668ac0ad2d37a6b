"""Imports run one way: a room uses only rooms above it in the table of docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lesion"
ROOMS = re.findall(r"^\| `([a-z]+)/` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_table_names_every_room():
    assert {folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_rooms_above_it_alone(room):
    below = {f"lesion.{other}" for other in ROOMS[ROOMS.index(room) + 1 :]}
    upwards = []
    for file in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            upwards += [f"{file.relative_to(ROOT)}: {name}" for name in names if ".".join(name.split(".")[:2]) in below]
    assert upwards == []


def test_the_package_knows_nothing_of_the_labs_beside_it():
    files = [file for file in SOURCE.rglob("*") if file.suffix in (".py", ".toml", ".jinja")]
    assert [file for file in files if "lesion_labs" in file.read_text(encoding="utf-8")] == []
