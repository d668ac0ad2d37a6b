"""Selections: which weights of a model an edit means."""
