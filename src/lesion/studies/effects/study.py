"""The study of effects: what each block writes towards the gold answer, and what is lost without it, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from lesion.core.fields import DTYPES, MODELS, SEED, Dtype, FolderName, Seed, Several, Whole
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, NOT_IN_IDENTITY, STATISTICS, kind_key, option
from lesion.core.study_file import PROMPTING, ModelStudy, OneModel, OneTask, Questions
from lesion.errors import UsageError

EffectUnit = Literal["block", "attention", "mlp", "head"]


class EffectsStudy(ModelStudy):
    """Direct effect, total effect, logit lens and block influence of every block; nothing is generated.

    Tasks that name files, and `study`, are relative to the folder that the command runs in.

    Example:
        >>> EffectsStudy.make(models=["bundled:llama-base"], tasks=["primer:arithmetic"]).unit
        ('block', 'attention', 'mlp')
    """

    IDENTITY_PREFIX: ClassVar[str] = "lesion effects"

    kind: Literal["effects"] = kind_key("effects")
    models: Several[OneModel] = MODELS(identity=EXTENDABLE, unordered=True)
    tasks: Several[OneTask] = option(
        help="Task with gold answers: primer:arithmetic, ioi, facts, gsm8k, FILE.jsonl, …",
        must="a list of at least one task: strings, or tables with a name",
        name="task",
        many="repeat",
        identity=EXTENDABLE,
        unordered=True,
    )
    unit: Several[EffectUnit] = option(
        ("block", "attention", "mlp"),
        help="Part of each block to measure: block, attention, mlp, or head (query heads one by one).",
        must="block, attention, mlp or head, or a list of these",
        many="repeat",
        identity=NOT_IN_IDENTITY,
    )
    items: Annotated[Whole, Field(ge=1)] | Literal["all"] = option(
        50,
        help="Number of items per task, drawn with the seed; or all.",
        must="a whole number from 1, or all",
        panel=STATISTICS,
        identity=EXTENDABLE,
    )
    study: FolderName | None = option(
        None,
        help="Output folder of a layer study; its drops of accuracy are compared with the effects.",
        must="the folder of a layer study",
        identity=NOT_IN_IDENTITY,
    )
    seed: Seed = option(0, help="Random seed of the draw of items and of the intervals.", must=SEED, panel=STATISTICS)
    dtype: Dtype = DTYPES

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        if self.study is not None and not Path(self.study).is_dir():
            raise UsageError(f"{self.study} is no folder; --study is the folder of a finished layer study.")

    def questions(self) -> Questions:
        """The same as a study that asks these tasks: which items, in which prompt style."""
        shared = {"items", "seed", "level", "batch_size", "device", "dtype", *PROMPTING}
        return Questions(tasks=self.tasks, **self.model_dump(include=shared))


METHOD = Method(
    EffectsStudy,
    "lesion.studies.effects.run:run_effects",
    "lesion.studies.effects.report:EffectsResult",
    "effects",
    "Measure what every block writes towards the right answer, and what is lost without it.",
    kept="Every item measured so far is kept in {folder}; the same command goes on.",
    examples=(
        "lesion effects bundled:llama-base --task primer:arithmetic --out effects",
        "lesion effects model/ --task sums.jsonl --study layers/ --out effects/",
    ),
    python="""
Example:
    >>> result = lesion.effects("bundled:llama-base", "primer:arithmetic", items=20)
    >>> result.verdict, result.table[["unit", "layer", "direct", "total"]]

Raises:
    UsageError: a task does not exist or has no gold answers, a branch is not known, or the layer study beside it is
        about other models or tasks.
    LesionError: a model cannot be loaded, no block's part in its logits can be read, or the folder belongs to other
        questions.
""",
)
