"""The place where lm-evaluation-harness learns of `--model lesion`, without lesion having been imported.

The harness has no entry point for models of other packages. PyTorch has one that it calls when it is imported
(`torch.backends`), and the harness's command imports PyTorch before it looks its model up.
"""

from __future__ import annotations

import sys

NAME, TARGET = "lesion", "lesion.harness_model:LesionModel"


def register() -> None:
    """Tell the harness of the model, where the harness is what runs; anywhere else, do nothing.

    Only the name is told: what it names is imported when it is asked for. Nothing that goes wrong here may keep anybody
    from importing PyTorch; the harness then says that it knows no such model.
    """
    if "lm_eval" not in sys.modules:
        return
    try:
        import lm_eval.models  # noqa: F401  (else the harness would not look for its own models any more)
        from lm_eval.api.registry import model_registry

        if NAME not in model_registry:
            model_registry.register(NAME, target=TARGET)
    except Exception:
        return
