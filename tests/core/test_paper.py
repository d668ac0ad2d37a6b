"""What a paper takes of a result: figures of a stated width with readable types, a small table, LaTeX that compiles."""

import re
import shutil
import subprocess
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

import lesion
from commandline import lesion as command
from lesion.core import paper
from lesion.core.result import StudyResult
from lesion.report.blocks import Figure, Panel


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    out = tmp_path_factory.mktemp("study") / "layers"
    tasks = ["primer:arithmetic", "primer:atlas"]
    return lesion.ablate("bundled:llama-instruct", tasks, layers="0-3", items=20, out=out, progress=False)


@pytest.mark.parametrize(("name", "points"), [("column", 240.94), ("page", 504.57)])
def test_figures_are_as_wide_as_a_column_and_a_page_and_their_types_can_be_read(
    result: StudyResult, tmp_path: Path, name: str, points: float
) -> None:
    result.export(tmp_path)
    drawn = (tmp_path / f"figure-{name}.svg").read_text(encoding="utf-8")
    assert float(re.search(r'<svg[^>]* width="([\d.]+)', drawn)[1]) == pytest.approx(points, abs=2)
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)', drawn)]
    assert sizes
    assert min(sizes) >= 7


def test_the_table_has_at_most_six_columns_and_escapes_what_latex_would_read(result: StudyResult) -> None:
    text, caption = paper.table(result)
    lines = text.splitlines()
    assert lines[2] == r"Task & Block & Accuracy, \% & Drop, points & Corrected p & p critical \\"
    assert [line.split(" & ")[:2] for line in lines[4:-2]] == [
        [task, str(block)] for task in ("arithmetic", "atlas") for block in range(4)
    ]
    assert "Both are Holm-corrected over the blocks of one model and task." in caption
    assert caption.endswith(r"Brackets: 95~\% intervals.")
    assert paper.tex(r'50 % of a_b & "c" \ 3×0 <|') == r"50 \% of a\_b \& ``c'' \textbackslash{} 3$\times$0 $<$$|$"


def test_a_long_table_has_the_marked_rows_and_says_so(result: StudyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "MOST_ROWS", 5)
    text, caption = paper.table(result)
    rows = text.splitlines()[4:-2]
    frame = result.table_full
    assert len(rows) == frame["critical"].sum() < 5
    assert caption.endswith(f"{len(rows)} rows of 8: critical only.")


def test_a_figure_that_is_too_tall_for_a_page_is_flatter_or_shows_fewer_panels_and_says_so() -> None:
    chart = alt.Chart(pd.DataFrame({"x": [0, 1], "y": [1, 0]})).mark_line().encode(x="x:Q", y="y:Q")
    heights = []
    for count, shown in ((3, 3), (5, 5), (12, 5)):
        figure = Figure("f", (Panel((chart,), "A panel"),) * count, "What it shows.")
        drawn, panels = paper.printed(figure, 85.0)
        height = float(re.search(r'<svg[^>]* height="([\d.]+)', drawn)[1])
        heights.append(height / panels)
        assert height <= paper.TALLEST * paper.POINTS_PER_MM
        assert panels == shown
        said = f" Not shown: {count - shown} further panels." if count > shown else ""
        assert paper.caption(figure, panels) == f"What it shows.{said}"
    assert heights[0] > heights[1]


def test_the_paragraph_is_the_claims_and_names_the_paper_of_the_method(result: StudyResult) -> None:
    text = paper.paragraph(result)
    assert paper.tex(result.claims[0].sentences[0]) in text
    assert r"\citet{nepal2025layer}" in text
    assert text.startswith("Model: llama-instruct. ")
    assert "exact paired test" in text
    assert "corrected by Holm's method over the blocks" in text
    assert r"Brackets and bars: 95~\% intervals." in text
    assert "@misc{nepal2025layer," in paper.references(result)


def test_the_command_writes_a_document_that_compiles(
    result: StudyResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = command(capsys, "export", result.folder, "--out", tmp_path / "all", drawn=True)
    assert done.code == 0, done.err
    figures = {path.name for path in (tmp_path / "all").iterdir() if path.name.startswith("figure-")}
    assert figures == {f"figure-{name}.{kind}" for name in ("column", "page") for kind in ("pdf", "svg", "png")}
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here, so that the document was not compiled")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    compiled = subprocess.run(words, cwd=tmp_path / "all", capture_output=True, text=True, errors="replace", timeout=60)
    assert compiled.returncode == 0, compiled.stdout[-800:]
