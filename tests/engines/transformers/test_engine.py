"""The engine answers every row as plain decoding under that row's edit alone would, whoever shares its batch."""

import random

import pytest
import torch
import transformers as hf

import lesion.engines.transformers.engine
import lesion.engines.transformers.prefixes
import tiny
from alone import EDITS, SLIDING, answered, assert_alone, forward, greedy, prompts, questions, sliding
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request, Response
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model, wrap

BROKEN = ScaleBlock(1, 1e38)


def ask(model: Model, requests, batch_size: int = 8) -> dict[str, Response]:
    return answered(model, requests, batch_size)[0]


@pytest.mark.parametrize("family", tiny.BUILDS)
def test_a_sweep_in_one_batch_says_what_each_edit_says_alone_in_every_family(family):
    # A batch smaller than the work, so that rows leave and others enter.
    model, requests = tiny.model(family), questions(prompts(5))
    assert_alone(model, requests, ask(model, requests))


@pytest.mark.parametrize("family", ["llama", "gemma3", "opt", "gpt2", "gpt_neox"])
def test_left_padding_changes_no_token_for_prompts_of_very_different_lengths(family):
    model = tiny.model(family)
    texts = [prompts(1, length, seed=length, shortest=length)[0] for length in (1, 2, 3, 7, 30, 75, 120)]
    requests = questions(texts, edits=(BASELINE, ScaleBlock(1), ScaleBlock(2, 0.5)), limit=8)
    few, all_at_once = (ask(model, requests, batch_size) for batch_size in (5, 64))
    assert_alone(model, requests, few)
    assert {key: found.token_ids for key, found in few.items()} == {
        key: found.token_ids for key, found in all_at_once.items()
    }


@pytest.mark.parametrize("network", SLIDING)
def test_a_sliding_window_slides_over_each_rows_own_tokens(network):
    model = sliding(network)
    requests = questions(prompts(4, longest=20, seed=1), edits=(BASELINE, ScaleBlock(0)), limit=12)
    assert_alone(model, requests, ask(model, requests, batch_size=3))


def varied(count: int = 60, longest: int = 30) -> list[Request]:
    """Answers that end after 1 … `longest` tokens."""
    rng = random.Random(1)
    return [
        Request(f"{index}", text, EDITS[index % len(EDITS)], Decoding(rng.randint(1, longest)))
        for index, text in enumerate(prompts(count, seed=2))
    ]


def test_answers_of_very_different_lengths_leave_and_enter_and_few_rows_stand_idle():
    model, requests = tiny.model("llama"), varied()
    found, work = answered(model, requests, 16)
    assert_alone(model, requests, found)
    lengths = [len(found[request.key].token_ids) for request in requests]
    # The first token of an answer comes with its prompt.
    assert work.decoded == sum(lengths) - len(requests)
    waiting_for_the_slowest = sum(
        max(lengths[start : start + 16]) - length
        for start in range(0, 60, 16)
        for length in lengths[start : start + 16]
    )
    assert work.idle < 0.25 * waiting_for_the_slowest
    assert work.idle < 0.15 * work.decoded
    assert work.steps < 1.25 * (sum(lengths) / 16) + 40


def test_more_prompt_tokens_than_one_pass_should_have_enter_with_several(monkeypatch):
    model, requests = tiny.model("llama"), questions(prompts(6))
    seen = []
    whole = lesion.engines.transformers.prefixes.prefill

    def prefill(model, gates, prompts, *args, **kwargs):
        seen.append(len(prompts) * max(map(len, prompts)))
        return whole(model, gates, prompts, *args, **kwargs)

    monkeypatch.setattr(lesion.engines.transformers.prefixes, "prefill", prefill)
    monkeypatch.setattr(lesion.engines.transformers.engine, "TOKENS", 30)
    assert_alone(model, requests, ask(model, requests, batch_size=64))
    assert max(seen) <= 30


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_sampling_draws_by_the_items_own_noise_whoever_shares_its_batch(batch_size):
    model = tiny.model("llama")
    decodings = [Decoding(9, temperature=1.0, seed=1), Decoding(7, temperature=0.6, top_p=0.8), Decoding(5)]
    requests = [
        Request(f"{item}/{edit}/{index}", text, edit, decoding)
        for item, text in enumerate(prompts(2, seed=3))
        for edit in (BASELINE, ScaleBlock(1, 1.0), ScaleBlock(2))
        for index, decoding in enumerate(decodings)
    ]
    found = ask(model, requests, batch_size)
    assert_alone(model, requests, found)
    # An edit that changes nothing draws what the baseline draws.
    for item in range(2):
        for index in range(3):
            base, same = (found[f"{item}/{edit}/{index}"] for edit in (BASELINE, ScaleBlock(1, 1.0)))
            assert base.token_ids == same.token_ids


