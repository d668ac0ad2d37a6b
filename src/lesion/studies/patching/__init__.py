"""Activation patching: where a model carries the answer, by values put from one run into another."""
