"""The result of a logit lens: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.core.result import StudyResult
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Curves
from lesion.report.parts import Part
from lesion.report.rows import Rows, subject
from lesion.report.values import SHARE
from lesion_logit_lens.study import LensLayer, LensSummary, LensTask

ABOUT = "Layer 0 is what enters block 0, layer l the output of block l − 1; the last layer is the model as it is."


class LensResult(StudyResult[LensSummary]):
    """What the lens showed."""

    SUMMARY = LensSummary
    EYEBROW = "logit lens"
    READING = (ABOUT, "Bands: intervals over items (accuracy: Wilson; log-probability: percentile bootstrap).")

    def parts(self) -> tuple[Part, ...]:
        """The layers."""
        records = [(task, layer) for task in self.summary.tasks for layer in task.layers]
        rows = Rows("logit-lens", records, (LensTask, LensLayer), "Logit lens", ABOUT)
        series = ("model", "task")
        marks = (Curves("accuracy", "layer", series, low=0.0, high=100.0), Curves("log_probability", "layer", series))
        return (Part("After which block does the model answer as it does?", rows, marks, reached(self.summary.tasks)),)


@rule
def reached(tasks: Sequence[LensTask]) -> Iterable[Claim]:
    """From which layer on the accuracy cannot be told from that of the whole model.

    Says: From layer L of N on, the accuracy's interval reaches the whole model's. | The items are too few to tell.
    Needs: the first layer whose interval reaches that of the last layer; no layer, where layer 0 does
    """
    for task in tasks:
        start, last = task.layers[0], task.layers[-1]
        first = next(layer for layer in task.layers if (layer.accuracy.high or 0) >= (last.accuracy.low or 0))
        items = wording.counted(task.items, "item")
        said = f"From layer {first.layer} of {last.layer} on, the interval of the accuracy reaches the whole model's."
        if first is start:
            said = f"{items} are too few to tell the layers apart."
        numbers = (
            f"Accuracy is {SHARE.text(first.accuracy)} at layer {first.layer} and {SHARE.text(last.accuracy)} at the"
        )
        yield Claim((said, f"{numbers} end ({items})."), ((task, first), (task, last)), subject(task, tasks))
