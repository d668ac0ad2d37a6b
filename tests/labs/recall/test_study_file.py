"""The recall laboratory's study file: lists or single values, and what is wrong is named with what would be right."""

import pytest

from lesion.errors import UsageError
from lesion_labs.recall.run import cell_name, recipes
from lesion_labs.recall.study_file import RecallStudy

FULL = """
kind = "recall"
name = "everything"
title = "All of it"
preset = "released"
noise = [0, 0.5]
vocabulary = [16, 32]
width = 64
feed_forward = ["mlp", "none"]
optimiser = "adam"
steps = [10, 20]
seed = [0, 1, 2]
keep = [0.1, 1]
length = 40
batch = 8
measured = 16
device = "cpu"
"""


def test_every_key_arrives_and_every_combination_is_a_recipe():
    made = recipes(RecallStudy.parse(FULL))
    assert len(made) == 2 * 2 * 2 * 2 * 3
    assert len({cell_name(recipe) for recipe in made}) == len(made)
    assert {recipe.noise for recipe in made} == {0.0, 0.5}
    assert {(r.vocabulary, r.feed_forward, r.steps) for r in made} == {
        (v, f, s) for v in (16, 32) for f in ("mlp", "none") for s in (10, 20)
    }
    for recipe in made:
        assert (recipe.width, recipe.optimiser, recipe.learning_rate) == (64, "adam", 0.001)
        assert (recipe.keep, recipe.length, recipe.batch, recipe.measured) == ((0.1, 1.0), 40, 8, 16)
    assert [recipe.seed for recipe in made[:4]] == [0, 1, 2, 0]  # seeds innermost: a group is whole early


def test_what_is_not_given_is_the_presets():
    (recipe,) = recipes(RecallStudy.make(kind="recall", preset="paper"))
    assert (recipe.variant, recipe.noise, recipe.vocabulary, recipe.steps) == ("paper", 0.5, 65, 5000)


def test_written_out_it_reads_back_as_the_same_study():
    study = RecallStudy.parse(FULL)
    assert RecallStudy.parse(study.to_toml()) == study
    assert RecallStudy.make(kind="recall", noise=0.6, seed=[2, 1]).identity() == (
        RecallStudy.make(kind="recall", noise=[0.6], seed=[1, 2], device="cuda", title="x").identity()
    )
    assert RecallStudy.make(kind="recall", noise=0.6).identity() != RecallStudy.make(kind="recall").identity()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("noise = 1.0", "line 2: noise must be a probability from 0 to below 1"),
        ("noise = [0.5, 0.5]", "0.5 is listed twice"),
        ("noises = 0.5", "there is no key 'noises'"),
        ("vocabulary = 3", "vocabulary must be a whole number from 4"),
        ("feed_forward = 'linea'", "feed_forward must be mlp, linear or none"),
        ("optimiser = 'adamw'", "optimiser must be sgd or adam"),
        ("seed = []", "seed must be a whole number from 0"),
        ("keep = 1.5", "keep must be a number from 0 to 1"),
        ("preset = 'quik'", "preset must be quick, released or paper"),
    ],
)
def test_what_is_wrong_is_named(line, message):
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        RecallStudy.parse(f'kind = "recall"\n{line}\n')
