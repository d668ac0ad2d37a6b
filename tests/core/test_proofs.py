"""Proofs: of an edit that acts while decoding the numbers are those found by hand; of any other, nothing is claimed."""

from dataclasses import replace

import pytest
import torch

import architectures_zoo as zoo
import tiny
from commandline import questions
from lesion.core.proofs import FILE, Proofs, about_unproved
from lesion.core.prove import prove
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.transformers.batch import Batch
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import wrap
from lesion.report.claims import Claim
from lesion.report.publishing import html as page_html
from lesion.report.rows import parts_of
from lesion.report.values import Estimate
from lesion.studies.ablation.study import Study
from lesion.verification.by_hand import changed
from runs import run_ablation

PROMPT = (5, 9, 3, 7)
EDITS = (ScaleBlock(0, 0.5), ScaleBlock(1))


class Forgets(TransformersEngine):
    """Its edits act in the prompt alone."""

    def answer(self, requests):
        with pytest.MonkeyPatch.context() as patch:
            step = Batch.step

            def unedited(batch):
                batch.assigned = True
                batch.gates.assign_everywhere(BASELINE)
                return step(batch)

            patch.setattr(Batch, "step", unedited)
            yield from super().answer(requests)


class Ignores(TransformersEngine):
    """Its edits never act."""

    def answer(self, requests):
        return super().answer([replace(request, edit=BASELINE) for request in requests])


def by_hand(model, edit, text) -> torch.Tensor:
    with torch.inference_mode(), changed(model, edit):
        return model.network(torch.tensor([text]), use_cache=False).logits[0, -1].double().log_softmax(-1)


@pytest.mark.parametrize("kind", ["llama", "mamba2"])  # answers in the fast way, and in the simple one
def test_the_numbers_of_a_proof_are_those_of_passes_by_hand(kind, tmp_path):
    model = wrap(zoo.made(kind), tiny.tokenizer(), kind)
    prove(tmp_path, kind, TransformersEngine(model), model, PROMPT, EDITS)
    proofs = Proofs.of(tmp_path).models[kind]
    for edit in EDITS:
        text = list(PROMPT)
        while len(text) < len(PROMPT) + 8 and (text[-1] != 2 or len(text) == len(PROMPT)):
            scores, plain = by_hand(model, edit, text), by_hand(model, BASELINE, text)
            if len(text) == len(PROMPT):
                allowed = scores.clone()
                allowed[2] = -torch.inf  # the answer does not end at once
            text.append(int((allowed if len(text) == len(PROMPT) else scores).argmax()))
        proof, (values, tokens) = proofs[str(edit)], scores.topk(20)
        assert proof.decoded == pytest.approx(values.tolist(), abs=1e-4)
        assert proof.read == pytest.approx(values.tolist(), abs=1e-4)
        assert proof.unedited == pytest.approx(plain[tokens].tolist(), abs=1e-4)
        assert proof.state == "acts"


def test_an_edit_that_is_forgotten_behind_the_prompt_ends_the_study(tmp_path):
    model = tiny.model("llama")
    with pytest.raises(LesionError, match=r"0×0\.5 does not act .*1 further"):
        prove(tmp_path, "llama", Forgets(model), model, PROMPT, EDITS)
    assert {proof.state for proof in Proofs.of(tmp_path).models["llama"].values()} == {"lost"}
    prove(tmp_path, "llama", TransformersEngine(model), model, PROMPT, EDITS)  # what is lost is looked for again
    assert {proof.state for proof in Proofs.of(tmp_path).models["llama"].values()} == {"acts"}


def test_nothing_is_asked_again_of_what_is_proved(tmp_path):
    model = tiny.model("llama")
    prove(tmp_path, "llama", TransformersEngine(model), model, PROMPT, EDITS)
    prove(tmp_path, "llama", Forgets(model), model, PROMPT, EDITS)
    prove(tmp_path, "other", TransformersEngine(model), model, PROMPT, EDITS[:1])
    assert [len(each) for each in Proofs.of(tmp_path).models.values()] == [2, 1]


def test_nothing_is_claimed_of_edits_that_never_act(tmp_path):
    sums = questions(tmp_path / "sums.jsonl", 12)
    study = Study.make(models=["tiny"], tasks=[str(sums)], items=12, decoding={"max_new_tokens": 4}, anyway=True)
    model = tiny.model("llama")
    result = run_ablation(study, tmp_path / "ignored", models={"tiny": model}, make_engine=Ignores)
    assert [claim.rule for claim in result.claims] == ["about unproved"]
    assert result.verdict == "Nothing is claimed: none of 3 edits is shown to act while decoding."
    sound = run_ablation(study, tmp_path / "sound", models={"tiny": model})
    assert (tmp_path / "sound" / FILE).exists()
    assert "about unproved" not in {claim.rule for claim in sound.claims}
    assert sound.claims
    assert "3 of 3 are shown to" in page_html(sound.page())


def test_claims_that_rest_on_an_edit_without_a_proof_fall(tmp_path):
    sums = questions(tmp_path / "sums.jsonl", 12)
    study = Study.make(models=["tiny"], tasks=[str(sums)], items=12, decoding={"max_new_tokens": 4}, anyway=True)
    result = run_ablation(study, tmp_path / "out", models={"tiny": tiny.model("llama")})
    records = [record for part in result.parts() if part.rows for record in part.rows.records]
    cells = {row.edit: row for record in records for row in parts_of(record) if hasattr(row, "edit")}
    proofs = Proofs.of(tmp_path / "out")
    proofs.models["tiny"]["1×0"] = proofs.models["tiny"]["1×0"].model_copy(update={"state": "unseen"})
    assert proofs.hold(Claim(("Block 0 is.",), (cells["0×0"],)))
    assert not proofs.hold(Claim(("Blocks 0 and 1 are.",), (cells["0×0"], cells["1×0"])))
    lost = Estimate(value=0.5, low=0.3, high=0.7, p=0.001, p_corrected=0.002)
    fallen = cells["1×0"].model_copy(update={"drop": lost})  # what takes right answers acts
    assert proofs.hold(Claim(("Block 1 is.",), (fallen,)))
    (told,) = about_unproved(proofs)
    assert told.text == "1 of 3 edits is not shown to act while decoding; only drops are claimed of it: 1×0."
