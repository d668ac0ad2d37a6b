"""Decoding on vLLM."""
