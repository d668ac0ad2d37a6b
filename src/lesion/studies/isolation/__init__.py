"""Isolation: the weights that a skill needs and its controls do not (Christ et al. 2024)."""
