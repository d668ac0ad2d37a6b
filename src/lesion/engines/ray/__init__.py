"""Decoding on workers that Ray keeps."""
