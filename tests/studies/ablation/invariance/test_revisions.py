"""`--revisions`: a model behind its checkpoints, and what cannot be meant."""

import pytest

from lesion.errors import UsageError
from lesion.studies.ablation.invariance.families import over_time
from tiny import tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model with three checkpoints beside it; the last one is the model itself."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "checkpoints").mkdir()
    for place, scale in (("step3", 1.5), ("step20", 2.0), ("step100", 1.0), ("../model", 1.0), ("../alone/model", 1.0)):
        network = tiny("llama")
        network.get_input_embeddings().weight.data *= scale
        network.save_pretrained(folder / "checkpoints" / place)
    return folder


def entries(model, *steps):
    return [*({"source": model, "revision": f"step{step}"} for step in steps), model]


def test_all_checkpoints_stand_before_the_model_in_the_order_of_their_steps(trained):
    model = str(trained / "model")
    models, notes = over_time([model], "all")
    assert models == entries(model, 3, 20)
    assert len(notes) == 1
    assert "model@step100 has the very weights" in notes[0]


def test_names_by_commas_or_in_a_list_choose_some(trained):
    model = str(trained / "model")
    assert over_time([model], "step20, step3") == (entries(model, 3, 20), [])
    assert over_time([model], ["step20"]) == (entries(model, 20), [])


def test_models_without_checkpoints_stand_beside_those_that_have_some(trained):
    model, alone = str(trained / "model"), str(trained / "alone" / "model")
    models, _ = over_time(["bundled:llama-base", alone, model], "step3")
    assert models == ["bundled:llama-base", alone, *entries(model, 3)]


def test_those_of_a_hub_id_are_taken_by_their_names():
    assert over_time(["owner/model"], "step1,step2") == (entries("owner/model", 1, 2), [])


@pytest.mark.parametrize(
    ("models", "wanted", "says"),
    [
        (["{}/model"], "step30", r"no revision 'step30' \(nearest: step3.*There are: step3, step20, step100"),
        (["{}/alone/model"], "all", "there are no checkpoints of .*model: .*lesion lab lineage"),
        (["bundled:llama-base"], "all", "there are no checkpoints of bundled:llama-base"),
        (["owner/model"], "all", "name them"),
        (["owner/model@step1"], "step2", "owner/model@step1 names a revision already: give owner/model"),
        (["{}/model"], "step3,,step20", "names of checkpoints by commas"),
        (["{}/model"], "", "names of checkpoints by commas"),
        (["{}/model"], "step3,step3", "names step3 twice"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(trained, models, wanted, says):
    with pytest.raises(UsageError, match=says):
        over_time([model.format(trained) for model in models], wanted)
