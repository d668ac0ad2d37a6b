"""Stopping: cells are evaluated only until they are decided."""
