"""Folders with answers that no model gave: verdicts or scores as a test wants them."""

from collections.abc import Mapping
from pathlib import Path

from lesion.core.row import StoredAnswer
from lesion.core.store import Store

STUDY = 'models = ["{model}"]\ntasks = ["sums"]\n'
Verdicts = Mapping[str, Mapping[str, bool | float]]
"""edit → item → whether the answer is right, or its log-probability in nats."""


def folder(
    place: Path,
    verdicts: Verdicts,
    *,
    model: str = "made",
    task: str = "sums",
    study: str = "",
    decoding: str = "greedy max=8 stop=[]",
    style: str = "raw",
    engine: str = "by hand",
    question: str = "What is {item}?",
    kind: str = "layers",
) -> Path:
    """A folder whose store has these answers; questions and gold answers follow from the items' names."""
    rows = [
        StoredAnswer(
            model=f"fingerprint of {model}",
            model_name=model,
            edit=edit,
            task=task,
            item=item,
            decoding=decoding,
            prompt_style=style,
            text=f"{model} {edit} {item}",
            tokens=3,
            finish="stop",
            correct=bool(verdict),
            parsed=item if verdict is True else None,
            scores=() if isinstance(verdict, bool) else (verdict,),
            question=question.format(item=item),
            gold=item,
            engine=engine,
        )
        for edit, by_item in verdicts.items()
        for item, verdict in by_item.items()
    ]
    with Store.open(place, "made", study or STUDY.format(model=model), kind) as store:
        store.write(rows)
    return place
