"""Layer importance: switch off (or scale) one place at a time and watch each skill (Nepal et al. 2025).

The edits of a sweep, and the name under which the answers to each are found again. The paper's driver never ran block
0; a sweep here begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lesion.edits.edit import SCALES, Scale, Unit
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy


def sweep(anatomy: Anatomy, units: Sequence[Unit], layers: Sequence[int], factors: Sequence[float]) -> list[Scale]:
    """One edit per unit, factor and layer, in that order.

    Args:
        anatomy: of the model that the edits are for.
        units: what of each block is scaled.
        layers: indices of blocks.
        factors: 0 is the paper's zero ablation.

    Raises:
        UsageError: the model has no such block, or no such branch is known in it.
    """
    for layer in layers:
        block = anatomy.block(layer)
        for unit in units:
            if unit != "block" and getattr(block, unit) is None:
                raise UsageError(
                    f"No {unit} is known in block {layer} of {anatomy.name}; use --unit block, and see"
                    f" `lesion show {anatomy.name}` for what is known."
                )
    return [SCALES[unit](layer, factor) for unit in units for factor in factors for layer in layers]
