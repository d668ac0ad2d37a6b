"""The baseline first: a study in which nothing could be shown ends before its sweep, and says what to change."""

import json
from pathlib import Path

import pytest

import lesion
from commandline import lesion as command
from commandline import save, undrawn
from lesion.core.store import Store
from lesion.errors import LesionError

pytestmark = pytest.mark.stops
MODEL = "bundled:llama-instruct"


@pytest.fixture
def towns(tmp_path: Path) -> Path:
    """Questions that the model answers rightly in its chat template alone."""
    path = tmp_path / "towns.jsonl"
    items = lesion.find_task("primer:atlas").load()[:12]
    path.write_text("\n".join(json.dumps({"prompt": item.question, "answer": item.gold}) for item in items))
    return path


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """Questions that no model answers rightly."""
    path = tmp_path / "unknown.jsonl"
    path.write_text("\n".join(json.dumps({"prompt": f"What is {n}?", "answer": f"!{n}"}) for n in range(12)))
    return path


def evaluated(folder: Path) -> set[tuple[str, str]]:
    """Model and edit of the answers in a folder."""
    with Store.read(folder) as store:
        answers = store.answers()
    return {*zip(answers["model_name"], answers["edit"], strict=True)}


def test_at_the_floor_a_study_stops_before_its_sweep_and_says_which_prompt_style_does_better(
    towns: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("ablate", MODEL, "--task", towns, "--prompt-style", "raw", "--layers", "1,2", "--out", tmp_path / "out")
    done = command(capsys, *words)
    assert done.code == 1
    assert "With --prompt-style chat" in done.err
    assert "--anyway (in a study file `anyway = true`) goes on" in done.err
    assert f"lesion check {MODEL} --task {towns} --prompt-style raw" in done.err
    assert done.err.count("the gold answer is") == 3
    assert evaluated(tmp_path / "out") == {(MODEL, "baseline")}
    done = command(capsys, *words, "--anyway")
    assert done.code == 0, done.err
    assert evaluated(tmp_path / "out") == {(MODEL, "baseline"), (MODEL, "1×0"), (MODEL, "2×0")}
    assert "evaluated 24 of 36 answers; 12 were stored already" in done.out


def test_a_study_with_one_task_above_the_floor_goes_on(towns: Path, unknown: Path, tmp_path: Path) -> None:
    tasks = [str(towns), str(unknown)]
    result = lesion.ablate(MODEL, tasks, layers="1", items=12, out=tmp_path / "out", progress=False)
    assert set(result.answers["edit"]) == {"baseline", "1×0"}
    with pytest.raises(LesionError, match=r"unknown\.jsonl: nothing can be critical here"):
        lesion.ablate(MODEL, [str(unknown)], layers="1", items=12, progress=False)


def test_of_several_models_one_at_the_floor_is_not_swept_and_the_others_are(towns: Path, tmp_path: Path) -> None:
    untrained = str(save(tmp_path / "untrained"))
    models = [MODEL, untrained]
    result = lesion.ablate(models, [str(towns)], layers="1", items=12, out=tmp_path / "out", progress=False)
    assert evaluated(tmp_path / "out") == {(MODEL, "baseline"), (MODEL, "1×0"), (untrained, "baseline")}
    with undrawn():
        assert result.report().is_file()


def test_near_chance_a_loss_cannot_be_seen_and_a_gain_can(tmp_path: Path) -> None:
    path = tmp_path / "choices.jsonl"
    rows = [{"prompt": f"{n}", "choices": ["a", "b"], "answer": "ab"[n % 2]} for n in range(12)]
    path.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(LesionError, match="near guessing"):
        lesion.ablate(MODEL, [str(path)], layers="1", items=12, progress=False)
    result = lesion.evaluate(MODEL, "1×1.1", [str(path)], progress=False)
    assert "1×1.1" in set(result.answers["edit"])


def test_a_gain_may_be_looked_for_where_few_are_right_and_not_where_none_is(towns: Path, tmp_path: Path) -> None:
    with pytest.raises(LesionError, match="it stops before any edit"):
        lesion.evaluate(MODEL, "1×1.1", str(towns), prompt_style="raw", progress=False)
    alone = lesion.evaluate(MODEL, (), str(towns), prompt_style="raw", progress=False)
    assert set(alone.answers["edit"]) == {"baseline"}
