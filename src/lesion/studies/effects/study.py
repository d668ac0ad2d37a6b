"""The study of effects: what each block writes towards the gold answer, and what is lost without it, as TOML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from typing_extensions import override

from lesion.core.fields import DTYPES, ITEMS, MODELS, SEEDS, TASKS, Dtype, FolderName, Items, Seed, Several
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, free_option, kind_key
from lesion.core.study_file import ModelStudy, OneModel, OneTask
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
    tasks: Several[OneTask] = TASKS(help="Task with gold answers: primer:arithmetic, ioi, facts, gsm8k, FILE.jsonl, …")
    unit: Several[EffectUnit] = free_option(
        ("block", "attention", "mlp"),
        help="Part of each block to measure: block, attention, mlp, or head (query heads one by one).",
        many="repeat",
    )
    items: Items = ITEMS(50)
    study: FolderName | None = free_option(
        None,
        help="Output folder of a layer study; its drops of accuracy are compared with the effects.",
        must="the folder of a layer study",
    )
    seed: Seed = SEEDS(help="Random seed of the draw of items and of the intervals.")
    dtype: Dtype = DTYPES

    @override
    def look_ahead(self, blocks: Mapping[str, int]) -> None:
        if self.study is not None and not Path(self.study).is_dir():
            raise UsageError(f"{self.study} is no folder; --study is the folder of a finished layer study.")


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
