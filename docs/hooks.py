"""What the documentation site adds to its pages as it is built: pages made from other files of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import execute
import gallery
import reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
MADE_FROM = {
    "src/lesion/report/claims.py": "explanation/claims.md",
    "src/lesion/report/rows.py": "reference/results.md",
    "src/lesion/models/families.toml": "reference/architectures.md",
    "src/lesion/tasks/sizes.toml": "reference/tasks.md",
}
"""Files of the repository that pages of the site are made from."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that no file under docs/ holds."""
    for place, text in generated().items():
        files.append(File.generated(config, place, content=text))
    return files


def generated() -> dict[str, str]:
    """The text of every page that is made from other files, by its place."""
    changelog, contributing = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CONTRIBUTING.md")
    )
    return {
        "index.md": home(),
        "changelog.md": changelog,
        "contributing.md": _moved(contributing),
        "gallery.md": gallery.page(),
        **reference.pages(),
        **tutorials(),
    }


def tutorials() -> dict[str, str]:
    """The notebooks as pages, with the outputs that they hold."""
    pages = {}
    for path in sorted(execute.TUTORIALS.glob("*.ipynb")):
        text = execute.page(execute.read(path)).replace(".ipynb)", ".md)")
        pages[f"tutorials/{path.stem}.md"] = f"{text}\n\n[This page as a notebook]({path.name}){{ download }}\n"
    return pages


def home() -> str:
    """The README as the first page, with the links of a page of the site."""
    return _moved((ROOT / "README.md").read_text(encoding="utf-8"))


def _moved(text: str) -> str:
    """A page of the repository's root with its links as they are from the root of the site."""
    for name in ("CHANGELOG", "CONTRIBUTING"):
        text = text.replace(f"]({name}.md", f"]({name.lower()}.md")
    return text.replace("](docs/", "](")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Files beside docs/ are no pages of the site: a link to one becomes its name; the README is the first page.

    Files that pages are made from are links to these: so they lead somewhere without the site, too.
    """
    for source, page in MADE_FROM.items():
        markdown = re.sub(rf"\]\(\.\./((?:\.\./)*){re.escape(source)}\)", rf"](\1{page})", markdown)
    markdown = re.sub(r"\]\(((?:\.\./tutorials/)?[a-z-]+)\.ipynb\)(?! ?\{)", r"](\1.md)", markdown)
    markdown = re.sub(r"\]\((?:\.\./)+README\.md", "](index.md", markdown)
    return re.sub(r"\[([^\]]*)\]\((?:\.\./)+(?:benchmarks|examples|src|tests)/[^)]*\)", r"\1", markdown)
