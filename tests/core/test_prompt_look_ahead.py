"""What a tokenizer alone shows to be wrong with a prompt is said before any weights are loaded."""

from pathlib import Path

import pytest

import lesion
from commandline import questions, save
from lesion.core.preflight import refuse_unfit_styles
from lesion.core.study_file import ModelChoice
from lesion.errors import UsageError
from lesion.studies.ablation.study import Study
from lesion.studies.isolation.study import IsolationStudy
from thinkers import PLAIN
from tiny import tokenizer


@pytest.fixture
def sums(tmp_path) -> str:
    return str(questions(tmp_path / "sums.jsonl", 3))


@pytest.fixture
def mute(tmp_path) -> Path:
    return weightless(tmp_path / "mute")


def weightless(folder: Path, template: str | None = None) -> Path:
    """A model without weights: whoever loads it fails; its tokenizer has this chat template."""
    save(folder)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    speaker = tokenizer()
    speaker.chat_template = template
    speaker.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"thinking": "on"}, "has no chat template, so that nothing can be set in one; leave --thinking out"),
        ({"system": "Be brief."}, "has no chat template, so that nothing can be set in one; leave --system out"),
        ({"prompt_style": "chat"}, "has no chat template; choose another prompt style: raw or plain"),
    ],
)
def test_a_study_of_a_model_without_a_chat_template_is_refused_without_its_weights(option, says, mute, sums, tmp_path):
    with pytest.raises(UsageError, match=says):
        lesion.ablate(str(mute), sums, out=tmp_path / "out", **option)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match=says):
        lesion.isolate(str(mute), sums, ["primer:text"], out=tmp_path / "out", **option)


def test_a_template_that_knows_no_thinking_is_refused_without_weights(sums, tmp_path):
    chatty = weightless(tmp_path / "chatty", PLAIN)
    with pytest.raises(UsageError, match="knows no thinking"):
        lesion.ablate(str(chatty), sums, thinking="on", out=tmp_path / "out")


def test_a_later_model_is_looked_at_before_the_first_is_loaded(sums, tmp_path):
    chatty, mute = weightless(tmp_path / "chatty", PLAIN), weightless(tmp_path / "mute")
    with pytest.raises(UsageError, match="mute has no chat template"):
        lesion.ablate([str(chatty), str(mute)], sums, system="Be brief.", out=tmp_path / "out")


def test_the_style_of_every_task_counts_that_of_calibration_too(mute, sums):
    chosen = ModelChoice(source=str(mute))
    refuse_unfit_styles(Study.make(models=[str(mute)], tasks=[sums]), chosen)
    own = [sums, {"name": "primer:arithmetic", "prompt_style": "chat"}]
    with pytest.raises(UsageError, match="has no chat template"):
        refuse_unfit_styles(Study.make(models=[str(mute)], tasks=own), chosen)
    isolation = IsolationStudy.make(model=str(mute), skill=sums, controls=["primer:atlas"], prompt_style="chat")
    assert isolation.styles_of(chosen) == {sums: "chat", "primer:atlas": "chat"}
    with pytest.raises(UsageError, match="has no chat template"):
        refuse_unfit_styles(isolation, chosen)
