"""The study file of a search: read, checked, written, and which of its values make another study."""

import pytest

from lesion.errors import UsageError
from lesion.registry import load_study
from lesion.studies.truncation.study import KEEP, Screen, TruncationStudy

LEAST = {"model": "bundled:llama-base", "tasks": ["primer:atlas"]}
TEXT = 'kind = "truncation"\nmodel = "bundled:llama-base"\ntasks = ["primer:atlas"]\n'


def made(**values) -> TruncationStudy:
    return TruncationStudy.make(**{**LEAST, **values})


def test_what_is_not_given_is_that_of_sharma_et_al():
    study = made()
    assert (study.keep, study.side, study.validation, study.objective) == (KEEP, "top", 0.2, "accuracy")
    assert (study.matrices, study.layers, study.compose, study.revisions) == (("mlp",), "all", False, ())
    assert (study.screen, study.eliminate) == ("auto", None)


def test_a_single_value_is_a_list_of_one_and_a_model_may_be_a_table():
    study = made(keep=0.1, matrices="all", revisions="step1", model={"source": "m", "revision": "r"})
    assert (study.keep, study.matrices, study.revisions, study.model.name) == ((0.1,), ("all",), ("step1",), "m@r")


def test_a_file_of_this_kind_is_one_and_a_screen_is_a_table(tmp_path):
    (tmp_path / "s.toml").write_text(TEXT + "[screen]\nbest = 3\n")
    study = load_study(tmp_path / "s.toml")
    assert isinstance(study, TruncationStudy)
    assert (study.name, study.screen) == ("s", Screen(items="all", best=3, random=8))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "other"},
        {"matrices": ["all"]},
        {"layers": "0-2"},
        {"keep": [0.1]},
        {"side": "both"},
        {"objective": "gold"},
        {"validation": 0.5},
        {"compose": True},
        {"screen": {"best": 2}},
        {"eliminate": 0.1},
        {"revisions": ["step1"]},
        {"batch_size": 2},
    ],
)
def test_what_is_searched_and_how_it_is_chosen_makes_no_other_questions(values):
    assert made(**values).identity() == made().identity()


@pytest.mark.parametrize(
    "values",
    [{"tasks": ["primer:reading"]}, {"items": 7}, {"seed": 1}, {"model": "m"}, {"prompt_style": "raw"}],
)
def test_other_items_another_model_or_another_style_make_other_questions(values):
    assert made(**values).identity() != made().identity()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"keep": [0.5, 1.5]}, r"keep.*a fraction of the rank from 0 to 1.*1\.5"),
        ({"keep": -0.1}, r"keep.*a fraction of the rank from 0 to 1.*-0\.1"),
        ({"keep": float("nan")}, r"keep.*a fraction of the rank from 0 to 1"),
        ({"keep": [0.1, 0.10]}, r"keep.*0\.1 is listed twice"),
        ({"keep": []}, r"keep"),
        ({"side": "left"}, r"side must be top, bottom or both"),
        ({"objective": "loss"}, r"objective must be accuracy or gold"),
        ({"validation": 1.0}, r"validation.*between 0 and 1"),
        ({"eliminate": 0}, r"eliminate.*between 0 and 1"),
        ({"screen": "some"}, r"screen.*auto, none or a table"),
        ({"screen": {"best": 0}}, r"screen.*best.*a whole number from 1"),
        ({"layers": "1-x"}, r"layers"),
        ({"matricies": "mlp"}, r"matricies.*matrices"),
        ({"tasks": []}, r"tasks"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(values, says):
    with pytest.raises(UsageError, match=rf"(?s){says}"):
        made(**values)


def test_a_wrong_line_of_a_file_is_named():
    with pytest.raises(UsageError, match=r"line 4.*kep.*keep"):
        TruncationStudy.parse(TEXT + "kep = 0.1\n")
