"""What many prompts begin with is computed once under each edit, and no answer is another for it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from alone import EDITS, forward, greedy, prompts
from hypothesis import given
from hypothesis import strategies as st

import lesion.engines.beginnings
import tiny
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock, ScaleParameters
from lesion.edits.gates import gated
from lesion.edits.shares import Magnitude
from lesion.edits.table import tabulate
from lesion.engines.beginnings import LEAST, WORTH, Beginnings, shared
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import TransformersEngine
from lesion.engines.work import Work
from lesion.errors import LesionError

OTHER = Decoding(8)
FEW_SHOT = prompts(1, longest=60, shortest=60, seed=11)[0]
ANOTHER = (*FEW_SHOT[:2], *prompts(1, longest=45, shortest=45, seed=12)[0])


@pytest.fixture
def worth_it(monkeypatch):
    """A few short prompts are enough to share what they begin with."""
    monkeypatch.setattr(lesion.engines.beginnings, "WORTH", 40)


def questions(beginnings=(FEW_SHOT,), count: int = 4, edits=EDITS, **kind) -> list[Request]:
    rests = prompts(count * len(beginnings), longest=9, seed=13)
    return [
        Request(f"{index} under {edit}", (*beginnings[index % len(beginnings)], *rest), edit, **kind)
        for index, rest in enumerate(rests)
        for edit in edits
    ]


def answered(model, requests, batch_size: int = 8) -> tuple[dict, Work]:
    engine = TransformersEngine(model, batch_size)
    found = {response.key: response for response in engine.answer(requests)}
    assert found.keys() == {request.key for request in requests}
    return found, engine.work


def unshared(monkeypatch, model, requests) -> Work:
    """The work of the same when nothing is shared."""
    with monkeypatch.context() as patched:
        patched.setattr(lesion.engines.beginnings, "WORTH", 10**9)
        return answered(model, requests)[1]


def assert_greedy(model, requests, found) -> None:
    for request in requests:
        assert found[request.key].token_ids == greedy(model, request.prompt, request.edit, 8), request.key


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "opt", "gpt_neox"])
def test_every_edit_says_what_it_says_alone(worth_it, monkeypatch, family):
    model, requests = tiny.model(family), questions((FEW_SHOT, ANOTHER, ()), decoding=OTHER)
    found, work = answered(model, requests)
    assert_greedy(model, requests, found)
    assert work.prompt < 0.6 * unshared(monkeypatch, model, requests).prompt


def test_choices_are_scored_as_alone(worth_it, monkeypatch):
    model = tiny.model("llama")
    choices = ((7, 8, 9), (30,), (12, 11))
    requests = questions((FEW_SHOT, ANOTHER, ()), choices=choices)
    found, work = answered(model, requests)
    for request in requests:
        for choice, score in zip(choices, found[request.key].answer.scores, strict=True):
            logits = forward(model, (*request.prompt, *choice), request.edit)[0].double().log_softmax(-1)
            places = range(len(request.prompt) - 1, len(request.prompt) + len(choice) - 1)
            expected = sum(float(logits[place, token]) for place, token in zip(places, choice, strict=True))
            assert score == pytest.approx(expected, abs=2e-4), request.key
    assert work.prompt < 0.6 * unshared(monkeypatch, model, requests).prompt


def test_tokens_are_looked_up_as_alone(worth_it, monkeypatch):
    model, requests = tiny.model("gpt2"), questions((FEW_SHOT, ANOTHER, ()), tokens=(7, 30))
    found, work = answered(model, requests)
    for request in requests:
        logits = forward(model, request.prompt, request.edit)[0][-1].double().log_softmax(-1)
        assert found[request.key].answer.scores == pytest.approx(logits[[7, 30]].tolist(), abs=2e-4), request.key
    assert work.prompt < 0.6 * unshared(monkeypatch, model, requests).prompt


def test_the_work_is_that_of_the_beginning_once_per_edit_and_of_what_follows_it():
    model = tiny.model("llama")
    rests = prompts(40, longest=4, shortest=4, seed=14)
    requests = [Request(f"{index}", (*FEW_SHOT, *rest), decoding=Decoding(1)) for index, rest in enumerate(rests)]
    _, work = answered(model, requests, batch_size=64)
    assert work.prompt == len(FEW_SHOT) + 40 * 4


def test_weights_that_are_edited_have_beginnings_of_their_own(worth_it):
    model = tiny.model("llama")
    pruned = ScaleParameters(Magnitude(0.3), 0.0)
    edits: list[Edit] = [BASELINE, pruned, ScaleBlock(1), Compose((pruned, ScaleBlock(1)))]
    requests = questions(count=6, edits=edits, decoding=OTHER)
    assert_greedy(model, requests, answered(model, requests)[0])


@pytest.mark.parametrize("kept", [60, 200])
def test_with_little_memory_for_them_they_are_computed_again_or_not_shared(worth_it, monkeypatch, kept):
    model, requests = tiny.model("llama"), questions((FEW_SHOT, ANOTHER), edits=EDITS[:3], decoding=OTHER)
    monkeypatch.setattr(lesion.engines.beginnings, "positions", lambda model: kept // 4)
    found, _ = answered(model, requests, batch_size=8)
    assert_greedy(model, requests, found)


def test_no_more_is_kept_than_may_be_and_what_was_used_last_is_kept():
    model = tiny.model("llama")
    texts = [*(prompts(1, longest=60, shortest=60, seed=seed)[0] for seed in range(4))]
    requests = [Request(f"{i} {j}", (*text, 5 + j)) for i, text in enumerate(texts) for j in range(40)]
    work = Work(batch_size=1)
    with gated(model) as gates, torch.inference_mode():
        of = Beginnings(model, gates, tabulate([BASELINE], model.anatomy), 0, work, [(one, 0) for one in requests])
        assert of.most == model.context // 2 == 128

        def use(*numbers: int) -> int:
            before = work.prompt
            found = of.begun([of.of(requests[40 * number]) for number in numbers], [0] * len(numbers))
            assert all(one is not None and one.past.length == 60 for one in found)
            return (work.prompt - before) // 60

        assert [use(0), use(1), use(0), use(2), use(0), use(1)] == [1, 1, 0, 1, 0, 1]
        assert use(0, 1, 2, 3) == 2, "a pass that wants more has more"
        assert of.give_up()
        assert of.begun([of.of(requests[0])], [0]) == [None]
        assert not of.give_up()


@pytest.mark.parametrize("kind", [{"decoding": OTHER}, {"choices": ((7, 8), (9,))}, {"tokens": (7,)}])
def test_when_memory_runs_out_sharing_is_given_up_before_rows_are(worth_it, monkeypatch, kind):
    model, requests = tiny.model("llama"), questions(edits=EDITS[:3], **kind)
    expected, _ = answered(model, requests)

    def fail(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(lesion.engines.beginnings, "prefill", fail)
    found, work = answered(model, requests)
    assert work.batch_size == 8
    assert {key: one.token_ids for key, one in found.items()} == {key: one.token_ids for key, one in expected.items()}
    for key, one in found.items():
        assert one.answer.scores == pytest.approx(expected[key].answer.scores, abs=1e-4)


def test_an_edit_that_breaks_the_numbers_in_a_beginning_breaks_no_other_row(worth_it):
    model = tiny.model("llama")
    requests = questions(edits=[BASELINE, ScaleBlock(1, 1e38), ScaleBlock(0)], decoding=OTHER)
    found, _ = answered(model, requests)
    broken = [request for request in requests if request.edit == ScaleBlock(1, 1e38)]
    assert {found[request.key].answer.finish for request in broken} == {"nonfinite"}
    assert_greedy(model, [request for request in requests if request not in broken], found)


def test_an_unknown_place_is_refused_before_any_beginning_is_computed():
    model = tiny.model("llama")
    with pytest.raises(LesionError):
        answered(model, questions(edits=[ScaleBlock(99)], count=40))


words = st.lists(st.integers(5, 7), max_size=6).map(tuple)


begun = st.sampled_from([(), FEW_SHOT, ANOTHER, FEW_SHOT[:33]])


@given(st.lists(st.tuples(begun, words, st.integers(0, 1)), min_size=1, max_size=90))
def test_what_is_shared_is_the_longest_text_that_all_of_a_family_begin_with(parts):
    asked = [(text, ScaleBlock(edit)) for first, rest, edit in parts if (text := (*first, *rest))]
    families: dict[tuple[int, ...], list[tuple[tuple[int, ...], Edit]]] = {}
    for text, edit in asked:
        if len(text) > LEAST:
            families.setdefault(text[:LEAST], []).append((text, edit))
    expected = {}
    for first, members in families.items():
        longest = min(len(text) for text, _ in members) - 1
        while len({text[:longest] for text, _ in members}) > 1:
            longest -= 1
        counts = Counter(edit for _, edit in members)
        spared = [(count - 1) * longest for count in counts.values()]
        if longest >= LEAST and sum(spared) / len(spared) >= WORTH:
            expected[Decoding(), first] = longest
    assert shared(Request(f"{index}", text, edit) for index, (text, edit) in enumerate(asked)) == expected


def test_prompts_that_are_asked_under_an_edit_of_their_own_each_share_nothing():
    requests = [Request(f"{token}", (*FEW_SHOT, token), ScaleBlock(token)) for token in range(5, 60)]
    assert shared(requests) == {}
    assert shared([*requests, *(Request("", one.prompt, ScaleBlock(5)) for one in requests * 20)])


def test_answers_that_are_decoded_otherwise_belong_to_other_tasks():
    texts = [(*FEW_SHOT, token) for token in range(5, 45)]
    requests = [Request(f"{text[-1]}", text, decoding=Decoding(5 + text[-1] % 2)) for text in texts]
    assert sorted(shared(requests).values()) == [60, 60]
