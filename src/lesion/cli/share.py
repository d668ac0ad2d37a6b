"""`lesion push` and `fetch`: studies and edited checkpoints on the Hugging Face hub."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import say
from lesion.errors import UsageError
from lesion.plain import amount, short

MOST_FILES = 5
"""Files of one folder that are listed by themselves."""
Repository = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Repository on the Hugging Face hub.")]


def push(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a finished study, or a model of `apply`.")],
    repository: Repository,
    with_texts: Annotated[
        bool, typer.Option("--with-texts", help="Send questions and answers too; without them nobody can go on.")
    ] = False,
    public: Annotated[bool, typer.Option("--public/--private", help="Who sees a new repository.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking.")] = False,
) -> None:
    """Share a study as a data set of the Hugging Face hub, or an edited checkpoint as a model."""
    from lesion.core.preflight import refuse_no_folder

    refuse_no_folder(folder)
    send(folder, repository, texts=with_texts, public=public, dry=dry_run, yes=yes)


def send(
    folder: Path, repository: str, *, texts: bool = False, public: bool = False, dry: bool = False, yes: bool = False
) -> None:
    """Say what goes out, ask, and send it."""
    from lesion.sharing import hub, staging

    remote = hub.Remote(repository, hub.connection())
    with tempfile.TemporaryDirectory(prefix="lesion-push-") as place:
        shipment = staging.shipment(folder, Path(place).resolve(), repository, texts=texts)
        sizes = {name: path.stat().st_size for name, path in shipment.files.items()}
        who = "public" if public else "private"
        what = "data set" if shipment.kind == "dataset" else "model"
        say(f"{repository}, a {who} {what}: {len(sizes)} files, {amount(sum(sizes.values()))}")
        folders = Counter(Path(name).parent.as_posix() for name in sizes)
        for name, size in sizes.items():
            if folders[Path(name).parent.as_posix()] <= MOST_FILES or "/" not in name:
                say(f"  {name}  {amount(size)}")
        for inner, count in folders.items():
            if count > MOST_FILES and inner != ".":
                inside = sum(size for name, size in sizes.items() if Path(name).parent.as_posix() == inner)
                say(f"  {inner}/  {count} files, {amount(inside)}")
        if shipment.kind == "dataset":
            say(f"Questions and answers are {'IN' if texts else 'not'} in these files." + _ids(texts))
        for path, name in shipment.renamed.items():
            ending = ", and nobody can go on with the study" if shipment.kind == "dataset" else ""
            say(f"{short(path, 200)} is called {name} there{ending}.")
        old: list[str] = []
        if not dry:
            old = remote.replaced(shipment, private=not public, note=lambda text: say(f"note: {text}", error=True))
        if not dry and not yes:
            if not sys.stdin.isatty():
                raise UsageError("Nobody is there to be asked: look at --dry-run, and push with --yes.")
            dry = not typer.confirm(f"Send this to {repository}?")
        if dry:
            say("Nothing was sent.")
            return
        say(f"sent: {remote.send(shipment, old, private=not public)}")


def _ids(texts: bool) -> str:
    return "" if texts else " Ids and groups of items, the system prompt, right or wrong, and lengths are."


def fetch(
    repository: Repository,
    out: Annotated[Path | None, typer.Option("--out", help="A new folder. Default: NAME.")] = None,
    large: Annotated[bool, typer.Option("--large", help="Load more than 1 GiB, too.")] = False,
) -> None:
    """Get a study or a checkpoint that `lesion push` has sent, every file checked by its hash."""
    from lesion.sharing import hub

    remote = hub.Remote(repository, hub.connection())
    folder = out or Path(repository.rpartition("/")[2])
    about = remote.fetch(folder, say, large=large)
    say(f"{'model' if about['kind'] == 'checkpoint' else 'study'}: {folder}")
    if about["kind"] != "checkpoint":
        say(f"next: lesion report {folder}")
