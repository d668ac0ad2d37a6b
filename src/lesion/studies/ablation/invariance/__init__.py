"""Invariance: is the importance of layers the same in a base model and its variants?"""
