"""Values of results, frozen, typed, written as JSON and read back, and forms: how a number is written for people.

A number that is not finite is None. A form is the one place that writes a value with its interval, in a sentence
(`83.0 % [79.1, 88.2]`), in a cell of a table (`83.0 [79.1, 88.2]`) and at a mark of a chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lesion.report import wording
from lesion.reprs import brief, described

if TYPE_CHECKING:
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


def omitted(default: Any = None) -> Any:
    """A field that the JSON leaves out where it is the default."""
    return Field(default=default, exclude_if=lambda value: value == default)


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
    def shown(self) -> int:
        """The side, where p (corrected, where it is) is at most `wording.ALPHA` too or there is no test; else 0."""
        p = self.p if self.p_corrected is None else self.p_corrected
        return 0 if (p or 0.0) > wording.ALPHA else self.side

    @property
    def is_shown(self) -> bool:
        """Whether its p, corrected, is at most `wording.ALPHA`."""
        return self.p_corrected is not None and self.p_corrected <= wording.ALPHA

    @property
    def negative(self) -> Estimate:
        """A drop as a gain. A drop of 0 stays 0: −0.0 would be written as a loss of nothing."""
        value, low, high = (None if end is None else 0.0 - end for end in (self.value, self.high, self.low))
        return self.model_copy(update={"value": value, "low": low, "high": high})

    @property
    def size(self) -> Estimate:
        """The same without its sign, where a sentence says which way it goes."""
        return self.negative if (self.value or 0.0) < 0 else self


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


Write = Callable[[Any], str]


def unknown(value: Any) -> bool:
    """Whether a value is missing: None, NaN or pandas' NA."""
    return value is None or str(value) == "<NA>" or (isinstance(value, float) and math.isnan(value))


@dataclass(frozen=True)
class Form:
    """How a number is written.

    Attributes:
        digits: after the point; with `significant`, significant ones.
        per: what the number is multiplied by: 100 for a share that is written in percent.
        unit: behind a number in a sentence, and in the heading of a column.
        signed: whether a number above 0 has its sign.
    """

    digits: int = 2
    per: float = 1.0
    unit: str = ""
    signed: bool = False
    significant: bool = False

    def __call__(self, value: Any) -> str:
        """The number without its unit; a dash where it is missing."""
        if unknown(value):
            return wording.DASH
        text = self._digits(abs(self.per * value))
        if not text.strip("0."):
            return text
        return f"{wording.MINUS}{text}" if value < 0 else f"+{text}" if self.signed else text

    def interval(self, low: float | None, high: float | None) -> str:
        """`[79.1, 88.2]`; empty where it is missing. Whole numbers are rounded outward: the value lies within."""
        if unknown(low) or unknown(high) or low is None or high is None:
            return ""
        if self.digits == 0 and not self.significant:
            low, high = math.floor(self.per * low + 1e-9) / self.per, math.ceil(self.per * high - 1e-9) / self.per
        return f"[{self(low)},{wording.SPACE}{self(high)}]"

    def cell(self, value: float | None, low: float | None = None, high: float | None = None) -> str:
        """`83.0 [79.1, 88.2]`."""
        return f"{self(value)} {self.interval(low, high)}".rstrip()

    def spread(self, value: Mean) -> str:
        """`0.512 ± 0.010`; of a single run `0.512`."""
        return self(value.mean) if value.std is None else f"{self(value.mean)} ± {self._digits(self.per * value.std)}"

    def text(self, value: float | Estimate | Mean | None, interval: bool = True) -> str:
        """A number in a sentence: `83.0 %`, and of an estimate with its interval, `83.0 % [79.1, 88.2]`."""
        if isinstance(value, Mean):
            return f"{self.spread(value)}{f'{wording.SPACE}{self.unit}' * bool(self.unit)}"
        low, high = (value.low, value.high) if isinstance(value, Estimate) and interval else (None, None)
        number = value.value if isinstance(value, Estimate) else value
        unit = f"{wording.SPACE}{self.unit}" if self.unit and not unknown(number) else ""
        return f"{self(number)}{unit} {self.interval(low, high)}".rstrip()

    def _digits(self, size: float) -> str:
        return wording.figures(size, self.digits) if self.significant else f"{size:.{self.digits}f}"


SHARE = Form(1, 100.0, "%")
"""A share of 1 in percent."""
POINTS = Form(1, 100.0, "points")
"""A difference of two shares in percentage points."""
WHOLE_POINTS = Form(0, 100.0, "points")
CHANGE = Form(1, 100.0, "points", signed=True)
"""A gain or loss in percentage points, with its sign."""
NATS = Form(2, unit="nats", signed=True)
FIGURES = Form(4, significant=True)
"""Four significant digits."""
WHOLE_SHARE = Form(0, 100.0, "%")
"""A share of 1 in whole percent, for sentences."""


@dataclass(frozen=True)
class ByUnit:
    """Forms of a number whose unit differs from row to row: the row's field `unit` says which."""

    forms: Mapping[str, Form]

    def __call__(self, value: Any) -> str:
        """The number as it is, where no row says its unit."""
        return plain(value)


def decimals(digits: int, unit: str = "", *, signed: bool = False) -> Form:
    """A number with so many digits after the point."""
    return Form(digits, unit=unit, signed=signed)


def plain(value: Any) -> str:
    """A value as it is; a dash where it is missing."""
    if unknown(value):
        return wording.DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
