"""A hub of the tests: repositories as dictionaries, behind the methods of `HfApi` that lesion uses."""

import base64
import hashlib
import http.server
import json
import urllib.parse
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
        self.says = {}
        """Sizes of files other than their own."""

    def _faulty(self, method: str, *about: object) -> None:
        if method in self.fault:
            self.fault[method](*about)

    def repo_info(self, name, *, repo_type, files_metadata=False):
        self._faulty("repo_info")
        repository = self._of(name, repo_type)
        sizes = {path: len(data) if files_metadata else None for path, data in repository["files"].items()}
        sizes |= {path: self.says.get(path, size) for path, size in sizes.items()}
        files = [SimpleNamespace(rfilename=path, size=size) for path, size in sizes.items()]
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
        return f"https://hub/{repo_type}/{name}"

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


class Site(http.server.BaseHTTPRequestHandler):
    """The addresses of the hub that huggingface_hub asks in a push and a fetch, over the repositories of a `Hub`."""

    hub: Hub
    token = "hf_of_the_test"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            return self.answer(401, {"error": "Invalid credentials"})
        parts = self.path.partition("?")[0].split("/")
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = asked["name"] if "/" in asked["name"] else f"{asked['organization']}/{asked['name']}"
            self.hub.create_repo(
                name, repo_type=asked["type"], private=asked.get("visibility") == "private", exist_ok=True
            )
            place = f"http://{self.headers['Host']}/{'datasets/' * (asked['type'] == 'dataset')}{name}"
            return self.answer(200, {"url": place, "id": name, "name": name})
        if self.path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        name, what = "/".join(parts[3:5]), parts[5]
        kind = parts[2].removesuffix("s")
        if what == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]
            return self.answer(200, {"files": modes})
        assert what == "commit"
        files = self.hub.repositories[kind, name]["files"]
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                del files[entry["value"]["path"]]
        place = f"http://{self.headers['Host']}/{'datasets/' * (kind == 'dataset')}{name}/commit/{'1' * 40}"
        return self.answer(200, {"commitUrl": place, "commitOid": "1" * 40, "success": True})

    def do_GET(self):
        parts = urllib.parse.unquote(self.path.partition("?")[0]).strip("/").split("/")
        if parts[0] == "api":
            kind, name = parts[1].removesuffix("s"), "/".join(parts[2:4])
            if (kind, name) not in self.hub.repositories:
                return self.answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
            info = self.hub.repo_info(name, repo_type=kind, files_metadata="blobs=" in self.path)
            files = [{"rfilename": file.rfilename, "size": file.size} for file in info.siblings]
            return self.answer(200, {"id": name, "sha": info.sha, "private": info.private, "siblings": files})
        kind, *rest = ("dataset", *parts[1:]) if parts[0] == "datasets" else ("model", *parts)
        repository = self.hub.repositories["dataset" if kind == "dataset" else "model", "/".join(rest[:2])]
        path = "/".join(rest[4:])
        if path not in repository["files"]:
            return self.answer(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
        data = repository["files"][path]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": rest[3]}
        return self.answer(200, data, headers)

    do_HEAD = do_GET  # noqa: N815

    def answer(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_):
        """Nothing."""
