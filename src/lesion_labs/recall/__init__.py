"""The recall laboratory: a two-layer transformer that must recall in context what noise hides (Chen et al. 2025)."""
