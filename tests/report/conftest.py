"""Fixtures for the tests of pages."""

from pages import coarse, tab

__all__ = ["coarse", "tab"]
