"""The documentation site: built strictly, and read without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*\bhref=["']?(https?:)?//"""
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it; a broken link ends the build."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_pages_load_nothing_from_other_machines(site: Path):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 15
    loading = {page.name: LOADED.findall(page.read_text(encoding="utf-8")) for page in pages}
    assert not {name: loads for name, loads in loading.items() if loads}
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles)


def test_the_search_works_from_disk(site: Path):
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    assert "assets/iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


def test_links_of_files_at_the_root_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        if not (ROOT / name).exists():
            continue
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8")):
            assert link.startswith("https://") or (ROOT / link).exists(), f"{name}: {link}"
