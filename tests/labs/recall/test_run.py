"""Runs and studies of the recall laboratory: what `summary.json` holds, what is done again, and what is refused."""

import pytest

from lesion.core.values import read_summary
from lesion.errors import UsageError
from lesion.progress import Silent
from lesion_labs.recall import run as runs
from lesion_labs.recall.model import PRESETS, RATES, Recipe, preset
from lesion_labs.recall.result import MARGINS, Phases, RecallStudySummary, RecallSummary, Spread, groups
from lesion_labs.recall.run import recipes, run
from lesion_labs.recall.study_file import RecallStudy
from runs import altered, run_recall

RECIPE = preset("quick", vocabulary=8, length=16, width=8, measured=10, batch=4, steps=3, keep=(0.25, 0.5), draws=2)
SMALL = {
    "vocabulary": 8, "length": 16, "width": 8, "measured": 10, "batch": 4, "steps": 3, "keep": [0.25, 0.5],
}  # fmt: skip


def test_a_summary_keeps_the_contract(tmp_path):
    made = run(RECIPE, tmp_path / "new" / "folder", device="cpu")
    assert read_summary(RecallSummary, tmp_path / "new" / "folder", "") == made
    assert made.recipe == RECIPE
    assert [point.step for point in made.training] == [0, 1, 2, 3]
    assert made.training[-1].clean_loss == made.full.clean_loss
    plain = {(row.matrix, row.keep) for row in made.truncated if row.control is None and row.side == "top"}
    assert plain == {(name, keep) for name in made.matrices for keep in (0.25, 0.5)}


def test_a_finished_run_is_only_read_and_another_recipe_refused(tmp_path, monkeypatch):
    made = run(RECIPE, tmp_path)
    monkeypatch.setattr(runs, "train", None)
    assert run(RECIPE, tmp_path) == made
    with pytest.raises(UsageError, match=r"seed: 0 there, 1 here"):
        run(altered(RECIPE, seed=1), tmp_path)


def test_an_interrupted_truncation_sweep_goes_on_with_the_matrix_it_was_at(tmp_path):
    class Impatient(Silent):
        def __init__(self, cuts):
            self.left, self.what, self.stored = cuts, "", None

        def begin(self, model, total, stored, what="answers"):
            self.what, self.stored = what, stored

        def answered(self, count):
            self.left -= self.what == "truncations"
            if self.left == 0:
                raise KeyboardInterrupt

    small = altered(RECIPE, keep=(0.5,), draws=1, feed_forward="none")
    whole = run(small, tmp_path / "whole")
    each = len(whole.truncated) // len(whole.matrices)
    with pytest.raises(KeyboardInterrupt):
        run(small, tmp_path / "broken", watcher=Impatient(3 * each + 2))
    second = Impatient(10**6)
    again = run(small, tmp_path / "broken", watcher=second)
    assert second.stored == 3 * each
    assert 10**6 - second.left == (len(whole.matrices) - 3) * each
    assert again.model_copy(update={"machine": whole.machine}) == whole
    left = {path.name for path in (tmp_path / "broken").iterdir()}
    assert left == {"summary.json", "training.safetensors", "lock", "lesion.json"}


def test_a_training_and_a_study_do_not_share_a_folder_even_before_they_are_finished(tmp_path):
    (tmp_path / "training.safetensors").write_text("")
    with pytest.raises(UsageError, match=r"training.safetensors is there already"):
        run_recall(RecallStudy.make(kind="recall"), tmp_path)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "study.toml").write_text('models = ["bundled:llama-base"]\n')
    with pytest.raises(UsageError, match=r"study.toml is there already"):
        run_recall(RecallStudy.make(kind="recall"), tmp_path / "two")


