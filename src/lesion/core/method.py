"""A method: one kind of study, with all that study files, the command and Python need to know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from lesion.core.study_file import StudyFile

if TYPE_CHECKING:  # `lesion --help` need not wait for torch
    from lesion.core.result import StudyResult
    from lesion.engines.engine import MakeEngine
    from lesion.progress import Watcher

S = TypeVar("S", bound=StudyFile)


class Method(ABC, Generic[S]):
    """One kind of study. A package from outside names an instance under the entry-point group `lesion.studies`.

    Attributes:
        kind: what study files write as `kind`; None for layer studies, which have no kind.
        study: what is asked.
        kept: what an interrupted run has kept, and how to go on; `{folder}` stands for the folder.
        distributed: whether other processes can answer.
    """

    kind: ClassVar[str | None]
    study: type[S]
    kept: ClassVar[str] = "Every answer so far is kept in {folder}; the same command goes on from there."
    distributed: ClassVar[bool] = True

    @abstractmethod
    def run(self, study: S, folder: Path, watcher: Watcher | None, make_engine: MakeEngine) -> StudyResult:
        """Run a study into a folder; what is stored there already is not evaluated again.

        Raises:
            UsageError: a task, a model or a place does not exist.
            LesionError: a model cannot be loaded, or the folder belongs to another study or cannot be written.
        """

    @abstractmethod
    def recall(self, folder: Path) -> StudyResult | None:
        """The result of a folder as far as it has got; None where the folder holds none of this kind.

        Raises:
            LesionError: what lies there is damaged.
        """
