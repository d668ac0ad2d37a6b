"""What an engine has computed, counted in token steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Work:
    """What an engine has computed so far, in token steps: one token of one row through all blocks.

    Attributes:
        prompt: tokens of prompts and drafts, sharing counted as saved; padding included.
        decoded: decoding steps of rows at work.
        idle: decoding steps spent on rows that had finished.
        steps: forward passes of decoding.
        drafted: tokens of drafts that were looked at.
        accepted: drafted tokens that were said, each a decoding step saved.
        batch_size: rows at most, as it stands now.
    """

    prompt: int = 0
    decoded: int = 0
    idle: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    batch_size: int = 0
