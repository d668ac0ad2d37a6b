"""The file of a tuning study: arms and budgets in their one form, and what is wrong with others."""

import pytest

from lesion.core.study_file import shipped
from lesion.errors import UsageError
from lesion.registry import load_study
from lesion.studies.tuning.study import NAMED, TuningStudy
from lesion.studies.tuning.training import prepare

LEAST = {"model": "bundled:llama-base", "task": "primer:arithmetic"}


def made(**values) -> TuningStudy:
    return TuningStudy.make(**{**LEAST, **values})


def test_by_default_the_critical_blocks_are_tuned_under_one_seed_and_leave_a_model():
    study = made()
    assert (study.arms, study.budget, study.seeds, study.writes_model) == (("critical",), "25%", (0,), True)
    assert NAMED == ("critical", "least", "random", "all-adapter", "all-full")


def test_the_default_learning_rate_is_small_but_for_bundled_models_and_explicit_ones_stay():
    other = {"model": "HuggingFaceTB/SmolLM2-135M"}
    assert made().learning_rates == (1e-3,)
    assert made(by="reward").learning_rates == (1e-4,)
    assert made(**other).learning_rates == made(**other, by="reward").learning_rates == (1e-5,)
    assert made(**other, adapter=4).learning_rates == (5e-4,)
    assert made(model={"source": "bundled:llama-base"}).learning_rates == (1e-3,)
    assert made(**other, learning_rates=0.5).learning_rates == (0.5,)


def test_by_reward_the_answers_that_are_drawn_have_defaults_and_by_completions_there_are_none():
    study = made(by="reward")
    assert (study.reinforced, study.generations, study.rollout_temperature) == (True, 8, 1.0)
    assert made(by="reward", generations=8).identity() == study.identity()
    study = made(by="completions")
    assert (study.reinforced, study.generations, study.rollout_temperature) == (False, None, None)
    assert study.identity() == made().identity()


def test_one_arm_under_one_seed_is_a_tuning_that_leaves_a_model():
    assert made(arms="critical", seeds=4).writes_model
    assert not made(arms="critical", seeds=[0, 1]).writes_model


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("all", "all-full"),
        ("Critical", "critical"),
        ("3,0-2", "0-3"),
        ([0, 1, 5], "0-1,5"),
        (7, "7"),
        (" 1 - 2 ", "1-2"),
    ],
)
def test_an_arm_is_a_name_or_layers_in_any_form(typed, meant):
    arms = typed if isinstance(typed, str | int) else [typed]
    assert made(arms=arms).arms == (meant,)


@pytest.mark.parametrize(("typed", "meant"), [("25%", "25%"), ("12.50 %", "12.5%"), (3, 3), ("3", 3), ("100%", "100%")])
def test_a_budget_is_a_number_or_a_share(typed, meant):
    assert made(budget=typed).budget == meant


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"arms": "0-1", "layers_from": "out"}, r"the blocks of 0-1 do not depend on that; leave it out"),
        ({"arms": "critcal"}, r"'critcal' names no blocks to tune \(nearest: critical"),
        ({"arms": "5-2"}, r"The range 5-2 runs backwards; write 2-5"),
        ({"arms": ["0-3", "3,0-2"]}, r"0-3 is listed twice"),
        ({"arms": []}, r"arms must be critical, least"),
        ({"budget": 0}, r"0 blocks are nothing to tune; give at least 1"),
        ({"budget": "0%"}, r"'0%' is no budget"),
        ({"budget": "120%"}, r"'120%' is no budget; give a number of blocks from 1, or a share such as 25%"),
        ({"budget": "half"}, r"'half' is no budget"),
        ({"budget": 1.5}, r"budget must be a number of blocks from 1"),
        ({"learning_rates": [0.0]}, r"learning_rates must be a number above 0"),
        ({"adapter": 0}, r"adapter must be the rank"),
        ({"by": "grpo"}, r"by must be completions or reward"),
        ({"generations": 4}, r"generations is of answers that are drawn, and training by completions draws none"),
        ({"rollout_temperature": 0.7}, r"rollout_temperature is of answers that are drawn"),
        ({"by": "reward", "generations": 1}, r"generations must be a whole number fr"),
        ({"by": "reward", "rollout_temperature": 0.0}, r"rollout_temperature must be a number above 0"),
        ({"arms": "all", "adapter": 4}, r"layers=all-full has a form of its own; for adapters on all"),
        ({"by": "reward", "thinking_tokens": 9}, r"thinking_tokens closes the thinking in place of the model"),
        ({"steps": 0}, r"steps must be a whole number from 1"),
        ({"step": 10}, r"there is no key 'step' \(nearest: steps\)"),
        ({"model": {"source": "x", "dtype": "bfloat16"}}, r"float32"),
        ({"controls": ["primer:arithmetic"]}, r"primer:arithmetic is the task that is tuned on"),
    ],
)
def test_what_cannot_be_is_named_with_what_can(values, told):
    with pytest.raises(UsageError, match=told):
        made(**values)


def test_further_arms_rates_and_seeds_make_no_other_study_and_other_steps_do():
    study = made()
    same = made(arms=["random"], seeds=[5], learning_rates=[0.1], level=0.9, name="other", device="cpu")
    assert same.identity() == study.identity()
    for values in (
        {"by": "reward"},
        {"steps": 7},
        {"rows": 3},
        {"budget": 1},
        {"seed": 2},
        {"controls": ["primer:atlas"]},
        {"items": 9},
    ):
        assert made(**values).identity() != study.identity()


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("tuning-")])
def test_every_shipped_tuning_study_has_its_items(name):
    study = load_study(name)
    assert isinstance(study, TuningStudy)
    assert len(study.seeds) >= 3
    assert prepare(study).train
