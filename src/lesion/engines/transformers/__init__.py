"""Batched decoding on plain Hugging Face models."""