@pytest.mark.parametrize("top_p", [1.0, 0.9])
def test_rounding_of_the_logits_changes_hardly_any_sampled_answer(top_p):
    """Also where the probabilities of all tokens nearly tie, as those of an untrained network do."""
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=2048, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = wrap(hf.LlamaForCausalLM(config).eval(), tiny.tokenizer(), "untrained")
    decoding = Decoding(10, temperature=1.0, top_p=top_p)
    requests = [Request(str(item), text, decoding=decoding) for item, text in enumerate(prompts(40, seed=5))]
    exact = ask(model, requests, 64)
    generator = torch.Generator().manual_seed(1)
    with model.network.lm_head.register_forward_hook(
        lambda module, given, logits: logits + 1e-6 * torch.rand(logits.shape, generator=generator)
    ):
        rounded = ask(model, requests, 16)
    assert sum(len(response.token_ids) for response in exact.values()) > 300
    assert sum(exact[key].token_ids != rounded[key].token_ids for key in exact) <= 1


def without_an_end(texts, model, edits=(BASELINE,), limit: int = 14):
    """Prompts, edits and their greedy answers, where the answer is characters up to the limit, one a token."""
    requests = questions(texts, edits, limit)
    guesses = ask(model, requests)
    for request in requests:
        said = greedy(model, request.prompt, request.edit, limit, guess=guesses[request.key].token_ids)
        if not set(model.tokenizer.all_special_ids) & set(said):
            yield request.prompt, request.edit, said


def test_a_stop_string_ends_a_row_and_is_cut_off():
    model = tiny.model("llama")
    cases = list(without_an_end(prompts(8, seed=4), model, EDITS[:3]))
    assert len(cases) > 8
    for text, edit, said in cases:
        # One token is one character here; the stop string is two tokens, met for the first time at `at`.
        spoken = model.tokenizer.decode(said)
        stop = spoken[6:8]
        at = spoken.index(stop)
        request = Request("it", text, edit, Decoding(14, stop=("never said", stop)))
        answer = ask(model, [request])["it"].answer
        assert (answer.text, answer.tokens, answer.finish) == (spoken[:at], at + 2, "stop")


def test_rows_with_different_stop_strings_share_a_batch():
    model = tiny.model("llama")
    (text, _, said), *_ = without_an_end(prompts(8, seed=4), model)
    spoken = model.tokenizer.decode(said)
    requests = [Request(str(at), text, decoding=Decoding(14, stop=(spoken[at],))) for at in range(14)]
    for key, response in ask(model, requests).items():
        first = spoken.index(spoken[int(key)])
        assert (response.answer.text, response.answer.tokens) == (spoken[:first], first + 1)


def test_any_end_of_text_token_ends_a_row_and_is_no_part_of_the_answer():
    model = tiny.model("llama")
    (text, edit, said), *_ = without_an_end(prompts(8, seed=5), model, EDITS[1:2])
    model.network.generation_config.eos_token_id = [2, said[4]]
    first = said.index(said[4])
    response = ask(model, [Request("it", text, edit, Decoding(14))])["it"]
    assert response.token_ids == said[: first + 1]
    assert response.answer.text == model.tokenizer.decode(said[:first])
    assert (response.answer.tokens, response.answer.finish) == (first + 1, "stop")


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mixtral"])
def test_an_edit_that_breaks_the_numbers_breaks_no_other_row_nor_the_next_one_in_its_slot(family):
    model = tiny.model(family)
    requests = questions(prompts(7, seed=7), edits=(BASELINE, BROKEN, ScaleBlock(1), ScaleBlock(0, 0.5)))
    found = ask(model, requests, batch_size=3)
    broken = [request for request in requests if request.edit == BROKEN]
    assert [found[request.key].answer.finish for request in broken] == ["nonfinite"] * len(broken)
    assert_alone(model, [request for request in requests if request.edit != BROKEN], found)


