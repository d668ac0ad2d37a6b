"""A model observed while it reads: what flows into its matrices, and the hidden states of every layer."""
