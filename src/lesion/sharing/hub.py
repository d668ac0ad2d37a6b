"""The hub: what was staged is sent in one commit, and read back with every hash checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from lesion.atomic import keep
from lesion.core import shared
from lesion.edits.files.folder import refuse_place
from lesion.errors import LesionError, UsageError
from lesion.files import reason
from lesion.models.source import UNREACHABLE, causes
from lesion.outputs import refuse_links
from lesion.plain import amount, short, unruly
from lesion.report import wording
from lesion.sharing.staging import Shipment, sha256

README = "README.md"
WITHOUT_US = {".gitattributes", README, "LICENSE"}
"""What a repository may hold before anything of ours."""
KINDS = ("dataset", "model")
LARGE = 1 << 30
"""Bytes above which a repository is fetched only on request."""


def connection() -> Any:
    """The hub as huggingface_hub has it: its address and token are those of `hf auth login` or the environment."""
    from huggingface_hub import HfApi

    return HfApi(library_name="lesion")


class Remote:
    """One repository of the hub."""

    def __init__(self, name: str, api: Any) -> None:
        if name.count("/") != 1 or not all(name.split("/")) or name.startswith((".", "~")):
            raise UsageError(f"'{short(name)}' is no repository of the hub; give OWNER/NAME.")
        self.name, self.api = name, api

    def state(self, kind: str) -> tuple[Any, dict[str, Any] | None]:
        """What the hub says of it and what `shared.json` there does; None where there is none."""
        with explained(self.name, "read"):
            try:
                info = self.api.repo_info(self.name, repo_type=kind, files_metadata=True)
            except Exception as error:
                if _is(error, "RepositoryNotFoundError"):
                    return None, None
                raise
            try:
                path = self.api.hf_hub_download(self.name, shared.FILE, repo_type=kind, revision=info.sha)
            except Exception as error:
                if _is(error, "EntryNotFoundError") and not _is(error, "LocalEntryNotFoundError"):
                    return info, None
                raise
        return info, shared.read(Path(path).parent, self.name)

    def replaced(self, shipment: Shipment, *, private: bool, note: Callable[[str], None]) -> list[str]:
        """The files of an earlier push there; says what else a push replaces, and refuses what it must not."""
        info, before = self.state(shipment.kind)
        if info is None:
            return []
        self._refuse_another(info, before, private=private)
        there = {file.rfilename for file in info.siblings or ()}
        hashes = (before or {}).get("files") or {}
        if before and _settings(before) != _settings(shipment.about):
            what = "a checkpoint" if before["kind"] == "checkpoint" else f"a study of kind {before['kind']}"
            note(f"{self.name} holds {what} with other settings; this push replaces it.")
        if README in there and self._hash(README, shipment.kind, info.sha) != hashes.get(README):
            note(f"Somebody wrote or changed {README} of {self.name}; this push replaces it.")
        if before and before.get("texts") and not shipment.about["texts"]:
            note(
                f"The history of {self.name} keeps the texts of an earlier push; delete the repository on the hub"
                " to take them back."
            )
        return [name for name in hashes if name in there - WITHOUT_US]

    def _hash(self, name: str, kind: str, revision: str) -> str:
        with explained(self.name, "read"):
            return sha256(Path(self.api.hf_hub_download(self.name, name, repo_type=kind, revision=revision)))

    def send(self, shipment: Shipment, old: Sequence[str], *, private: bool) -> str:
        """Send everything in one commit, without `old` files of an earlier push that are no more; the address.

        What of large files reached the hub in a push that was interrupted is not sent again.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        adds = [CommitOperationAdd(name, str(path)) for name, path in shipment.files.items()]
        gone = [CommitOperationDelete(name) for name in old if name not in shipment.files]
        with explained(self.name, "write"):
            address = self.api.create_repo(self.name, repo_type=shipment.kind, private=private, exist_ok=True)
            self.api.create_commit(
                self.name, [*adds, *gone], repo_type=shipment.kind, commit_message=f"lesion: {shipment.about['kind']}"
            )
        return str(address)

    def _refuse_another(self, info: Any, before: Mapping[str, Any] | None, *, private: bool) -> None:
        others = {file.rfilename for file in info.siblings or ()} - WITHOUT_US
        if before is None and others:
            raise UsageError(
                f"{self.name} holds files that lesion did not push ({short(min(others))}); give another name."
            )
        if private and not info.private:
            raise UsageError(f"{self.name} is public already; push with --public, or give another name.")
        if info.private and not private:
            raise UsageError(
                f"{self.name} is private: make it public in its settings on the hub, or leave --public out."
            )

    def fetch(self, out: Path, note: Callable[[str], None], *, large: bool = False) -> dict[str, Any]:
        """Read everything into a new folder, whole or not at all; what `shared.json` says. `large`: of any size.

        Files that an interrupted fetch has left beside the folder are not loaded again.
        """
        refuse_place(out)
        states = [(kind, *self.state(kind)) for kind in KINDS]
        kind, info, about = max(states, key=lambda state: (state[2] is not None, state[1] is not None))
        if info is None:
            raise LesionError(
                f"There is no repository {self.name} on the hub, or it is private and you are not logged in. Check the"
                " name, or log in with `hf auth login`."
            )
        if about is None:
            raise LesionError(
                f"{self.name} was not pushed by lesion: it has no {shared.FILE}. Get it with `hf download`."
            )
        hashes = _sound(about, self.name)
        sizes = [file.size or 0 for file in info.siblings or () if file.rfilename in hashes]
        size = f"{wording.counted(len(hashes), 'file')}, {amount(sum(sizes))}"
        if sum(sizes) > LARGE and not large:
            raise UsageError(f"{self.name} has {size}. Nothing was loaded; fetch it with --large.")
        if gone := sorted(hashes.keys() - {file.rfilename for file in info.siblings or ()}):
            raise LesionError(f"{self.name} lacks {short(gone[0])}, which was pushed; ask its owner to push again.")
        note(f"{self.name}: {size}")
        partial = out.absolute().parent / f".{out.name}.fetching"
        partial.mkdir(parents=True, exist_ok=True)
        refuse_links(partial)
        for name, expected in hashes.items():
            target = partial / name
            if target.is_file() and not target.is_symlink() and sha256(target) == expected:
                continue
            with explained(self.name, "read"):
                self.api.hf_hub_download(self.name, name, repo_type=kind, revision=info.sha, local_dir=str(partial))
            if sha256(target) != expected:
                target.unlink()
                raise LesionError(
                    f"{self.name}: {name} is not the file that was pushed (its SHA-256 is another one). Nothing was"
                    " kept of it: fetch again, and if that does not help, ask its owner to push again."
                )
        shutil.rmtree(partial / ".cache", ignore_errors=True)
        for path in sorted(partial.rglob("*")):
            if path.is_file() and path.relative_to(partial).as_posix() not in hashes:
                path.unlink()  # of an earlier version that was being fetched
        keep(partial / shared.FILE, json.dumps(about, indent=1) + "\n")
        if out.is_dir():
            out.rmdir()
        partial.rename(out)
        note(f"{wording.counted(len(hashes), 'file')}, each with the SHA-256 that it was pushed with")
        return about


