"""The documentation site: built strictly, and read without a network."""

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*\bhref=["']?(https?:)?//"""
)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in this process, which has imported what it shows; a broken link ends it."""
    pytest.importorskip("mkdocs")
    place = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        warnings.simplefilter("ignore")
        from mkdocs.commands.build import build
        from mkdocs.config import load_config

        patch.chdir(ROOT)
        config = load_config("mkdocs.yml", site_dir=str(place), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
        config.plugins.on_shutdown()
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


def test_links_of_pages_lead_somewhere_without_the_site():
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert len(pages) > 20
    for page in pages:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            assert "://" in link or (page.parent / link).exists(), f"{page.relative_to(ROOT)}: {link}"


def test_links_to_notebooks_and_tables_are_those_of_their_pages_on_the_site(site: Path):
    for page, link in (
        ("tutorials/index.html", "first-study"),
        ("how-to/compare.html", "tutorials/lineage"),
        ("how-to/moe.html", "reference/architectures"),
        ("tasks.html", "reference/tasks"),
    ):
        path = site / page
        text = (path if path.exists() else site / page.replace(".html", "/index.html")).read_text(encoding="utf-8")
        assert re.search(rf'href="[^"]*{link}(?:\.html|/|/index\.html)"', text), page
