"""What many prompts begin with is computed once under each edit, and no answer is another for it."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lesion.engines.transformers.engine
import lesion.engines.transformers.prefill
import lesion.engines.transformers.prefixes
import tiny
from alone import EDITS, answered, assert_alone, assert_scored_alone, forward, prompts
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock, ScaleParameters
from lesion.edits.gates import gated
from lesion.edits.selections.topk import Magnitude
from lesion.edits.table import tabulate
from lesion.engines.engine import Decoding, Request, Work
from lesion.engines.transformers.prefixes import (
    COST,
    COST_ON_CPU,
    LEAST,
    NOTHING,
    Prefixes,
    alike,
    before_options,
    cost_of_edit,
    shared,
)

OTHER = Decoding(8)
FEW_SHOT = prompts(1, longest=60, shortest=60, seed=11)[0]
ANOTHER = (*FEW_SHOT[:2], *prompts(1, longest=45, shortest=45, seed=12)[0])


def questions(prefixes=(FEW_SHOT,), count: int = 4, edits=EDITS, **kind) -> list[Request]:
    rests = prompts(count * len(prefixes), longest=9, seed=13)
    return [
        Request(f"{index} under {edit}", (*prefixes[index % len(prefixes)], *rest), edit, **kind)
        for index, rest in enumerate(rests)
        for edit in edits
    ]


def unshared(monkeypatch, model, requests) -> Work:
    """The work of the same when nothing is shared."""
    with monkeypatch.context() as patched:
        patched.setattr(lesion.engines.transformers.prefixes, "COST", 10**9)
        return answered(model, requests)[1]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "opt", "gpt_neox"])
def test_every_edit_says_what_it_says_alone(worth_it, monkeypatch, family):
    model, requests = tiny.model(family), questions((FEW_SHOT, ANOTHER, ()), decoding=OTHER)
    found, work = answered(model, requests)
    assert_alone(model, requests, found)
    assert work.prompt < 0.6 * unshared(monkeypatch, model, requests).prompt


def test_choices_are_scored_as_alone(worth_it, monkeypatch):
    model = tiny.model("llama")
    choices = ((7, 8, 9), (30,), (12, 11))
    requests = questions((FEW_SHOT, ANOTHER, ()), choices=choices)
    found, work = answered(model, requests)
    assert_scored_alone(model, requests, found)
    assert work.prompt < 0.6 * unshared(monkeypatch, model, requests).prompt


LONG_QUESTIONS = prompts(4, longest=40, shortest=35, seed=17)
OPTIONS = ((7, 8, 9), (30, 4), (12, 11, 3, 5), (9,))


@pytest.mark.parametrize(
    ("family", "few_shot", "kept"),
    [("llama", (), None), ("gemma3", FEW_SHOT, None), ("gpt2", FEW_SHOT, 60), ("gemma3", (), 60)],
)
def test_options_are_scored_behind_one_pass_over_their_question(worth_it, monkeypatch, family, few_shot, kept):
    model = tiny.model(family)
    if kept is not None:  # memory for a few prefixes only
        monkeypatch.setattr(lesion.engines.transformers.prefixes, "positions", lambda model: kept)
    requests = [
        Request(f"{index} under {edit}", (*few_shot, *question), edit, choices=OPTIONS)
        for index, question in enumerate(LONG_QUESTIONS)
        for edit in EDITS
    ]
    found, work = answered(model, requests)
    assert_scored_alone(model, requests, found)
    if kept is None:
        assert work.prompt < 0.5 * unshared(monkeypatch, model, requests).prompt


def test_the_work_of_options_is_that_of_their_question_once_and_of_what_follows_it(worth_it):
    model = tiny.model("llama")
    rests = prompts(40, longest=30, shortest=30, seed=18)
    options = ((7, 8, 9), (30, 4, 1), (12, 11, 3))
    requests = [Request(f"{i}", (*FEW_SHOT, *rest), choices=options) for i, rest in enumerate(rests)]
    _, work = answered(model, requests, batch_size=64)
    # The last token of a question is computed with each option, of which the last token is not.
    assert work.prompt == len(FEW_SHOT) + 40 * (29 + 3 * 3)


def test_what_all_questions_begin_with_is_kept_as_long_as_they_are_asked(worth_it, monkeypatch):
    monkeypatch.setattr(lesion.engines.transformers.prefixes, "positions", lambda model: 500)
    model = tiny.model("llama")
    rests = prompts(12, longest=20, shortest=20, seed=19)
    requests = [Request(f"{i}", (*FEW_SHOT, *rest), choices=OPTIONS) for i, rest in enumerate(rests)]
    work = Work(batch_size=1)
    with gated(model) as gates, torch.inference_mode():
        of = Prefixes(model, gates, tabulate([BASELINE], model.anatomy), 0, work, [(one, 0) for one in requests])
        for request in requests:
            of.begun([of.of(request, 0)], [0])
    # Room for the few-shot examples and two questions: the examples are computed once, each question behind them once.
    assert work.prompt == len(FEW_SHOT) + 12 * 19


def test_a_question_is_no_prefix_where_its_options_are_one_token_or_it_is_short():
    question = LONG_QUESTIONS[0]
    single = [Request("", question, choices=((7,), (8,), (9,)))]
    several = [Request("", question, choices=((7, 1), (8, 1), (9, 1)))]
    free = [Request("", question)]
    spared = 2 * (len(question) - 1)
    assert before_options(several, [()], spared - 1) == [question[:-1]]
    assert before_options(several, [()], spared) == [()]
    assert before_options(several, [()], spared - 10, apart=10) == [()]
    assert before_options(several * 2, [()] * 2, spared - 10, apart=10) == [question[:-1]] * 2
    assert before_options(several, [question[:10]], spared - 20) == [()]
    assert before_options([*single, *free], [(), ()], 0) == [(), ()]


def test_options_that_come_as_requests_of_their_own_share_their_question():
    question = LONG_QUESTIONS[0]
    apart = [Request(f"{i}", (*question,), choices=(choice,)) for i, choice in enumerate(OPTIONS)]
    found = before_options(apart, [()] * 4, 30)
    assert found == [question[:-1]] * 4
    assert all(tokens is found[0] for tokens in found)


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


def test_weights_that_are_edited_have_prefixes_of_their_own(worth_it):
    model = tiny.model("llama")
    pruned = ScaleParameters(Magnitude(0.3), 0.0)
    edits: list[Edit] = [BASELINE, pruned, ScaleBlock(1), Compose((pruned, ScaleBlock(1)))]
    requests = questions(count=6, edits=edits, decoding=OTHER)
    assert_alone(model, requests, answered(model, requests)[0])


@pytest.mark.parametrize("kept", [60, 200])
def test_with_little_memory_for_them_they_are_computed_again_or_not_shared(worth_it, monkeypatch, kept):
    model, requests = tiny.model("llama"), questions((FEW_SHOT, ANOTHER), edits=EDITS[:3], decoding=OTHER)
    monkeypatch.setattr(lesion.engines.transformers.prefixes, "positions", lambda model: kept // 4)
    found, _ = answered(model, requests, batch_size=8)
    assert_alone(model, requests, found)


def test_no_more_is_kept_than_may_be_and_what_was_used_last_is_kept():
    model = tiny.model("llama")
    texts = [*(prompts(1, longest=60, shortest=60, seed=seed)[0] for seed in range(4))]
    requests = [Request(f"{i} {j}", (*text, 5 + j)) for i, text in enumerate(texts) for j in range(40)]
    work = Work(batch_size=1)
    with gated(model) as gates, torch.inference_mode():
        of = Prefixes(model, gates, tabulate([BASELINE], model.anatomy), 0, work, [(one, 0) for one in requests])
        assert of.most == model.context // 2 == 128

        def use(*numbers: int) -> int:
            before = work.prompt
            found = of.begun([of.of(requests[40 * number], 0) for number in numbers], [0] * len(numbers))
            assert all(one is not None and one.past.length == 60 for one in found)
            return (work.prompt - before) // 60

        assert [use(0), use(1), use(0), use(2), use(0), use(1)] == [1, 1, 0, 1, 0, 1]
        assert use(0, 1, 2, 3) == 2, "a pass that wants more has more"
        assert of.give_up()
        assert of.begun([of.of(requests[0], 0)], [0]) == [None]
        assert not of.give_up()


@pytest.mark.parametrize("kind", [{"decoding": OTHER}, {"choices": ((7, 8), (9,))}, {"tokens": (7,)}])
def test_when_memory_runs_out_sharing_is_given_up_before_rows_are(worth_it, monkeypatch, kind):
    model, requests = tiny.model("llama"), questions(edits=EDITS[:3], **kind)
    expected, _ = answered(model, requests)

    whole = lesion.engines.transformers.prefill.prefill

    def fail(model, gates, prompts, table, padding, *others, **named):
        if not others:  # the pass over a prefix alone
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(model, gates, prompts, table, padding, *others, **named)

    monkeypatch.setattr(lesion.engines.transformers.prefixes, "prefill", fail)
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
    assert_alone(model, [request for request in requests if request not in broken], found)


@pytest.mark.parametrize("fails", [1, 2])
@pytest.mark.parametrize("kind", [{"decoding": OTHER}, {"choices": ((7, 8),)}, {"tokens": (7,)}])
def test_when_memory_runs_out_what_waits_is_put_in_order_as_if_nothing_had_been_shared(
    worth_it, monkeypatch, kind, fails
):
    """Else the first of a pass would not be its longest, and passes would be far too large."""
    monkeypatch.setattr(lesion.engines.transformers.prefill, "TOKENS", 600)
    monkeypatch.setattr(lesion.engines.transformers.engine, "TOKENS", 600)
    model = tiny.model("llama")
    (long,) = prompts(1, longest=180, shortest=180, seed=15)
    texts = [(*first, *rest) for rest in prompts(12, longest=4, seed=16) for first in (FEW_SHOT[:40], long, ())]
    whole = lesion.engines.transformers.prefill.prefill
    passes: list[tuple[int, bool]] = []

    def prefill(model, gates, prompts, *args, **named):
        shares = len(args) > 2 and any(args[-1])
        passes.append((len(set(prompts)) * max(map(len, prompts)), shares))
        if shares and sum(shared for _, shared in passes) == fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(model, gates, prompts, *args, **named)

    monkeypatch.setattr(lesion.engines.transformers.prefixes, "prefill", prefill)
    _, work = answered(model, [Request(f"{index}", text, **kind) for index, text in enumerate(texts)], batch_size=32)
    assert work.batch_size == 32
    assert [shares for _, shares in passes].count(True) == fails
    after = passes[max(place for place, (_, shares) in enumerate(passes) if shares) + 1 :]
    assert len(after) > 3
    assert max(tokens for tokens, _ in after) <= 600


def test_edits_for_which_there_is_no_room_are_asked_without(worth_it):
    model = tiny.model("llama")
    requests = questions(edits=[ScaleBlock(layer, factor) for layer in range(3) for factor in (0.0, 0.5)])
    columns = list(range(6)) * 4
    with gated(model) as gates, torch.inference_mode():
        table = tabulate([request.edit for request in requests[:6]], model.anatomy)
        # Half of two rows of 256 tokens: room for 4 times 60.
        of = Prefixes(model, gates, table, 0, Work(batch_size=2), list(zip(requests, columns, strict=True)))
        found = [of.of(*one) for one in zip(requests, columns, strict=True)]
    assert [len(one) for one in found] == [60, 60, 60, 60, 0, 0] * 4
    assert [one is NOTHING for one in found] == [False, False, False, False, True, True] * 4
    assert alike(found) == 4
    requests = [replace(one, decoding=OTHER) for one in requests]
    assert_alone(model, requests, answered(model, requests, 2)[0])


words = st.lists(st.integers(5, 7), max_size=6).map(tuple)
begun = st.sampled_from([(), FEW_SHOT, ANOTHER, FEW_SHOT[:33], (*FEW_SHOT[:40], *ANOTHER)])


def spared(requests: list[Request], found: list[tuple[int, ...]]) -> int:
    """Tokens that need not be computed, less the cost of computing each prefix under each of its edits."""
    groups: dict[tuple[int, ...], list[Request]] = {}
    for request, tokens in zip(requests, found, strict=True):
        if tokens:
            groups.setdefault(tokens, []).append(request)
    edits = {tokens: len({request.edit for request in group}) for tokens, group in groups.items()}
    return sum((len(group) - edits[tokens]) * len(tokens) - COST * edits[tokens] for tokens, group in groups.items())


@given(st.lists(st.tuples(begun, words, st.integers(0, 1)), min_size=1, max_size=150))
def test_what_is_shared_begins_every_prompt_and_spares_no_less_than_any_single_length_would(parts):
    requests = [Request("", text, ScaleBlock(edit)) for first, rest, edit in parts if (text := (*first, *rest))]
    found = shared(requests)
    for request, tokens in zip(requests, found, strict=True):
        assert not tokens or LEAST <= len(tokens) < len(request.prompt)
        assert request.prompt[: len(tokens)] == tokens
    for length in range(LEAST, 80):
        texts = Counter(request.prompt[:length] for request in requests if len(request.prompt) > length)
        for text, count in texts.items():
            one = [text if request.prompt[:length] == text != request.prompt else () for request in requests]
            assert count == sum(map(bool, one))
            assert spared(requests, found) >= spared(requests, one)
    assert spared(requests, found) >= 0


def test_one_odd_prompt_and_another_task_keep_nobody_from_sharing():
    texts = [(*FEW_SHOT, token) for token in range(5, 55)]
    others = [(*FEW_SHOT[:35], *ANOTHER, token) for token in range(5, 55)]
    odd = (*FEW_SHOT[:33], 7, 8, 9)
    found = shared([Request("", text) for text in (*texts, odd, *others)])
    assert set(found[:50]) == {FEW_SHOT}
    assert found[50] == ()
    assert set(found[51:]) == {(*FEW_SHOT[:35], *ANOTHER)}


def test_prompts_that_are_the_beginning_of_others_share_what_leaves_each_a_token():
    texts = [FEW_SHOT[:length] for length in range(40, 61) for _ in range(2)]
    found = shared([Request("", text) for text in texts])
    assert all(len(tokens) < len(text) for tokens, text in zip(found, texts, strict=True))
    assert spared([Request("", text) for text in texts], found) == (len(texts) - 1) * 39 - COST


def test_beside_the_tokens_of_a_large_network_a_pass_of_its_own_costs_little(monkeypatch):
    model = tiny.model("llama")
    parameters = sum(p.numel() for block in model.anatomy.blocks for p in block.module.parameters())
    assert cost_of_edit(model) == COST  # fewer than a million parameters
    monkeypatch.setattr(lesion.engines.transformers.prefixes, "SMALL", parameters // 8)
    assert cost_of_edit(model) == pytest.approx(COST / 8, abs=1)
    monkeypatch.setattr(lesion.engines.transformers.prefixes, "SMALL", 1)
    assert cost_of_edit(model) == COST_ON_CPU
    requests = [Request("", (*FEW_SHOT, token), ScaleBlock(0)) for token in range(5, 7)]
    assert not any(shared(requests))
    assert all(tokens == FEW_SHOT for tokens in shared(requests, COST_ON_CPU))
