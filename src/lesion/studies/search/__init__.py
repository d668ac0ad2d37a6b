"""Searches over layouts of a model: runs of blocks repeated, dropped or swapped, places scaled or truncated."""
