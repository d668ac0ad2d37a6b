"""A method: one kind of study, with all that study files, the command and Python need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lesion.core import shared
from lesion.core.options import Option, options_of
from lesion.core.study_file import StudyFile
from lesion.outputs import own, refuse_another_kind

if TYPE_CHECKING:  # `lesion --help` need not wait for torch
    from lesion.core.result import StudyResult
    from lesion.core.run import Run
    from lesion.engines.engine import MakeEngine
    from lesion.models.load import Model
    from lesion.progress import Watcher

S = TypeVar("S", bound=StudyFile)


def _unchanged(options: dict[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    return options


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@dataclass(frozen=True)
class Reading:
    """What stands for a `Run` in a study that only reads finished folders: where its own result goes."""

    folder: Path


@dataclass(frozen=True)
class Method(Generic[S]):
    """One kind of study. A package from outside names one under the entry-point group `lesion.studies`.

    Attributes:
        study: the class of its study files; their fields are the options of the command.
        run_function: `module:function` that runs a study: `function(study, run)` returns the result.
        result: `module:Class` of that result, which shows and reads one back. It is imported without what runs a study,
            so that a report need not wait for torch.
        command: of the command line, `logit-lens` or `lab memory`; empty: there is none but `lesion run`.
        help: what the command does, one sentence.
        examples: command lines that stand under the help, each as it is typed.
        folder: the kind that output folders are noted to belong to; empty: `kind`.
        default_name: the name of studies from the command line and Python; empty: `kind`.
        needs_out: whether the command has no folder of its own to write into.
        kept: what an interrupted run has kept, and how to go on; `{folder}` stands for the folder.
        distributed: whether other processes can answer.
        only_reads: whether it only reads finished folders: its run function is given a `Reading`, without torch.
        python: the rest of the docstring of the function in Python, behind the help and the arguments: an example that
            runs, and what it raises.
        shorthands: options that no study file has; `expanded` puts in their place what they stand for.
        expanded: puts into options what they stand for; called with the options and a function for notes.
    """

    study: type[S]
    run_function: str
    result: str
    command: str = ""
    help: str = ""
    examples: tuple[str, ...] = ()
    folder: str = ""
    default_name: str = ""
    needs_out: bool = True
    kept: str = "Every answer so far is kept in {folder}; the same command goes on from there."
    distributed: bool = True
    only_reads: bool = False
    python: str = ""
    shorthands: tuple[Option, ...] = ()
    expanded: Callable[[dict[str, Any], Callable[[str], None]], dict[str, Any]] = _unchanged

    @property
    def kind(self) -> str | None:
        """What study files write as `kind`; None for layer studies, which have no kind."""
        field = self.study.model_fields.get("kind")
        return None if field is None else field.default

    @property
    def folder_kind(self) -> str:
        """The kind that output folders are noted to belong to."""
        return self.folder or self.kind or "layers"

    @property
    def options(self) -> list[Option]:
        """The options of the command and in Python."""
        return [*options_of(self.study), *self.shorthands]

    def result_class(self) -> type[StudyResult]:
        """The class of results, imported now."""
        loaded: type[StudyResult] = _imported(self.result)
        return loaded

    def run(
        self,
        study: S,
        folder: Path,
        *,
        watcher: Watcher | None = None,
        make_engine: MakeEngine | None = None,
        models: Mapping[str, Model] | None = None,
        dry: bool = False,
    ) -> StudyResult:
        """Run a study into a folder, which then belongs to its kind; what is stored there is not evaluated again.

        `models` are those that are loaded already, by the name that the study gives them; with `dry` it only says what
        it costs (`DryRun`).
        """
        run: Run | Reading
        if self.only_reads:
            refuse_another_kind(folder, self.folder_kind)
            run = Reading(folder)
        else:
            from lesion.core.run import Run
            from lesion.engines.transformers.engine import TransformersEngine

            run = Run.at(folder, self.folder_kind, watcher, make_engine or TransformersEngine, models, dry=dry)
        result: StudyResult = _imported(self.run_function)(study, run)
        own(result.folder, self.folder_kind, adopt=True)
        return result

    def recall(self, folder: Path) -> StudyResult | None:
        """The result of a folder as far as it has got; None where the folder holds none of this kind."""
        result, shared_as = self.result_class(), shared.read(Path(folder))
        if shared_as is not None and not shared_as.get("texts"):  # without texts its numbers cannot be made anew
            return result.as_written(Path(folder)) or result.recall(Path(folder))
        return result.recall(Path(folder))
