"""Files of rows, as data sets are published."""

import json
from pathlib import Path
from typing import Any


def write(path: Path, *rows: Any, **settings: Any) -> Path:
    """One row a line, as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(row, **settings) for row in rows), encoding="utf-8")
    return path
