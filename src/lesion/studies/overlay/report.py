"""The result of an overlay: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Check, Folded
from lesion.report.marks import Map, Mark, Profile
from lesion.report.parts import Part, terminal
from lesion.report.rows import Rows
from lesion.report.story import Chapter
from lesion.report.table import Table
from lesion.report.wording import rho
from lesion.studies.overlay import claims, result
from lesion.studies.overlay.claims import PERFECT, by_kinds
from lesion.studies.overlay.result import Correlation, ModelProfiles, OverlaySummary, PairNumbers, ProfileBlock

METHOD = "Every study gives each block a number; here they stand over one axis, and ranks are compared over blocks."
READING = (
    "Whether two studies point at the same blocks is tested by Spearman's rank correlation; p is the share of orders of"
    " the blocks that agree as well, corrected by Holm's method over all pairs of different studies of all models.",
    "Blocks are few, and neighbours are alike. A permutation takes them for exchangeable, so its p is too small where"
    " both profiles are smooth. Beyond depth: the rank correlation left once both follow the number of the block.",
    "Drop: accuracy of the unedited model minus accuracy without the block, in points, on the same items. Density: the"
    " share of the block's weights that a method selects.",
    "Drift: NMI with the clusters of the first layer. Only what is lost in the block is ranked: the curve adds losses"
    " up. The loss in the first block is left out: that layer agrees with itself at 1, so that this step is large by"
    " construction.",
    "Truncation: the best change in accuracy among the cells of the block that were evaluated on all items, on the very"
    " items on which they are chosen. It will be smaller on other items; only its ranks are read.",
)


@dataclass(frozen=True)
class OverlayResult(StudyResult[OverlaySummary]):
    """Several studies compared, model by model. `table` has one row per model, profile and block, as `overlay.csv`."""

    SUMMARY = OverlaySummary
    EYEBROW = "overlay of studies"
    READING = READING

    @property
    def correlations(self) -> pd.DataFrame:
        """One row per model and pair of profiles, as `correlations.csv`."""
        return Table.of(self._pairs()).frame

    def _pairs(self) -> Rows:
        records = [pair for model in self.summary.models for pair in model.pairs]
        return Rows(
            "correlations", records, (ModelProfiles, Correlation, PairNumbers), "Pairs of profiles",
            "p: permutation of blocks, corrected over all pairs of different studies of all models; profiles of one"
            " study are not tested. Beyond depth: partial rank correlation given the block's number.", order="doubt",
        )  # fmt: skip

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        names = [model.model for model in summary.models]
        which = wording.listed(names) if len(names) < 4 else f"{len(names)} models"
        most, *others = (model.model for model in by_kinds(summary))
        lines = [line for model in summary.models for line in model.lines]
        blocks = Rows(
            "overlay", lines, (result.Profile, ProfileBlock), "Profiles",
            "The number that each study gives a block, with 95 % intervals; of drift one standard deviation over runs,"
            " of densities the lowest and highest repeat.",
        )  # fmt: skip
        told = (*claims.do_studies_agree(summary), *claims.what_is_missing(summary))
        rest = _stack(*others).figure(lines, "overlay-others") if others else None
        own = (Folded("Profiles of the other models", (rest,)),) if rest is not None else ()
        agreement = Map(
            "rho", "profile", "with_profile", "agrees", 1.25, "share", only={"model": most},
            also=("p_corrected", "beyond_depth", "blocks"),
            caption=f"Spearman's ρ between the profiles of {most} that the first figure numbers. Boxed: corrected"
            f" p{wording.SPACE}≤{wording.SPACE}.05, of pairs of different studies.",
        )  # fmt: skip
        title = f"Do the studies point at the same blocks of {visible(which)}?"
        return (
            Part(title, blocks, (_stack(most),), told, own=own, wide=True),
            Part("How far do two studies agree?", self._pairs(), (agreement,), short="Agreement"),
        )

    @override
    def text(self, *, every: bool = False) -> RenderableType:
        parts = self.parts()  # names of profiles are too long for a table of ten rows
        return terminal(parts if every else [replace(part, rows=None) for part in parts], every=every)

    @property
    @override
    def basis(self) -> str:
        summary = self.summary
        first = by_kinds(summary)[0]
        tested = sum(len(model.tested) for model in summary.models)
        return (
            f"{wording.counted(len(first.blocks), 'block')}, {len(first.profiles)} profiles;"
            f" {wording.counted(tested, 'pair')} of different studies, corrected together."
        )

    @override
    def checks(self) -> list[Check]:
        tested = [model for model in self.summary.models if model.needed is not None]
        found = []
        for model in tested[:1]:
            least = model.needed
            assert least is not None
            over = f"{wording.counted(least.blocks, 'block')} and {wording.counted(least.pairs, 'pair')}"
            if least.rho is None or least.rho >= PERFECT:
                found.append(Check("bad", f"With {over} no correlation short of a perfect one would be seen."))
            else:
                found.append(Check("good", f"With {over}, ρ beyond ±{rho(least.rho)} would be seen."))
            found.append(Check("open", "Neighbouring blocks are alike: p is too small where both profiles are smooth."))
        return found

    @property
    @override
    def facts(self) -> tuple[tuple[str, str], ...]:
        fixed = (("pairs fixed beforehand", "\n".join(map(visible, self.summary.pairs))),) if self.summary.pairs else ()
        return ("folders", "\n".join(map(visible, self.summary.folders))), *fixed

    @override
    def chapter(self) -> Chapter:
        return Chapter.of(self.shown_parts, METHOD, "Overlay")


def _stack(*models: str) -> Mark:
    return Profile(
        "value", "block", filled="critical_for_a_task", panel="model", each="heading", wide=True,
        only={"model": models},
        caption="Every profile over the same blocks; ranks of those with a number are compared. Full colour: blocks"
        " that a layer study calls critical for a task.",
    )  # fmt: skip
