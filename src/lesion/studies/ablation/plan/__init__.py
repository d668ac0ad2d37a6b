"""Plans: what a study expects, written down before any answer is there."""
