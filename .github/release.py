"""Give a release the addresses of the host that it is built on: `python .github/release.py https://HOST/OWNER/NAME`.

pyproject.toml names no host, since a clone may lie anywhere; and links of the README, which lead to files beside it,
lead nowhere on a package index. Both files are rewritten where they lie: run it in a checkout to be thrown away.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def addressed(readme: str, project: str, host: str) -> tuple[str, str]:
    """README and pyproject.toml of a release of this host: absolute links, and the project's addresses."""
    tag = f"v{tomllib.loads(project)['project']['version']}"
    files = {"": f"{host}/blob/{tag}/", "!": f"{host}/raw/{tag}/"}
    readme = re.sub(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)", lambda m: f"{m[1]}{m[2]}({files[m[1]]}{m[3]})", readme)
    urls = {"Repository": host, "Issues": f"{host}/issues", "Changelog": f"{files['']}CHANGELOG.md"}
    lines = "".join(f'{name} = "{address}"\n' for name, address in urls.items())
    return readme, project.replace("[project.urls]\n", f"[project.urls]\n{lines}")


if __name__ == "__main__":
    paths = [ROOT / "README.md", ROOT / "pyproject.toml"]
    texts = addressed(*(path.read_text(encoding="utf-8") for path in paths), sys.argv[1].rstrip("/"))
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
