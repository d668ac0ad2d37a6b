"""The kinds of planted truth. Nothing here waits for torch, so that a command refuses a kind at once."""

from __future__ import annotations

from lesion.errors import UsageError, nearest

KINDS = {
    "compiled": "weights written by hand",
    "block": "the skill trained into one block alone, after everything else",
    "adapter": "the skill trained into low-rank updates of one block's MLP alone",
    "neurons": "the skill trained into some neurons of two MLPs alone",
    "weights": "the skill trained into randomly drawn weights of all matrices alone",
    "routed": "all skills trained together, gradients of the skill reaching one block and its words alone",
    "noise": "all skills trained together, then noise as the largest singular components of one matrix",
    "joint": "all skills trained together everywhere: no place",
    "shuffled": "as joint, with answers of the skill drawn anew in every step: no skill",
}
"""The kinds of truth, and what each is."""
ALL = "all"


def check_kind(kind: str) -> None:
    """Refuse what is no kind of planted truth, nor `all`."""
    known = (*KINDS, ALL)
    if kind not in known:
        raise UsageError(f"Nothing is planted by '{kind}'{nearest(kind, known)}; there are {', '.join(known)}.")
