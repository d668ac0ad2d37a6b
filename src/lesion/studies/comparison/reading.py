"""Reading the folders and logs of a comparison: models with their answers, how they are paired, and items in common."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.core.values import studies_in
from lesion.edits.edit import Scale, Truncate, parts
from lesion.edits.text import parse
from lesion.errors import UsageError, nearest
from lesion.outputs import kind_of
from lesion.plain import short, visible
from lesion.report import wording
from lesion.studies.comparison.logs import UNNAMED, is_log, read_log
from lesion.studies.comparison.result import UNEDITED, Side, Unit
from lesion.tasks.early import EARLY

KINDS = ("layers", "isolation", "truncation", "tuning")
RUN_AGAIN = "Run one of the studies again with the other's --task, --items and --seed."
GIVE_IDS = "Give them the same name of the task, and the same ids or questions."
COMMANDS = "`lesion ablate`, `evaluate`, `isolate`, `truncate` or `tune`"


@dataclass(frozen=True, eq=False)
class Source:
    """One model of one folder or log with its answers, in the columns of `Store.answers`.

    Attributes:
        kind: of study, as the folder is noted; empty where it is not, `log` of another program's.
        study: as TOML has it.
        units: what the scores of tasks of a log are in.
    """

    side: Side
    kind: str
    study: Mapping[str, Any]
    answers: pd.DataFrame
    units: Mapping[str, Unit] = field(default_factory=dict)

    @cached_property
    def cells(self) -> dict[tuple[str, str], pd.DataFrame]:
        """(task, edit) → the answers, by item in the order in which the study drew them."""
        groups = self.answers.groupby(["task", "edit"], sort=False)
        return {
            (str(task), str(edit)): rows.drop_duplicates("item").set_index("item")
            for (task, edit), rows in groups
        }  # fmt: skip

    @cached_property
    def items(self) -> dict[str, pd.DataFrame]:
        """task → question and gold of every item that was answered, by item."""
        columns = ["question", "gold", "group"]
        return {
            str(task): rows.drop_duplicates("item").set_index("item")[columns]
            for task, rows in self.answers.groupby("task", sort=False)
        }

    @property
    def tasks(self) -> set[str]:
        """The tasks that were answered."""
        return set(self.answers["task"].unique())

    def edits(self, task: str) -> list[str]:
        """The edits under which a task was answered, unedited first, then in the order of their blocks."""
        return sorted((edit for of, edit in self.cells if of == task), key=place_order)

    def scored(self, task: str) -> bool:
        """Whether the answers of a task have one score each, as log-probabilities do, and nothing is right or wrong."""
        return task in self._scored

    def unit(self, task: str) -> Unit | None:
        """What the scores of a task are in; None where its answers are right or wrong."""
        return self.units.get(task, "nats") if self.scored(task) else None

    @cached_property
    def _scored(self) -> frozenset[str]:
        single = (self.answers["scores"].map(len) == 1) & (self.answers["ranks"].map(len) == 0)
        return frozenset(str(task) for task, every in single.groupby(self.answers["task"]).all().items() if every)


def read(folders: Sequence[str | Path], labels: Sequence[str], out: Path, notes: list[str]) -> list[list[Source]]:
    """The models of every folder and log with their answers; what is left out of logs is added to the notes."""
    places = studies_in(folders, or_file=True)
    if labels and len(labels) != len(places):
        raise UsageError(f"There are {len(places)} folders and {len(labels)} labels; give one --label for each folder.")
    names = list(labels) or _names(places)
    groups = [
        _sources(place, name, out, notes, alone=len(places) == 1) for place, name in zip(places, names, strict=True)
    ]
    tasks = {task for group in groups for source in group for task in source.tasks} - {UNNAMED}
    if len(tasks) == 1:
        groups = [[_named(source, *tasks) for source in group] for group in groups]
    return groups if labels else [[_by_model(source, groups) for source in group] for group in groups]


def _by_model(source: Source, groups: Sequence[Sequence[Source]]) -> Source:
    """A log by the name of its model, where that tells it apart: names of logs are dates."""
    others = [
        name for group in groups for each in group if each is not source for name in (each.side.model, each.side.label)
    ]
    if source.kind != "log" or source.side.model in others:
        return source
    return replace(source, side=source.side.model_copy(update={"label": visible(source.side.model)}))


def _named(source: Source, task: str) -> Source:
    """A source whose log names no task, as one of the only task of the others."""
    if source.tasks != {UNNAMED}:
        return source
    units = dict(zip([task], source.units.values(), strict=False))
    return replace(source, answers=source.answers.assign(task=task), units=units)


def _names(places: Sequence[Path]) -> list[str]:
    """The folders by the shortest ends of their paths that tell them apart."""
    whole = [Path(os.path.abspath(place)).parts for place in places]
    for length in range(1, max(map(len, whole)) + 1):
        names = [visible("/".join(parts[-length:])) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return [f"{number} {visible(str(place))}" for number, place in enumerate(places, start=1)]


def _sources(place: Path, name: str, out: Path, notes: list[str], *, alone: bool) -> list[Source]:
    kind, study, models = ("log", {}, read_log(place, notes)) if is_log(place) else _stored(place, name, notes)
    sources = []
    for answers, units in models:
        model = str(answers["model_name"].iloc[0])
        side = Side(
            label=name if len(models) == 1 else model if alone else f"{name} · {model}",
            folder=str(place),
            place=os.path.relpath(place, out),
            model=model,
            fingerprint=str(answers["model"].iloc[0]),
            engines=tuple(sorted(answers["engine"].unique())),
        )
        sources.append(Source(side, kind, study, answers, units))
    return sources


Answers = list[tuple[pd.DataFrame, dict[str, Unit]]]
"""The answers of every model of a folder, and the units of its scored tasks."""


def _stored(place: Path, name: str, notes: list[str]) -> tuple[str, dict[str, Any], Answers]:
    kind = kind_of(place)
    if kind == "demo":
        raise UsageError(f"{place} is a demo of several studies; name folders in it, such as {place / 'layers'}.")
    if kind == "search":
        raise UsageError(
            f"{place} is a search, which compares its choice with the unedited model itself; to compare it with others,"
            " write it with `lesion apply`, and evaluate both."
        )
    if not (place / FILE).exists() or kind not in (None, *KINDS):
        raise UsageError(f"{place} holds no answers to compare; name folders of {COMMANDS}, or logs.")
    with Store.read(place) as store:
        answers, text = store.answers(), store.study[1]
    early = answers["task"].str.startswith(EARLY)
    if early.any():  # of chains that are long under one model or edit, which another selects otherwise
        notes.append(f"{name}: early answers are left out.")
        answers = answers[~early]
    if answers.empty:
        raise UsageError(f"{place} holds no answers yet; run its study first.")
    return kind or "", tomllib.loads(text), [(rows, {}) for _, rows in answers.groupby("model", sort=False)]


def digest(sources: Sequence[Source]) -> str:
    """A digest of the answers: it changes with every answer that is added, and with every verdict."""
    parts = hashlib.sha256()
    for answers in (source.answers for source in sources):
        judged = answers["key"] + np.where(answers["correct"], "1", "0")
        parts.update("".join(sorted(judged)).encode())
    return parts.hexdigest()[:32]


def blocks_of(edit: str) -> frozenset[str] | None:
    """The blocks that an edit touches; None where its text does not say them."""
    try:
        single = list(parts(parse(edit)))
    except UsageError:
        return None  # a selection of weights
    places = (part.address.partition(".")[0] for part in single if isinstance(part, Scale | Truncate))
    return frozenset(places) or None


def place_order(edit: str) -> tuple[bool, list[int], str]:
    """What sorts edits: unedited first, then by the numbers in their text, `2×0` before `10×0`."""
    return edit != UNEDITED, [int(number) for number in re.findall(r"\d{1,9}", edit)][:4], edit


MOST_ALIGNED = 4
"""Edits of one side at one place that are aligned with those of the other; of more, a search, none is."""
CHOSEN = {"truncation": "its edits", "choose": "its edit", "tuning": "a learning rate, if it had several,"}
"""What a study chose on some of its items, by its kind or by the key of its file that asks for it."""
_DECODING = re.compile(
    r"(?:greedy|T=(?P<temperature>\S+) p=(?P<top_p>\S+) seed=(?P<seed>\S+) (?P<sampling>.*?))"
    r" max=(?P<max_new_tokens>\d+) stop=(?P<stop>\[.*\])(?: stop_loops=(?P<stop_loops>\d+))?"
    r"(?: thinking_tokens=(?P<thinking_tokens>\d+))?",
    re.DOTALL,
)


class Match(NamedTuple):
    """Two sources whose answers are compared, and the ids of the items in common by task."""

    a: Source
    b: Source
    items: dict[str, pd.Index]


def sources_of(matches: Sequence[Match]) -> list[Source]:
    """The models of all pairs, each once."""
    return list({source.side.label: source for match in matches for source in match[:2]}.values())


def matches(groups: Sequence[Sequence[Source]], tasks: Sequence[str], notes: list[str]) -> list[Match]:
    """The pairs to compare, with their items; what is left out is added to the notes."""
    every = []
    for a, b in _pairs(groups, notes):
        chosen = _tasks(a, b, tasks, notes)
        b = _by_question(a, b, chosen, notes)
        items = {task: common for task in chosen if len(common := _items(a, b, task, notes))}
        if not items:
            same = any(a.items[task].index.isin(b.items[task].index).any() for task in chosen)
            changed = " Items of the same id read differently: the data has changed." if same else ""
            advice = GIVE_IDS if "log" in (a.kind, b.kind) else RUN_AGAIN
            if tasks and not chosen:
                advice = "Leave out what did not answer it, or name another --task."
            raise UsageError(
                f"{a.side.label} and {b.side.label} have no item of {wording.listed(tasks) or 'a task'} in common:"
                f" {_has(a)}; {_has(b)}.{changed} {advice}"
            )
        for task in items:
            _refuse_incomparable(a, b, task, notes)
        every.append(Match(a, b, items))
    notes += _without_texts(every)
    return every


def _without_texts(matches: Sequence[Match]) -> list[str]:
    """A sentence for the tasks of which models lack the questions, the right answers, or both."""
    lacking: dict[tuple[str, str], list[str]] = defaultdict(list)
    words = {"question": "questions", "gold": "right answers"}
    for source in sources_of(matches):
        for task, items in source.items.items():
            lacks = [word for column, word in words.items() if (items[column] == "").all()]
            compared = any(task in match.items for match in matches)
            if compared and lacks and (source.kind == "log" or len(lacks) == len(words)):
                lacking[task, " and no ".join(lacks)].append(source.side.label)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (task, what), names in lacking.items():
        alike[what, tuple(names)].append(task)
    return [
        f"{wording.listed(tasks)}: {wording.listed(names)} {'has' if len(names) == 1 else 'have'} no {what}; whether"
        " these are the same was not checked."
        for (what, names), tasks in alike.items()
    ]


def _pairs(groups: Sequence[Sequence[Source]], notes: list[str]) -> list[tuple[Source, Source]]:
    """The first folder's model with that of each other folder; of several models those of one name, else the first."""
    first, *others = groups
    if not others:
        if len(first) == 1:
            raise UsageError(f"{first[0].side.folder} holds one model; name a second folder to compare it with.")
        notes.append(f"All models of the folder are compared with its first, {first[0].side.model}.")
        return [(first[0], other) for other in first[1:]]
    pairs = []
    for group in others:
        if len(first) == len(group) == 1:
            pairs.append((first[0], group[0]))
            continue
        by_name = {source.side.model: source for source in first}
        named = [(by_name[source.side.model], source) for source in group if source.side.model in by_name]
        where = f"{first[0].side.folder} and {group[0].side.folder}"
        if named:
            left = [s for s in (*first, *group) if s.side.model not in {a.side.model for a, _ in named}]
            rest = f" Only one of the two has {wording.listed([s.side.model for s in left])}." if left else ""
            notes.append(f"Models of {where} are compared by their names.{rest}")
            pairs += named
        else:
            reference = first[0].side.model
            rest = f" Not compared: {wording.listed([s.side.model for s in first[1:]])}." if len(first) > 1 else ""
            notes.append(f"{where} have no model of one name: each is compared with {reference}.{rest}")
            pairs += [(first[0], source) for source in group]
    return pairs


