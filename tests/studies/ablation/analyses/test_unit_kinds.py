"""The sentence on heads says under which kinds each is critical, as the table of the study has it."""

import pytest
from oracle import Oracle

from lesion.report import wording
from lesion.studies.ablation.study import Study
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode
from runs import run_ablation as run
from tiny import model

ITEMS = 30


class Wrong(Oracle):
    """Always right, but without one head however it is replaced, and without another one where it is removed."""

    def __init__(self, golds: dict[tuple[int, ...], str]) -> None:
        super().__init__()
        self.golds = golds

    def say(self, request):
        answer = super().say(request)
        wrong = str(request.edit).startswith(("1.attention.head.2", "0.attention.head.1×0"))
        return answer if answer.scores else type(answer)("wrong" if wrong else self.golds[request.prompt], 3, "stop")


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ("0-1", "head 1.2 is critical under zero, mean and resample alike; head 0.1 under zero alone."),
        ("0", "head 0.1 is critical under zero alone; none is shown to be so under all kinds."),
        ("2", "no head is shown to be critical under zero, mean or resample."),
    ],
)
def test_the_kinds_under_which_each_head_is_critical_are_told_in_one_sentence(layers, said, tmp_path):
    task = "arithmetic:add?digits=1&shots=1&sets=1"
    items = draw(find(task), ITEMS, 0)
    golds = {encode(model("llama"), find(task), item, "raw", max_new_tokens=1): item.gold for item in items}
    edits = {"unit": "head", "layers": layers, "replace": ["mean", "resample"], "draws": 2}
    study = Study.make(models=["tiny:llama"], tasks=[task], items=ITEMS, edits=edits, decoding={"max_new_tokens": 4})
    done = run(study, tmp_path / "out", models={"tiny:llama": model("llama")}, make_engine=Wrong(golds))
    (claim,) = (claim for claim in done.claims if claim.rule == "survive")
    told = claim.sentences[0].replace(wording.SPACE, " ")
    assert told == f"arithmetic:add: {said}"
