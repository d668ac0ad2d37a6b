"""Kinds of ablation: what stands in for a place, and whether verdicts depend on it."""
