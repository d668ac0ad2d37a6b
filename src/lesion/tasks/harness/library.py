"""The library behind `harness:NAME`: tasks of lm-evaluation-harness found by name and made ready to be asked."""

from __future__ import annotations

import importlib.util
import logging
import random
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from lesion.errors import LesionError, UsageError, nearest
from lesion.files import named
from lesion.tasks.query import HarnessName

# What the harness's own command seeds with when it is not told otherwise.
FEWSHOT_SEED = 1234
HarnessTask = Any
"""A task object of the harness."""
_RANDOM_SEED, _NUMPY_SEED = 0, 1234

# A name as a YAML file gives it to its task or group; thousands of files are looked through without parsing them.
_NAMED = re.compile(
    rb"""^["']?(?:task|group)["']?[ \t]*:[ \t]*["']?([^"'#\r\n\[\]{}]+?)["']?[ \t]*(?:\#.*)?\r?$""", re.M
)


def _need_harness() -> None:
    """Raise `UsageError` where lm-evaluation-harness is not installed."""
    if importlib.util.find_spec("lm_eval") is None:
        raise UsageError(
            "Tasks of lm-evaluation-harness need that library, which is not installed: pip install 'lesion[harness]'."
        )


@contextmanager
def at_work() -> Iterator[None]:
    """While the harness is at work: it is quiet, and it compiles no template twice."""
    with quiet(), _compiled_once():
        yield


@lru_cache(maxsize=1024)
def _template(environment: Any, text: str) -> Any:
    return type(environment).from_string(environment, text)


