"""The `lesion` command: its groups of commands, and what a person sees when something goes wrong.

Exit codes: 0 done, 2 wrong use, 1 failed. An error is one paragraph on standard error; `--debug` shows the traceback.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from lesion.errors import LesionError, UsageError

# What typer raises at wrong options. Some versions of typer bring their own click, so it is found by its name.
_WrongOption: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
# What typer returns when it has caught Ctrl-C by itself.
_INTERRUPTED = 130


def app() -> typer.Typer:
    """The command line as a typer application."""
    # Imported here, so that an error in importing a library is shown as any other.
    from lesion.cli import ablate, apply, demo, drift, edit, harness, isolate, lab, overlay, show, truncate, tune

    made = typer.Typer(
        name="lesion",
        help="Lesion studies for language models: find what a skill depends on in the weights, and test it by cutting.",
        epilog="With --debug, any command shows the traceback of an error.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.command("demo")(demo.demo)
    made.command("show")(show.show)
    made.command("ablate")(ablate.ablate)
    made.command("isolate")(isolate.isolate)
    made.command("evaluate")(isolate.evaluate)
    made.command("truncate")(truncate.truncate)
    made.command("tune")(tune.tune)
    made.command("overlay")(overlay.overlay)
    made.command("drift")(drift.drift)
    made.command("apply")(apply.apply)
    made.command("run")(ablate.run_study)
    made.command("report")(ablate.report)
    made.command("lm-eval", context_settings=harness.SETTINGS)(harness.lm_eval)
    made.add_typer(edit.app, name="edit")
    made.add_typer(lab.app, name="lab")
    return made


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code; that of a command that was told to end (SIGTERM) is 143."""
    terminated = False

    def stop(*_: object) -> None:
        # As Ctrl-C, for schedulers: what is answered is kept, workers end, and the person is told how to go on.
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    left = code(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(128 + signal.SIGTERM if terminated else left)


def code(arguments: list[str]) -> int:
    """Run the command line `arguments` (without the program's name) and return the exit code."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        result = _command().main(arguments, prog_name="lesion", standalone_mode=False)
        if result == _INTERRUPTED:
            print("lesion: interrupted.", file=sys.stderr)
            return 1
        return result if isinstance(result, int) else 0
    except typer.Exit as left:
        return left.exit_code
    except _WrongOption as error:
        return _wrong_option(error)
    except (KeyboardInterrupt, typer.Abort) as error:
        return _fail("interrupted.", error, 1, debug)
    except UsageError as error:
        return _fail(str(error), error, 2, debug)
    except LesionError as error:
        return _fail(str(error), error, 1, debug)
    except BrokenPipeError:
        return 1
    except Exception as error:
        unforeseen = f"something went wrong that lesion did not foresee ({type(error).__name__}: {error})."
        advice = "" if debug else " Run the same command with --debug for the traceback."
        return _fail(unforeseen + advice, error, 1, debug)


def _wrong_option(error: Exception) -> int:
    """Say what is wrong with the options, and where the right ones are listed."""
    text = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help itself
        print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
    else:
        command = context.command_path if context else "lesion"
        print(f"lesion: {text.rstrip('.')}{'' if text.endswith('?') else '.'} See `{command} --help`.", file=sys.stderr)
    return 2


def _fail(text: str, error: BaseException, exit_code: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"lesion: {text}", file=sys.stderr)
    return exit_code
