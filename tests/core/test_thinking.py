"""Studies of models that think: trace and final answer are judged apart, and nothing is mixed."""

import json
from collections.abc import Iterable, Iterator

import pytest

from commandline import write
from lesion.core.store import Store
from lesion.engines.engine import Request, Response
from lesion.errors import LesionError, UsageError
from lesion.studies.ablation.study import Study
from lesion.studies.drift.measurement import read_texts
from lesion.studies.drift.study import DriftStudy
from lesion.studies.isolation.study import EvaluationStudy
from lesion.studies.tuning.study import TuningStudy
from lesion.tasks.catalogue import find
from lesion.tasks.task import Answer
from runs import run_ablation as run
from thinkers import OPENED, PLAIN, SWITCHED, thinker

MAKES = {
    "ablate": lambda **options: Study.from_options(models=["a"], tasks=["t"], **options),
    "evaluate": lambda **options: EvaluationStudy.from_options(model="a", tasks=["t"], **options),
    "drift": lambda **options: DriftStudy.from_options(models=["a"], task="t", **options),
    "tune": lambda **options: TuningStudy.from_options(model="a", task="t", **options),
}
OPTIONS = {
    "thinking": ("on", "off"),
    "system": ("Be brief.", "Be long."),
    "template_argument": (["effort=high"], ["effort=low"]),
    "thinking_tokens": (4, 5),
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("command", MAKES)
def test_each_option_makes_another_study_and_without_it_a_study_is_what_it_was(command, option):
    make, (one, other) = MAKES[command], OPTIONS[option]
    plain = make()
    nothing = {"thinking": "auto"}.get(option)
    assert make(**{option: nothing}) == plain
    assert "thinking" not in plain.to_toml()
    assert len({plain.identity(), make(**{option: one}).identity(), make(**{option: other}).identity()}) == 3
    assert type(plain).parse(make(**{option: one}).to_toml()) == make(**{option: one})


def test_a_task_with_a_prompt_style_of_its_own_is_asked_in_exactly_that():
    tasks = ["t", {"name": "u", "prompt_style": "raw"}, {"name": "v", "prompt_style": "chat thinking=off"}]
    models = ["a", {"source": "b", "prompt_style": "chat thinking=off"}]
    study = Study.make(models=models, tasks=tasks, thinking="on", system="Be brief.")
    styles = [[study.prompt_style_of(model, task) for task in study.tasks] for model in study.models]
    own = ["raw", "chat thinking=off"]
    assert styles == [['thinking=on system="Be brief."', *own], ['chat thinking=off system="Be brief."', *own]]


def test_what_is_no_argument_and_no_switch_is_refused():
    with pytest.raises(UsageError, match="template_arguments must be KEY=VALUE"):
        MAKES["ablate"](template_argument=["effort"])
    with pytest.raises(UsageError, match="thinking must be on, off or auto, not"):
        MAKES["ablate"](thinking="maybe")


SAID = {
    "right": "{}it is 4?\n</think>\n\n4",
    "in the trace alone": "{}it is 4\n</think>\n\n5",
    "open": "{}it is 4",
    "nothing": "{}it is 4\n</think>\n\n",
}


class Scripted:
    """Answers an item with the text of its id."""

    opens = ""

    def __init__(self, model, batch_size) -> None:
        self.model = model

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        for request in requests:
            prompt = self.model.tokenizer.decode(request.prompt)
            said = next(text for name, text in SAID.items() if name in prompt)
            finish = "length" if said == SAID["open"] else "stop"
            yield Response(request.key, Answer(said.format(self.opens), 9, finish))


class Opening(Scripted):
    """Writes the opening tag itself."""

    opens = "<think>\n"


@pytest.mark.parametrize("judge", ["exact", "contains", "math"])
@pytest.mark.parametrize(("template", "engine"), [(SWITCHED, Opening), (OPENED, Scripted)])
def test_the_final_answer_alone_is_judged_and_thinking_that_stays_open_is_an_outcome_of_its_own(
    judge, template, engine, tmp_path
):
    rows = [{"id": name, "prompt": f"{name} 2 + 2 =", "answer": "4", "judge": judge} for name in SAID]
    file = write(tmp_path / "sums.jsonl", rows)
    study = Study.make(
        models=["m"], tasks=[str(file)], items=4, dtype="float32", thinking="on", prompt_style="chat",
        edits={"layers": [0]},
    )  # fmt: skip
    done = run(study, tmp_path / "out", models={"m": thinker(template)}, make_engine=engine)
    with Store.read(tmp_path / "out") as store:
        answers = store.answers()
    assert set(answers["prompt_style"]) == {"chat thinking=on"}
    baseline = answers[answers["edit"] == "baseline"].set_index("item")
    assert baseline["correct"].to_dict() == {name: name == "right" for name in SAID}
    assert baseline["parsed"].isna().to_dict() == {name: name in ("open", "nothing") for name in SAID}
    assert all(text.startswith("<think>\n") for text in baseline["text"])
    scores = done.summary.models[0].tasks[0].baseline
    assert (scores.accuracy.value, scores.truncated, scores.unclosed, scores.unparsed) == (0.25, 0.25, 0.25, 0.25)
    assert set(done.table_full["unclosed"]) == {0.25}
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["models"][0]["tasks"][0]["baseline"]["unclosed"]


def test_answers_of_one_folder_were_all_asked_alike(tmp_path):
    file = write(tmp_path / "sums.jsonl", [{"id": name, "prompt": f"{name} =", "answer": "4"} for name in SAID])

    def study(**options):
        plan = {"layers": [0], "items": 4, "dtype": "float32", "prompt_style": "chat"}
        return Study.from_options(models=["m"], tasks=[str(file)], **plan, **options)

    model = {"m": thinker(SWITCHED)}
    first = run(study(thinking="off"), tmp_path / "out", models=model, make_engine=Scripted)
    again = run(study(thinking="off"), tmp_path / "out", models=model, make_engine=Scripted)
    assert (first.evaluated, again.evaluated) == (8, 0)
    for options, differing in (
        ({}, "thinking: off there, not set here"),
        ({"thinking": "on"}, "thinking: off there, on here"),
        ({"thinking": "off", "system": "Hi"}, "system: not set there, Hi here"),
        (
            {"thinking": "off", "template_argument": "effort=high"},
            "template_arguments: not set there, effort=high here",
        ),
        ({"thinking": "off", "thinking_tokens": 4}, "decoding.thinking_tokens: not set there, 4 here"),
    ):
        with pytest.raises(LesionError) as refusal:
            run(study(**options), tmp_path / "out", models=model, make_engine=Scripted)
        assert differing in str(refusal.value)


def test_a_model_that_knows_no_thinking_is_refused_before_anything_is_asked(tmp_path):
    study = Study.make(models=["m"], tasks=["primer:arithmetic"], items=2, thinking="on")
    with pytest.raises(UsageError, match="knows no thinking"):
        run(study, tmp_path / "out", models={"m": thinker(PLAIN)}, make_engine=Scripted)


def test_drift_reads_a_solution_behind_the_tag_that_its_prompt_ends_in_once(tmp_path):
    file = write(tmp_path / "sums.jsonl", [{"id": name, "prompt": f"{name} =", "answer": "4"} for name in SAID])
    study = DriftStudy.make(models=["m"], task=str(file), items=4, prompt_style="chat", solution="own", thinking="on")
    model, task = thinker(OPENED), find(str(file))
    (item, *_) = task.load()
    solution = {"text": "<think>\nso\n</think>\n\n4", "correct": True, "finish": "stop"}
    (read,) = read_texts(study, study.models[0], model, task, [[item]], {item.id: solution})
    text = model.tokenizer.decode(read.ids[0])
    assert text.count("<think>") == 1
    assert "<think>\nso\n</think>\n\n4" in text
