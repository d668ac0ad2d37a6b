"""Command lines with bad input: every option of every command, paths, tasks, models, files and folders of others."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from campaign_places import Places, commands, shuffled_bytes, shuffled_json

FOREIGN, CHANGED = 77, 78
"""Exit codes of a case that ended in a foreign exception, and of one that was refused and yet changed files."""
Expect = Literal["refused", "accepted", "either"]
ESCAPE, RIGHT_TO_LEFT, FORGED = "\x1b[31mred", "a\u202etxt", "a\nlesion: all is well."


@dataclass(frozen=True)
class Case:
    """A command line, or a call from Python.

    Attributes:
        name: says what is bad.
        arguments: of the command.
        function: is called instead where it is given.
        prepare: makes files in the case's own folder, which is the working folder of the case.
        expect: what should become of it.
        plain_user: whether it runs as somebody who may not read everything, where the campaign runs as root.
        kept: a folder in the case's own whose results may not change where the case is refused.
    """

    name: str
    arguments: tuple[str, ...] = ()
    function: Callable[[], Any] | None = None
    prepare: Callable[[Path], None] | None = None
    expect: Expect = "refused"
    plain_user: bool = False
    kept: str | None = None

    def call(self) -> int:
        """Run it; the exit code."""
        from lesion.cli.main import code
        from lesion.errors import LesionError, UsageError

        if self.function is None:
            return code(list(self.arguments))
        try:
            self.function()
        except LesionError as error:
            print(f"lesion: {error}", file=sys.stderr)
            return 2 if isinstance(error, UsageError) else 1
        return 0

    def digest(self, inside: Path) -> str:
        """Of all results in the folder that is to be kept."""
        if self.kept is None:
            return ""
        files = sorted(path for path in (inside / self.kept).rglob("*") if path.suffix in (".json", ".html", ".csv"))
        chosen = [path for path in files if path.name != "lesion.json"]
        return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in chosen)).hexdigest()


COUNT = (
    "", " ", "nan", "inf", "-5", "٣", "1_0", "0x10", "1.5", "9" * 40, "7" * 5000, f"7{ESCAPE}", "1e3", "99999999999",
    "--", "\u00a01\n2",
)  # fmt: skip
REAL = (
    "", " ", "nan", "inf", "-inf", "٠.٥", "1_0.5", "1e400", "0,5,", "x" * 5000, f"0.5{ESCAPE}", "0.5.5", "½",
    RIGHT_TO_LEFT, "0x1p3",
)  # fmt: skip
WORD = ("", " ", "nosuch", ESCAPE, RIGHT_TO_LEFT, FORGED, "x" * 5000, "Ａｕｔｏ", "\ud800", "[1,", "a" * 300 + "/b")
TASK = (
    "", " ", ":", "primer:", "primer:nosuch", f"primer:{ESCAPE}", "jsonl:", "jsonl:~nosuchuser/x",
    "~nosuchuser/x.jsonl",     "gsm8k:/dev/zero", "text:/dev/zero",
    f"jsonl:{'b' * 300}", "a" * 5000, "gold:", "gold:gold:primer:atlas",
    "fewshot:٣:primer:atlas", "fewshot:0:primer:atlas", "fewshot:99999999999:primer:atlas",
    "shuffled:" * 400 + "primer:atlas", "mmlu:", "mmlu:[", "race:nowhere", "primer:atlas?form=\x1b[31m",
    f"nosuch{RIGHT_TO_LEFT}", "harness:", "harness:../../x", "harness:nosuch?shots=x", "ioi?nosuch=1", "triviaqa:pipe",
    "text:loop", "facts:folder", "nq_open:empty.jsonl", "a\x00b.jsonl", "jsonl:folder", "race:pipe", "gsm8k:big.jsonl",
)  # fmt: skip
PATH = (
    "", " ", "~nosuchuser/x", "a" * 300, "a/" * 2500, "loop", "loop/x", ESCAPE, RIGHT_TO_LEFT, "x\x00y", "pipe",
    "/dev/zero", "folder", "absent", "empty.jsonl", "a\nb", "latin.txt", "closed/x", "big.jsonl",
)  # fmt: skip
OUT = (
    "", " ", "~nosuchuser/x", "a" * 300, "a/" * 2500, "loop", "loop/x", ESCAPE, RIGHT_TO_LEFT, "x\x00y", "pipe",
    "/dev/null", "empty.jsonl", "empty.jsonl/x", "closed/x", "/proc/nosuch/x", "a\nb", "dangling",
)  # fmt: skip
_COUNTS = (
    "items", "max-new-tokens", "repeats", "samples", "random-controls", "steps", "rows", "adapter", "control-items",
    "ablation-items", "validation-items", "clusters", "runs", "starts", "groups", "checkpoints", "classes", "inputs",
    "width", "vocabulary", "workers", "gpus-per-worker", "screen-items", "stop-loops", "batch-size", "seed",
)  # fmt: skip
_REALS = (
    "factor", "temperature", "top-p", "level", "effect", "keep", "share", "validation", "eliminate", "learning-rate",
    "noise",
)  # fmt: skip
_KINDS = (
    (_COUNTS, COUNT), (_REALS, REAL), (("task", "skill", "control"), TASK), (("edit", "study", "corpus"), PATH),
    (("out",), OUT),
)  # fmt: skip
_FLAGS = ["--help", "--replacement", "--force", "--compose", "--overwrite", "--list", "--trust-remote-code"]
# Of these whatever is not a known word is refused at once; others are resolved later, or can be of any size or text.
_FREE = ("--revision", "--budget", "--ray", "--base", "--model", "--seed", "--checkpoints", "--stop")


def surroundings(inside: Path) -> None:
    """Things of every bad kind in a folder: a circle of links, a pipe, a closed folder, text of another encoding."""
    (inside / "loop").symlink_to("loop")
    (inside / "dangling").symlink_to("nowhere/at/all")
    (inside / "folder").mkdir()
    (inside / "empty.jsonl").touch()
    (inside / "latin.txt").write_bytes(b"na\xefve \xff\xfe\x00\n" * 3)
    (inside / "big.jsonl").write_text('{"id": "0", "prompt": "a", "answer": %s}\n' % ("9" * 5000))
    os.mkfifo(inside / "pipe")
    (inside / "closed").mkdir(mode=0o700)
    (inside / "closed" / "x").mkdir()


def cases(places: Places) -> list[Case]:
    """Everything that is typed: options, arguments, data sets and study files."""
    return [*_options(places), *_arguments(places), *_data(places), *_studies(places)]


def _base(places: Places) -> dict[str, list[str]]:
    """A cheap command line of every command, to which a bad option is added."""
    made = commands(places, "o")
    first, second = map(str, places.edits)
    return {
        "show": ["show", str(places.model)],
        "ablate": made["layers"],
        "isolate": made["isolation"],
        "evaluate": made["evaluation"],
        "truncate": made["truncation"],
        "tune": made["tuning"],
        "overlay": made["overlay"],
        "drift": made["drift"],
        "apply": ["apply", str(places.model), "--edit", first, "--out", "o"],
        "run": ["run", "recall-quick", "--out", "o"],
        "edit combine": ["edit", "combine", first, second, "--op", "or", "--out", "c.edit"],
        "lab lineage": ["lab", "lineage", "--stage", "base", "--groups", "1", "--out", "o"],
        "lab memory": made["memory"],
        "lab recall": made["recall"],
    }


def _options(places: Places) -> Iterator[Case]:
    """Every option of every command with bad values of its kind, in turn."""
    from lesion.cli.main import _command

    root: Any = _command()
    for name, line in _base(places).items():
        command = root
        for part in name.split():
            command = command.commands[part]
        for option in [parameter.opts[0] for parameter in command.params if parameter.opts[0].startswith("--")]:
            bare = option.removeprefix("--")
            if option in _FLAGS or (name, bare) == ("ablate", "screen"):
                continue
            values: Sequence[str] = next((kind for names, kind in _KINDS if bare in names), WORD)
            turn = zlib.crc32(f"{name} {option}".encode())
            for number in range(5 if values is OUT else 2 if values in (TASK, PATH) else 1 + turn % 2):
                value = values[(turn + number * 5) % len(values)]
                yield Case(
                    f"{name} {option} {value[:40]!a}",
                    (*line, option, value),
                    prepare=surroundings,
                    expect="either" if option in _FREE else "refused",
                    plain_user=value == "closed/x",
                )


def _arguments(places: Places) -> Iterator[Case]:
    """Arguments without a name, and commands without any."""
    first = str(places.edits[0])
    for value in PATH:
        private = value == "closed/x"
        for line in (
            ["show", value],
            ["report", value],
            ["run", value],
            ["edit", "show", value],
            ["edit", "combine", value, first, "--op", "or", "--out", "c.edit"],
            ["overlay", value, str(places.studies["layers"]), "--out", "o"],
            ["compare", value, str(places.studies["layers"]), "--out", "o"],
        ):
            yield Case(
                f"{' '.join(line[:2])[:30]!a} {value[:40]!a}", tuple(line), None, surroundings, plain_user=private
            )
    for value in ("", "empty.jsonl", "pipe", "loop", "/dev/null", "a" * 300):
        yield Case(f"demo --out {value[:40]!a}", ("demo", "--out", value), None, surroundings)
    for line in (
        [],
        ["nosuch"],
        [ESCAPE],
        ["ablate"],
        ["edit"],
        ["lab"],
        ["edit", "nosuch"],
        ["run"],
        ["--nosuch"],
        ["\x00"],
        ["ablate", str(places.model)],
    ):
        yield Case(f"bare {line}"[:60], tuple(line))
    for model in (
        "bundled:nosuch",
        f"bundled:{ESCAPE}",
        "nobody/nothing",
        "a//b",
        "../" * 50,
        "bundled:",
        "http://localhost/x",
        "." * 300,
    ):
        yield Case(f"show model {model[:40]!a}", ("show", model))
        yield Case(f"ablate model {model[:40]!a}", ("ablate", model, "--task", str(places.sums), "--out", "o"))
    for layers in ("3", "0-99999999999", "2-0", "-1", "0,,1", "٠", "0-", "x" * 3000, "0," * 5000, ESCAPE):
        yield Case(
            f"ablate layers {layers[:20]!a}",
            (*commands(places, "o")["layers"], "--layers", layers),
            expect="either" if layers[1:3] == ",0" else "refused",
        )
    yield Case("good: show", ("show", str(places.model)), expect="accepted")
    for kind, line in commands(places, "o").items():
        yield Case(f"good: {kind}", tuple(line), expect="accepted")


def _data(places: Places) -> Iterator[Case]:
    """Data sets of every format, damaged by value and by byte."""
    model, controls = str(places.model), str(places.controls)
    for task, file in places.data.items():
        for seed in range(8):

            def prepare(inside: Path, file: Path = file, seed: int = seed) -> None:
                data = file.read_bytes()
                if seed < 5 and file.suffix in (".json", ".jsonl"):
                    lines = data.decode().splitlines() if file.suffix == ".jsonl" else [data.decode()]
                    lines[0] = shuffled_json(lines[0], seed)
                    data = "\n".join(lines).encode("utf-8", "surrogatepass")
                else:
                    data = shuffled_bytes(data, seed)
                (inside / f"d_test{file.suffix}").write_bytes(data)

            damaged = f"{task}:d_test{file.suffix}"
            line = ["ablate", model, "--task", damaged, "--layers", "0", "--items", "1", "--max-new-tokens", "2"]
            if task == "text":  # it is not asked but observed on
                line = ["isolate", model, "--skill", damaged, "--control", controls, "--samples", "1", "--share", "0.1"]
            yield Case(f"data {task} {seed}", (*line, "--out", "o"), prepare=prepare, expect="either")


def _studies(places: Places) -> Iterator[Case]:
    """Study files of every kind, damaged by value and by byte, and some that were seen to do harm."""
    from lesion.core.study_file import shipped

    model, sums, controls, choices = (
        json.dumps(str(path)) for path in (places.model, places.sums, places.controls, places.choices)
    )
    few = "items = 2\nmax_new_tokens = 2\n"
    whole = {
        "layers": f'name = "a"\nmodels = [{model}]\ntasks = [{sums}]\nitems = 2\nanyway = true\n'
        "[edits]\nlayers = [0]\nfactor = 0.0\n",
        "isolation": f'kind = "isolation"\nname = "a"\nmodel = {model}\nskill = {sums}\ncontrols = [{controls}]\n'
        "share = [0.1]\nsamples = 2\n",
        "truncation": f'kind = "truncation"\nname = "a"\nmodel = {model}\ntasks = [{choices}]\nitems = 6\n'
        'anyway = true\nmatrices = ["mlp.up"]\nlayers = [0]\nkeep = [0.5]\n',
        "drift": f'kind = "drift"\nname = "a"\nmodels = [{model}]\ntask = {sums}\nclusters = 3\n'
        f"runs = 1\nstarts = 1\n{few}",
        "tuning": f'kind = "tuning"\nname = "a"\nmodel = {model}\ntask = "primer:arithmetic"\narms = ["critical"]\n'
        f"budget = 1\nsteps = 1\nrows = 2\n{few}validation_items = 2\nablation_items = 2\n",
        "recall": 'kind = "recall"\nname = "a"\npreset = "quick"\nnoise = [0.5]\nseed = [0]\nsteps = 1\n'
        "vocabulary = 8\nwidth = 8\n",
    }
    values = (
        "[]", "{}", '""', "-1", "1e400", "nan", "inf", "9" * 5000, '"\\u001b[31m"', '"\\u202e"', "true", "[[[]]]",
        "1_0", "0x10", f'"{"x" * 5000}"', "1979-05-27", "[1, 'a']", '"../../x"',
        '"~nosuchuser/x"', '"a\\u0000b"', "[" * 3000 + "]" * 3000,
    )  # fmt: skip
    for kind, text in whole.items():
        lines = text.splitlines()
        for number in range(7):
            chance = random.Random(f"{kind} {number}")
            place = chance.randrange(len(lines))
            key, mark, _ = lines[place].partition(" = ")
            changed = list(lines)
            changed[place] = f"{key} = {chance.choice(values)}" if mark and number < 6 else f"no{lines[place]}"
            if key == "name":
                changed[place] = f"{key} = {values[-1 - number % 4]}"
            yield Case(
                f"study {kind} {changed[place][:40]!a}",
                ("run", "s.toml", "--out", "o"),
                prepare=written("s.toml", "\n".join(changed).encode()),
                expect="either",
            )
        data = text.encode()
        for seed in range(3):
            yield Case(
                f"study bytes {kind} {seed}",
                ("run", "s.toml", "--out", "o"),
                prepare=written("s.toml", shuffled_bytes(data, seed)),
                expect="either",
            )
    for label, text in {
        "name up": whole["layers"].replace('"a"', '"../../x"', 1),
        "name absolute": whole["layers"].replace('"a"', json.dumps("/lesion-campaign-x"), 1),
        "name null": whole["layers"].replace('"a"', '"a\\u0000b"', 1),
        "name control": whole["layers"].replace('"a"', '"\\u001b[31m"', 1),
        "kind list": 'kind = ["drift"]\n',
        "kind table": "kind = {}\n",
        "kind control": 'kind = "\\u001b[31m"\n',
        "many faults": whole["layers"] + "".join(f"unknown_{n} = {n}\n" for n in range(600)),
        "many tables": "".join(f"[table_{n}]\nx = 1\n" for n in range(2000)),
        "huge": "# " + "x" * (2 << 20),
        "task with a line": whole["layers"].replace(f"tasks = [{sums}]", 'tasks = ["a\\nb"]'),
    }.items():
        # Without --out the name becomes a folder.
        yield Case(f"study {label}", ("run", "s.toml"), prepare=written("s.toml", text.encode()))
    yield Case("study wrong name", ("run", "layer-importance-bundeld"))
    assert shipped()


def written(name: str, data: bytes) -> Callable[[Path], None]:
    """Makes a file in the case's own folder."""

    def prepare(inside: Path) -> None:
        (inside / name).write_bytes(data)

    return prepare
