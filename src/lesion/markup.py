"""Pieces of HTML for notebooks: they make no request and run nothing, and every text in them is escaped."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from lesion.plain import layout

PAPER, INK, SOFT, RULE = "#ffffff", "#1c1e22", "#5c616a", "#dddad2"
"""The light colours of a report (`report/page.css`): a notebook may be dark, and says nothing about it."""
# Notebooks have style sheets of their own: every element says what it needs.
_BOX = (
    f"background:{PAPER};color:{INK};border:1px solid {RULE};border-radius:8px;padding:12px 16px;max-width:960px;"
    "font-size:14px;line-height:1.45;overflow-x:auto"
)
TABLE = f"border-collapse:collapse;font-size:12.5px;color:{INK};margin:8px 0"
CELL = f"padding:3px 10px;border-bottom:1px solid {RULE};vertical-align:top;background:{PAPER}"
HEADLINE, QUIET = "font-size:16px;font-weight:600;margin:2px 0 6px", f"color:{SOFT};font-size:12.5px"


def line(text: str, style: str = "") -> Markup:
    """A text as a line of its own."""
    return Markup('<div style="{}">{}</div>').format(style, seen(text))


def seen(text: str) -> Markup:
    """The text escaped, with what is not seen written as an escape, its line breaks kept."""
    return escape(layout(text)).replace("\n", Markup("<br>"))


def boxed(parts: Iterable[Markup]) -> str:
    """Parts above one another in a box that reads the same in light and in dark notebooks."""
    return str(Markup('<div style="{}">{}</div>').format(_BOX, Markup("").join(parts)))


def facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, under a title."""
    cells = Markup("").join(
        Markup('<tr><th style="{}">{}</th><td style="{}">{}</td></tr>').format(
            f"{CELL};text-align:left;white-space:nowrap", seen(name), f"{CELL};text-align:left", seen(value)
        )
        for name, value in rows
    )
    return boxed([line(title, HEADLINE), Markup('<table style="{}">{}</table>').format(TABLE, cells)])
