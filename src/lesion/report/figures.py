"""PNG files drawn with matplotlib: the style, the colours of series, and the bytes of a figure."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#56B4E9", "#444444", "#CC79A7")
"""After Okabe and Ito (2008), the yellow darkened: told apart by colour-blind readers, and on white paper."""
MARKERS = ("o", "s", "D", "^", "v", "P")
COLUMN, PAGE = 3.5, 7.2  # widths in inches of one column and of a page
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "savefig.dpi": 300,
}


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, the same for the same figure."""
    FigureCanvasAgg(figure)
    written = io.BytesIO()
    with _any_script():
        figure.savefig(written, format="png", metadata={"Software": "lesion"})
    return written.getvalue()


def lay_out(figure: Figure) -> None:
    """Settle where the axes lie, so that places in them can be worked out before the figure is written."""
    FigureCanvasAgg(figure)
    with _any_script():
        figure.draw_without_rendering()


@contextmanager
def _any_script() -> Iterator[None]:
    with warnings.catch_warnings():
        # A model's name may be in a script that the built-in font does not have: boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
