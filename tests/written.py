"""Reports of summaries that tests make: written as a study writes its own, but of answers given here."""

from pathlib import Path

import pandas as pd

from lesion.core.result import write_report
from lesion.studies.ablation.report import AblationResult
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.isolation.report import IsolationResult
from lesion.studies.isolation.result import IsolationSummary


def write_layers(folder: Path, summary: AblationSummary, answers: pd.DataFrame, items: pd.DataFrame) -> Path:
    """The report of a layer study."""
    return write_report(folder, summary, AblationResult(folder, summary, stored=(answers, items)).page())


def write_isolation(folder: Path, summary: IsolationSummary) -> Path:
    """The report of an isolation."""
    return write_report(folder, summary, IsolationResult(folder, summary).with_answers())
