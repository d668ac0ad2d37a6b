"""A program that uses the Python functions of studies, for mypy alone (`make types`): each ignored error is one."""

import lesion
from lesion import AblationResult, DriftResult, Model


def program(model: Model) -> tuple[AblationResult, DriftResult]:
    """What is right is no error, and what is wrong is one."""
    result = lesion.ablate(model, ["primer:atlas"], unit="mlp", factor=[0, 0.5], engine="transformers")
    drift = lesion.drift([model, "bundled:llama-base"], lesion.find_task("primer:atlas"), out="drift", progress=False)
    lesion.evaluate(model, lesion.ScaleBlock(1), "primer:atlas", random_controls=0)
    lesion.compare("base", result, labels=["x", "y"])
    lesion.ablate(model, "primer:atlas", unit="mpl")  # type: ignore[arg-type]
    lesion.ablate(model, "primer:atlas", items=0.5)  # type: ignore[arg-type]
    lesion.drift(model)  # type: ignore[call-arg]
    lesion.tune(model, "primer:atlas", stepps=3)  # type: ignore[call-arg]
    return result, drift
