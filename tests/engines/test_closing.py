"""A trace is closed at its limit: token for token what the model alone says behind the closing tag."""

from dataclasses import replace

import pytest

import tiny
from alone import EDITS, greedy, prompts
from lesion.engines.endings import FORCED, Closing, StopStrings
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.errors import UsageError

LIMIT, THINKING = 40, 12


def opened(model, count: int) -> list[tuple[int, ...]]:
    tag = tuple(model.tokenizer.encode("<think>\n", add_special_tokens=False))
    return [(*prompt, *tag) for prompt in prompts(count, seed=3)]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_the_model_goes_on_behind_the_closing_tag_as_it_would_alone(family):
    model = tiny.model(family)
    tag = tuple(model.tokenizer.encode(FORCED, add_special_tokens=False))
    plain = prompts(2, seed=4)  # of these nothing is thought: nothing is closed
    decoding = Decoding(LIMIT, thinking_tokens=THINKING)
    requests = [
        Request(f"{number} {edit}", prompt, edit, decoding)
        for number, prompt in enumerate([*opened(model, 2), *plain])
        for edit in EDITS
    ]
    said = {}
    for batch_size in (4, 64):
        engine = TransformersEngine(model, batch_size)
        said[batch_size] = {response.key: response.token_ids for response in engine.answer(requests)}
        assert engine.work.accepted  # drafts are in play
    assert said[4] == said[64]
    for request in requests:
        answer = said[4][request.key]
        if request.prompt in plain:
            assert answer == greedy(model, request.prompt, request.edit, LIMIT, guess=answer)
            continue
        trace = greedy(model, request.prompt, request.edit, THINKING, guess=answer[:THINKING])
        if len(trace) < THINKING or trace[-1] == 2:  # it ended its answer itself
            assert answer == trace
            continue
        behind = (*request.prompt, *trace, *tag)
        left = LIMIT - THINKING - len(tag)
        assert answer == (*trace, *tag, *greedy(model, behind, request.edit, left, guess=answer[-left:]))
    assert any(len(answer) == LIMIT for answer in said[4].values())


def test_sampled_answers_are_closed_too_and_draw_on_with_the_noise_of_their_place():
    model = tiny.model("llama")
    decoding = Decoding(LIMIT, temperature=0.7, seed=2, thinking_tokens=THINKING)
    requests = [Request(str(number), prompt, decoding=decoding) for number, prompt in enumerate(opened(model, 4))]
    free = [replace(request, decoding=replace(decoding, thinking_tokens=0)) for request in requests]
    closed, whole = (
        {response.key: response.token_ids for response in TransformersEngine(model, 3).answer(asked)}
        for asked in (requests, free)
    )
    tag = tuple(model.tokenizer.encode(FORCED, add_special_tokens=False))
    for key, tokens in closed.items():
        assert tokens[:THINKING] == whole[key][:THINKING]
        assert tokens[THINKING : THINKING + len(tag)] == (tag if len(whole[key]) > THINKING else ())


def row(model, text: str, decoding: Decoding, prompt: str = "a <think>\n") -> tuple[ActiveRequest, str | None, str]:
    """A row that says a text as far as it is let, how it ended, and what it said."""
    ids = tuple(model.tokenizer.encode(prompt))
    stop = StopStrings(model.tokenizer, decoding.stop, prompt.rstrip().endswith("<think>"))
    closing = Closing(model.tokenizer, decoding.thinking_tokens, stop.opened) if decoding.thinking_tokens else None
    speaking = ActiveRequest(
        Request("it", ids, decoding=decoding), 0, 0, decoding.max_new_tokens, {2}, stop, closing=closing
    )
    finish = None
    for token in [*model.tokenizer.encode(text, add_special_tokens=False), 2]:
        if finish := speaking.say(token, True):
            break
    return speaking, finish, stop.cut(model.tokenizer.decode(speaking.generated, skip_special_tokens=True))


def test_stop_strings_end_the_final_answer_and_not_the_trace_nor_the_white_space_behind_it():
    model, decoding = tiny.model("llama"), Decoding(60, ("\n\n",))
    for prompt, begin in (("a <think>\n", ""), ("a\n", "<think>\n")):
        text = f"{begin}so\n\nand so\n</think>\n\nit is 4\n\nwhat else?"
        _, finish, said = row(model, text, decoding, prompt)
        assert (finish, said) == ("stop", f"{begin}so\n\nand so\n</think>\n\nit is 4")
    _, finish, said = row(model, "so\n\nand so", decoding)
    assert (finish, said) == ("stop", "so\n\nand so")  # by its end of text
    _, finish, said = row(model, "so\n\nand so", decoding, "a\n")  # nothing is thought here
    assert (finish, said) == ("stop", "so")


def test_a_trace_that_closes_itself_in_time_is_left_alone():
    model = tiny.model("llama")
    text = "hm</think>\n\n4, and that is all there is to say"
    *_, said = row(model, text, Decoding(80, thinking_tokens=10))
    assert said == text
    *_, said = row(model, "one two three four five", Decoding(80, thinking_tokens=7))
    assert said.startswith(f"one two{FORCED}")


def test_a_budget_is_in_the_key_and_must_leave_room_for_an_answer():
    assert str(Decoding(12, thinking_tokens=4)) == "greedy max=12 stop=[] thinking_tokens=4"
    assert "thinking" not in str(Decoding(12))
    with pytest.raises(UsageError, match="12 tokens of thinking leave nothing of the 12 of an answer; raise --max-new"):
        Decoding(12, thinking_tokens=12)
    with pytest.raises(UsageError, match="at least 1 token, not -1; 0 sets no limit"):
        Decoding(12, thinking_tokens=-1)
