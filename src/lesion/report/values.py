"""Values of results: frozen, typed, written as JSON and read back; a number that is not finite is None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from lesion.reprs import brief, described

if TYPE_CHECKING:  # they take long to load
    import numpy as np

    from lesion.statistics.paired import Contrast


def known(value: Any) -> Any:
    """A number as Python's own; None where it is not finite."""
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(known)]
"""A number that may be unknown: NaN and infinity become None."""


class Value(BaseModel):
    """A part of a result."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __repr__(self) -> str:
        values = [(name, getattr(self, name)) for name in type(self).model_fields]
        return described(self, *(f"{name}={brief(value)}" for name, value in values if value not in (None, (), "")))


T = TypeVar("T")


class Fields(Value, Generic[T]):
    """A value whose fields are all of one type, so that they can be chosen by name."""

    def of(self, name: str) -> T:
        """The field of that name."""
        field: T = getattr(self, name)
        return field


class Estimate(Value):
    """A number with its interval, and the p-value of its test where it has one.

    Attributes:
        value: the estimate.
        low, high: the ends of its interval at the study's level.
        p: of the hypothesis that nothing is there.
        p_corrected: over all tests of the family, by Holm (1979).
    """

    value: Number
    low: Number = None
    high: Number = None
    p: Number = None
    p_corrected: Number = None

    @classmethod
    def of(cls, contrast: Contrast, p: float | None = None, p_corrected: float | None = None) -> Estimate:
        """What `lesion.statistics` found, as a value of a result."""
        return cls(value=contrast.value, low=contrast.low, high=contrast.high, p=p, p_corrected=p_corrected)

    @classmethod
    def dropped(cls, baseline: np.ndarray, edited: np.ndarray, level: float) -> Estimate:
        """The drop in accuracy from one [items] array of which is right to the other, with McNemar's exact p."""
        from lesion.statistics.paired import paired_drop, paired_p

        return cls.of(paired_drop(baseline, edited, level), paired_p(baseline, edited))

    @property
    def side(self) -> int:
        """1 where the interval lies above 0, −1 where it lies below; 0 where it holds 0 or is not known."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)

    @property
    def negative(self) -> Estimate:
        """A drop as a gain. A drop of 0 stays 0: −0.0 would be written as a loss of nothing."""
        value, low, high = (None if end is None else 0.0 - end for end in (self.value, self.high, self.low))
        return self.model_copy(update={"value": value, "low": low, "high": high})


class Mean(Value):
    """A mean over runs or seeds, and the standard deviation between them (one degree of freedom less)."""

    mean: float
    std: Number = None

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> Mean | None:
        """The mean of values; None where it is not finite."""
        import numpy as np

        mean = known(float(np.mean(values)))
        return None if mean is None else cls(mean=mean, std=float(np.std(values, ddof=1)) if len(values) > 1 else None)
