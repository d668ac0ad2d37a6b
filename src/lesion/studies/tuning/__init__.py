"""Tuning: does it pay to fine-tune the critical blocks only?"""
