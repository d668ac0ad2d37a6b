"""`lesion lm-eval`: the command of lm-evaluation-harness, with models under edits."""

from __future__ import annotations

import sys

import typer

from lesion.errors import UsageError
from lesion.files import reason

# Options of the harness that name a model; its other commands take none.
_MODEL = ("--model", "-M", "--config", "-C")
_OTHERS = ("ls", "validate", "-h", "--help")
# Arguments are the harness's own, `--help` too.
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def lm_eval(context: typer.Context) -> None:
    """Run lm-evaluation-harness (`lm_eval`) with `--model lesion`; all arguments are its own."""
    from lesion.tasks.harness.library import need_harness

    need_harness()
    from lm_eval.__main__ import cli_evaluate

    import lesion.harness_model  # noqa: F401  (makes the harness know the model)

    before = sys.argv
    sys.argv = ["lm_eval", *with_model(context.args)]
    try:
        cli_evaluate()
    except (ValueError, LookupError, OSError) as error:  # what its own command raises at wrong names and options
        raise UsageError(f"lm-evaluation-harness: {reason(error)}.") from error
    finally:
        sys.argv = before


def with_model(arguments: list[str]) -> list[str]:
    """The arguments with `--model lesion`, unless they name a model or ask for something else."""
    named = any(argument.partition("=")[0] in _MODEL for argument in arguments)
    if named or not arguments or arguments[0] in _OTHERS:
        return arguments
    return [*arguments, "--model", "lesion"]
