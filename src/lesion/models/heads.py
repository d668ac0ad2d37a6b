"""Heads: how many query heads an attention has, and which columns of its output matrix read each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.models.matrices import Matrix

if TYPE_CHECKING:  # its library takes seconds to load
    from transformers import PreTrainedConfig

OUTPUT = "o"
"""The matrix of an attention that reads its query heads side by side, by the convention of families.toml."""


@dataclass(frozen=True, eq=False)
class Heads:
    """The query heads of one attention. Head h is read by the columns h · size to (h + 1) · size of its output matrix.

    Attributes:
        count: query heads.
        groups: key-value heads; query heads g · count / groups to (g + 1) · count / groups read key-value head g.
        size: of what one head gives (its value size, which may differ from that of queries and keys).
        matrix: the output matrix of the attention, whose module is given all heads: [..., count · size].
    """

    count: int
    groups: int
    size: int
    matrix: Matrix

    def of_group(self, group: int) -> range:
        """The query heads that read one key-value head."""
        share = self.count // self.groups
        return range(group * share, (group + 1) * share)


def heads_of(matrices: Mapping[str, Matrix], config: PreTrainedConfig) -> Heads | None:
    """The heads of an attention with these matrices, of a family in the table; None where they do not come out even."""
    matrix = matrices.get(OUTPUT)
    count = getattr(config, "num_attention_heads", None)
    if matrix is None or not isinstance(count, int) or count < 1 or matrix.shape[1] % count:
        return None
    groups = getattr(config, "num_key_value_heads", None) or count
    return Heads(count, groups, matrix.shape[1] // count, matrix) if count % groups == 0 else None
