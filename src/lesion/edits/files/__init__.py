"""Edit files, and checkpoints written under edits."""
