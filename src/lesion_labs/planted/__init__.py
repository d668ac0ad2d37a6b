"""Planted truth: small models whose place of a skill is known, to score methods on."""
