"""Models trained from scratch, to study the methods on ground truth."""
