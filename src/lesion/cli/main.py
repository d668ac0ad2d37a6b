"""The `lesion` command: its groups of commands, and what a person sees when something goes wrong.

Exit codes: 0 done, 2 wrong use, 1 failed, 3 worse (`compare --fail-if`), 130 interrupted (Ctrl-C, SIGINT), 143 told
to end (SIGTERM). An error is one paragraph on standard error; `--debug` shows the traceback.
"""

# Nothing but the smallest modules is imported here: until `main` runs, Ctrl-C shows Python's own traceback.
from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Sequence

TYPE_CHECKING = False  # typing's own costs milliseconds
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    import typer

# The signal that asked this process to end, once one did.
_asked_to_end: list[int] = []


def app(*, every: bool = False) -> typer.Typer:
    """The command line as a typer application; `every`: help of a study shows all its options."""
    import typer

    # Imported here, so that an error in importing a library is shown as any other.
    from lesion.cli import apply, compare, demo, help, model, share, study
    from lesion.cli.commands import command
    from lesion.cli.parsing import checked
    from lesion.registry import command_groups, methods

    made = typer.Typer(
        name="lesion",
        help="Lesion studies for language models: find what a skill depends on in the weights, and test it by cutting.",
        epilog="`lesion` alone says where to start. With --debug, any command shows the traceback of an error.",
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.callback()(help.about)
    help.register(made, "demo", checked(demo.demo), panel=help.FIRST)
    help.register(made, "show", checked(model.show), panel=help.FIRST)
    help.register(made, "verify", checked(model.verify), panel=help.FIRST)
    groups = command_groups()
    for method in methods().values():
        *group, name = method.command.split() or [""]
        if name:
            place, panel = (groups.setdefault(group[0], typer.Typer()), None) if group else (made, help.STUDIES)
            short = method.distributed and not every
            rest = (f"Every option: lesion {method.command} --help all",) if short else ()
            basic = [name for name in help.BASIC if name not in help.RARE.get(method.command, ())] if short else None
            made_of = (
                command(method, compare.run, more=compare.OPTIONS)
                if method.command == "compare"
                else command(method, shown=basic)
            )
            place.command(name, rich_help_panel=panel, epilog=help.epilog(method.examples, *rest))(checked(made_of))
    help.register(made, "apply", checked(apply.apply), panel=help.EDITS)
    help.register(made, "perturb", checked(apply.perturb), panel=help.EDITS)
    help.register(made, "plan", checked(study.plan), panel=help.FOLDERS)
    help.register(made, "run", checked(study.run_study), panel=help.FOLDERS)
    help.register(made, "report", checked(study.report), panel=help.FOLDERS)
    help.register(made, "export", checked(study.export), panel=help.FOLDERS)
    help.register(made, "push", checked(share.push), panel=help.FOLDERS)
    help.register(made, "fetch", checked(share.fetch), panel=help.FOLDERS)
    edit_files = typer.Typer(help="Show .edit files.", no_args_is_help=True)
    help.register(edit_files, "show", checked(apply.show), example="show an edit")
    made.add_typer(edit_files, name="edit", rich_help_panel=help.EDITS)
    for name, application in groups.items():
        made.add_typer(application, name=name)
    return made


@functools.cache
def _command(*, every: bool = False) -> Any:
    import typer

    from lesion.cli.help import finish

    made = typer.main.get_command(app(every=every))
    finish(made)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)  # nothing is begun as long as the command is only being imported
    _command()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _leave:
            signal.signal(number, _stop)
    try:
        left = code(list(sys.argv[1:] if arguments is None else arguments))
        _leave_at_signals()
    except KeyboardInterrupt:  # it came after the last line
        _leave_at_signals()
        left = 128 + signal.SIGINT
        _say_interrupted()
    if _asked_to_end:
        left = 128 + _asked_to_end[0]  # also where a library has swallowed the interruption
    from lesion.cli.terminal import abandon

    # Python is not left to end by itself: it gives signals back to the system before it is done, and `python -m` would
    # end by SIGINT where the interruption came while Python executed a text, as dataclasses do when they are made. So
    # what is registered for the end is run here.
    atexit._run_exitfuncs()
    abandon()
    os._exit(left)


