"""Interaction: several places removed together, against the sum of what each costs alone."""
