"""Sources: which folder a person means, above all by the revision of a folder: a checkpoint over training."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import LesionError, UsageError
from lesion.models.load import load, peek
from lesion.models.source import Source, find, revisions
from lesion.plain import natural
from tiny import save, tiny


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def training(tmp_path) -> Path:
    """What a training leaves behind: the model, and what it was after 2, 10 and 100 steps."""
    for step in (100, 2, 10):
        model(tmp_path / "out" / "checkpoints" / f"step{step}")
    model(tmp_path / "out" / "model")
    return tmp_path / "out"


def refusal(*asked) -> str:
    with pytest.raises(UsageError) as caught:
        find(*map(str, asked))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_revision_of_a_folder_is_one_of_the_checkpoints_in_it_or_beside_the_model(training):
    place = Source(str(training / "checkpoints" / "step10"), True)
    for folder in (training, training / "model"):
        assert find(str(folder), "step10") == place
        assert find(f"{folder}@step10") == find(f"{folder}@step10", "step10") == place
    assert find(str(training / "model")) == Source(str(training / "model"), True)


def test_a_revision_may_be_a_folder_right_below_as_other_trainers_write_it(tmp_path):
    model(tmp_path / "run" / "checkpoint-500")
    assert find(str(tmp_path / "run"), "checkpoint-500").place == str(tmp_path / "run" / "checkpoint-500")
    model(tmp_path / "run" / "checkpoints" / "checkpoint-500")  # one in checkpoints comes first
    assert find(str(tmp_path / "run"), "checkpoint-500").place == str(tmp_path / "run/checkpoints/checkpoint-500")


def test_checkpoints_are_listed_in_the_order_of_their_steps_and_only_where_there_is_a_model(training):
    (training / "checkpoints" / ".step300.unfinished").mkdir()
    assert list(revisions(training / "model")) == ["step2", "step10", "step100"]
    assert list(revisions(training)) == ["model", "step2", "step10", "step100"]
    assert revisions(training / "nowhere") == {}


def test_the_present_folder_is_a_model_with_checkpoints_too(training, monkeypatch):
    monkeypatch.chdir(training / "model")
    assert Path(find(".", "step2").place).samefile(training / "checkpoints" / "step2")


def test_a_revision_that_does_not_exist_lists_those_there_are_with_the_nearest(training):
    message = refusal(training / "model", "step101")
    assert f"{training / 'model'} has no revision 'step101' (nearest: step10" in message
    assert message.endswith("There are: step2, step10, step100.")
    assert refusal(f"{training / 'model'}@step101") == message


def test_a_folder_with_an_at_in_its_name_is_that_folder(tmp_path):
    place = model(tmp_path / "me@home")
    assert find(str(place)) == Source(str(place), True)


def test_a_hub_id_keeps_its_revision_for_the_hub_to_find():
    assert find("EleutherAI/pythia-1b", "step512") == Source("EleutherAI/pythia-1b", False, "step512")
    with pytest.raises(LesionError, match="EleutherAI/pythia-1b"):
        load("EleutherAI/pythia-1b", revision="step512")


def test_the_weights_of_a_revision_are_those_that_are_loaded(tmp_path):
    first, last = tiny("llama"), tiny("llama")
    first.model.norm.weight.data.fill_(1.0)
    last.model.norm.weight.data.fill_(2.0)
    for network, folder in ((first, "checkpoints/step1"), (last, "model")):
        save(network, tmp_path / folder)
    early, late = load(tmp_path / "model", revision="step1"), load(tmp_path / "model")
    assert float(early.network.model.norm.weight.mean()) == 1.0
    assert float(late.network.model.norm.weight.mean()) == 2.0
    assert early.fingerprint != late.fingerprint
    assert peek(tmp_path / "model", revision="step1") == len(early.anatomy.blocks)


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_names_with_numbers_are_sorted_by_their_numbers(numbers):
    names = [f"step{number}" for number in numbers]
    assert sorted(names, key=natural) == [f"step{number}" for number in sorted(numbers)]


@given(st.lists(st.text(max_size=8), unique=True))
def test_any_names_can_be_put_in_order(names):
    # Texts and numbers in one place would not compare.
    in_order = sorted(names, key=natural)
    assert set(in_order) == set(names)