def _tasks(a: Source, b: Source, wanted: Sequence[str], notes: list[str]) -> list[str]:
    for task in wanted:
        if task not in {**a.items, **b.items}:
            known = sorted({*a.items, *b.items})
            near = nearest(task, known)
            neither = f"Neither {a.side.label} nor {b.side.label}"
            raise UsageError(f"{neither} has answers to {short(task)}{near}; there are {', '.join(known)}.")
    shared = [task for task in a.items if task in b.items and (not wanted or task in wanted)]
    chosen = sorted(shared, key=a.scored)  # those with right and wrong answers first
    for one, other in ((a, b), (b, a)):
        alone = [task for task in one.items if task not in other.items and (not wanted or task in wanted)]
        if alone:
            verb = "is" if len(alone) == 1 else "are"
            pair = f"{a.side.label} and {b.side.label}"
            notes.append(f"Of {pair} only {one.side.label} answered {wording.listed(alone)}, which {verb} left out.")
    return chosen


def _items(a: Source, b: Source, task: str, notes: list[str]) -> pd.Index:
    """The ids of the items that both have and that read the same, in the order of the first."""
    ours, theirs = a.items[task], b.items[task]
    shared, same = _reading_the_same(ours, theirs)
    changed = int((~same).sum())
    common = shared[same]
    if len(common) < max(len(ours), len(theirs)):
        other = f", {changed} with the same id read differently" if changed else ""
        notes.append(
            f"{task}: {wording.counted(len(common), 'item')} in common, of {len(ours):,} in {a.side.label} and"
            f" {len(theirs):,} in {b.side.label}{other}; the others are left out."
        )
    return common


