"""Card: the README of an edited checkpoint, which says what was done to it, with what, and from what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lesion.edits.editfile import EditFile
from lesion.edits.selection import Count
from lesion.edits.weights import Effect


@dataclass(frozen=True)
class Deed:
    """One edit as it was applied.

    Attributes:
        edit: the file.
        kept_as: its name in the folder `lesion` of the checkpoint.
        factor: by which its weights were multiplied, in words.
        counts: how much of every matrix was selected, of those it touches.
        afresh: the weights were not those that it was made for, and its selection was made anew.
        achieved: Σ|w| after ÷ before over what it selected, by this edit alone.
    """

    edit: EditFile
    kept_as: str
    factor: str
    counts: tuple[Count, ...]
    afresh: bool
    achieved: float

    @property
    def selected(self) -> int:
        """Weights selected."""
        return sum(count.selected for count in self.counts)


def code(text: str) -> str:
    """Text shown as it is in Markdown, whatever stands in it."""
    plain = "".join(letter if letter.isprintable() else "�" for letter in text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", plain)), default=0))
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"


def cell(text: str) -> str:
    """Text shown as it is in a cell of a table."""
    return code(text.replace("|", "¦"))


def front_and_rest(readme: str) -> tuple[str, str]:
    """The table at the head of a model card (with its dashes; the hub reads license and base from it), and the rest."""
    match = re.match(r"---\r?\n.*?\n---[ \t]*(\r?\n|$)", readme, re.DOTALL)
    return (match[0].rstrip() + "\n\n", readme[match.end() :]) if match else ("", readme)


def data_of(edit: EditFile) -> list[str]:
    """One line for every draw of texts that an edit was made from: data, texts, seed."""
    lines = []
    for inputs in edit.inputs:
        for draw in inputs.provenance:
            how = "with" if draw.replacement else "without"
            cut = f", {draw.cut:,} cut at the context" if draw.cut else ""
            lines.append(
                f"{code(draw.data)}: {len(draw.ids):,} texts drawn {how} replacement (seed {draw.seed}, "
                f"repeat {draw.repeat}, style {code(draw.style)}{cut})"
            )
    return lines or ["no data"]


def write(
    base: str,
    deeds: Sequence[Deed],
    effects: Sequence[Effect],
    total: int,
    achieved: float,
    left_out: Sequence[str],
    version: str,
    original: str | None,
) -> str:
    """The card in Markdown.

    Args:
        base: name of the model that was edited, as typed.
        deeds: what was done.
        effects: on every matrix, of all edits together.
        total: weights in all matrices that could have been selected.
        achieved: the factor of all edits together.
        left_out: files of the base model that were not copied.
        version: of lesion.
        original: the base model's own README.
    """
    front, rest = front_and_rest(original or "")
    moved = sum(effect.moved for effect in effects)
    lines = [
        f"# {code(base)}, edited",
        "",
        f"Weights of {code(base)} were multiplied in place by `lesion apply` (lesion {version}). Nothing was trained; "
        f"all other weights are those of the base model, bit for bit. {moved:,} of {total:,} weights in the matrices "
        f"of the decoder have another value; over all that was selected, Σ|w| is {achieved:.6g} times what it was.",
        "",
        "| edit | digest | factor | achieved | selected | made for | file |",
        "|---|---|---|---|---|---|---|",
    ]
    for deed in deeds:
        edit, share = deed.edit, deed.selected / total
        lines.append(
            f"| {code(edit.label)} | {code(edit.digest)} | {deed.factor} | {deed.achieved:.6g} | {deed.selected:,} "
            f"({share:.4%}) | {cell(edit.model.name)}, fingerprint {code(edit.model.fingerprint)} "
            f"| {code('lesion/' + deed.kept_as)} |"
        )
    stored = ", ".join(sorted({effect.dtype for effect in effects}))
    lines += ["", f"All selections were made on the unedited weights; products are rounded once, to {stored}."]
    for deed in deeds:
        if deed.afresh:
            lines += ["", f"{code(deed.edit.label)} was made for other weights; its selection was made anew on these."]
        lines += ["", f"{code(deed.edit.label)} was made on {deed.edit.made} from:", ""]
        lines += [f"- {line}" for line in data_of(deed.edit)]
    lines += [
        "",
        "To load it:",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("THIS FOLDER")',
        'tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")',
        "```",
    ]
    if left_out:
        lines += ["", "Files of the base model that were not copied: " + ", ".join(map(code, left_out)) + "."]
    if original is not None:
        lines += ["", "---", "", "# The card of the base model", "", rest.strip()]
    return front + "\n".join(lines) + "\n"
