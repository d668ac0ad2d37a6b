"""A search from its study to its folder: resumed, widened, along checkpoints, and refused where it cannot be."""

import json
from pathlib import Path

import pytest
import torch
from oracle import Listener
from searching import COUNT, Known, Say, chance, contrasts, order, questions, study, validation

from commandline import save, undrawn, write
from lesion.core.store import Store
from lesion.edits.edit import Truncate
from lesion.edits.files.artefact import read_edit
from lesion.edits.spectra import spectra
from lesion.errors import LesionError, UsageError
from lesion.studies.truncation.rivals import FACTORS
from lesion.studies.truncation.study import TruncationStudy
from rounding import assert_same_to_rounding
from runs import recall_truncation, run_truncation
from tiny import model, tiny, tokenizer


def test_the_summary_is_json_that_the_folder_remembers(llama, file, tmp_path):
    outcome = run_truncation(study(file), tmp_path / "out", model=llama, make_engine=Known(chance(1)))
    assert recall_truncation(tmp_path / "out") == outcome.summary
    json.dumps(outcome.summary.model_dump(mode="json"), allow_nan=False)
    assert recall_truncation(tmp_path) is None
    (tmp_path / "out" / "summary.json").write_text('{"kind": "truncation"}')
    with pytest.raises(LesionError, match=r"is damaged.*run the same command again"):
        recall_truncation(tmp_path / "out")


