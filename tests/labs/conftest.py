"""Fixtures for the tests of laboratories."""

from pages import coarse, tab

__all__ = ["coarse", "tab"]
