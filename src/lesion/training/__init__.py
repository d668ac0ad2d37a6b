"""Training: a model's weights changed by examples, or by a reward that the task's own judge gives."""
