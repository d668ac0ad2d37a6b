"""Card: the README of an edited checkpoint, which says what was done to it, with what, and from what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lesion.edits.cuts import Cut
from lesion.edits.files.edit_file import EditFile
from lesion.edits.files.truncated import Truncated
from lesion.edits.selections.selection import Count
from lesion.edits.weights import Effect

LOADING = """
To load it:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS FOLDER")
tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER")
```"""
"""How to load the model beside a card."""


@dataclass(frozen=True)
class AppliedEdit:
    """One edit as it was applied.

    Attributes:
        kept_as: its name in the folder `lesion` of the checkpoint.
        factor: by which its weights were multiplied, in words; empty where it only truncates.
        counts: how much of every matrix was selected, of those it touches.
        afresh: the weights were not those that it was made for, and its selection was made anew.
        achieved: Σ|w| after ÷ before over what it selected, by this edit alone; None where it selects nothing.
        cuts: what it leaves of the matrices that it truncates, by itself.
    """

    file: EditFile
    kept_as: str
    factor: str
    counts: tuple[Count, ...]
    afresh: bool
    achieved: float | None
    cuts: tuple[Cut, ...] = ()

    @property
    def selected(self) -> int:
        """Weights selected."""
        return sum(count.selected for count in self.counts)


@dataclass(frozen=True)
class Applied:
    """What was done.

    Attributes:
        effects: on every matrix whose weights were multiplied, of all edits together.
        total: weights in all matrices that could have been selected.
        achieved: Σ|w| after ÷ before over everything selected; None where nothing was.
        left_out: files of the base model that were not copied.
        truncated: every matrix of which a part of the spectrum was kept, by all edits together.
        thin: the file of thin factors, where they were asked for.
    """

    folder: Path
    edits: tuple[AppliedEdit, ...]
    effects: tuple[Effect, ...]
    total: int
    achieved: float | None
    left_out: tuple[str, ...]
    truncated: tuple[Truncated, ...] = ()
    thin: Path | None = None

    @property
    def moved(self) -> int:
        """Weights that have another value."""
        return sum(effect.moved for effect in self.effects) + sum(matrix.moved for matrix in self.truncated)


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
    """The front matter of a model card (with its dashes; the hub reads license and base from it), and the rest."""
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


def written(base: str, applied: Applied) -> list[str]:
    """The lines of the card of what was done to a model (its name as typed), in Markdown."""
    matrices = len(applied.truncated)
    biases = " and biases" * any(edit.file.biases for edit in applied.edits)
    what = [f"weights{biases} of {code(base)} were multiplied in place"] * bool(applied.effects)
    were = "matrix was" if matrices == 1 else "matrices were"
    what += [f"{matrices:,} {were} truncated"] * bool(matrices)
    changes = " and ".join(what)
    over = ""
    if applied.achieved is not None:
        over = f"; over all that was selected, Σ|w| is {applied.achieved:.6g} times what it was"
    lines = [
        f"# {code(base)}, edited",
        "",
        f"{changes[:1].upper()}{changes[1:]} by `lesion apply` (lesion {version('lesion')}). Nothing was trained; "
        f"all other weights are those of the base model, {code(base)}, bit for bit. {applied.moved:,} of "
        f"{applied.total:,} weights in the matrices of the decoder have another value{over}.",
        *_multiplied(applied),
        *_biases(applied),
        *_truncated(applied),
    ]
    for edit in applied.edits:
        if edit.afresh:
            how = "its selection was made anew on these" if edit.counts else "it is these that were truncated"
            lines += ["", f"{code(edit.file.label)} was made for other weights; {how}."]
        if not edit.counts:
            lines += ["", f"{code(edit.file.label)} was made on {edit.file.made}."]
            continue
        lines += ["", f"{code(edit.file.label)} was made on {edit.file.made} from:", ""]
        lines += [f"- {line}" for line in data_of(edit.file)]
    lines.append(LOADING)
    if applied.left_out:
        lines += ["", "Files of the base model that were not copied: " + ", ".join(map(code, applied.left_out)) + "."]
    return lines


def _multiplied(applied: Applied) -> list[str]:
    if not applied.effects:
        return []
    lines = [
        "",
        "| edit | digest | factor | achieved | selected | made for | file |",
        "|---|---|---|---|---|---|---|",
    ]
    for edit in applied.edits:
        if edit.achieved is not None:
            lines.append(
                f"| {code(edit.file.label)} | {code(edit.file.digest)} | {edit.factor} | {edit.achieved:.6g} "
                f"| {edit.selected:,} ({edit.selected / applied.total:.4%}) | {_origin(edit)}"
            )
    stored = ", ".join(sorted({effect.dtype for effect in applied.effects}))
    return [*lines, "", f"All selections were made on the unedited weights; products are rounded once, to {stored}."]


def _biases(applied: Applied) -> list[str]:
    """Which biases were multiplied, and that the kept file does not hold them."""
    lines = []
    for edit in applied.edits:
        if factors := edit.file.biases:
            each = ", ".join(f"{code(address)} by {factor:g}" for address, factor in factors.items())
            lines += [
                "",
                f"{code(edit.file.label)} also multiplied the biases added to the results of these matrices: {each}. "
                f"{code('lesion/' + edit.kept_as)} holds the weights alone.",
            ]
    return lines


def _truncated(applied: Applied) -> list[str]:
    """Tables of the edits that truncate and of the truncated matrices, all edits taken together."""
    if not applied.truncated:
        return []
    lines = ["", "| edit | digest | keeps | made for | file |", "|---|---|---|---|---|"]
    for edit in applied.edits:
        if edit.cuts:
            keeps = "; ".join(f"of {code(cut.address)} {cut}" for cut in edit.cuts)
            lines.append(f"| {code(edit.file.label)} | {code(edit.file.digest)} | {keeps} | {_origin(edit)}")
    lines += [
        "",
        "| truncated matrix | out × in | kept | of its squared norm | parameters | as two thin factors |",
        "|---|---|---|---|---|---|",
    ]
    for matrix in applied.truncated:
        cut = matrix.cut
        lines.append(
            f"| {code(cut.address)} | {cut.shape[0]:,} × {cut.shape[1]:,} | {cut} | {matrix.energy:.4%} "
            f"| {cut.dense:,} | {cut.thin:,} |"
        )
    stored = ", ".join(sorted({matrix.dtype for matrix in applied.truncated}))
    return [
        *lines,
        "",
        "A matrix is the sum of its singular components, and those that are not kept are gone. What is kept is "
        f"computed in float64 and rounded once, to {stored}; the checkpoint holds it in the shape of the matrix.",
    ]


def _origin(edit: AppliedEdit) -> str:
    file = edit.file
    return f"{cell(file.model.name)}, fingerprint {code(file.model.fingerprint)} | {code('lesion/' + edit.kept_as)} |"
