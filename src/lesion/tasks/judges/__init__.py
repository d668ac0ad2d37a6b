"""Judges: whether an answer is right."""
