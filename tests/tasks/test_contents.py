"""Contents: a question that a chat template leaves out is never asked; one that it writes in its own way is."""

import time

import pytest

from lesion.core.inference import pending_cells, prompt_notes
from lesion.core.study_file import TaskChoice
from lesion.errors import LesionError
from lesion.studies.ablation.study import Study
from lesion.tasks.given import task
from lesion.tasks.prompts import resolve, write
from lesion.tasks.task import Item
from thinkers import thinker

QUESTION = """what is 2 < 3 & 'four' + "5" =\n and then the third of it?"""
ITEM = Item("1", QUESTION, "4")
SOLVED = Item("1", QUESTION, "4", shots=(("1 + 1 =", "2 is it"),))
TASK = task("sums", [{"prompt": QUESTION, "answer": 4}])
PARTS = "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}"


def turns(body: str) -> str:
    start = "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}"
    return start + body + "{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"


def prompt(body: str, item: Item = ITEM, style: str = "chat") -> str:
    model = thinker(turns(body))
    written = write(model, TASK, item, resolve(model, TASK, style))
    return written.before + written.question + written.behind


@pytest.mark.parametrize(
    "body",
    [
        PARTS,
        "{{ m.content[0]['text'] }}",
        "{% if m.content is string %}{{ raise_exception('a list') }}{% endif %}{{ m.content[0].text }}",
        "{% if m.content is string %}{{ m.content }}{% else %}" + PARTS + "{% endif %}",
        "{% if m.role == 'user' %}" + PARTS + "{% else %}{{ m.content }}{% endif %}",
        "{% if m.role == 'user' %}{{ m.content }}{% else %}" + PARTS + "{% endif %}",
        "{% if m.role == 'system' %}{{ m.content }}{% else %}" + PARTS + "{% endif %}",
        "{{ m.content }}",
    ],
)
def test_messages_are_texts_or_lists_of_parts_as_the_template_reads_them(body):
    plain = turns("{{ m.content }}")
    assert prompt(body) == prompt("{{ m.content }}")
    for item, style in ((SOLVED, "chat"), (SOLVED, 'chat system="Be brief."')):
        assert prompt(body, item, style) == prompt("{{ m.content }}", item, style), plain


@pytest.mark.parametrize(
    ("filtered", "expected"),
    [
        ("trim", QUESTION),
        ("upper", QUESTION.upper()),
        ("e", QUESTION.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;").replace('"', "&#34;")),
        ("tojson", '"' + QUESTION.replace('"', '\\"').replace("\n", "\\n") + '"'),
        ("wordwrap(10)", "what is 2\n< 3 &"),
        ("replace('\n', ' ')", QUESTION.replace("\n", " ")),
    ],
)
def test_a_question_that_filters_change_is_there(filtered, expected):
    assert expected in prompt("{{ m.content | " + filtered + " }}")


@pytest.mark.parametrize(
    "body", ["", "{{ m.contents }}", "{{ m.content[0] }}", "{{ m.content | reverse }}", "{{ m.content | length }}"]
)
@pytest.mark.parametrize("style", ["chat", "auto", 'chat system="Be brief."'])
def test_a_style_that_leaves_the_question_out_is_refused(body, style):
    with pytest.raises(LesionError, match=r"leaves the question out, .*choose --prompt-style plain"):
        prompt(body, style=style)


def test_a_question_that_alone_is_left_out_is_refused():
    with pytest.raises(LesionError, match=r"leaves 'what is 2 < 3 .* out, a message of the user in item 1"):
        prompt("{{ m.content if 'four' not in m.content else '' }}")


def test_solved_questions_that_are_left_out_are_refused():
    body = "{{ m.content if loop.last else '' }}"
    assert QUESTION in prompt(body)
    with pytest.raises(LesionError, match="leaves solved questions or their answers out"):
        prompt(body, SOLVED)


def test_a_question_that_is_cut_is_said():
    model, choice = thinker(turns("{{ m.content[:30] }}")), TaskChoice(name=TASK.name, prompt_style="chat")
    study = Study.make(models=["m"], tasks=[choice])
    cells = pending_cells(study, study.models[0], model, {choice: TASK}, {choice: TASK.load()}, ())
    (note,) = prompt_notes(model, cells.values())
    assert note.startswith("The chat template of tiny:llama cuts questions: item 1 of python:sums, the longest")


def test_a_template_that_does_not_end_is_waited_for_once(monkeypatch):
    monkeypatch.setattr("lesion.tasks.chat.SECONDS", 0.3)
    begin = time.process_time()
    with pytest.raises(LesionError, match=r"not done within 0\.3 seconds"):
        prompt("{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}")
    assert time.process_time() - begin < 1
