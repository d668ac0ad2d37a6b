"""The threshold of p in findings; `lesion.report.wording` has it."""

from lesion.report.wording import ALPHA as ALPHA
