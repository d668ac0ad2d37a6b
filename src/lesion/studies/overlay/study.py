"""The overlay of studies: which finished folders are compared, as validated TOML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from typing_extensions import override

from lesion.core.fields import FolderName, Listed, OneOrSeveral, Seed, Text
from lesion.core.method import Method
from lesion.core.options import IN_IDENTITY, kind_key, option
from lesion.core.study_file import StudyFile
from lesion.core.values import studies_in


class OverlayStudy(StudyFile):
    """What finished studies say of the blocks of the same models, compared."""

    IDENTITY_PREFIX: ClassVar[str] = "lesion overlay"

    kind: Literal["overlay"] = kind_key("overlay", identity=IN_IDENTITY)
    folders: Annotated[tuple[FolderName, ...], OneOrSeveral()] = option(
        help="Output folders of finished studies: ablate, drift, isolate, truncate.",
        must="a list of output folders of finished studies",
        many="repeat",
        argument="DIR …",
    )
    pairs: Listed[Text] = option(
        (),
        help="Pair of profiles that is tested, fixed beforehand, as parts of their labels: 'drop · gsm8k ~ density ·"
        " mathneuro'. The correction is over these alone; default: all pairs of different studies.",
        must="a list of pairs of profiles, as 'drop · gsm8k ~ density · mathneuro'",
        name="pair",
        many="repeat",
    )
    seed: Seed = option(0, help="Random seed of the permutation test (models of more than 8 blocks).")

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        studies_in(self.folders)


METHOD = Method(
    OverlayStudy,
    "lesion.studies.overlay.report:run_overlay",
    "lesion.studies.overlay.report:OverlayResult",
    "overlay",
    "Compare the block profiles of several studies, with rank correlations.",
    kept="Nothing is kept of an unfinished overlay; the same command starts it anew.",
    distributed=False,
    only_reads=True,
    examples=(
        "lesion overlay study drift --out overlay",
        "lesion overlay study isolation --pair 'drop ~ mathneuro' --out overlay",
    ),
    python="""
Example:
    >>> compared = lesion.overlay("layers", "drift", "isolation")
    >>> compared.tables["correlations"]

Raises:
    UsageError: a folder has no numbers per block or is named twice, two call different weights by one name, no
        model has two profiles, or a pair does not name two of them.
    LesionError: a file is damaged.
""",
)
