"""The primer: the project's own generated tasks, small enough for a model trained in minutes."""

from lesion.tasks.primer.task import NAMES, document, task

__all__ = ["NAMES", "document", "task"]
