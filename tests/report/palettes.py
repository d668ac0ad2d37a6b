"""The colours of the style sheet, light and dark, and how well two of them stand out from each other."""

import re

from lesion.report import theme

SHEET = theme.STYLE_SHEET.read_text("utf-8")
DARK = SHEET.partition("@media (prefers-color-scheme: dark)")[2].partition("}\n}")[0]


def palettes() -> list[dict[str, str]]:
    """The colours by name, of light and of dark pages."""
    light = SHEET.partition("@media (prefers-color-scheme: dark)")[0]
    return [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part)) for part in (light, DARK)]


def contrast(first: str, second: str) -> float:
    """The contrast of two colours by WCAG 2.2."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)
