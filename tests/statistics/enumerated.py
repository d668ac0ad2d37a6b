"""All outcomes of pairs of answers, and their chances where an edit keeps exactly a share of the accuracy."""

import numpy as np


def outcomes(m: int) -> np.ndarray:
    """[outcomes, 3] all ways in which m items can be lost, retained and won."""
    return np.array([(m - r - w, r, w) for r in range(m + 1) for w in range(m + 1 - r)])


def edge(q: float, kept: float) -> list[float]:
    """The chances of lost, retained and won where p_edit = kept · p_baseline, given the chance q of won."""
    retained = max(0.0, kept - (1 + kept) * q)
    return [1 - retained - q, retained, q]
