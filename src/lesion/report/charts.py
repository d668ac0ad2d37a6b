"""The marks of series in charts drawn by hand."""

from __future__ import annotations

from markupsafe import Markup

MARKERS = ("circle", "square", "diamond", "triangle", "pentagon", "cross")
SERIES = 8


def mark(x: float, y: float, radius: float, index: int, *, critical: bool = False, undecided: bool = False) -> Markup:
    """The mark of line number `index` at a place; filled when critical, crossed when asking left it undecided."""
    name = MARKERS[index % len(MARKERS)]
    r = radius
    paths = {
        "circle": f"M{x - r:.1f} {y:.1f}a{r:.1f} {r:.1f} 0 1 0 {2 * r:.1f} 0a{r:.1f} {r:.1f} 0 1 0 {-2 * r:.1f} 0Z",
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r:.1f}v{2 * r:.1f}h{-2 * r:.1f}Z",
        "diamond": f"M{x:.1f} {y - 1.35 * r:.1f}l{1.25 * r:.1f} {1.35 * r:.1f}l{-1.25 * r:.1f} {1.35 * r:.1f}"
        f"l{-1.25 * r:.1f} {-1.35 * r:.1f}Z",
        "triangle": f"M{x:.1f} {y - 1.3 * r:.1f}l{1.3 * r:.1f} {2.2 * r:.1f}h{-2.6 * r:.1f}Z",
        "pentagon": f"M{x:.1f} {y + 1.3 * r:.1f}l{1.3 * r:.1f} {-2.2 * r:.1f}h{-2.6 * r:.1f}Z",
        "cross": f"M{x - r:.1f} {y - r / 2:.1f}h{2 * r:.1f}v{r:.1f}h{-2 * r:.1f}Z",
    }
    drawn = Markup('<path class="mark{}" d="{}"/>').format(" critical" if critical else "", paths[name])
    if undecided:
        a = 1.7 * r
        drawn += Markup('<path class="crossed" d="M{:.1f} {:.1f}l{:.1f} {:.1f}m0 {:.1f}l{:.1f} {:.1f}"/>').format(
            x - a, y - a, 2 * a, 2 * a, -2 * a, -2 * a, 2 * a
        )
    return drawn
