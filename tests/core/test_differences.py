"""In what two studies differ is said key by key, in the values that a person typed."""

import pytest

from lesion.core.store import differences, refuse_another, study_there
from lesion.errors import LesionError
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.study import DriftStudy


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ({"seed": 0}, {"seed": 0}, ""),
        ({"seed": 0}, {"seed": 1}, "seed: 0 there, 1 here"),
        ({}, {"seed": 1}, "seed: not set there, 1 here"),
        ({"keep": [0.5, 1]}, {"keep": [0.75]}, "keep: 0.5, 1 there, 0.75 here"),
        ({"a": 1, "b": 2}, {"a": 2, "b": 3}, "a: 1 there, 2 here; b: 2 there, 3 here"),
        ({"decoding": {"n": 1, "m": 2}}, {"decoding": {"n": 1}}, "decoding.m: 2 there, not set here"),
        ({"prompt": "x" * 200}, {"prompt": "y"}, f"prompt: {'x' * 159}… there, y here"),
    ],
)
def test_what_differs_is_said_key_by_key(there, here, words):
    assert differences(there, here, here) == words


def drift(**values):
    return DriftStudy.make(**{"models": ["hub/model"], "task": "gsm8k", **values})


def test_the_folder_of_another_study_is_refused_and_what_decides_answers_is_named(tmp_path):
    with pytest.raises(LesionError) as refused:
        refuse_another(tmp_path, "drift study", drift(dtype="float16", runs=2), drift(max_new_tokens=9))
    assert str(refused.value) == (
        f"{tmp_path} holds another drift study (max_new_tokens: not set there, 9 here; dtype: float16 there, auto"
        " here). Give another folder with --out, or run the study that was started there."
    )


@pytest.mark.parametrize("there", [None, drift(), drift(models=["other"], runs=2, clusters=5, name="b", level=0.9)])
def test_a_folder_of_the_same_study_or_of_none_takes_more(tmp_path, there):
    refuse_another(tmp_path, "drift study", there, drift())


def test_what_alone_is_compared_is_named_or_what_else_differs(tmp_path):
    models = [drift(models=[{"source": "hub/model", "revision": revision}]) for revision in ("v1", "v2")]
    with pytest.raises(LesionError, match=r"\(models: hub/model v1 there, hub/model v2 here\)"):
        refuse_another(tmp_path, "study", *models, same=False, compared=["models", "task"])
    with pytest.raises(LesionError, match=r"another study \(other data\)\."):
        refuse_another(tmp_path, "study", *models, same=False, compared=["task"], otherwise="other data")


def test_a_summary_that_is_damaged_holds_no_study(tmp_path):
    assert study_there(DriftSummary, tmp_path) is None
    (tmp_path / "summary.json").write_text('{"kind": "drift"')
    assert study_there(DriftSummary, tmp_path) is None
