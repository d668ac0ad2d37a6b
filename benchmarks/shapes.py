"""Levels of the tests of a straight line, by simulation: 5 runs of 8, 10 or 28 layers, under noise of several kinds.

    python benchmarks/shapes.py [--studies 20000]

Every row is one kind of noise around a straight line; every column the share of studies in which a test says at 5 %
that there is more than a line. F: the textbook's lack of fit with runs as blocks; greenhouse: the same for runs with
lines of their own, corrected by Greenhouse and Geisser's ε; component, hinge, step: the tests of
`lesion.statistics.shape`; chosen: its rule, by which a hinge or step is claimed.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.stats import f as fisher

from lesion.statistics.shape import _families, _off_line, _principal, _t_test

RUNS = 5
ALPHA = 0.05
NOISE = (
    *("independent", "offset of a run", "slope of a run", "autocorrelated .5", "autocorrelated .8", "random walk"),
    *("uneven variance", "one common mode", "Student's t, 3 df", "exponential"),
)


def noise(kind: str, studies: int, layers: int, rng: np.random.Generator) -> np.ndarray:
    """[studies, runs, layers] errors around a line."""
    shape = (studies, RUNS, layers)
    plain = rng.normal(size=shape)
    of_run = rng.normal(size=(studies, RUNS, 1))
    if kind == "offset of a run":
        return plain + 4 * of_run
    if kind == "slope of a run":
        return plain + 2 * of_run * np.arange(layers)
    if kind.startswith("autocorrelated"):
        rho = float(kind.split()[1])
        for layer in range(1, layers):
            plain[..., layer] = rho * plain[..., layer - 1] + np.sqrt(1 - rho**2) * plain[..., layer]
        return plain
    if kind == "random walk":
        return np.cumsum(plain, axis=-1)
    if kind == "uneven variance":
        return plain * np.linspace(0.2, 2, layers)
    if kind == "one common mode":
        return 0.3 * plain + of_run * np.sin(np.pi * np.arange(layers) / layers)
    if kind == "Student's t, 3 df":
        return rng.standard_t(3, size=shape)
    if kind == "exponential":
        return rng.exponential(size=shape)
    return plain


def levels(curves: np.ndarray) -> dict[str, float]:
    """Name of a test → share of studies in which it rejects."""
    _, runs, layers = curves.shape
    x = np.arange(layers, dtype=float)
    rest = _off_line(x, curves.reshape(-1, layers)).reshape(curves.shape)
    mean = rest.mean(axis=1)
    pure = curves - curves.mean(1, keepdims=True) - curves.mean(2, keepdims=True) + curves.mean((1, 2), keepdims=True)
    degrees = (layers - 2, (runs - 1) * (layers - 1))
    lack = runs * np.sum(mean**2, axis=1)
    rejected = {"F": fisher.sf(lack / degrees[0] / (np.sum(pure**2, axis=(1, 2)) / degrees[1]), *degrees) <= ALPHA}
    away = rest - mean[:, None]
    covariance = np.einsum("srl,srm->slm", away, away) / (runs - 1)
    trace = np.trace(covariance, axis1=1, axis2=2)
    epsilon = trace**2 / (degrees[0] * np.sum(covariance**2, axis=(1, 2)))
    own = (epsilon * degrees[0], epsilon * (runs - 1) * degrees[0])
    rejected["greenhouse"] = fisher.sf(lack / trace, *own) <= ALPHA
    rejected["component"] = _t_test(_principal(rest)) <= ALPHA
    for kind, family in _families(x).items():
        best = np.argmax(family.squares(rest), axis=1)
        scores = np.einsum("srl,sl->sr", rest, family.contrasts[best])
        rejected[kind] = _t_test(scores) <= ALPHA
    rejected["chosen"] = rejected["component"] & (rejected["hinge"] | rejected["step"])
    return {name: float(np.mean(found)) for name, found in rejected.items()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--studies", type=int, default=20_000)
    studies = options.parse_args().studies
    rng = np.random.default_rng(0)
    for layers in (8, 10, 28):
        print(f"{RUNS} runs of {layers} layers")
        for kind in NOISE:
            parts = [noise(kind, 1000, layers, rng) for _ in range(max(1, studies // 1000))]
            found = [levels(part) for part in parts]
            means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
            print(f"  {kind:20}" + "".join(f"{name:>12} {value:.3f}" for name, value in means.items()), flush=True)


if __name__ == "__main__":
    main()
