"""What a paper takes of a result: figures of a stated width with readable types, a small table, LaTeX that compiles."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import lesion
from commandline import lesion as command
from lesion.core import paper
from lesion.core.result import StudyResult
from lesion.errors import UsageError


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    out = tmp_path_factory.mktemp("study") / "layers"
    tasks = ["primer:arithmetic", "primer:atlas"]
    return lesion.ablate("bundled:llama-instruct", tasks, layers="0-3", items=20, out=out, progress=False)


@pytest.mark.parametrize(("name", "points"), [("column", 240.94), ("page", 504.57)])
def test_figures_are_as_wide_as_a_column_and_a_page_and_their_types_can_be_read(
    result: StudyResult, tmp_path: Path, name: str, points: float
) -> None:
    result.export(tmp_path, ("svg",))
    drawn = (tmp_path / f"figure-{name}.svg").read_text(encoding="utf-8")
    assert float(re.search(r'<svg[^>]* width="([\d.]+)', drawn)[1]) == pytest.approx(points, abs=2)
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)', drawn)]
    assert sizes
    assert min(sizes) >= 7


def test_the_table_has_at_most_six_columns_and_escapes_what_latex_would_read(result: StudyResult) -> None:
    lines = paper.table(result.shown()).splitlines()
    assert len(lines[2].split("&")) <= 6
    assert "primer:arithmetic" in lines[4]
    assert paper.tex(r'50 % of a_b & "c" \ 3×0') == r"50 \% of a\_b \& ``c'' \textbackslash{} 3$\times$0"


def test_the_paragraph_is_the_claims_and_names_the_paper_of_the_method(result: StudyResult) -> None:
    text = paper.paragraph(result)
    assert text.startswith(paper.tex(result.claims[0].sentences[0]))
    assert r"\citet{nepal2025layer}" in text
    assert "@misc{nepal2025layer," in paper.references("layers")


def test_the_command_writes_what_is_chosen_and_all_without_a_choice(
    result: StudyResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = command(capsys, "export", result.folder, "--pdf", "--out", tmp_path / "one")
    assert done.code == 0, done.err
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"figure-column.pdf", "figure-page.pdf"}
    with pytest.raises(UsageError, match="There is no format 'tiff'"):
        result.export(tmp_path, ("tiff",))
    result.export(tmp_path / "all")
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here, so that the document was not compiled")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    compiled = subprocess.run(words, cwd=tmp_path / "all", capture_output=True, text=True, errors="replace", timeout=60)
    assert compiled.returncode == 0, compiled.stdout[-800:]
