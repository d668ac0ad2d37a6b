"""Rows made for tests: two models on two tasks, a number per block, some of it missing."""

from lesion.report.rows import Row, Rows, column, derived
from lesion.report.values import POINTS, SHARE, ByUnit, Estimate, decimals


class MadeTask(Row):
    """What tells the lines apart."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)
    baseline: float = column("Baseline", SHARE)
    unit: str = column(default="share", label=True)


class MadeBlock(Row):
    """One block of one model on one task.

    Attributes:
        drop: what it costs.
    """

    layer: int = column("Block", label=True)
    items: int = column("Items")
    drop: Estimate = column("Drop", POINTS, p=True)
    score: Estimate = column("Score", decimals(2, "nats"), default=Estimate(value=None), ends=("from", "to"))
    amount: float | None = column("Amount", ByUnit({"share": SHARE, "nats": decimals(3, "nats")}), default=None)
    critical: bool = column("Critical", default=False)
    raw: tuple[int, ...] = ()

    @derived.column("Kept", SHARE, key="share_kept")
    def kept(self) -> float | None:
        """What is left of 1."""
        return None if self.drop.value is None else 1.0 - self.drop.value

    @property
    def size(self) -> float:
        """The drop without its sign."""
        return abs(self.drop.value or 0.0)


def task(model: str = "m", name: str = "sums", **more: object) -> MadeTask:
    return MadeTask(model=model, task=name, baseline=0.75, **more)


def block(layer: int, value: float | None, low: float | None = None, high: float | None = None, **more: object):
    p = more.pop("p", None)
    drop = Estimate(value=value, low=low, high=high, p=p, p_corrected=None if p is None else min(1.0, 2 * p))
    return MadeBlock(layer=layer, items=8 + layer, drop=drop, **more)


def made(models: tuple[str, ...] = ("m", "n"), tasks: tuple[str, ...] = ("sums", "facts")) -> list:
    """A line per model, task and block; block 1 is critical, block 2 was not measured."""
    blocks = (block(0, -0.125, -0.25, 0.0, p=0.4), block(1, 0.5, 0.25, 0.75, p=0.001, critical=True), block(2, None))
    return [(task(model, name), each) for model in models for name in tasks for each in blocks]


def rows(records: list | None = None, **more: object) -> Rows:
    return Rows("made", made() if records is None else records, (MadeTask, MadeBlock), "Made", "In points.", **more)
