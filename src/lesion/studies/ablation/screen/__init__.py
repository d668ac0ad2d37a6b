"""Screening: gold solutions are scored under every edit before, or instead of, answers."""
