"""Drift: how far tokens leave their first clusters, layer by layer (Nepal et al. 2025, section 5)."""
