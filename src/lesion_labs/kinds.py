"""What can be trained and planted. Nothing here waits for torch, so that a command refuses a name at once."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.errors import UsageError, nearest

ALL = "all"
STAGES = ("base", "instruct", "rlvr", "distill")
"""In the order in which they are trained: the teacher of the distilled child is the reinforced one."""
PLANTED = ("compiled", "block", "adapter", "neurons", "weights", "routed", "noise", "joint", "shuffled")
"""Kinds of truth: `planted.trained` says how each is made."""


def refuse_unknown(nothing: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that is none of those known; `nothing` begins the sentence: `The lineage has no stage`."""
    if name not in known:
        raise UsageError(f"{nothing} '{name}'{nearest(name, known)}; there are {', '.join(known)}.")


def refuse_stage(stage: str) -> None:
    """Refuse what is no stage of a lineage, nor `all`."""
    refuse_unknown("The lineage has no stage", stage, (*STAGES, ALL))


def refuse_kind(kind: str) -> None:
    """Refuse what is no kind of planted truth, nor `all`."""
    refuse_unknown("Nothing is planted by", kind, (*PLANTED, ALL))
