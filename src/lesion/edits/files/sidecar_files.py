"""What lies beside the weights of a checkpoint: tokenizer, templates and licences copied, edits and a card added."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from lesion.edits.files import card
from lesion.edits.files.card import AppliedEdit
from lesion.errors import LesionError
from lesion.models.stored import Checkpoint, inside

# What a checkpoint needs beside its weights. Whatever else lies in the folder (other weights, code) stays there.
COPIED = frozenset({".json", ".txt", ".model", ".jinja", ".tiktoken", ".md", ".spm", ".bpe"})
COPIED_NAMES = frozenset({"LICENSE", "NOTICE", "USE_POLICY", "COPYING"})
TEMPLATES = "additional_chat_templates"
KEPT = "lesion"


def copy_others(folder: Path, partial: Path, checkpoint: Checkpoint, edits: Sequence[AppliedEdit]) -> tuple[str, ...]:
    """Copy tokenizer, templates, licences and earlier edits, and add these edits; gives the names of what was not."""
    own = {*checkpoint.shards, checkpoint.index, "config.json", "README.md"}
    left_out = []
    for entry in sorted(folder.iterdir()):
        if entry.name in own:
            continue
        wanted = entry.suffix in COPIED or entry.stem in COPIED_NAMES
        weights = entry.name.endswith(".index.json")  # of the formats that are left out
        if wanted and not weights and entry.is_file() and _safe(folder, entry):
            shutil.copyfile(entry, partial / entry.name)
        elif entry.name == TEMPLATES and entry.is_dir() and not entry.is_symlink():
            (partial / TEMPLATES).mkdir()
            for template in sorted(entry.glob("*.jinja")):
                if _safe(entry, template):
                    shutil.copyfile(template, partial / TEMPLATES / template.name)
        elif entry.name != KEPT and not entry.name.startswith("."):
            left_out.append(entry.name + "/" * entry.is_dir())
    (partial / KEPT).mkdir()
    for edit in edits:
        (partial / KEPT / edit.kept_as).write_bytes(edit.file.data)
    earlier = folder / KEPT
    for entry in sorted(earlier.glob("*.edit")) if earlier.is_dir() and not earlier.is_symlink() else []:
        if _safe(earlier, entry):
            name, number = entry.name, 2
            while (partial / KEPT / name).exists():
                name, number = f"{entry.stem}-{number}.edit", number + 1
            shutil.copyfile(entry, partial / KEPT / name)
    return tuple(left_out)


def _safe(folder: Path, entry: Path) -> bool:
    try:
        return inside(folder, entry.name).is_file()
    except LesionError:
        return False


def base_card(folder: Path, partial: Path, lines: Iterable[str]) -> None:
    """Write the card of a checkpoint that was made from another, with the other's below."""
    readme = folder / "README.md"
    original = readme.read_text(encoding="utf-8", errors="replace") if _safe(folder, readme) else None
    front, rest = card.front_and_rest(original or "")
    below = "" if original is None else f"\n---\n\n# The card of the base model\n\n{rest.strip()}\n"
    (partial / "README.md").write_text(front + "\n".join(lines) + "\n" + below, encoding="utf-8")


def write_card(folder: Path, partial: Path, name: str, applied: card.Applied) -> None:
    """Write the card of an edited checkpoint, with that of its base below."""
    readme = folder / "README.md"
    original = readme.read_text(encoding="utf-8", errors="replace") if _safe(folder, readme) else None
    (partial / "README.md").write_text(card.write(name, applied, original), encoding="utf-8")