def _reading_the_same(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.Index, np.ndarray]:
    """The ids in common, and whether question and gold are the same, as far as both have them."""
    shared = ours.index
    if not shared.equals(theirs.index):
        shared = shared[shared.isin(theirs.index)]
        ours, theirs = ours.loc[shared], theirs.loc[shared]
    same = np.ones(len(shared), dtype=bool)
    for column in ("question", "gold"):
        mine, yours = (items[column].to_numpy(dtype=object) for items in (ours, theirs))
        same &= (mine == yours) | (mine == "") | (yours == "")
    return shared, same


def _by_question(a: Source, b: Source, tasks: Sequence[str], notes: list[str]) -> Source:
    """The second source with the ids of the first in tasks of which more items have one question than one id."""
    answers = b.answers
    for task in tasks if "log" in (a.kind, b.kind) else ():
        ours, theirs = a.items[task], b.items[task]
        mine, yours = (items["question"].drop_duplicates(keep=False) for items in (ours, theirs))
        ids = {question: item for item, question in mine.items() if question}
        renamed = {item: ids[question] for item, question in yours.items() if question in ids}
        if renamed and len(renamed) > _reading_the_same(ours, theirs)[1].sum():
            items = answers["item"].map(lambda item, renamed=renamed: renamed.get(item, f"{b.side.label} {item}"))
            answers = answers.assign(item=items.where(answers["task"] == task, answers["item"]))
            notes.append(
                f"{task}: items of {a.side.label} and {b.side.label} are matched by their questions, not by ids."
            )
    return b if answers is b.answers else replace(b, answers=answers)


