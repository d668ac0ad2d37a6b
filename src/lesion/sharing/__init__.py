"""Sharing: studies and edited checkpoints on the hub, in the formats of other programs, and in experiment trackers."""
