"""Every search measures what does the same without a spectrum: first tokens forbidden, random subspaces, constants."""

from collections import Counter

import numpy as np
import pytest
import torch
from searching import contrasts, order, questions, study, validation

from alone import forward
from lesion.edits.text import parse
from lesion.studies.truncation.forbidding import FORBIDDEN
from lesion.studies.truncation.rivals import DRAWS
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