@contextmanager
def _compiled_once() -> Iterator[None]:
    """A template of the harness is compiled anew for every document, which is most of the time that prompts take."""
    from lm_eval import utils

    environment = getattr(utils, "env", None)
    if environment is None or "from_string" in vars(environment):
        yield
        return
    environment.from_string = partial(_template, environment)
    try:
        yield
    finally:
        del environment.from_string


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what the harness and `datasets` say while they load; what goes wrong is raised."""
    import datasets

    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "huggingface_hub", "fsspec")]
    levels = [logger.level for logger in loggers]
    bars = datasets.utils.logging.is_progress_bar_enabled()
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        datasets.disable_progress_bars()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            datasets.enable_progress_bars()


def loaded(name: HarnessName) -> dict[str, HarnessTask]:
    """The tasks of a name by their own names: one, or those of a group or a tag; few-shot settings made.

    A task of the folder comes before a packaged one of the same name. The same seeds as those of the harness's command
    stand behind what a task draws while it loads and behind its few-shot examples.
    """
    _need_harness()
    with at_work(), seeded():
        built = _built(name)
        for title, task in built.items():
            _refuse(task, title)
            _set_shots(task, name, title)
            task.set_fewshot_seed(seed=FEWSHOT_SEED)
    return built


@lru_cache(maxsize=1)
def packaged() -> dict[str, Path]:
    """The names of all tasks and groups that come with the library, each with its file."""
    return _named(_tasks())


def _tasks() -> Path:
    import lm_eval.tasks

    return Path(str(lm_eval.tasks.__file__)).parent


def _named(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.yaml")):
        for name in _NAMED.findall(file.read_bytes()):
            files.setdefault(name.decode(errors="replace"), file)
    return files


def _manager(folder: Path | None, defaults: bool) -> Any:
    """What knows the tasks of a folder as it is now, and the packaged ones where they are wanted."""
    files = sorted(folder.rglob("*")) if folder is not None else []
    return _indexed(folder, defaults, tuple((file, file.stat().st_mtime_ns) for file in files if file.is_file()))


@lru_cache(maxsize=4)
def _indexed(folder: Path | None, defaults: bool, _files: tuple[tuple[Path, int], ...]) -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=None if folder is None else str(folder), include_defaults=defaults)


def _built(name: HarnessName) -> dict[str, HarnessTask]:
    folder = _folder(name)
    if folder is not None:
        manager = _manager(folder, False)
        if _whole(manager, name.task):
            return _made(manager, name.task, name)
    # An index of all tasks takes many seconds: a task by itself needs none, nor does a name that stands nowhere.
    file = packaged().get(name.task)
    if file is not None and folder is None and _kind(file) == "task":
        return _made(_manager(None, False), str(file), name)
    if file is not None or (folder is not None and name.task in _named(folder)) or _tagged(name.task, folder):
        manager = _manager(folder, True)
        if name.task in manager.all_tasks:
            return _made(manager, name.task, name)
    own = sorted(_named(folder)) if folder is not None else []
    here = f" {folder} has {', '.join(own) or 'none'}." if folder is not None else ""
    raise UsageError(
        f"lm-evaluation-harness has no task '{name.task}'{nearest(name.task, [*packaged(), *own])}.{here} `lm-eval ls "
        f"tasks` lists all of them; a folder with YAML files of your own is {_with_folder(name)}."
    )


def _whole(manager: Any, name: str) -> bool:
    """Whether a manager knows a task, or a group and everything in it."""
    entry = manager.task_index.get(name)
    if entry is None or name in manager.all_subtasks:
        return entry is not None
    members = (entry.cfg or {}).get("task") if name in manager.all_groups else sorted(entry.tags)
    if not isinstance(members, list):
        return False
    names = [member if isinstance(member, str) else member.get("task", member.get("group")) for member in members]
    return all(isinstance(member, str) and _whole(manager, member) for member in names)


def _tagged(name: str, folder: Path | None) -> bool:
    """Whether a name stands in any file where that of a tag would stand."""
    line = re.compile(rb"""^[ \t]*(?:-|tag:)[ \t]*["']?%s["']?[ \t]*\r?$""" % re.escape(name.encode()), re.M)
    places = [_tasks(), *([folder] if folder is not None else [])]
    return any(line.search(file.read_bytes()) for place in places for file in place.rglob("*.yaml"))


def _with_folder(name: HarnessName) -> str:
    return f"harness:{name.task}?path=FOLDER"


def _folder(name: HarnessName) -> Path | None:
    if name.path is None:
        return None
    folder = named(name.path, "path of the tasks")
    if not folder.is_dir():
        what = "is a file; give the folder that it lies in" if folder.is_file() else "is no folder"
        raise UsageError(f"path={name.path} {what}: {_with_folder(name)}.")
    return folder.resolve()


def _kind(file: Path) -> str:
    return "group" if re.search(rb"""^["']?group["']?[ \t]*:""", file.read_bytes(), re.M) else "task"


def _made(manager: Any, spec: str, name: HarnessName) -> dict[str, HarnessTask]:
    try:
        return dict(manager.load([spec])["tasks"])
    except ImportError as error:
        raise LesionError(
            f"The task {name.task} of lm-evaluation-harness needs a library that is not installed: {error}."
        ) from error
    except Exception as error:  # what the hub, `datasets` and thousands of tasks raise has no common base
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise LesionError(
            f"The task {name.task} of lm-evaluation-harness could not be loaded ({type(error).__name__}: {reason}). "
            f"Check the network and HF_HUB_OFFLINE; or write a YAML file that includes the task's own and names local "
            f"data, and give its folder: {_with_folder(name)}."
        ) from error


def _refuse(task: Any, title: str) -> None:
    if getattr(task, "MULTIMODAL", False):
        raise UsageError(f"The task {title} of lm-evaluation-harness shows images or sounds; only text can be asked.")
    if getattr(task, "UNSAFE_CODE", False):
        raise UsageError(
            f"The task {title} of lm-evaluation-harness runs the code that a model writes; lesion runs none. "
            f"`python -m lesion.harness_model --model lesion --confirm_run_unsafe_code` does, where you have made that "
            f"safe."
        )


def _set_shots(task: Any, name: HarnessName, title: str) -> None:
    stated = task.get_config("num_fewshot")
    if name.shots and stated == 0:
        raise UsageError(
            f"The task {title} of lm-evaluation-harness sets the number of its solved questions to 0 by itself; leave "
            f"shots out."
        )
    task.set_config(key="num_fewshot", value=(stated or 0) if name.shots is None else name.shots)


@contextmanager
def seeded() -> Iterator[None]:
    """The global generators as the harness's command seeds them; put back afterwards."""
    before, state = random.getstate(), np.random.get_state()
    random.seed(_RANDOM_SEED)
    np.random.seed(_NUMPY_SEED)
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(state)
