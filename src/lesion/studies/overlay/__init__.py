"""Overlay: do several methods point at the same blocks of a model?"""
