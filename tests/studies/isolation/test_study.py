"""The isolation study as a value and as a file: what it accepts, what it refuses, what makes it another one."""

import pytest

from lesion.errors import UsageError
from lesion.studies.isolation.study import EvaluationStudy, IsolationStudy

GIVEN = {"model": "m", "skill": "gsm8k", "controls": ["mmlu", "race"]}


def made(**values) -> IsolationStudy:
    return IsolationStudy.make(**{**GIVEN, **values})


def test_what_is_left_out_has_the_paper_settings_or_nothing_to_ask():
    study = made()
    assert (study.methods, study.share, study.samples, study.repeats) == (("mathneuro",), (0.05,), (100,), 1)
    assert (study.factor, study.random_controls, study.choose, study.tasks) == ((0.0,), 3, None, ())
    assert study.model.source == "m"


def test_one_value_in_the_place_of_a_list_is_a_list_of_one():
    study = made(controls="mmlu", methods="wanda", share=0.1, samples=3, factor=1.5, tasks="gsm8k")
    assert (study.controls, study.methods, study.share, study.samples) == (("mmlu",), ("wanda",), (0.1,), (3,))
    assert (study.factor, study.tasks[0].name) == ((1.5,), "gsm8k")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"share": 0}, "share"),
        ({"share": 1.01}, "share"),
        ({"share": -0.05}, "share"),
        ({"share": float("nan")}, "share"),
        ({"share": []}, "share"),
        ({"share": [0.1, 0.1]}, "listed twice"),
        ({"share": "0.1"}, "share"),
        ({"samples": 0}, "samples"),
        ({"samples": 1.5}, "samples"),
        ({"repeats": 0}, "repeats"),
        ({"factor": float("inf")}, "factor"),
        ({"random_controls": -1}, "random_controls"),
        ({"controls": []}, "controls"),
        ({"controls": ["mmlu", "mmlu"]}, "mmlu is listed twice"),
        ({"skill": ""}, "skill"),
        ({"methods": "mathnuro"}, "mathneuro"),
        ({"methods": []}, "methods"),
        ({"choose": {"validation": 1.0}, "tasks": ["gsm8k"]}, "validation"),
        ({"level": 1.0}, "level"),
        ({"kind": "layers"}, "kind"),
        ({"edits": {}}, "edits"),
    ],
    ids=str,
)
def test_a_wrong_value_is_wrong_use_and_is_named(values, said):
    with pytest.raises(UsageError, match=said):
        made(**values)


def test_the_whole_is_a_share_too():
    assert made(share=1).share == (1.0,)


def test_a_skill_among_its_own_controls_is_refused():
    with pytest.raises(UsageError, match="gsm8k is the skill and cannot be its own control"):
        made(controls=["mmlu", "gsm8k"])


def test_choosing_needs_the_skill_among_the_tasks():
    with pytest.raises(UsageError, match="gsm8k must be one of the tasks"):
        made(choose={}, tasks=["mmlu"])
    assert made(choose={}, tasks=["mmlu", "gsm8k"]).choose.validation == 0.5


def test_all_that_is_wrong_is_told_at_once_with_its_lines():
    text = 'kind = "isolation"\nmodel = "m"\nskill = "gsm8k"\ncontrols = ["mmlu"]\nshare = 2\nsamples = 0\nseeed = 1\n'
    with pytest.raises(UsageError) as caught:
        IsolationStudy.parse(text, "s.toml")
    for said in ("line 5", "share", "line 6", "samples", "line 7", "seeed", "seed"):
        assert said in str(caught.value)


# What is edited is part of every answer's key; what is asked is the study.
@pytest.mark.parametrize(
    "values",
    [
        *({"skill": "race", "controls": ["mmlu"]}, {"methods": "wanda"}, {"share": 0.3}, {"samples": 7}),
        *({"repeats": 2}, {"replacement": True}, {"factor": 2.0}, {"random_controls": 0}, {"title": "t"}),
        *({"level": 0.9}, {"batch_size": 4}, {"choose": {}}, {"tasks": ["mmlu", "gsm8k"]}),
    ],
    ids=str,
)
def test_what_is_edited_does_not_make_it_another_study(values):
    tasks = {"tasks": ["gsm8k", "mmlu"]}
    assert made(**{**tasks, **values}).identity() == made(**tasks).identity()


@pytest.mark.parametrize(
    "values", [{"model": "n"}, {"seed": 1}, {"items": 7}, {"tasks": ["gsm8k"]}, {"decoding": {"max_new_tokens": 3}}]
)
def test_what_is_asked_makes_it_another_study(values):
    tasks = {"tasks": ["gsm8k", "mmlu"]}
    assert made(**{**tasks, **values}).identity() != made(**tasks).identity()


def test_an_evaluation_is_another_study_than_an_isolation_that_asks_the_same():
    asks = {"model": "m", "tasks": ["gsm8k"]}
    assert EvaluationStudy.make(**asks).identity() != made(**asks).identity()
    assert EvaluationStudy.parse(EvaluationStudy.make(**asks).to_toml()) == EvaluationStudy.make(**asks)
    with pytest.raises(UsageError, match="tasks"):
        EvaluationStudy.make(model="m")