def test_a_corpus_gives_the_tables_and_one_that_changed_is_refused(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("abadcabfedadabafabdeafcafegag;" * 20)
    study = RecallStudy.make(kind="recall", corpus=str(corpus), **SMALL)
    recipe = recipes(study)[0]
    made = run(recipe, tmp_path / "out", corpus=str(corpus))
    assert (made.language.source, made.language.trigger) == ("corpus", "a")
    with pytest.raises(UsageError, match="give it with --corpus"):
        run(recipe, tmp_path / "other")
    corpus.write_text("something else entirely")
    with pytest.raises(UsageError, match="changed"):
        run(recipe, tmp_path / "other", corpus=str(corpus))


def test_a_study_trains_every_combination_resumes_and_can_grow(tmp_path, monkeypatch):
    study = RecallStudy.make(kind="recall", noise=[0.2, 0.6], seed=[0, 1], **SMALL)
    made = run_recall(study, tmp_path)
    assert read_summary(RecallStudySummary, tmp_path, "") == made
    assert [(cell.recipe.noise, cell.recipe.seed) for cell in made.cells] == [
        (0.2, 0), (0.2, 1), (0.6, 0), (0.6, 1),
    ]  # fmt: skip
    assert [group.seeds for group in made.groups] == [(0, 1), (0, 1)]
    for cell in made.cells:
        assert read_summary(RecallSummary, tmp_path / cell.folder, "").full == cell.full
    trained = []
    monkeypatch.setattr(runs, "train", lambda recipe, *rest, **more: trained.append(recipe.seed) or _stop())
    assert run_recall(study, tmp_path) == made
    with pytest.raises(KeyboardInterrupt):
        run_recall(RecallStudy.make(kind="recall", noise=[0.2, 0.6], seed=[0, 1, 2], **SMALL), tmp_path)
    assert trained == [2]


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_study_that_is_refused_leaves_every_file_as_it_was(tmp_path, unfinished):
    run_recall(RecallStudy.make(kind="recall", seed=[0, 1], **SMALL), tmp_path)
    if unfinished:
        for path in tmp_path.glob("cells/*/summary.json"):
            path.unlink()
        (tmp_path / "summary.json").unlink()
    before = _files(tmp_path)
    with pytest.raises(UsageError, match=r"another recipe \(keep: .*0.5 there, .*0.75 here"):
        run_recall(RecallStudy.make(kind="recall", seed=[2, 0, 1], **{**SMALL, "keep": [0.75]}), tmp_path)
    assert _files(tmp_path) == before


def test_a_narrower_study_never_drops_trainings_from_a_summary(tmp_path):
    run_recall(RecallStudy.make(kind="recall", noise=[0.2, 0.6], seed=[0, 1], **SMALL), tmp_path)
    before = _files(tmp_path)
    with pytest.raises(UsageError, match=r"3 of 4 trainings that this one does not have, for example .*seed1;"):
        run_recall(RecallStudy.make(kind="recall", noise=0.2, seed=0, **SMALL), tmp_path)
    assert _files(tmp_path) == before


def _stop():
    raise KeyboardInterrupt


def test_cells_of_one_study_are_independent_of_the_others(tmp_path):
    """A cell is what the same recipe gives alone."""
    study = RecallStudy.make(kind="recall", seed=[3, 4], **SMALL)
    cell = run_recall(study, tmp_path / "study").cells[1]
    alone = run(recipes(study)[1], tmp_path / "alone")
    assert alone.full == cell.full


def test_what_is_wrong_with_a_corpus_is_told_before_anything_is_trained(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("abcdefgh" * 9)
    study = RecallStudy.make(kind="recall", corpus=str(corpus), **{**SMALL, "vocabulary": [8, 20]})
    with pytest.raises(UsageError, match="8 distinct characters, fewer than the vocabulary of 20"):
        run_recall(study, tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()


# -- seeds


def test_a_spread_is_mean_deviation_and_students_interval():
    found = Spread.over([1.0, 2.0, 4.5])
    assert found.mean == pytest.approx(2.5)
    assert found.std == pytest.approx((3.25) ** 0.5)
    # Student's t of 0.975 with 2 degrees of freedom, from a table.
    assert found.high - found.mean == pytest.approx(4.302653 * (3.25 / 3) ** 0.5, rel=1e-6)
    assert (found.least, found.most) == (1.0, 4.5)
    assert Spread.over([3.0]) == Spread(mean=3.0, std=None, low=None, high=None, least=3.0, most=3.0)


def test_beyond_random_is_the_difference_to_the_mean_of_the_draws_of_the_same_seed(tmp_path):
    trained = run(RECIPE, tmp_path)

    def summary(seed: int, top: float, random: tuple[float, float]) -> RecallSummary:
        """The training with this p(τ) behind the top half of F2.in and behind two random projections."""
        rows = [row for row in trained.truncated if (row.matrix, row.keep) == ("F2.in", 0.5) and row.side != "bottom"]
        values = {(None, None): top, ("random", 0): random[0], ("random", 1): random[1]}
        return trained.model_copy(
            update={
                "recipe": altered(RECIPE, seed=seed),
                "truncated": [row.model_copy(update={"p_noise": values[row.control, row.draw]}) for row in rows],
                "phases": Phases(margins=dict.fromkeys(MARGINS, 5 if seed else None), attention=9),
            }
        )

    (found,) = groups([summary(0, 0.3, (0.2, 0.4)), summary(1, 0.1, (0.2, 0.2))])
    assert found.seeds == (0, 1)
    top, random = found.truncated
    assert random.p_noise.mean == pytest.approx(0.25)
    assert top.beyond.p_noise.mean == pytest.approx((0.0 - 0.1) / 2)
    first = found.phases.margins["F1"]
    assert (first.came, first.of, first.steps.mean) == (1, 2, 5.0)
    assert found.phases.attention.steps.mean == 9
    # Student's interval of a few steps reaches below the first.
    assert found.phases.attention.steps.low is None


def test_a_margin_that_was_positive_untrained_does_not_count_as_learned_in_that_seed(tmp_path):
    made = run_recall(RecallStudy.make(kind="recall", seed=[0, 1], **SMALL), tmp_path)
    summaries = [
        read_summary(RecallSummary, tmp_path / cell.folder, "").model_copy(
            update={"phases": Phases(margins=dict.fromkeys(MARGINS, 1), attention=2, untrained=untrained)}
        )
        for cell, untrained in zip(made.cells, (("F1",), ()), strict=True)
    ]
    (found,) = groups(summaries)
    first = found.phases.margins["F1"]
    assert (first.came, first.of, first.untrained, first.steps.mean) == (1, 2, 1, 1.0)
    assert (found.phases.margins["F2"].came, found.phases.margins["F2"].untrained) == (2, 0)


# -- recipes


@pytest.mark.parametrize(
    "values",
    [
        {"noise": 1.0}, {"noise": -0.1}, {"noise": float("nan")}, {"vocabulary": 3}, {"width": 1}, {"steps": -1},
        {"keep": (0.5, 1.5)}, {"feed_forward": "linea"}, {"optimiser": "adamw"}, {"measured": 0},
    ],
)  # fmt: skip
def test_a_recipe_in_a_file_that_means_nothing_is_refused(values):
    document = RECIPE.model_dump(mode="json") | values
    with pytest.raises(ValueError, match=next(iter(values))):
        Recipe.model_validate(document)


def test_presets_are_the_stated_sizes():
    released = preset("released")
    assert (released.vocabulary, released.length, released.width, released.batch, released.steps) == (
        65,
        256,
        256,
        512,
        5000,
    )
    assert (released.noise, released.learning_rate, released.momentum, released.weight_decay) == (0.5, 0.03, 0.9, 1e-4)
    assert released.own_answers
    assert not released.falls
    paper = preset("paper")
    assert (paper.variant, paper.own_answers) == ("paper", False)
    assert altered(paper, preset="released", variant="released", own_answers=True) == released
    assert all(preset(name).preset == name for name in PRESETS)


def test_another_optimiser_brings_its_own_rate_unless_one_is_given():
    assert preset("quick", optimiser="adam").learning_rate == RATES["adam"]
    assert preset("quick", optimiser="adam", learning_rate=0.5).learning_rate == 0.5


def test_an_unknown_device_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no device 'cuba'"):
        run(RECIPE, tmp_path, device="cuba")


@pytest.mark.parametrize("name", ["released", "paper"])
def test_the_published_presets_run_in_small(tmp_path, name):
    made = run(preset(name, **{**SMALL, "keep": (0.5,)}, draws=1), tmp_path)
    assert made.recipe.variant == name
    # The paper's variant asks each sequence once; the released one at every trigger but the first.
    assert (made.questions.clean == 10) == (name == "paper")
    # Only where ȳ may be τ is the least loss not the entropy of the noise.
    assert (made.own_answers is not None) == (name == "released")
    certain = made.own_answers.noisy.noise if name == "released" else 0.0
    assert made.floor == pytest.approx((1 - certain) * 0.6931471805599453)
