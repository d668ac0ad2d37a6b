"""The PNG figures, read back as pixels."""

import io

import matplotlib.image
import numpy as np
import pytest
from made import study

from lesion.report import figures
from lesion.report.views import views


def pixels(png: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(png))[..., :3]


@pytest.mark.parametrize(("tasks", "width"), [(("sums",), 3.5), (("sums", "facts"), 7.2)])
def test_a_figure_fits_a_column_or_a_page_at_300_dots_per_inch(tasks, width):
    (view,) = views(study(tasks=tasks)[0])
    assert pixels(figures.accuracy(view, 0.95)).shape[1] == pytest.approx(300 * width, abs=2)


def test_each_line_has_its_own_colour():
    (view,) = views(study()[0])
    image = pixels(figures.accuracy(view, 0.95))
    for colour in figures.COLOURS[:2]:
        wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert (np.abs(image - wanted).max(axis=-1) < 0.02).any()


def test_figures_survive_names_that_are_not_plain_text_and_layers_not_answered_yet():
    summary = study(models=("a $b$ _{c} 模型", "[x] <y> & \\frac"), tasks=("sums", "$\\undefined{x}$", "c", "d"))[0]
    del summary["models"][0]["tasks"][0]["layers"][1]
    summary["models"][1]["tasks"][1]["layers"] = []
    summary["models"][1]["tasks"][1]["baseline"] = None
    (view,) = views(summary)
    for png in (figures.accuracy(view, 0.95), figures.heat(view)):
        assert pixels(png).std() > 0


def test_neighbouring_critical_layers_share_a_label():
    assert figures.grouped([0, 1, 5, 6, 9], 1) == [[0, 1], [5, 6], [9]]
    assert figures.grouped([0, 1, 5], 0) == [[0], [1], [5]]


def test_the_legend_of_sixteen_lines_lies_beside_the_panel_and_leaves_it_its_room(monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "png", lambda figure: drawn.append(figure) or b"")
    (view,) = views(study(models=tuple(f"model {number}" for number in range(16)), tasks=("sums",))[0])
    figures.accuracy(view, 0.95)
    (figure,) = drawn
    figures.lay_out(figure)
    legend, axis = figure.legends[0].get_window_extent(), figure.axes[0].get_tightbbox()
    assert legend.y1 <= axis.y0 + 1
    assert legend.y0 >= 0
    assert figure.axes[0].get_window_extent().height > figure.dpi  # an inch at least
