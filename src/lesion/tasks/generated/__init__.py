"""Tasks that the project generates: every item is a function of a seed, nothing is downloaded.

A family of tasks is one file here with a `FAMILY`. The primer, which the bundled models were trained on, is another.
"""

from lesion.tasks.generated import agreement, arithmetic, copying, greater_than, induction
from lesion.tasks.generated.family import Generated, TaskFamily

FAMILIES: dict[str, TaskFamily] = {
    module.FAMILY.title: module.FAMILY for module in (arithmetic, copying, induction, agreement, greater_than)
}
"""By title."""
NAMES = tuple(name for family in FAMILIES.values() for name in family.names)
"""The names of all tasks, without options."""

__all__ = ["FAMILIES", "NAMES", "Generated", "TaskFamily"]