def _leave_at_signals() -> None:
    """From now on a signal ends the process at once: there is nothing left to put in order."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _stop:
            signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    _say_interrupted()
    os._exit(128 + number)


def _say_interrupted() -> None:
    with contextlib.suppress(OSError):  # perhaps nobody listens any more
        os.write(2, b"lesion: interrupted.\n")


def _stop(number: int, frame: FrameType | None) -> None:
    # SIGTERM as Ctrl-C, for schedulers: what is answered is kept, workers end, and the person is told how to go on.
    _asked_to_end.append(number)
    raise KeyboardInterrupt


def code(arguments: list[str]) -> int:
    """Run the command line `arguments` (without the program's name) and return the exit code."""
    from lesion.cli.terminal import OutputError, guarded

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _asked_to_end.clear()
    # Help is this program's own text, and has its own styles on a terminal; a group alone shows its help.
    helping = "--help" in arguments or all(hasattr(_command().commands.get(word), "commands") for word in arguments)
    left = 1
    try:
        with guarded(escape=not helping):
            left = _code(arguments)
    except OutputError as error:  # where it could not even be said
        print(f"lesion: {error}", file=sys.stderr)
    except BrokenPipeError:
        pass
    return left


def _code(arguments: list[str]) -> int:
    import typer

    from lesion.errors import LesionError, UsageError
    from lesion.files import reason

    # What typer raises at wrong options. Some versions of typer bring their own click, so it is found by its name.
    wrong_option: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    if not arguments:
        from lesion.cli.help import START

        print(START, end="")
        return 2
    try:
        every = "--help all" in " ".join(arguments)
        result = _command(every=every).main(arguments, prog_name="lesion", standalone_mode=False)
        if result == 128 + signal.SIGINT:  # typer has caught Ctrl-C by itself
            return _interrupted(None, debug)
        return result if isinstance(result, int) else 0
    except typer.Exit as left:
        return left.exit_code
    except wrong_option as error:
        return _wrong_option(error)
    except (KeyboardInterrupt, typer.Abort) as error:
        return _interrupted(error, debug)
    except LesionError as error:
        return _fail(str(error).split("\n  "), error, 2 if isinstance(error, UsageError) else 1, debug)
    except BrokenPipeError:
        return 1
    except Exception as error:
        if _asked_to_end:  # some libraries turn an interruption while they are imported into errors of their own
            return _interrupted(error, debug)
        null = isinstance(error, ValueError) and "null byte" in str(error)
        if null or isinstance(error, RecursionError | MemoryError | UnicodeError | OSError):
            place = getattr(error, "filename", None)
            return _fail([f"{place or 'What was given'} cannot be used: {reason(error)}."], error, 1, debug)
        unforeseen = f"something went wrong that lesion did not foresee ({type(error).__name__}: {error})."
        advice = "" if debug else " Run the same command with --debug for the traceback."
        return _fail([unforeseen + advice], error, 1, debug)


def _interrupted(error: BaseException | None, debug: bool) -> int:
    return _fail(["interrupted."], error, 128 + (_asked_to_end or [signal.SIGINT])[0], debug)


def _wrong_option(error: Exception) -> int:
    """Say what is wrong with the options, and where the right ones are listed."""
    from lesion.cli.terminal import say
    from lesion.errors import shortened

    text = " ".join(error.format_message().split()).replace("Value error, ", "")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help itself
        print(error.format_message(), file=sys.stderr)  # type: ignore[attr-defined]
    else:
        command = context.command_path if context else "lesion"
        end = "" if text.endswith("?") else "."
        say(f"lesion: {shortened(text.rstrip('.'))}{end} See `{command} --help`.", error=True)
    return 2


def _fail(lines: Sequence[object], error: BaseException | None, exit_code: int, debug: bool) -> int:
    """Say the paragraph, or its first line and those below it, which stand indented."""
    from lesion.cli.terminal import say
    from lesion.errors import shortened

    if debug and error is not None:
        import traceback

        traceback.print_exception(error)
    for number, line in enumerate(lines):
        text = shortened(str(line))
        say(f"  {text}" if number else f"lesion: {text}", error=True)
    return exit_code
