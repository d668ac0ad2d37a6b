"""A method: one kind of study, with all that study files, the command and Python need to know of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from lesion.core.study_file import StudyFile
from lesion.outputs import own, refuse_another_kind

if TYPE_CHECKING:  # `lesion --help` need not wait for torch
    from lesion.core.result import StudyResult
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher

S = TypeVar("S", bound=StudyFile)


class Method(ABC, Generic[S]):
    """One kind of study. A package from outside names an instance under the entry-point group `lesion.studies`.

    Attributes:
        kind: what study files write as `kind`; None for layer studies, which have no kind.
        study: the class of its study files; their fields are the options of the command.
        command: of the command line, `logit-lens`; empty: there is none but `lesion run`.
        help: what the command does, one sentence.
        default_name: the name of studies from the command line and Python.
        options: names of the study's options that the command has; None: all.
        needs_out: whether the command has no folder of its own to write into.
        kept: what an interrupted run has kept, and how to go on; `{folder}` stands for the folder.
        distributed: whether other processes can answer.
    """

    kind: ClassVar[str | None]
    study: type[S]
    command: ClassVar[str] = ""
    help: ClassVar[str] = ""
    default_name: ClassVar[str] = "study"
    options: ClassVar[tuple[str, ...] | None] = None
    needs_out: ClassVar[bool] = True
    kept: ClassVar[str] = "Every answer so far is kept in {folder}; the same command goes on from there."
    distributed: ClassVar[bool] = True

    @property
    def folder_kind(self) -> str:
        """What the folder of a study is noted to belong to."""
        return self.kind or "layers"

    def expanded(self, options: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
        """The options as given, with what they stand for put in; what the person should know is noted.

        Raises:
            UsageError: an option names what does not exist.
        """
        return options

    @abstractmethod
    def run(
        self,
        study: S,
        folder: Path,
        watcher: Watcher | None,
        make_engine: MakeEngine,
        models: Mapping[str, Model] | None = None,
    ) -> StudyResult:
        """Run a study into a folder; what is stored there already is not evaluated again.

        Args:
            study: what is asked.
            folder: made when absent.
            watcher: is told how it goes.
            make_engine: the engine for a model and a batch size.
            models: those that are loaded already, by the name that the study gives them.

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


def carried_out(
    method: Method[S],
    study: S,
    folder: Path,
    watcher: Watcher | None,
    make_engine: MakeEngine,
    models: Mapping[str, Model] | None = None,
) -> StudyResult:
    """Run a study into a folder that then belongs to its kind (`Method.run`).

    Raises:
        UsageError: the folder belongs to another kind of study; or as `Method.run`.
        LesionError: as `Method.run`.
    """
    refuse_another_kind(Path(folder), method.folder_kind)
    result = method.run(study, folder, watcher, make_engine, models)
    own(result.folder, method.folder_kind, adopt=True)
    return result
