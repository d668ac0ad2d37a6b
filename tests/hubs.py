"""A hub of the tests: repositories as dictionaries, behind the methods of `HfApi` that lesion uses."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError


def refusal(status: int, text: str, kind: type[HfHubHTTPError] = HfHubHTTPError) -> HfHubHTTPError:
    """What huggingface_hub raises where the hub answers with a status."""
    return kind(text, response=SimpleNamespace(status_code=status, headers={}, request=None))


class Hub:
    """Repositories by kind and name, their files as bytes, and how often each file went through."""

    def __init__(self):
        self.repositories = {}
        self.sent, self.loaded = [], []
        self.fault = {}

    def _faulty(self, method: str, *about: object) -> None:
        if method in self.fault:
            self.fault[method](*about)

    def repo_info(self, name, *, repo_type):
        self._faulty("repo_info")
        repository = self._of(name, repo_type)
        files = [SimpleNamespace(rfilename=path) for path in repository["files"]]
        return SimpleNamespace(sha=self._sha(repository), private=repository["private"], siblings=files)

    def _sha(self, repository):
        return hashlib.sha1(repr(sorted(repository["files"].items())).encode()).hexdigest()

    def _of(self, name, kind):
        if (kind, name) not in self.repositories:
            raise refusal(404, "Repository Not Found", RepositoryNotFoundError)
        return self.repositories[kind, name]

    def create_repo(self, name, *, repo_type, private, exist_ok):
        self._faulty("create_repo")
        assert exist_ok
        self.repositories.setdefault((repo_type, name), {"private": private, "files": {".gitattributes": b""}})

    def create_commit(self, name, operations, *, repo_type, commit_message):
        """All or nothing, as the hub."""
        files = dict(self._of(name, repo_type)["files"])
        for operation in operations:
            path = operation.path_in_repo
            if hasattr(operation, "path_or_fileobj"):
                self._faulty("create_commit", path)
                files[path] = Path(operation.path_or_fileobj).read_bytes()
                self.sent.append(path)
            else:
                del files[path]
        self.repositories[repo_type, name]["files"] = files

    def hf_hub_download(self, name, path, *, repo_type, revision, local_dir=None, cache_dir=None):
        repository = self._of(name, repo_type)
        assert revision == self._sha(repository), "another version than the one that was looked at"
        self._faulty("hf_hub_download", path)
        if path not in repository["files"]:
            raise EntryNotFoundError(f"no {path}")
        target = Path(local_dir or self.cache) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(repository["files"][path])
        self.loaded.append(path)
        return str(target)
