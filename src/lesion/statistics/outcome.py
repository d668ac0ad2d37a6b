"""What can be said of an edit on a task: it is critical, it is spared, or neither can be told.

Each of the first two has a test of its own (`critical.py`, `spared.py`). That a test did not reject says nothing, so
that there is no outcome "not critical": where too little is lost to be critical, the task is spared, or the items are
too few to tell.
"""

from __future__ import annotations

from typing import Literal

Outcome = Literal["critical", "spared", "cannot be told"]


def outcome(*, critical: bool, spared: bool) -> Outcome:
    """The outcome of the two tests, each corrected over the family."""
    return "critical" if critical else "spared" if spared else "cannot be told"
