"""What the command prints: nothing of anybody's acts on a terminal, and every encoding and a full disk will do."""

import io
import json
import os
import subprocess
import sys
import unicodedata

import pytest
from rich.table import Table
from rich.text import Text

from commandline import lesion, write
from lesion.cli.terminal import Guarded, OutputError, Terminal, guarded, say

HOSTILE = "\x1b[31mred\x1b]8;;http://x\x07 \u202egnp\u2066\u061c\x85\r\u2028[red]x[/red] :smile:\nlesion: forged"
SHOWN = (
    "\\x1b[31mred\\x1b]8;;http://x\\x07 \\u202egnp\\u2066\\u061c\\x85\\r\\u2028[red]x[/red] :smile:\\nlesion: forged"
)


def assert_clean(text: str) -> None:
    acting = {one for one in text if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Zl", "Zp"}} - set("\n\t")
    assert not acting, ascii(text)
    assert not any(line.lstrip().startswith("lesion: forged") for line in text.splitlines())


def test_what_is_said_is_one_line_with_everything_that_acts_escaped(capsys):
    with guarded():
        say(HOSTILE)
        Terminal().note(HOSTILE)
        print("plain print of a library \x1b[31m\ud800", file=sys.stderr)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0] == SHOWN
    assert printed.out.splitlines()[1] == f"note: {SHOWN}"
    assert printed.err == "plain print of a library \\x1b[31m\\ud800\n"


def test_a_terminal_keeps_the_styles_of_its_own_and_escapes_those_of_others():
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Tty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setenv("TERM", "xterm-256color")
        with guarded():
            Terminal().print(Text("own", style="bold red"), Text("\x1b[32mother"))
            print("\x1b[33mlibrary")
    printed = stream.getvalue()
    assert "\x1b[1;31mown" in printed
    assert "\\x1b[32mother" in printed
    assert "\\x1b[33mlibrary" in printed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
def test_every_encoding_takes_everything(encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        with guarded():
            say("block 3 × 0 – 日本 ● \ud800")
            table = Table(title="Δ ● 日本")
            table.add_row("→")
            Terminal().print(table)
        stream.flush()
    assert b"block 3 " in stream.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_stream_that_takes_nothing_more_is_one_error_and_a_closed_pipe_another():
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(OutputError, match="no space left on device"):
        Guarded(Full()).write("x")
    with pytest.raises(BrokenPipeError):
        Guarded(Closed()).write("x")
    assert Guarded(None).write("x") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["ablate", "bundled:llama-base", "--task", HOSTILE],
        ["ablate", HOSTILE, "--task", "primer:atlas"],
        ["ablate", "bundled:llama-base", "--task", "primer:atlas", "--device", HOSTILE],
        ["ablate", "bundled:llama-base", "--task", "primer:atlas", "--prompt-style", HOSTILE],
        ["ablate", "bundled:llama-base", "--task", "primer:atlas", "--layers", HOSTILE],
        ["ablate", "bundled:llama-base", "--task", "primer:atlas", "--out", HOSTILE],
        ["truncate", "bundled:llama-base", "--task", "ioi", "--matrices", HOSTILE, "--out", "x"],
        ["run", HOSTILE],
        ["report", HOSTILE],
        ["overlay", HOSTILE, "--out", "x"],
        ["compare", HOSTILE, "--out", "x"],
        ["edit", "show", HOSTILE],
        [HOSTILE],
        ["ablate", f"--{HOSTILE}"],
    ],
)
def test_no_argument_acts_on_the_terminal(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = lesion(capsys, *arguments)
    assert done.code in (1, 2)
    assert_clean(done.out + done.err)
    assert done.err.count("\n") == 1


def test_no_id_of_a_task_file_and_no_key_of_a_study_acts_on_the_terminal(capsys, tmp_path):
    row = {"id": HOSTILE, "prompt": "p", "answer": "a"}
    for task in (
        write(tmp_path / "twice.jsonl", [row, row]),
        write(tmp_path / "field.jsonl", [{"id": HOSTILE, HOSTILE: 1, "promt": "p", "answer": "a"}]),
    ):
        done = lesion(capsys, "ablate", "bundled:llama-base", "--task", task, "--out", tmp_path / "out")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert_clean(done.err)
    (tmp_path / "study.toml").write_text(
        f"{json.dumps(HOSTILE)} = 1\nmodels = {json.dumps([HOSTILE])}\nitems = {json.dumps(HOSTILE)}"
    )
    done = lesion(capsys, "run", tmp_path / "study.toml")
    assert done.code == 2
    assert_clean(done.err)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output_is_one_sentence():
    command = [sys.executable, "-m", "lesion", "run", "--list"]
    with open("/dev/full", "w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1
    assert run.stderr.startswith("lesion: What there is to say cannot be written (no space left on device)")


def test_an_interruption_while_the_command_is_being_imported_is_one_line():
    """Sent as soon as this package's own code runs, before anything large is imported."""
    code = (
        "import os, signal, sys\n"
        # Whoever runs the tests in the background has Ctrl-C ignored, and every child of theirs inherits that.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from lesion.cli.main import main\n"
        "main(['run', '--list'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lesion: interrupted.\n")


def test_an_interruption_within_a_text_that_is_executed_is_130_too(tmp_path):
    """CPython remembers it as unhandled, though it was handled, and would end `python -m` by SIGINT."""
    (tmp_path / "interrupted.py").write_text(
        "import atexit\n"
        "import lesion.cli.main as command\n"
        "def code(arguments):\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt:\n"
        "        return 130\n"
        "command.code = code\n"
        "atexit.register(print, 'cleaned up', flush=True)\n"
        "command.main([])\n"
    )
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "cleaned up\n", "")
