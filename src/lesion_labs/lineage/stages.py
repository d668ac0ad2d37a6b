"""The stages of the lineage: base, and the children that are trained from it."""

from __future__ import annotations

from lesion.errors import UsageError, nearest

STAGES = ("base", "instruct", "rlvr", "distill")
"""In the order in which they are trained: the teacher of the distilled child is the reinforced one."""
ALL = "all"


def refuse_stage(stage: str) -> None:
    """Refuse what is no stage, nor `all`."""
    known = (*STAGES, ALL)
    if stage not in known:
        raise UsageError(f"The lineage has no stage '{stage}'{nearest(stage, known)}; there are {', '.join(known)}.")