def _has(source: Source) -> str:
    tasks = ", ".join(f"{task} ({wording.counted(len(items), 'item')})" for task, items in source.items.items())
    return f"{source.side.label} has {short(tasks, 300)}"


def _refuse_incomparable(a: Source, b: Source, task: str, notes: list[str]) -> None:
    """Refuse answers that were decoded, prompted or scored otherwise; note another template, dtype or engine."""
    for one, other in ((a, b), (b, a)):
        if one.unit(task) == "score" and other.unit(task) != "score":
            scores = [each[0] for each in one.answers.loc[one.answers["task"] == task, "scores"]]
            if min(scores) < 0 or max(scores) > 1:
                raise UsageError(
                    f"{task}: scores of {one.side.label} reach from {min(scores):g} to {max(scores):g}, and answers of"
                    f" {other.side.label} are right or wrong; bring both to one scale."
                )
    if "nats" in (a.unit(task), b.unit(task)) and a.unit(task) != b.unit(task):
        raise UsageError(f"{task} is scored in one of {a.side.label} and {b.side.label} and answered in the other.")
    mine, yours = ({}, {}) if a.kind == b.kind == "log" else (_settings(a, task), _settings(b, task))
    styles = [_requested(source, task) for source in (a, b)]
    if styles[0] == styles[1] and mine.get("prompt_style") != yours.get("prompt_style"):
        notes.append(
            f"{task}: each model was prompted in its own style, {a.side.label} in {mine.pop('prompt_style')} and"
            f" {b.side.label} in {yours.pop('prompt_style')}; a difference may come from the prompt."
        )
    if "log" in (a.kind, b.kind):
        if a.side.model == b.side.model:
            notes.append(f"{a.side.label} and {b.side.label} are of one model, {a.side.model}.")
        if a.kind == b.kind == "log" and (prompts := _differing_prompts(a, b, task)):
            notes.append(f"{task}: {wording.counted(prompts, 'item')} had different prompts.")
        for what in ("decoding", "judge"):
            says = [_said(each, task, what) for each in (a, b)]
            if says[0] != says[1]:
                verb = "was decoded by" if what == "decoding" else "is judged by"
                notes.append(
                    f"{task}: {a.side.label} {verb} {says[0]} and {b.side.label} by {says[1]}; a difference may come"
                    " from that."
                )
        return
    differing = [key for key in {**mine, **yours} if mine.get(key) != yours.get(key)]
    if differing:
        words = "; ".join(
            f"{key} is {mine.get(key)} in {a.side.label} and {yours.get(key)} in {b.side.label}" for key in differing
        )
        raise UsageError(
            f"Answers to {task} cannot be compared: {words}. Run one of the studies again with the other's, or name the"
            " tasks to compare with --task."
        )
    if a.side.engines != b.side.engines:
        notes.append(
            f"{a.side.label} was answered by {' and '.join(a.side.engines)}, {b.side.label} by"
            f" {' and '.join(b.side.engines)}: rounding may change single answers."
        )
    for source in (a, b):
        if "stop" in source.study:
            notes.append(
                f"{source.side.label} stopped asking once a cell was decided: which items a cell has depends on its"
                " answers, and neither intervals nor p allow for that."
            )
        chosen = CHOSEN.get("choose" if "choose" in source.study else source.kind)
        if chosen:
            notes.append(
                f"{source.side.label} chose {chosen} on some of these items; on others that choice may look less good."
            )


