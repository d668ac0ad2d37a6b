"""What help shows beside options: the panels of commands, examples, where to start, and the version."""

from __future__ import annotations

from typing import Annotated, Any

import typer

FIRST, STUDIES, EDITS, FOLDERS = "Start", "Studies", "Edits and checkpoints", "Study files and folders"
START = """\
lesion finds the parts of a language model that a skill depends on, and tests it by changing them. To begin:

  lesion show bundled:llama-base
      The blocks and matrices of a model: what can be changed.

  lesion ablate bundled:llama-base --task primer:arithmetic --items 50
      Which blocks arithmetic depends on; takes a minute on a laptop.
      With your own: lesion ablate MODEL --task questions.jsonl

  lesion demo
      All methods on the bundled models, in one report; takes minutes.

All commands: lesion --help. Options of one: lesion COMMAND --help.
"""
EXAMPLES = {
    "demo": ("lesion demo --out demo",),
    "verify": ("lesion verify bundled:llama-base", "lesion verify model/ --engine vllm"),
    "show": ("lesion show bundled:llama-base", "lesion show OWNER/NAME --revision step1000"),
    "apply": ("lesion apply bundled:llama-base --edit skill.edit --factor 0 --out pruned",),
    "plan": ("lesion plan study.toml --out study",),
    "perturb": ("lesion perturb base/ --like tuned/ --out noisy/",),
    "run": ("lesion run --list", "lesion run demo --show", "lesion run study.toml --out study"),
    "report": ("lesion report study",),
    "export": ("lesion export study --out paper", "lesion export study --inspect-log --out logs"),
    "push": ("lesion push study OWNER/NAME --dry-run", "lesion push pruned OWNER/NAME --public"),
    "fetch": ("lesion fetch OWNER/NAME --out study",),
    "show an edit": ("lesion edit show skill.edit",),
}
"""Of commands that are no method; those of a method are `Method.examples`."""
BASIC = (
    *("task", "items", "prompt_style", "out", "layers", "unit", "replace", "edit", "random_controls", "method"),
    *("share", "matrices", "keep", "study", "clusters", "runs", "steps", "design", "position", "family"),
    *("lengths", "damping", "control"),
)
"""Options that `--help` of a study shows beside the required ones; `--help all` shows every option."""
RARE = {"search": ("unit", "matrices", "keep")}
"""Those that few need in the study of that command."""


def register(group: typer.Typer, name: str, command: Any, *, panel: str | None = None, example: str = "") -> None:
    """Put a command into a group, with its examples under its help."""
    shown = epilog(EXAMPLES[example or name])
    group.command(name, rich_help_panel=panel, epilog=shown)(command)


def epilog(examples: tuple[str, ...], *more: str) -> str | None:
    """Further lines and examples as typer prints them below help; None where there are none."""
    titles = ("Examples:" if len(examples) > 1 else "Example:",) if examples else ()
    return "\n\n".join([*more, *titles, *examples]) or None  # typer makes one line of each paragraph


def finish(command: Any) -> None:
    """Flags, `--help` too, and arguments show no type in help, and `--help` comes last; of a command and all inside."""
    help_option = command.get_help_option(typer.Context(command))
    if help_option is not None:
        help_option.rich_help_panel = "Help"
    for parameter in (*command.params, *filter(None, [help_option])):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None
    for inner in getattr(command, "commands", {}).values():
        finish(inner)


def _print_version(wanted: bool) -> bool:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"lesion {version('lesion')}")
        raise typer.Exit
    return wanted


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
]


def about(version: Version = False) -> None:
    """What `lesion` takes before the name of a command; its help is that of the application."""