@pytest.mark.parametrize("lives", [0, 75])
def test_when_the_engine_dies_the_next_run_asks_the_rest_and_ends_with_the_same_summary(lives, llama, file, tmp_path):
    what = study(file, compose=True, screen={"best": 3, "random": 1}, eliminate=0.5, validation=0.5)
    whole = run_truncation(what, tmp_path / "whole", model=llama, make_engine=Known(chance(2)))
    assert whole.evaluated > 120
    with pytest.raises(RuntimeError, match="the engine died"):
        run_truncation(what, tmp_path / "out", model=llama, make_engine=Known(chance(2), lives=lives))
    with pytest.raises(LesionError, match=rf"study in .*out is not finished: {lives} answers are stored"):
        recall_truncation(tmp_path / "out")
    engine = Known(chance(2))
    rest = run_truncation(what, tmp_path / "out", model=llama, make_engine=engine)
    assert len(engine.asked) == rest.evaluated == whole.evaluated - lives
    for outcome in (whole, rest):
        with undrawn():
            outcome.report()
    for name in ("summary.json", "cells.csv"):
        assert (rest.folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert rest.summary == whole.summary


def test_further_keeps_sides_and_matrices_are_all_that_is_asked_in_a_folder_that_has_some(llama, file, tmp_path):
    run_truncation(study(file), tmp_path / "out", model=llama, make_engine=Known(chance(3)))
    more = study(file, keep=[0.5, 0.25, 0.1], side="both", matrices=["mlp.up", "attention.o"])
    engine = Known(chance(3))
    outcome = run_truncation(more, tmp_path / "out", model=llama, make_engine=engine)
    whole = run_truncation(more, tmp_path / "whole", model=llama, make_engine=Known(chance(3)))
    assert outcome.summary == whole.summary
    assert len(outcome.summary.cells) == 3 * 2 * 2 * 3
    again = [edit for edit, item, _ in engine.asked if item in validation(0) and "mlp.up top" in edit]
    assert {edit.split()[-1] for edit in again} == {"0.1"}
    assert "baseline" not in {edit for edit, item, _ in engine.asked}


def test_more_items_and_tasks_are_asked_beside_those_there_and_give_what_one_run_gives(llama, file, tmp_path):
    other = questions(tmp_path / "other.jsonl")
    small = study(file, items=10, validation=0.5)
    large = TruncationStudy.make(**{**small.model_dump(), "tasks": [str(file), str(other)], "items": 14})
    first = run_truncation(small, tmp_path / "out", model=llama, make_engine=Known(chance(3)))
    grown = run_truncation(large, tmp_path / "out", model=llama, make_engine=Known(chance(3)))
    whole = run_truncation(large, tmp_path / "whole", model=llama, make_engine=Known(chance(3)))
    assert grown.summary == whole.summary
    assert 0 < grown.evaluated < whole.evaluated
    engine = Known(chance(3))
    again = run_truncation(small, tmp_path / "out", model=llama, make_engine=engine)
    assert engine.asked == []
    assert again.summary == first.summary


def test_items_that_ask_what_chose_are_among_the_answers_that_are_counted(llama, tmp_path):
    rows = [{"id": f"{n}", "prompt": f"{n % 4} =", "answer": f"{n % 4}"} for n in range(12)]
    file = write(tmp_path / "twice.jsonl", rows)
    outcome = run_truncation(study(file, items=12, validation=0.25), tmp_path / "out", model=llama)
    with Store.read(tmp_path / "out") as store:
        answers = store.answers()
    assert len(answers) == outcome.evaluated == outcome.planned
    assert set(answers[answers.edit == "baseline"].item) == {f"{n}" for n in range(12)}


def test_a_better_model_is_left_as_an_edit_and_one_that_is_no_longer_the_best_is_taken_away(llama, file, tmp_path):
    def table(edit, item):
        return Say(edit == "1.mlp.up top 0.25" or item in validation(0)[:3])

    outcome = run_truncation(study(file), tmp_path / "out", model=llama, make_engine=Known(table))
    found = read_edit(tmp_path / "out" / "best.edit")
    assert found.edit == Truncate("1.mlp.up", 0.25)
    assert outcome.summary.by_edit[outcome.summary.chosen].rank == 8
    nothing = run_truncation(study(file, keep=[0.5]), tmp_path / "out", model=llama, make_engine=Known(table))
    assert nothing.summary.chosen is None
    assert not (tmp_path / "out" / "best.edit").exists()


def test_decompositions_are_computed_once_for_all_keeps_and_sides_of_a_matrix(tmp_path):
    task, fresh = contrasts(tmp_path / "c.jsonl", 10), model("llama")
    what = study(task, keep=[0.75, 0.5, 0.25, 0.1], side="both", matrices="mlp")
    assert len(run_truncation(what, tmp_path / "out", model=fresh).summary.cells) == 9 * 8
    assert (spectra(fresh).computed, spectra(fresh).read) == (9, 0)  # three matrices of three blocks


def test_spectra_are_the_singular_values_of_the_searched_matrices(llama, file, tmp_path):
    summary = run_truncation(study(file), tmp_path / "out", model=llama, make_engine=Known(chance(1))).summary
    assert [spectrum.address for spectrum in summary.spectra] == ["0.mlp.up", "1.mlp.up", "2.mlp.up"]
    for spectrum in summary.spectra:
        values = torch.linalg.svdvals(llama.anatomy.matrix(spectrum.address).read().double()).numpy()
        assert list(spectrum.values) == pytest.approx(values[list(spectrum.index)], rel=1e-6)
        assert spectrum.index == tuple(range(32))


# -- checkpoints

FEW = 12
"""Items of searches that a network answers."""
AHEAD = len(validation(0, count=FEW))


def without_revision(row):
    """The values of a row but for its revision."""
    return row.model_dump(exclude={"revision"})


def numbers_of(summary):
    """The values of a summary without the study, which says how its model was named."""
    return summary.model_dump(mode="json", exclude={"study"})


@pytest.fixture(scope="module")
def lineage(tmp_path_factory) -> Path:
    """A model with three checkpoints: two that differ from it and from each other, and one that is the model."""
    folder = save(tmp_path_factory.mktemp("lineage") / "model")
    for name, factor in (("step1", 0.5), ("step2", 0.8), ("step3", 1.0)):
        network = tiny("llama")
        with torch.no_grad():
            network.model.layers[0].mlp.up_proj.weight.mul_(factor)
        network.save_pretrained(folder / "checkpoints" / name)
        tokenizer().save_pretrained(folder / "checkpoints" / name)
    return folder


def test_what_was_found_is_told_at_every_checkpoint_on_the_same_test_items(lineage, tmp_path):
    task = contrasts(tmp_path / "c.jsonl", FEW)
    what = study(task, model=str(lineage), revisions=["step1", "step2", "step3"])
    listener = Listener()
    outcome = run_truncation(what, tmp_path / "out", watcher=listener)
    summary = outcome.summary
    assert [(row.revision, row.edit) for row in summary.revisions] == [
        (revision, edit) for revision in ("step1", "step2", "step3") for edit in ("baseline", summary.best)
    ]
    alone = {}
    for revision in ("step1", "step2", "step3"):
        found = run_truncation(
            study(task, model={"source": str(lineage), "revision": revision}), tmp_path / revision
        ).summary
        alone[revision] = next(row for row in found.tokens if row.edit == "baseline")
    for row in summary.tokens:
        if row.revision and row.edit == "baseline":
            assert_same_to_rounding(without_revision(row), without_revision(alone[row.revision]))
    last = [without_revision(row) for row in summary.tokens if row.revision == "step3"]
    assert last == [without_revision(row) for row in summary.tokens if row.revision is None]
    assert any("step3 has the weights of" in note for note in listener.notes)
    # The checkpoint with the model's own weights asks nothing.
    test_items = FEW - AHEAD
    searched = 7 * AHEAD + 2 * test_items + 2 * 2 * test_items
    rivals = outcome.summary.rivals
    forbidding = sum(rival.what == "forbidden" for rival in rivals)
    factors, others = len(FACTORS), sum(rival.what in ("subspace", "branch", "factor") for rival in rivals)
    assert (
        outcome.evaluated
        == outcome.planned
        == searched + (forbidding * (AHEAD + 2 * test_items) + factors * AHEAD + others * test_items)
    )
    again = run_truncation(what, tmp_path / "out")
    assert (again.evaluated, again.summary) == (0, summary)


def test_a_checkpoint_that_is_not_there_is_told_before_anything_is_asked(lineage, tmp_path):
    what = study(contrasts(tmp_path / "c.jsonl", FEW), model=str(lineage), revisions=["step1", "stepp2"])
    with pytest.raises(UsageError, match=r"stepp2.*step2"):
        run_truncation(what, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_fails_takes_nothing_of_the_search_with_it(lineage, tmp_path):
    import shutil

    folder = tmp_path / "broken"
    shutil.copytree(lineage, folder)
    spoil(folder / "checkpoints/step2", "model.layers.1.mlp.up_proj.weight")
    what = study(contrasts(tmp_path / "c.jsonl", FEW), model=str(folder), revisions=["step1", "step2"])
    with pytest.raises(LesionError, match=r"broken@step2 has 1 tensor .*1\.mlp\.up_proj"):
        run_truncation(what, tmp_path / "out")
    summary = recall_truncation(tmp_path / "out")
    alone = run_truncation(what.model_copy(update={"revisions": ()}), tmp_path / "alone").summary
    # What step1 answered is kept, and what is still to be evaluated is said.
    assert [row.revision for row in summary.revisions] == ["step1", "step1"]
    assert summary.notes[-1] == "Not asked yet: step2; the same command goes on from here."
    changes = {
        "revisions": (),
        "tokens": tuple(row for row in summary.tokens if row.revision is None),
        "notes": summary.notes[:-1],
    }
    assert_same_to_rounding(numbers_of(summary.model_copy(update=changes)), numbers_of(alone))
    assert alone.notes == ()
    # Mended, the run goes on from there.
    shutil.copytree(lineage / "checkpoints/step2", folder / "checkpoints/step2", dirs_exist_ok=True)
    rest = run_truncation(what, tmp_path / "out")
    assert rest.evaluated == 2 * (FEW - AHEAD)
    assert [row.revision for row in rest.summary.revisions] == ["step1", "step1", "step2", "step2"]
    assert recall_truncation(tmp_path / "out").notes == ()


def test_a_checkpoint_can_be_searched_and_the_others_followed(lineage, tmp_path):
    task = contrasts(tmp_path / "c.jsonl", FEW)
    typed = run_truncation(study(task, model=f"{lineage}@step1", revisions=["step2"]), tmp_path / "typed").summary
    table = {"source": str(lineage), "revision": "step1"}
    named = run_truncation(study(task, model=table, revisions=["step2"]), tmp_path / "named").summary
    assert_same_to_rounding(numbers_of(typed), numbers_of(named))
    assert {row.revision for row in typed.revisions} == {"step2"}
    alone = run_truncation(study(task, model=f"{lineage}@step2"), tmp_path / "alone").summary
    row = next(row for row in typed.revisions if row.edit == "baseline")
    base = next(base for base in alone.unedited if base.part == "test")
    assert (row.accuracy, row.gold) == (base.accuracy, pytest.approx(base.gold, abs=1e-5))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 4}, r"model@other has 4 blocks, and .*model has 3 blocks:"),
        ({"intermediate_size": 40}, r"model@other has inner width 40, and .*model has inner width \d+:"),
    ],
)
def test_a_checkpoint_of_another_shape_is_refused_before_anything_is_asked(changes, says, lineage, tmp_path):
    import shutil

    from transformers import LlamaForCausalLM

    folder = tmp_path / "model"
    shutil.copytree(lineage, folder)
    config = tiny("llama").config
    config.update(changes)
    network = LlamaForCausalLM(config)
    network.save_pretrained(folder / "checkpoints/other")
    tokenizer().save_pretrained(folder / "checkpoints/other")
    what = study(contrasts(tmp_path / "c.jsonl", FEW), model=str(folder), revisions=["step1", "other"])
    with pytest.raises(UsageError, match=says):
        run_truncation(what, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_matrices_of_another_shape_are_refused_also_where_no_config_tells(llama):
    from lesion.studies.truncation.run import matrix_shapes, refuse_other_shape

    refuse_other_shape("one", matrix_shapes(llama), "other", matrix_shapes(llama))
    with pytest.raises(
        UsageError,
        match=r"other has 0\.attention\.k of 32 × 32, and one has 0\.attention\.k of 16 × 32: an edit of one",
    ):
        refuse_other_shape("one", matrix_shapes(llama), "other", matrix_shapes(model("gpt2")))


# -- refusals


def test_an_item_that_cannot_be_put_is_told_before_anything_is_asked_also_one_of_the_test_items(llama, tmp_path):
    last = order(0)[-1]
    rows = (
        {"id": f"i{n}", "prompt": "so long " * (10_000 if f"i{n}" == last else 1), "answer": "yes"}
        for n in range(COUNT)
    )
    engine = Known(chance(0))
    with pytest.raises(LesionError, match=last):
        run_truncation(study(write(tmp_path / "q.jsonl", rows)), tmp_path / "out", model=llama, make_engine=engine)
    assert engine.asked == []
    assert not (tmp_path / "out").exists()


def spoil(folder: Path, name: str) -> Path:
    """Make one weight of a saved model no number."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors[name].view(-1)[3] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "model.layers.1.mlp.up_proj.weight",
            r"not finite: model\.layers\.1\.mlp\.up_proj\.weight \(1 NaN of 1,536\)",
        ),
        (
            "model.layers.2.self_attn.o_proj.weight",
            r"1 tensor with .*: model\.layers\.2\.self_attn\.o_proj",
        ),
        ("model.norm.weight", r"model\.norm\.weight \(1 NaN of 32\)\. .* get the checkpoint again"),
    ],
)
def test_weights_that_are_not_finite_are_told_by_their_tensor_before_anything_is_asked(name, says, file, tmp_path):
    folder = spoil(save(tmp_path / "m"), name)
    with pytest.raises(LesionError, match=says):
        run_truncation(study(file, model=str(folder)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_searched_by_is_refused_before_a_model_is_loaded(file, tmp_path):
    one = questions(tmp_path / "one.jsonl", 1)
    for values, says in (
        ({"tasks": ["gold:primer:atlas"], "items": 4}, "gold:primer:atlas is scored, not judged"),
        ({"tasks": ["primer:text"], "items": 4}, "primer:text is scored, not judged"),
        ({"tasks": [str(one)]}, r"one\.jsonl has 1 item: .* give two at least"),
        ({"tasks": ["gsm9k"]}, "no task 'gsm9k'"),
    ):
        told = study(file).model_dump() | values
        what = type(study(file)).make(**{**told, "model": "no/such/model"})
        with pytest.raises(UsageError, match=says):
            run_truncation(what, tmp_path / "out")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"matrices": "mlp.upp"}, r"no matrix 'mlp\.upp'.*nearest: mlp\.up"),
        ({"layers": "0-3"}, "no block 3"),
        ({"keep": [1.0]}, "Nothing is left to try"),
    ],
)
def test_what_the_model_does_not_have_is_told_before_anything_is_asked(values, says, llama, file, tmp_path):
    engine = Known(chance(0))
    with pytest.raises(UsageError, match=says):
        run_truncation(study(file, **values), tmp_path / "out", model=llama, make_engine=engine)
    assert engine.asked == []
    assert not (tmp_path / "out").exists()


def test_two_items_are_one_to_choose_on_and_one_to_be_told_on(llama, tmp_path):
    file = questions(tmp_path / "two.jsonl", 2)
    for share in (0.01, 0.2, 0.99):
        summary = run_truncation(
            study(file, validation=share), tmp_path / f"{share}", model=llama, make_engine=Known(chance(0), 2)
        ).summary
        (task,) = summary.tasks
        assert (task.validation_items, task.test_items) == (1, 1)
    assert order(0, 2) == validation(0, 0.2, 2) + order(0, 2)[1:]
