"""What can be done to a model: edits as values, applied and taken back."""