def test_a_row_that_breaks_in_mid_answer_keeps_what_it_has_said(monkeypatch):
    model = tiny.model("llama")
    (text, edit, said), *_ = without_an_end(prompts(8, seed=8), model)
    with torch.no_grad():  # whoever reads the token said third is lost
        third = said[2]
        assert third not in text
        assert said.index(third) == 2
        model.network.get_input_embeddings().weight[third] = float("nan")
    others = [
        Request(f"other {i}", t, decoding=Decoding(2)) for i, t in enumerate(prompts(20, seed=9)) if third not in t
    ]
    found = ask(model, [Request("it", text, edit, Decoding(14)), *others], batch_size=2)
    assert found["it"].token_ids == said[:3]
    assert (found["it"].answer.text, found["it"].answer.finish) == (model.tokenizer.decode(said[:3]), "nonfinite")
    finite = [request for request in others if found[request.key].answer.finish != "nonfinite"]
    assert len(finite) > 5
    assert_alone(model, finite, found)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_network_that_is_broken_altogether_is_reported_for_every_request(number):
    model = tiny.model("llama")
    model.network.lm_head.register_forward_hook(lambda module, args, logits: torch.full_like(logits, number))
    found = ask(model, questions(prompts(3)), batch_size=4)
    assert {response.answer.finish for response in found.values()} == {"nonfinite"}


def test_the_same_question_twice_is_answered_twice_and_the_same():
    model, text = tiny.model("llama"), (5, 6, 7)
    requests = [Request(f"{edit} {time}", text, edit, Decoding(8)) for edit in EDITS for time in range(3)]
    assert_alone(model, requests, ask(model, requests, batch_size=5))


def test_an_empty_prompt_a_place_that_is_not_there_and_a_batch_of_none_are_refused():
    model = tiny.model("llama")
    with pytest.raises(LesionError, match="prompt of item-4 is empty"):
        ask(model, [Request("item-4", ())])
    with pytest.raises(UsageError, match="no block 12"):
        ask(model, [Request("a", (5,)), Request("b", (5,), ScaleBlock(12))])
    with pytest.raises(UsageError, match="at least 1, not 0"):
        TransformersEngine(model, batch_size=0)


def test_in_bfloat16_every_token_said_is_the_most_likely_one_up_to_rounding():
    model = tiny.model("llama")
    model.network.to(torch.bfloat16)
    requests = questions(prompts(5), limit=6)
    found = ask(model, requests)
    for request in requests:
        said = found[request.key].token_ids
        logits = forward(model, (*request.prompt, *said), request.edit)[0].float()[len(request.prompt) - 1 : -1]
        behind = logits.max(-1).values - logits[range(len(said)), said]
        assert float(behind.max()) <= 0.05 * float(logits.abs().max()), request.key


def test_a_padding_token_that_the_network_has_no_embedding_for_is_not_used():
    model = tiny.model("llama")
    model.tokenizer.add_special_tokens({"pad_token": "<pad>"})
    assert model.tokenizer.pad_token_id >= model.network.get_input_embeddings().num_embeddings
    requests = questions(prompts(5))
    assert_alone(model, requests, ask(model, requests))


@pytest.mark.same_bits("one text twice, the same weights")
def test_between_two_responses_the_model_is_unedited_and_may_be_used_by_another_engine():
    model = tiny.model("llama")
    first = [*questions(prompts(4, seed=10)), Request("choose", (5, 6), ScaleBlock(0), choices=((7,), (8,)))]
    second = questions(prompts(4, seed=11), edits=(ScaleBlock(2), ScaleBlock(0)))
    before = forward(model, (5, 6, 7))[0]
    found: dict[str, Response] = {}
    other = TransformersEngine(model, batch_size=4).answer(second)
    for response in TransformersEngine(model, batch_size=4).answer(first):
        assert not torch.is_inference_mode_enabled()
        assert torch.equal(forward(model, (5, 6, 7))[0], before)
        found["first " + response.key] = response
        if (one := next(other, None)) is not None:
            found["second " + one.key] = one
    found |= {"second " + response.key: response for response in other}
    for name, requests in (("first", first[:-1]), ("second", second)):
        assert_alone(model, requests, {request.key: found[f"{name} {request.key}"] for request in requests})


def test_an_engine_that_is_left_in_the_middle_leaves_no_hook_behind():
    model = tiny.model("llama")
    hooks = [module._forward_hooks | module._forward_pre_hooks for module in model.network.modules()]
    answers = TransformersEngine(model, batch_size=4).answer(questions(prompts(4)))
    next(answers)
    answers.close()
    assert hooks == [module._forward_hooks | module._forward_pre_hooks for module in model.network.modules()]
