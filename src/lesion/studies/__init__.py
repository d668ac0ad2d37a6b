"""A question, asked in full: plan, run, store, statistics."""