def _said(source: Source, task: str, what: str) -> str:
    rows = source.cells[task, UNEDITED]
    said = " and ".join(sorted(rows[what].unique())) if what in rows else "lesion"
    return short(said, 200) or "settings that its log does not say"


def _differing_prompts(a: Source, b: Source, task: str) -> int:
    mine, yours = (each.cells[task, UNEDITED]["prompt"] for each in (a, b))
    yours = yours.reindex(mine.index)
    return int(((mine != yours) & (mine != "") & (yours.fillna("") != "")).sum())


def _settings(source: Source, task: str) -> dict[str, str]:
    """How a task was put and decoded; of scored answers and choices only how it was put."""
    rows = source.answers[source.answers["task"] == task]
    settings = {"prompt_style": " and ".join(sorted(rows["prompt_style"].unique()))}
    if (rows["scores"].map(len) > 0).all():
        return settings
    decoding = " and ".join(sorted(rows["decoding"].unique()))
    match = _DECODING.fullmatch(decoding)
    if match is None:
        return settings | {"decoding": decoding}
    greedy = {"temperature": "0", "top_p": "1", "stop_loops": "0", "thinking_tokens": "0"}
    return settings | greedy | {key: value for key, value in match.groupdict().items() if value is not None}


def _requested(source: Source, task: str) -> str | None:
    """The prompt style that the study asks for; None: the task's own for each model."""
    choices: list[Mapping[str, Any]] = []
    for key, chosen, name in (("task", TaskChoice, task), ("model", ModelChoice, source.side.model)):
        named = source.study.get(f"{key}s", source.study.get(key, ()))
        entries = named if isinstance(named, list) else [named]
        choices += [entry for entry in entries if isinstance(entry, dict) and chosen(**entry).name == name]
    return next((each["prompt_style"] for each in (*choices, source.study) if each.get("prompt_style")), None)


def aligned(a: Source, b: Source, task: str) -> list[tuple[str, str]]:
    """Edits that only one of two sources of the same model has, each with those of the other at the same blocks.

    None where a side has more than `MOST_ALIGNED` at some blocks: it searched, and did not ask of one.
    """
    mine, yours = a.edits(task), b.edits(task)
    theirs: dict[frozenset[str], list[str]] = defaultdict(list)
    ours: dict[frozenset[str], list[str]] = defaultdict(list)
    for edits, others, by_blocks in ((mine, yours, ours), (yours, mine, theirs)):
        for edit in edits:
            if edit not in others and (blocks := blocks_of(edit)) is not None:
                by_blocks[blocks].append(edit)
    shared = [blocks for blocks in ours if blocks in theirs]
    if any(len(edits[blocks]) > MOST_ALIGNED for edits in (ours, theirs) for blocks in shared):
        return []
    return [(first, second) for blocks in shared for first in ours[blocks] for second in theirs[blocks]]
