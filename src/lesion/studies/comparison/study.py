"""The comparison of studies: which finished folders and logs are compared item by item, as validated TOML."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from lesion.core.fields import LEVEL_OPTION, FolderName, Level, Listed, OneOrSeveral, Text, printable
from lesion.core.method import Method
from lesion.core.options import IN_IDENTITY, kind_key, option
from lesion.core.study_file import StudyFile


class ComparisonStudy(StudyFile):
    """The stored answers of finished studies and logs, compared item by item."""

    IDENTITY_PREFIX: ClassVar[str] = "lesion comparison"

    kind: Literal["comparison"] = kind_key("comparison", identity=IN_IDENTITY)
    folders: Annotated[tuple[FolderName, ...], OneOrSeveral()] = option(
        help="Output folders of studies with answers (ablate, evaluate, isolate, truncate, tune), and logs: of"
        " inspect_ai (.eval, .json), lm-evaluation-harness and lmms-eval (samples_*.jsonl or their folder), Every Eval"
        " Ever, and JSON Lines or CSV with an item and a verdict or score a row. Each is compared with the first.",
        must="a list of output folders of studies or logs",
        many="repeat",
        argument="DIR …",
    )
    labels: Listed[Annotated[Text, AfterValidator(printable)]] = option(
        (),
        help="Name of a folder in tables and charts, one for each folder in their order; default: the folder's own.",
        must="a list of names, one for each folder",
        name="label",
        many="repeat",
    )
    tasks: Listed[Text] = option(
        (),
        help="Task to compare; default: every task in common.",
        must="a list of names of tasks",
        name="task",
        many="repeat",
    )
    level: Level = LEVEL_OPTION()


METHOD = Method(
    ComparisonStudy,
    "lesion.studies.comparison.report:run_comparison",
    "lesion.studies.comparison.report:ComparisonResult",
    "compare",
    "Compare studies or logs item by item: what changed, and which items both got wrong.",
    needs_out=False,
    kept="Nothing is kept of an unfinished comparison; the same command starts it anew.",
    examples=(
        "lesion compare base-study tuned-study",
        "lesion compare base.eval tuned.eval --fail-if worse --margin 1",
    ),
    distributed=False,
    only_reads=True,
    python="""
Example:
    >>> compared = lesion.compare("base", "tuned")
    >>> compared.table
    >>> compared.items.query("change == 'lost'")

Raises:
    UsageError: a folder or log has no answers or is named twice, two have no item in common, or answers were decoded
        or prompted differently; what differs is said.
    LesionError: a store or log is damaged.
""",
)
