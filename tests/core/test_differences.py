"""In what two studies differ is said key by key, in the values that a person typed."""

from __future__ import annotations

import pytest

from lesion.core.differences import differences, study_differences
from lesion.studies.ablation.study import Study


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


def test_a_key_that_is_not_asked_for_does_not_differ():
    assert differences({"seed": 0, "title": "a"}, {"seed": 0, "title": "b"}, ["seed"]) == ""


def test_models_that_differ_in_their_revision_alone_differ_in_words_too():
    def study(revision):
        return Study.make(models=[{"source": "hub/model", "revision": revision}], tasks=["gsm8k"])

    words = study_differences(study("v1"), study("v2"), ["models", "tasks"])
    assert words == "models: hub/model v1 there, hub/model v2 here"
