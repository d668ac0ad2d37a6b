"""The command itself: help, exit codes, the traceback, and how soon it answers."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from commandline import lesion, questions, save
from lesion.cli.main import _command
from lesion.registry import methods

COMMANDS = ("demo", "show", "ablate", "run", "report", "lab")
WRONG = ("ablate", "bundled:nobody", "--task", "primer:atlas")


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "lesion", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("lab", "lineage")])
@pytest.mark.parametrize("more", [(), ("all",)])
def test_help_is_readable_at_80_columns(command, more, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = lesion(capsys, *command, "--help", *more)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…│" not in done.out  # nothing is cut off
    assert f"Usage: {' '.join(('lesion', *command))} " in done.out


@pytest.mark.parametrize("method", [each for each in methods().values() if each.command], ids=lambda each: each.command)
def test_help_of_a_study_shows_what_everybody_needs_and_help_all_every_option(method, capsys):
    words = method.command.split()
    short, full = (lesion(capsys, *words, "--help", *more).out for more in ((), ("all",)))
    listed = [re.findall(r"^│ [* ]*(--[a-z-]+) ", text, re.M) for text in (short, full)]
    every = {option.flag for option in method.options if not option.argument}
    assert every <= set(listed[1])
    assert {option.flag for option in method.options if option.required and not option.argument} <= set(listed[0])
    if method.distributed:
        assert len(listed[0]) <= 10  # --help among them
        assert f" Every option: {' '.join(('lesion', *words))} --help all " in short
    else:
        assert listed[0] == listed[1]
    assert "Every option" not in full


def test_the_version_is_that_of_the_package(capsys):
    assert lesion(capsys, "--version").out == f"lesion {version('lesion')}\n"


def leaves(command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every command that is no group, with the words that name it."""
    inner = getattr(command, "commands", {})
    for name, each in inner.items():
        yield from leaves(each, (*path, name))
    if not inner:
        yield path, command


def test_every_help_has_panels_in_one_order_examples_that_parse_and_no_types(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    panels = ("What", "Training", "Statistics", "Decoding", "Hardware", "Help")
    known = dict(leaves(_command()))
    for path, command in known.items():
        said = lesion(capsys, *path, "--help").out
        titles = [line.split()[1] for line in said.splitlines() if line.startswith("╭─")]
        assert [title for title in titles if title != "Arguments"] == [title for title in panels if title in titles]
        assert not re.search("<(bool|str|int|float|list.*)>", said), said
        examples = [line.strip() for line in said.splitlines() if line.startswith(" lesion ")]
        assert examples, path
        for example in examples:
            words = shlex.split(example)
            assert tuple(words[1 : len(path) + 1]) == path
            command.make_context("lesion", words[len(path) + 1 :])  # refuses what is no option


def test_alone_the_command_says_where_to_start_and_is_wrong_use(capsys):
    done = lesion(capsys)
    for start in ("lesion show bundled:llama-base", "lesion ablate MODEL --task questions.jsonl", "lesion demo"):
        assert start in done.out
    assert done.code == 2


@pytest.mark.parametrize(
    ("arguments", "names", "where"),
    [
        (["ablat"], "'ablat'", "lesion"),
        (["ablate"], "'MODEL'", "lesion ablate"),
        (["ablate", "m"], "'--task'", "lesion ablate"),
        (["ablate", "m", "--task", "t", "--tusk"], "--tusk", "lesion ablate"),
        (["lab", "lineage", "extra"], "extra", "lesion lab lineage"),
        (["report"], "'DIR'", "lesion report"),
    ],
)
def test_wrong_options_are_one_paragraph_that_names_the_help(arguments, names, where, capsys):
    done = lesion(capsys, *arguments)
    assert (done.code, done.out) == (2, "")
    assert names in done.complaint
    assert done.complaint.endswith(f" See `{where} --help`.\n")
    assert done.complaint.count("\n") == 1


@pytest.mark.parametrize("place", [0, 1, len(WRONG)])
def test_debug_shows_the_traceback_wherever_it_stands_and_keeps_the_exit_code(place, capsys):
    plain = lesion(capsys, *WRONG)
    assert (plain.code, "Traceback" in plain.err) == (2, False)
    debug = lesion(capsys, *WRONG[:place], "--debug", *WRONG[place:])
    assert debug.code == 2
    assert debug.err.startswith("Traceback (most recent call last):")
    assert debug.err.endswith(plain.err)


def test_debug_shows_the_traceback_of_a_failure_and_of_what_nobody_foresaw(capsys, tmp_path, monkeypatch):
    done = lesion(capsys, "report", tmp_path, "--debug")
    assert (done.code, "Traceback" in done.err) == (1, True)
    monkeypatch.setattr("lesion.studies.ablation.run.run_ablation", lambda *_, **__: 1 / 0)
    arguments = ["ablate", save(tmp_path / "m"), "--task", questions(tmp_path / "q.jsonl", 2), "--items", 1]
    plain = lesion(capsys, *arguments)
    assert plain.code == 1
    assert "ZeroDivisionError: division by zero" in plain.complaint
    assert "--debug" in plain.complaint
    debug = lesion(capsys, *arguments, "--debug")
    assert debug.code == 1
    assert "in <lambda>" in debug.err


def test_the_module_and_the_command_are_one_and_help_waits_for_no_model_library():
    """One process answers for all: it is listed what it imported."""
    listing = "import atexit, runpy, sys; atexit.register(lambda: print(sorted(sys.modules)))"
    listing += "; sys.argv = ['lesion', '--help']; runpy.run_module('lesion', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=120, check=True)
    assert "Usage: lesion" in done.stdout
    assert "'lesion.cli.study'" in done.stdout
    for library in ("torch", "transformers", "pandas", "matplotlib", "altair"):
        assert f"'{library}'" not in done.stdout


def test_a_process_of_its_own_leaves_with_the_exit_code_and_keeps_its_streams_apart(tmp_path):
    done = process("run", str(tmp_path / "absent.toml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"lesion: There is no file {tmp_path / 'absent.toml'}")
    assert done.stderr.count("\n") == 1


def test_a_very_long_word_is_cut_in_what_is_said_of_it(capsys):
    done = lesion(capsys, "run", "--schema", "layers", "x" * 5000)
    assert done.code == 2
    assert "unexpected extra argument" in done.complaint
    assert len(done.complaint) < 600


# A shell's background jobs are started with SIGINT ignored.
START = """import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from lesion.cli import main"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["after the last line", "at the end", "swallowed"])
def test_a_signal_at_the_end_leaves_with_its_code_and_no_traceback(moment, number):
    run, send = "main.main(['--version'])", f"os.kill(os.getpid(), {int(number)})"
    listing = {
        "after the last line": f"code = main.code\nmain.code = lambda given: (code(given), {send})\n{run}",
        "at the end": f"import atexit; atexit.register(lambda: {send}); {run}",
        "swallowed": f"""code = main.code
def swallowing(given):
    left = code(given)
    try: {send}
    except BaseException: pass
    return left
main.code = swallowing
{run}""",
    }[moment]
    done = subprocess.run(
        [sys.executable, "-c", f"{START}\n{listing}"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 128 + number
    assert done.stdout == f"lesion {version('lesion')}\n"
    assert done.stderr == ("" if moment == "swallowed" else "lesion: interrupted.\n")
