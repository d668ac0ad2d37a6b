"""Comparison: two or more folders of studies, item by item."""
