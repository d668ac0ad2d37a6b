"""The folder of a tuning: whose it is, what may go on in it, its summary and the seconds of its trainings."""

from __future__ import annotations

import json
from pathlib import Path

from lesion.atomic import keep
from lesion.core import cost
from lesion.core.differences import refuse_another
from lesion.errors import LesionError
from lesion.files import UNFIT, stored_object
from lesion.outputs import refuse_another_kind
from lesion.studies.tuning.study import TuningStudy

MARK = "tuning.json"


def training_seconds(folder: Path) -> dict[str, float]:
    """Seconds that a training of each arm took, mean over seeds, as far as they were noted."""
    return {arm: float(seconds) for arm, seconds in cost.read(folder).get("training", {}).items()}


def refuse(folder: Path, study: TuningStudy) -> None:
    """One folder, one tuning: further arms, rates and seeds are welcome, other items or steps are not.

    Raises:
        UsageError: it belongs to another kind of study.
        LesionError: another tuning lies there; what differs is named.
    """
    refuse_another_kind(folder, "tuning")
    refuse_another(folder, "tuning", _kept(folder), study)


def _kept(folder: Path) -> TuningStudy | None:
    """The study whose folder it is."""
    advice = "give another folder with --out"
    noted = stored_object(folder / MARK, advice)
    try:
        return None if noted is None else TuningStudy.parse(noted["study"], "The stored study")
    except (*UNFIT, LesionError) as error:
        raise LesionError(f"{folder / MARK} is damaged ({' '.join(str(error).split())}); {advice}.") from error


def mark(folder: Path, study: TuningStudy) -> None:
    """Note whose folder it is.

    Raises:
        LesionError: it cannot be written.
    """
    keep(folder / MARK, json.dumps({"study": study.to_toml()}))
