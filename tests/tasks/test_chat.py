"""Chat templates are programs of strangers: bounded in time, memory and text, and refused with the reason."""

import copy
import time

import pytest

from lesion.errors import LesionError
from lesion.tasks.chat import render
from tiny import tokenizer

TURNS = [{"role": "user", "content": "2 + 2 ="}]
ORDINARY = (
    "{% for m in messages %}{% if loop.first and not add_generation_prompt %}{{ raise_exception('no') }}{% endif %}"
    "<{{ m['role'] }}>{% generation %}{{ m['content'] | trim }}{% endgeneration %}{{ '-' * 3 }}\n{% endfor %}"
    "{%- set ns = namespace(n=2) %}{% set ns.n = ns.n * 21 %}{{ ns.n }}{{ strftime_now('%Y')[:1] }}"
    "{{ {'a': 1} | tojson }}"
)
HOSTILE = {
    "product": "{{ 'a' * 200000000 }}",
    "product, turned": "{{ 200000000 * 'a' }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": "{% set ns = namespace(n=9) %}{% for i in range(40) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "doubling": "{% set ns = namespace(t='ab') %}{% for i in range(40) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
    "long output": "{% for i in range(100) %}{{ 'a' * 99999 }}{% endfor %}",
    "wide": "{{ '%2000000000d' % 1 }}",
    "syntax": "{% for %}",
    "raises": "{{ raise_exception('\x1b[31mno system') }}",
    "sandbox": "{{ ''.__class__.__mro__ }}",
    "type": "{{ messages + 1 }}",
    "undefined": "{{ messages[7].content.x }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


def speaking(template: str):
    found = copy.deepcopy(tokenizer())
    found.chat_template = template
    return found


def test_an_ordinary_template_writes_what_transformers_writes():
    one = speaking(ORDINARY)
    expected = one.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True)
    assert render(one, TURNS, "m", add_generation_prompt=True) == expected
    assert expected.startswith("<user>2 + 2 =---")


@pytest.mark.parametrize("content", ["m.content", "(m.content | trim)"])
@pytest.mark.parametrize("last", ["The answer", "The answer "])
def test_an_answer_that_goes_on_ends_where_transformers_ends_it(content, last):
    one = speaking(
        "{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ CONTENT ~ '---' }}{% endfor %}".replace("CONTENT", content)
    )
    turns = [*TURNS, {"role": "assistant", "content": last}]
    settings = {"add_generation_prompt": False, "continue_final_message": True}
    assert render(one, turns, "m", **settings) == one.apply_chat_template(turns, tokenize=False, **settings)


def test_the_clock_of_a_template_stands_still():
    one = speaking("{{ strftime_now('%d %b %Y %H:%M:%S') }}")
    assert render(one, TURNS, "m") == "01 Jan 2026 00:00:00"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_template_that_is_broken_or_beyond_measure_is_refused_soon(kind):
    began = time.monotonic()
    with pytest.raises(LesionError, match=r"^The chat template of m cannot be used: .+\. Choose") as refusal:
        render(speaking(HOSTILE[kind]), TURNS, "m", add_generation_prompt=True)
    assert time.monotonic() - began < 25
    assert str(refusal.value).isprintable()


def test_a_template_without_an_end_is_stopped(monkeypatch):
    monkeypatch.setattr("lesion.tasks.chat.SECONDS", 0.3)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(LesionError, match=r"not done within 0\.3 seconds"):
        render(speaking(endless), TURNS, "m", add_generation_prompt=True)
