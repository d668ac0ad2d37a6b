"""Card: the README of an edited checkpoint, which says what was done to it, with what, and from what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from lesion.edits.cuts import Cut
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.selection import Count
from lesion.edits.spectra import Truncated
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
    """

    folder: Path
    edits: tuple[AppliedEdit, ...]
    effects: tuple[Effect, ...]
    total: int
    achieved: float | None
    left_out: tuple[str, ...]
    truncated: tuple[Truncated, ...] = ()

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
    draws = [draw for inputs in edit.inputs for draw in inputs.provenance]
    return [
        f"{code(draw.data)}: {len(draw.ids):,} texts drawn {'with' if draw.replacement else 'without'} replacement "
        f"(seed {draw.seed}, repeat {draw.repeat}, style {code(draw.style)}"
        f"{f', {draw.cut:,} cut at the context' if draw.cut else ''})"
        for draw in draws
    ]


def written(base: str, applied: Applied) -> list[str]:
    """The lines of the card of what was done to a model (its name as typed), in Markdown."""
    matrices = len(applied.truncated)
    biases = " and biases" * any(edit.file.biases for edit in applied.edits)
    what = [f"weights{biases} of {code(base)} were multiplied in place"] * bool(applied.effects)
    what += [f"{matrices:,} {'matrix was' if matrices == 1 else 'matrices were'} truncated"] * bool(matrices)
    changes = " and ".join(what)
    dtypes = {effect.dtype for effect in applied.effects} | {matrix.dtype for matrix in applied.truncated}
    lines = [
        f"# {code(base)}, edited",
        "",
        f"{changes[:1].upper()}{changes[1:]} by `lesion apply` (lesion {version('lesion')}). Nothing was trained; "
        f"all other weights are those of the base model, {code(base)}, bit for bit. {applied.moved:,} of "
        f"{applied.total:,} weights in the matrices of the decoder have another value. All selections were made on the "
        f"unedited weights; results are rounded once, to {', '.join(sorted(dtypes))}.",
        "",
        *(line for edit in applied.edits for line in _edit(edit, applied.total)),
        *_truncated(applied),
        LOADING,
    ]
    if applied.left_out:
        lines += ["", "Files of the base model that were not copied: " + ", ".join(map(code, applied.left_out)) + "."]
    return lines


def _edit(edit: AppliedEdit, total: int) -> list[str]:
    file = edit.file
    did = [f"keeps of {code(cut.address)} {cut}" for cut in edit.cuts]
    if edit.achieved is not None:
        share = f"{edit.selected:,} weights ({edit.selected / total:.4%})"
        did.append(f"multiplies {share} by {edit.factor} (Σ|w| by {edit.achieved:.6g})")
    if file.biases:
        each = ", ".join(f"{code(address)} by {factor:g}" for address, factor in file.biases.items())
        did.append(f"multiplies the biases of {each}, and its file holds the weights alone")
    how = "its selection was made anew on these" if edit.counts else "it is these that were truncated"
    afresh = f", so for other weights; {how}" * edit.afresh
    lines = [
        f"- {code(file.label)} ({code('lesion/' + edit.kept_as)}, digest {code(file.digest)}) {'; '.join(did)}. Made"
        f" on {file.made} for {code(file.model.name)}, fingerprint {code(file.model.fingerprint)}{afresh}."
    ]
    return lines + [f"  - {line}" for line in data_of(file)] * bool(edit.counts)


def _truncated(applied: Applied) -> list[str]:
    rows = [
        f"| {code(matrix.cut.address)} | {' × '.join(f'{size:,}' for size in matrix.cut.shape)} | {matrix.cut} "
        f"| {matrix.energy:.4%} | {matrix.cut.dense:,} | {matrix.cut.thin:,} |"
        for matrix in applied.truncated
    ]
    head = [
        "",
        "| truncated matrix | out × in | kept | of its squared norm | parameters | as two thin factors |",
        "|---|---|---|---|---|---|",
    ]
    return head + rows if rows else []
