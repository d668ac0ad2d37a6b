"""Fixtures for the tests of studies."""

from pages import coarse, tab

__all__ = ["coarse", "tab"]