def _settings(about: Mapping[str, Any]) -> list[Any]:
    """What tells a study or a checkpoint from another: its kind, and the hash of its study file or command."""
    hashes = about.get("files") or {}
    return [about.get("kind"), *(hashes.get(name) for name in ("study.toml", "reproduce/command.txt"))]


def _sound(about: Mapping[str, Any], repository: str) -> dict[str, str]:
    """The hashes by name, if every name is one of a file below the folder."""
    hashes = about.get("files")
    names = hashes if isinstance(hashes, dict) else {"..": ""}
    for name, value in names.items():
        parts = PurePosixPath(name).parts
        outside = not parts or name.startswith("/") or any(part.startswith(".") for part in parts)
        if outside or unruly(name) or set("\\:") & {*name} or name == shared.FILE or type(value) is not str:
            raise LesionError(
                f"{shared.FILE} of {repository} names '{short(name)}', which is no file that lesion pushes."
            )
    return dict(names)


def _is(error: BaseException, kind: str) -> bool:
    return any(cls.__name__ == kind for cls in type(error).__mro__)


@contextmanager
def explained(repository: str, doing: str) -> Iterator[None]:
    """What the hub refuses becomes a sentence that says what to do."""
    try:
        yield
    except LesionError:
        raise
    except Exception as error:
        if (text := _explanation(error, repository, doing)) is None:
            raise
        raise LesionError(text) from error


def _explanation(error: Exception, repository: str, doing: str) -> str | None:
    # Of a hub at another address the client fails again while it words what it was answered.
    answers = [getattr(getattr(cause, "response", None), "status_code", None) for cause in causes(error)]
    status = next(filter(None, answers), None)
    kinds = {type(cause).__name__ for cause in causes(error)}
    log_in = "log in with `hf auth login`, or set HF_TOKEN to a token"
    if "HFValidationError" in kinds:
        return f"'{repository}' is no name of a repository: {reason(error)}."
    if "LocalTokenNotFoundError" in kinds or status == 401:
        return f"The hub does not know you: {log_in} that may {doing}."
    if "GatedRepoError" in kinds:
        return f"{repository} is gated: ask for access at https://huggingface.co/{repository}, and {log_in}."
    if status == 403 and any(word in str(error).lower() for word in ("quota", "storage", "limit")):
        return f"The storage of {repository.split('/')[0]} on the hub is full: delete something there, or get more."
    if status == 403:
        return f"You may not {doing} {repository}: {log_in} that may, or give a name of your own."
    if "RepositoryNotFoundError" in kinds or status == 404:
        return f"There is no repository {repository}, or you may not see it: check the name, and {log_in}."
    if status in (402, 413, 507):
        return (
            f"The hub takes no more of {repository.split('/')[0]} ({short(str(error), 120)}): delete something there."
        )
    if status == 429:
        return "The hub asks for a pause (too many requests): run the same command again in some minutes."
    if kinds & UNREACHABLE or (status is not None and status >= 500):
        offline = "HF_HUB_OFFLINE is set: unset it" if "OfflineModeIsEnabled" in kinds else "check the network"
        return f"The hub cannot be reached: {offline}, and run the same command again; it goes on from there."
    if status is not None:
        return f"The hub refused to {doing} {repository}: {reason(error)}."
    return None
