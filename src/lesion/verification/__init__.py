"""Verification: whether an engine's answers under edits are those of a plain pass over weights changed by hand."""
