"""Proofs that edits act while decoding, for every edit of every model of a study: `proofs.json` in its folder.

The model answers one prompt under the edit, a few tokens (`core.prove`). What it was about to say at the last of them
is compared with the same text read in one pass, under the edit and without it. An engine that forgets an edit behind
the prompt differs from the text read under the edit; one that never makes it does not differ from that read without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from lesion.core.values import read_value
from lesion.plain import short
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.rows import Record, parts_of
from lesion.report.values import Number, Value

FILE = "proofs.json"
State = Literal["acts", "unseen", "lost"]


class Proof(Value):
    """Log-probabilities, in nats, of the tokens that were the most probable where the last one was decoded.

    All three are empty of an edit under which logits are not finite.

    Attributes:
        decoded: while decoding under the edit.
        read: in one pass over the same text, under the edit.
        unedited: in one pass over the same text, without it.
        state: `acts`; `unseen`: decoding under it differs from the unedited model by no more than rounding makes;
            `lost`: it differs from reading under the edit by more than that.
    """

    decoded: tuple[Number, ...]
    read: tuple[Number, ...]
    unedited: tuple[Number, ...]
    state: State


class Proofs(Value):
    """The proofs of a folder: by model, and by the text form of the edit."""

    models: dict[str, dict[str, Proof]]

    @classmethod
    def of(cls, folder: Path) -> Proofs | None:
        """Those of a folder; None where nothing was decoded under an edit."""
        return read_value(cls, folder / FILE, "delete it and run the same command again")

    @property
    def edits(self) -> list[str]:
        """All edits, by their text forms."""
        return list(dict.fromkeys(text for proofs in self.models.values() for text in proofs))

    @property
    def text(self) -> str:
        """How many of them act."""
        return f"{len(self.edits) - len(self.unproved()):,} of {len(self.edits):,} are shown to ({FILE})"

    def unproved(self, model: str | None = None) -> list[str]:
        """The edits that are not shown to act, of one model or of any."""
        chosen = self.models.values() if model is None else [self.models.get(model, {})]
        return list(dict.fromkeys(text for proofs in chosen for text, proof in proofs.items() if proof.state != "acts"))

    def hold(self, claim: Claim) -> bool:
        """Whether a claim rests on no edit that is not shown to act; none holds where no edit is shown to.

        A drop that is shown (a row that `falls`) shows that its edit acts.
        """
        rows = (row for row in claim.rows if not any(getattr(part, "falls", False) for part in parts_of(row)))
        return self.unproved() != self.edits and not any(map(self._concern, rows))

    def _concern(self, record: Record) -> bool:
        rows = parts_of(record)
        texts = {str(row.edit) for row in rows if hasattr(row, "edit")}
        texts |= {f"{place}×0" for row in rows for place in getattr(row, "places", ())}
        texts |= {edit for row in rows for edit in getattr(row, "edits", ())}
        models = [str(row.model) for row in rows if hasattr(row, "model")]
        return not texts.isdisjoint(self.unproved(models[0] if models and models[0] in self.models else None))


@rule
def about_unproved(proofs: Proofs) -> Iterator[Claim]:
    """Edits that are not shown to act while the model decodes.

    Says: K of N edits are not shown to act while decoding, and only drops are claimed of them: A, B. | Nothing is
    claimed: none of the N edits is shown to act while decoding.
    Needs: at the last of a few decoded tokens, log-probabilities that differ from the unedited model's by no more than
    rounding makes, or that differ from those of the same text read under the edit.
    """
    texts, count = proofs.unproved(), len(proofs.edits)
    named = wording.listed([*(short(text, 40) for text in texts[:3]), *[f"{len(texts) - 3} more"] * (len(texts) > 3)])
    verb, whom = ("is", "it") if len(texts) == 1 else ("are", "them")
    shown = f"{len(texts)} of {wording.counted(count, 'edit')} {verb} not shown to act while decoding"
    text = f"{shown}; only drops are claimed of {whom}: {named}."
    if len(texts) == count:
        text = f"Nothing is claimed: none of {wording.counted(count, 'edit')} is shown to act while decoding."
    yield Claim((text,))
