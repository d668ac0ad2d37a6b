"""Thinking, system prompt and template arguments: what is sent, and what a chat template does not heed is refused."""

import pytest

from lesion.errors import UsageError
from lesion.tasks.catalogue import find
from lesion.tasks.given import Given
from lesion.tasks.judges.judge import UNREAD
from lesion.tasks.prompts import encode, resolve, templates
from lesion.tasks.task import Item
from thinkers import NO_SYSTEM, OPENED, PLAIN, SWITCHED, thinker

ITEM = Item("1", "2 + 2 =", "4")
SUMS = find("primer:arithmetic")


def asked(model, style: str) -> str:
    return model.tokenizer.decode(encode(model, SUMS, ITEM, style))


def by_transformers(model, system: str | None = None, **arguments: object) -> str:
    turns = [{"role": "system", "content": system}] if system else []
    ids = model.tokenizer.apply_chat_template(
        [*turns, {"role": "user", "content": ITEM.question}], add_generation_prompt=True, return_dict=False, **arguments
    )
    return model.tokenizer.decode(ids)


def test_thinking_is_the_argument_that_the_template_has_for_it():
    model = thinker(SWITCHED)
    assert asked(model, "chat") == by_transformers(model)
    assert asked(model, "chat thinking=on") == by_transformers(model, enable_thinking=True)
    assert asked(model, "chat thinking=off") == by_transformers(model, enable_thinking=False)
    assert asked(model, "chat thinking=off").endswith("<think>\n\n</think>\n\n")
    other = thinker(SWITCHED.replace("enable_thinking", "thinking"))
    assert asked(other, "chat thinking=off") == by_transformers(other, thinking=False)


def test_system_prompt_and_arguments_reach_the_template():
    model = thinker(SWITCHED)
    style = 'chat system="be brief." effort=high'
    assert asked(model, style) == by_transformers(model, "be brief.", effort="high")
    assert "be brief." in asked(model, style)
    assert resolve(model, SUMS, style) == style


def test_a_style_without_settings_is_named_as_ever_and_auto_takes_the_settings():
    model = thinker(SWITCHED)
    assert resolve(model, SUMS, "auto") == resolve(model, SUMS, "chat") == "chat"
    assert resolve(model, SUMS, "auto thinking=off") == "chat thinking=off"
    assert resolve(model, SUMS, "thinking=off") == "chat thinking=off"  # the task's own style is auto


def test_thinking_on_is_nothing_to_switch_where_prompts_begin_inside_it():
    assert asked(thinker(OPENED), "chat thinking=on") == asked(thinker(OPENED), "chat")
    assert templates()["r1-zero"].template.endswith("<think>")
    assert resolve(thinker(None), SUMS, "r1-zero thinking=on") == "r1-zero"


@pytest.mark.parametrize(
    ("template", "style", "says"),
    [
        (PLAIN, "chat thinking=on", "knows no thinking (it has no argument enable_thinking or thinking); leave"),
        (PLAIN, "chat thinking=off", "cannot switch thinking off (it has no argument enable_thinking or thinking)"),
        (OPENED, "chat thinking=off", "cannot switch thinking off (answers begin with <think>)"),
        (PLAIN, "plain thinking=on", "knows no thinking"),
        (
            SWITCHED,
            "plain thinking=on",
            "in the style 'plain', which has no place for --thinking; choose --prompt-style",
        ),
        (None, "auto thinking=on", "has no chat template, so that nothing can be set in one; leave --thinking out"),
        (None, "r1-zero thinking=off", "has no chat template, so that nothing can be set in one; leave --thinking out"),
        (None, "plain system=Hi", "has no chat template, so that nothing can be set in one; leave --system out"),
        (NO_SYSTEM, "chat system=Hi", "leaves a system prompt out; leave --system out"),
        (PLAIN, 'chat system="</s>"', "The system prompt contains control tokens of tiny:llama"),
        (SWITCHED, "chat efort=high", "has no argument 'efort' (nearest: effort); it has effort, enable_thinking"),
        (SWITCHED, "chat messages=none", "has no argument 'messages'"),
        (SWITCHED, "chat thinking=on enable_thinking=true", "sets the template argument enable_thinking already"),
    ],
)
def test_what_the_template_does_not_heed_is_refused_with_what_to_do(template, style, says):
    with pytest.raises(UsageError) as refusal:
        resolve(thinker(template), SUMS, style)
    assert says in str(refusal.value)


def test_choices_are_scored_before_anything_is_thought():
    model = thinker(SWITCHED)
    letters = Given("letters", (), "choose", rule=lambda item, answer: UNREAD)
    with pytest.raises(UsageError, match="before anything is thought; give that task"):
        resolve(model, letters, "chat thinking=on")
    assert resolve(model, letters, "chat thinking=off") == "chat thinking=off"
