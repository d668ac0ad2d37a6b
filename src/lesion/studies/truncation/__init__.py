"""Truncation: matrices whose spectrum is cut in search of a better model (Sharma et al. 2023)."""
