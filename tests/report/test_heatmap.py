"""Heat maps: what their cells hold, in which colours, and that their texts can be read."""

import re

import pandas as pd
import pytest
from chart_parts import CELLS, drawn, rows
from page_checks import marks
from palettes import contrast, palettes

from lesion.report import drawing, plots, theme


def test_losses_and_gains_have_their_colours_and_a_marked_cell_a_box():
    picture = drawing.svg(drawn(plots.heat(CELLS, "layer", "task", full=0.5)))
    filled = [
        (mark["fill"], mark.get("fill-opacity")) for mark in marks(picture) if mark["fill"] in (theme.LOSS, theme.GAIN)
    ]
    assert sorted(filled) == [(theme.GAIN, "0.5"), (theme.LOSS, None)]
    assert [mark.get("stroke") for mark in marks(picture)].count(theme.INK) == 1


def test_a_heat_map_of_nothing_but_missing_numbers_is_drawn():
    chart = plots.heat(CELLS.assign(value=None), "layer", "task", full=0.5)
    assert not re.search(r'fill="var\(--(loss|gain)\)"', drawing.svg(drawn(chart)))


def seen_on(colours: dict[str, str], role: str, opacity: float) -> str:
    """The colour of a cell: one colour laid over the shade of the page, channel by channel."""
    above, below = ([int(colours[name][place : place + 2], 16) for place in (1, 3, 5)] for name in (role, "shade"))
    return "#" + "".join(
        f"{round(opacity * over + (1 - opacity) * under):02x}" for over, under in zip(above, below, strict=True)
    )


@pytest.mark.parametrize("colours", [(theme.LOSS, theme.GAIN), (theme.SHARE, theme.GAIN)], ids=str)
def test_the_text_of_every_cell_stands_out_from_its_colour_on_light_and_on_dark_pages(colours):
    values = [value / 50 for value in range(-60, 61)]
    frame = pd.DataFrame(
        [
            {"x": 0, "y": str(row), "value": value, "text": "1", "tip": "", "marked": False}
            for row, value in enumerate(values)
        ]
    )
    shown = rows(plots.heat(frame, "", "", full=1.0, colours=colours), {})
    for row in shown:
        fill = colours[row["value"] < 0].removeprefix("var(--").removesuffix(")")
        text = row["ink"].removeprefix("var(--").removesuffix(")")
        for page in palettes():
            cell = seen_on(page, fill, min(1.0, abs(row["value"])))
            assert contrast(page[text], cell) >= 4.5, row  # WCAG 1.4.3
    assert len({row["ink"] for row in shown}) > 1


def test_a_text_that_is_too_wide_for_its_cell_hides_no_other():
    rows_of = [
        {"x": x, "y": "a", "value": 0.1, "text": text, "tip": "", "marked": False}
        for x, text in enumerate(["12\n[1, 2]", "letters, more than a cell has room for, " * 4, "–"])
    ]
    drawn_texts = re.findall(r">([^<>]+)</t", drawing.svg(drawn(plots.heat(pd.DataFrame(rows_of), "", "", full=1.0))))
    assert {"12", "[1, 2]", "–"} <= set(drawn_texts)
    assert not [text for text in drawn_texts if "letters" in text]
