"""Reading numbers of summaries that are still dictionaries."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float | None:
    """The value as a finite float, or None."""
    return float(value) if value is not None and math.isfinite(value) else None
