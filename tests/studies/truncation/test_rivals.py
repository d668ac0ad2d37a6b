"""Every search measures what does the same without a spectrum: first tokens forbidden, random subspaces, constants."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from searching import contrasts, order, questions, study, validation

from alone import forward
from lesion.edits.text import parse
from lesion.report.values import Estimate
from lesion.studies.truncation.result import Rival, TruncationSummary
from lesion.studies.truncation.rival_findings import beyond_forbidding, beyond_form, spectrum
from lesion.studies.truncation.rivals import DRAWS, FORBIDDEN
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_contrast
from runs import run_truncation
from tiny import model


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    place = tmp_path_factory.mktemp("rivals")
    task = contrasts(place / "c.jsonl")
    llama = model("llama")
    return llama, task, run_truncation(study(task), place / "out", model=llama)


def first_tokens(llama, task, ids, edit="baseline", forbidden=()):
    """The right first token of each item and the best one that is allowed, each from a plain pass."""
    items = {item.id: item for item in find(str(task)).load()}
    pairs = []
    for name in ids:
        contrast = encode_contrast(llama, find(str(task)), items[name])
        logits = forward(llama, contrast.prompt, parse(edit))[0][-1].double()
        logits[list(forbidden)] = -torch.inf
        pairs.append((contrast.right, int(logits.argmax())))
    return pairs


def test_forbidden_are_the_most_frequent_wrong_first_tokens_of_the_validation_items_and_the_rest_follows(searched):
    llama, task, outcome = searched
    ahead, test = validation(0), order(0)[len(validation(0)) :]
    wrong = Counter(said for right, said in first_tokens(llama, task, ahead) if said != right)
    frequent = sorted(wrong, key=lambda token: (-wrong[token], token))
    rivals = [rival for rival in outcome.summary.rivals if rival.what == "forbidden"]
    numbers = list(dict.fromkeys(min(number, len(frequent)) for number in FORBIDDEN))
    assert [len(rival.forbidden) for rival in rivals] == numbers
    best = outcome.summary.best
    for number, rival in zip(numbers, rivals, strict=True):
        tokens = frequent[:number]
        assert rival.forbidden == tuple(llama.tokenizer.decode([token]) for token in tokens)
        alone = np.array([right == said for right, said in first_tokens(llama, task, test, forbidden=tokens)])
        both = np.array([right == said for right, said in first_tokens(llama, task, test, best, tokens)])
        plain = np.array([right == said for right, said in first_tokens(llama, task, test)])
        on_validation = [right == said for right, said in first_tokens(llama, task, ahead, forbidden=tokens)]
        assert rival.validation == pytest.approx(np.mean(on_validation))
        assert (rival.items, rival.accuracy.value, rival.edited.value) == (len(test), alone.mean(), both.mean())
        assert rival.gain.value == pytest.approx(alone.mean() - plain.mean())
        assert rival.beyond.value == pytest.approx(both.mean() - alone.mean())


def test_the_rivals_in_the_place_of_the_edit_are_of_its_rank_its_branch_and_its_matrix(searched):
    _, _, outcome = searched
    cell = outcome.summary.by_edit[outcome.summary.best]
    texts = {
        what: [r.rival for r in outcome.summary.rivals if r.what == what] for what in ("subspace", "branch", "factor")
    }
    assert texts["subspace"] == [f"{cell.address} random {draw} {cell.keep:g}" for draw in range(DRAWS)]
    assert texts["branch"] == [f"{cell.layer}.mlp×0"]
    (factor,) = texts["factor"]
    assert factor.startswith(f"{cell.address}×")


def test_a_search_that_goes_on_asks_no_rival_again_and_an_answer_belongs_to_what_was_forbidden(searched):
    llama, task, outcome = searched
    again = run_truncation(study(task), outcome.folder, model=llama)
    assert (again.evaluated, again.summary) == (0, outcome.summary)
    decodings = {name: set(rows["decoding"]) for name, rows in outcome.answers.groupby("task")}
    forbidding = [name for name in decodings if name.startswith("forbid ")]
    assert forbidding
    for name in forbidding:
        ids = name.removeprefix("forbid ").partition(":")[0]
        assert all(f"forbidden=[{ids.replace(',', ', ')}]" in decoding for decoding in decodings[name])


def test_answers_that_are_generated_have_their_first_token_forbidden_too(tmp_path):
    summary = run_truncation(study(questions(tmp_path / "q.jsonl")), tmp_path / "out", model=model("llama")).summary
    assert any(rival.what == "forbidden" for rival in summary.rivals)


def rival(what: str, beyond: float, p: float, **values) -> Rival:
    low, high = sorted((beyond - 0.02, beyond + 0.02))
    estimate = Estimate(value=0.32, low=0.29, high=0.35)
    shared = {"task": "facts", "rival": "28.mlp×0", "items": 967, "accuracy": estimate, "edited": estimate}
    return Rival(what=what, beyond=Estimate(value=beyond, low=low, high=high, p=p), **{**shared, **values})


FORBIDDING = {"rival": "baseline", "forbidden": (" the", " ", " a"), "fitted": True}


def test_a_gain_that_forbidding_gives_too_is_none_of_the_spectrum():
    summary = TruncationSummary.model_construct(
        rivals=(rival("forbidden", 0.0, 1.0, **FORBIDDING), rival("branch", 0.006, 0.5), rival("subspace", 0.05, 1e-6))
    )
    assert beyond_forbidding(summary, "facts").replace("\u202f", " ").replace("\u00a0", " ") == (
        "Forbidding 3 frequent wrong first tokens instead gives 32.0 %; the cut adds 0.0 points [−2.0, 2.0] on top:"
        " no gain beyond the form of the answer is shown."
    )
    (finding,) = spectrum(summary, ["facts"])
    assert "facts: nothing in the spectrum is shown to matter." in finding.headline


def test_a_gain_beyond_all_rivals_is_said_to_be_and_one_unbeaten_rival_is_enough_against_it():
    beaten = [rival("forbidden", 0.05, 1e-6, **FORBIDDING), rival("branch", 0.05, 1e-6), rival("subspace", 0.05, 1e-6)]
    (finding,) = spectrum(TruncationSummary.model_construct(rivals=tuple(beaten)), ["facts"])
    assert "beats all 3 of its rivals" in finding.headline[0]
    for unbeaten in (rival("relation", -0.03, 0.03, candidates=24, chance=0.04), rival("factor", 0.05, 0.2)):
        (finding,) = spectrum(TruncationSummary.model_construct(rivals=(*beaten, unbeaten)), ["facts"])
        assert "nothing in the spectrum is shown to matter" in finding.headline[0]


@pytest.mark.parametrize(
    ("beyond", "p", "shows"),
    [
        (0.21, 0.039, "no loss beyond the form of the answer is shown"),
        (-0.03, 0.4, "no loss beyond the form of the answer is shown"),
        (-0.21, 0.001, "the choice falls as well"),
    ],
)
def test_of_a_loss_it_is_said_whether_the_forced_choice_falls_too(beyond, p, shows):
    pair = rival("pair", beyond, p, candidates=2, chance=0.5, task="facts")
    summary = TruncationSummary.model_construct(rivals=(pair, rival("branch", -0.05, 0.2)))
    text = beyond_form(summary, "facts").replace("\u202f", " ").replace("\u00a0", " ")
    assert text.startswith("On facts, forced choice among 2 texts of the item (chance 50.0 %): ")
    assert text.endswith(f": {shows}.")
    (finding,) = spectrum(summary, [], ["facts"])
    assert not finding.headline
    assert "forced choice" in finding.sentences[-1]
