"""One table of the members of a lineage: what each is right in, how long it took, what it gained over its parent."""

from __future__ import annotations

from collections.abc import Sequence

from lesion_labs.lineage.card import TASK, Facts, Gain, Result


def text(members: Sequence[Facts]) -> str:
    """The members as a table in Markdown: accuracies in percent with their intervals, gains in points."""
    steps = sorted({entry["group"] for facts in members for entry in facts["results"] if entry["task"] == TASK} - {""})
    heads = ["model", "arithmetic", *steps, "atlas", "reading", "gain in arithmetic over its parent", "minutes"]
    columns = [*((TASK, group) for group in ("", *steps)), ("primer:atlas", ""), ("primer:reading", "")]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for facts in members:
        accuracies = {(entry["task"], entry["group"]): _accuracy(entry) for entry in facts["results"]}
        gain = next((_gain(entry) for entry in facts.get("gain", []) if entry["task"] == TASK), "")
        name, minutes = f"{facts['family']}-{facts['stage']}", f"{facts['seconds'] / 60:.0f}"
        cells = [name, *(accuracies.get(column, "") for column in columns), gain, minutes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _accuracy(entry: Result) -> str:
    return f"{100 * entry['accuracy']:.1f} ({100 * entry['low']:.1f}–{100 * entry['high']:.1f})"


def _gain(entry: Gain) -> str:
    return f"{100 * entry['gain']:+.1f} ({100 * entry['low']:+.1f} to {100 * entry['high']:+.1f})"
