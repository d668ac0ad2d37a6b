"""The catalogue of tasks: from a name to the task, and from a task to its items, drawn with a seed or to observe on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from lesion.arguments import validated
from lesion.bounds import MOST, check
from lesion.errors import UsageError, nearest
from lesion.files import named
from lesion.plain import short
from lesion.tasks import given
from lesion.tasks.benchmark import Benchmark
from lesion.tasks.benchmarks import BENCHMARKS
from lesion.tasks.generated import FAMILIES
from lesion.tasks.generated import NAMES as GENERATED
from lesion.tasks.harness.task import Harness
from lesion.tasks.jsonl import JUDGES, JsonLines
from lesion.tasks.query import HEAD, HarnessName, Option, options, read
from lesion.tasks.question_files import is_question_file
from lesion.tasks.running import RunningText
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import FewShot, Gold, Shuffled
from lesion.tasks.wrapped import calibration_items as calibration_items

PRIMER = ("arithmetic", "atlas", "biography", "reading", "text")
NAMES = (*BENCHMARKS, *GENERATED, "wikitext", "text", "jsonl", *(f"primer:{name}" for name in PRIMER))
JUDGE = Option("contains", JUDGES, "what judges the questions of a file")
LONGEST = 10_000  # characters of a name, which may hold a path

# What may stand before the name of a task, in this order.
BEFORE = ("gold", "shuffled", "fewshot")


def canonical(name: str) -> str:
    """One name for all the ways in which a task on a file can be typed; other names as they are.

    `questions.jsonl`, `./questions.jsonl` and `jsonl:/home/me/questions.jsonl` may be one and the same.
    """
    head, colon, rest = name.partition(":")
    if head in BEFORE and rest:
        count, colon, inner = rest.partition(":") if head == "fewshot" else ("", "", rest)
        return ":".join(filter(None, (head, count, canonical(inner)))) if inner else name
    if head == given.HEAD:
        return name
    if head == HEAD and colon:
        return HarnessName.parse(name).canonical
    if (bare := head.partition("?")[0]) in FAMILIES:
        return FAMILIES[bare].canonical(name)
    if not colon:
        head, rest = ("jsonl", name) if is_question_file(name.partition("?")[0]) else (head, "")
    place, mark, query = rest.partition("?")
    try:
        path = named(place) if place else None
    except UsageError:
        return name
    return f"{head}:{os.path.realpath(path)}{mark}{query}" if path is not None and path.exists() else name


@validated
def find(name: str) -> Task:
    """The task that `name` names.

    Args:
        name: `gsm8k`, `svamp`, `math500`, `triviaqa`, `nq_open`, `mmlu`, `race` (from the hub), the same with `:PATH`
            (a local file of the same form; of `mmlu` and `race` also a folder),
            `triviaqa…?rule=words|exact|substring` and `nq_open…?rule=…`, `mmlu…?form=letter|text` and
            `race…?form=…`, `text:PATH` (running text of any kind), `wikitext` (running text from the hub),
            `jsonl:PATH` or `PATH.jsonl` (any questions; also `.json`, `.csv`, `.tsv` and `.parquet`, each also
            `.gz`; `…?judge=exact|math|contains` in place of what lines name),
            `primer:arithmetic`, `primer:atlas`, `primer:reading`, `primer:biography`, `primer:text`,
            `primer:atlas?form=contrast`; `ioi` and `facts` (contrasts, of this project), the same with `:PATH`,
            `ioi…?tempting=subject|TEXT` and `facts…?tempting=frequent|TEXT`;
            `arithmetic:add`, `…:subtract`, `…:multiply`, `…:compare`, `…:copy`, `…:words`, `copying`, `induction`,
            `agreement` and `greater_than` (generated, with options such as `arithmetic:add?digits=2&shots=4`);
            `harness:NAME` (any task of lm-evaluation-harness, with `?metric=…&filter=…&shots=K&path=FOLDER`). Before
            any of them may stand `gold:` (score the gold answers), `shuffled:` (deal out the gold answers anew) and
            `fewshot:K:` (put K solved questions first), in this order.

    Raises:
        UsageError: there is no such task (with the nearest names) or file, a task cannot be made from another in the
            way asked for, or something is wrong in a JSON Lines file, which is read here.
    """
    if len(name) > LONGEST:
        raise UsageError(f"There is no task '{short(name)}': no name is that long.")
    head, colon, rest = name.partition(":")
    bare = head.partition("?")[0]
    if head in BEFORE and colon:
        return _wrapped(name, head, rest)
    if head == "primer" and colon:
        return _primer(name, rest)
    if head == HEAD:
        return Harness.read(name)
    if head == given.HEAD:
        return given.find_given(name)
    if bare in FAMILIES:
        return FAMILIES[bare].find(name)
    if bare in BENCHMARKS:
        return _benchmark(name, BENCHMARKS[bare])
    if head in ("text", "jsonl") and not rest:
        raise UsageError(f"Say which file: {head}:PATH.")
    if head == "text":
        return _checked(RunningText(rest))
    if name == "wikitext":
        return RunningText()
    if head == "jsonl" or is_question_file(name) or is_question_file(name.partition("?")[0]):
        place, mark, query = name.removeprefix("jsonl:"), "", ""
        if not is_question_file(place):  # a path may have a `?` of its own
            place, mark, query = place.partition("?")
        return JsonLines.read(place, name, str(read(name, query, {"judge": JUDGE})["judge"]) if mark else "")
    if Path(bare).suffix == ".txt":
        raise UsageError(
            f"'{short(name)}' is no task; a file of your own questions is JSON Lines (.jsonl), a JSON list, CSV or"
            " Parquet; a file of running text is text:PATH."
        )
    raise UsageError(
        f"There is no task '{short(name)}'{nearest(name, (*NAMES, f'{HEAD}:NAME'))}. There are {', '.join(NAMES)}; "
        f"a file of your own questions is jsonl:PATH, a file of running text text:PATH, any task of "
        f"lm-evaluation-harness {HEAD}:NAME. Before a task may stand gold:, shuffled: and fewshot:K:."
    )


def _wrapped(name: str, head: str, rest: str) -> Task:
    """A task made from another: `gold:TASK`, `shuffled:TASK`, `fewshot:K:TASK`."""
    count, form = "", f"{head}:TASK"
    if head == "fewshot":
        count, _, rest = rest.partition(":")
        form = "fewshot:K:TASK"
        if not (count.isascii() and count.isdigit() and count[0] != "0"):
            raise UsageError(f"In '{name}' there is no number of solved questions; write {form}: fewshot:4:gsm8k.")
        if len(count) > 6:
            raise UsageError(f"In '{short(name)}' there are too many solved questions; {MOST['shots']:,} are the most.")
        check(shots=int(count))
    if not rest:
        raise UsageError(f"Say which task: {form}.")
    inner = rest.partition(":")[0]
    if inner in BEFORE and BEFORE.index(inner) <= BEFORE.index(head):
        raise UsageError(
            f"'{name}' has {head}: before {inner}:; write each once at most, and in the order "
            f"gold:shuffled:fewshot:K:TASK."
        )
    task = find(rest)
    if isinstance(task, Harness) and head != "gold":
        instead = f"'{rest}?shots={count}'" if head == "fewshot" else f"gold:{rest}, or shuffled: before another task"
        raise UsageError(
            f"The prompts and verdicts of {rest} are the harness's own; instead of {head}: take {instead}."
        )
    if head == "fewshot":
        return FewShot(task, int(count))
    return Gold(task) if head == "gold" else Shuffled(task)


def _benchmark(name: str, benchmark: type[Benchmark]) -> Task:
    """A benchmark from the hub, or from local files in its form, with what stands behind the `?`."""
    option = benchmark.option
    # A path may have a `?` of its own.
    body, mark, _ = name.partition(f"?{option}=") if option else (name, "", "")
    head, colon, path = body.partition(":")
    if not mark:
        head, mark, _ = head.partition("?")
        body = head if mark else body
    given = options(name, name[len(body) + 1 :], {option: benchmark.settings[1]} if option else {}) if mark else {}
    if colon and not path:
        raise UsageError(f"There is no path behind the colon of '{name}'; write {head}:PATH, or {head} for the hub.")
    return _checked(benchmark(path if colon else None, given.get(option)))


def _checked(task: Benchmark) -> Task:
    if task.path is not None:
        task.files(task.path)
    return task


def _primer(name: str, member: str) -> Task:
    member, mark, setting = member.partition("?")
    form = setting.removeprefix("form=")
    if member not in PRIMER:
        known = [f"primer:{known}" for known in PRIMER]
        raise UsageError(f"There is no task '{short(name)}'{nearest(name, known)}; there are {', '.join(known)}.")
    if mark and (member != "atlas" or form == setting):
        raise UsageError(
            f"primer:{member} has no setting '{short(setting)}'; primer:atlas?form=contrast is the only one there is."
            " How many questions are asked is --items."
        )
    if mark and form != "contrast":
        raise UsageError(f"There is no form '{form}' for primer:atlas; there is contrast: primer:atlas?form=contrast.")
    from lesion.tasks.primer import task  # it builds its world when imported

    return task(f"{member}{mark}{setting}")


def source(name: str) -> str:
    """Where the items of a task come from: its `canonical` name without what stands before it or behind its `?`.

    `gold:primer:atlas` and `primer:atlas` have the same items, and so have the two forms of mmlu.
    """
    return unwrapped(canonical(name)).partition("?")[0]


def unwrapped(name: str) -> str:
    """A name without what stands before the task: `primer:atlas` of `gold:fewshot:4:primer:atlas`."""
    while (head := name.partition(":")[0]) in BEFORE:
        name = name.split(":", 2 if head == "fewshot" else 1)[-1]
    return name


def draw(task: Task, items: int | None, seed: int, avoid: Collection[str] = ()) -> list[Item]:
    """A seeded sample of the items of a task, without replacement, in seeded order.

    Items are ordered by the SHA-256 of seed and id, so that the same seed draws the same items on every
    platform, whatever the order of the file, and a smaller draw is the beginning of a larger one.

    Items whose ids are to be avoided are drawn last.
    """

    if items is not None and items < 1:
        raise UsageError(f"{items} items were asked for; ask for at least 1.")

    def order(item: Item) -> tuple[bool, bytes]:
        digest = hashlib.sha256(f"{seed}:{item.id}".encode("utf-8", "surrogatepass")).digest()
        return item.id in avoid, digest

    return sorted(task.load(), key=order)[:items]
