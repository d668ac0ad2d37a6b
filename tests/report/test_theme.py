"""The house style of charts: colours by role that the style sheet defines for light and dark pages."""

import json
import re

import pytest
from palettes import DARK, contrast, palettes

from lesion.report import theme

ROLES = (
    theme.PAPER, theme.INK, theme.SOFT, theme.LINE, theme.SHADE, theme.LOSS, theme.GAIN, theme.SHARE, *theme.TONES,
    theme.BLACK, theme.FULL_INK, theme.FULL_PAPER,
)  # fmt: skip


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_a_light_and_a_dark_colour(role):
    name = re.fullmatch(r"var\(--(\w+)\)", role)[1]
    assert re.fullmatch("#[0-9a-f]{6}", theme.light()[name])
    assert re.search(rf"--{name}: #[0-9a-f]{{6}};", DARK)


def test_colours_of_series_differ_and_stand_out_from_both_papers():
    for colours in palettes():
        tones = [colours[f"t{index}"] for index in range(len(theme.TONES))]
        assert len(set(tones)) == len(tones)
        assert all(contrast(tone, colours["paper"]) >= 3 for tone in tones)  # WCAG 1.4.11, graphical objects


def test_series_are_told_apart_by_mark_as_well_and_begin_anew_after_the_last():
    assert len(set(theme.SHAPES)) == len(theme.SHAPES) == len(theme.TONES)
    assert [theme.tone(index) for index in (0, 7, 8, 17)] == [
        *("var(--t0)", "var(--t7)", "var(--t0)", "var(--t1)"),
    ]  # fmt: skip


def test_the_configuration_is_json_and_names_colours_by_role_alone():
    text = json.dumps(theme.config(), allow_nan=False)
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", text)
    assert set(re.findall(r"var\(--\w+\)", text)) <= set(ROLES)
