"""A drift study from its file to its folder: resumed, widened, repeated bit for bit, refused where it cannot be."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest
from made import bare
from oracle import Listener
from sklearn.metrics import normalized_mutual_info_score

from commandline import questions, save, undrawn, write
from lesion.core.cells import CELLS
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from lesion.studies.drift import measurement as drift_measuring
from lesion.studies.drift.measurement import draw_runs
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import find
from runs import run_drift
from tiny import model, tokenizer

NAMES = ("tiny:llama", "tiny:gpt2")


@pytest.fixture(scope="module")
def tinies():
    return {"tiny:llama": model("llama"), "tiny:gpt2": model("gpt2")}


@pytest.fixture
def file(tmp_path) -> Path:
    return questions(tmp_path / "sums.jsonl", 30)


def study(file: object, **more) -> DriftStudy:
    plain = {"items": 6, "runs": 2, "clusters": [4], "starts": 1, "max_new_tokens": 5, "models": NAMES[:1]}
    return DriftStudy.make(task=str(file), **{**plain, **more})


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / CELLS).iterdir()}


def test_the_seed_decides_everything_bit_for_bit(tinies, file, tmp_path):
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        run_drift(study(file, seed=seed), tmp_path / place, models=tinies)
    told = {place: (tmp_path / place / "summary.json").read_bytes() for place in "abc"}
    assert told["a"] == told["b"]
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert not set(files(tmp_path / "a")) & set(files(tmp_path / "c"))


def test_models_that_are_not_measured_yet_are_named_until_they_are(tinies, file, tmp_path, monkeypatch):
    seen = []
    real = DriftSummary.write
    monkeypatch.setattr(DriftSummary, "write", lambda self, folder: (seen.append(self), real(self, folder)))
    run_drift(study(file, models=NAMES), tmp_path / "out", models=tinies)
    assert [[entry.name for entry in summary.models] for summary in seen] == [list(NAMES[:1]), list(NAMES)]
    assert "Not measured yet: tiny:gpt2" in seen[0].notes[-1]
    assert not any("Not measured" in note for note in seen[1].notes)


def test_a_folder_takes_further_runs_clusters_and_models_and_keeps_what_it_has(tinies, file, tmp_path):
    run_drift(study(file), tmp_path / "out", models=tinies)
    before = files(tmp_path / "out")
    wider = run_drift(study(file, runs=3, clusters=[4, 3], models=NAMES), tmp_path / "out", models=tinies)
    assert wider.measured == 12 - 2
    assert before.items() <= files(tmp_path / "out").items()
    fresh = run_drift(study(file, runs=3, clusters=[4, 3], models=NAMES), tmp_path / "fresh", models=tinies)
    assert fresh.summary == wider.summary


def test_a_damaged_cell_is_measured_anew(tinies, file, tmp_path):
    run_drift(study(file), tmp_path / "out", models=tinies)
    before = files(tmp_path / "out")
    one, other = sorted((tmp_path / "out" / CELLS).iterdir())
    one.write_text("{")
    other.write_text(json.dumps({"key": "another"}))
    assert run_drift(study(file), tmp_path / "out", models=tinies).measured == 2
    assert files(tmp_path / "out") == before


def test_every_model_reads_the_same_items_and_every_run_draws_its_own(tinies, file, tmp_path):
    what = study(file, models=NAMES, runs=3)
    drawn = [[item.id for item in run] for run in draw_runs(what, find(str(file)))]
    assert drawn == [[item.id for item in run] for run in draw_runs(study(file, runs=3), find(str(file)))]
    assert drawn[:2] == [[item.id for item in run] for run in draw_runs(study(file, runs=2), find(str(file)))]
    assert len({tuple(run) for run in drawn}) == 3
    summary = run_drift(what, tmp_path / "out", models=tinies).summary
    for entry in summary.models:
        shown = {example.item for row in entry.tokens.classes for example in row.examples}
        assert shown <= {item for run in drawn for item in run}


def test_what_is_read_is_the_prompt_and_behind_it_the_very_tokens_the_model_said(tinies, file, tmp_path, monkeypatch):
    seen = []
    real = drift_measuring.hidden_states
    monkeypatch.setattr(
        drift_measuring,
        "hidden_states",
        lambda model, ids, **named: (seen.append(ids), real(model, ids, **named))[1],
    )
    what = study(file, runs=1)
    (told,) = run_drift(what, tmp_path / "out", models=tinies).summary.models[0].runs
    (run,) = draw_runs(what, find(str(file)))
    prompts = [tuple(tokenizer().encode(item.question)) for item in run]
    engine = TransformersEngine(tinies["tiny:llama"])
    said = {r.key: r for r in engine.answer([Request(str(p), p, decoding=Decoding(5)) for p in prompts])}
    *_, ids = seen  # first it is asked whether the embedding knows of places
    assert told.prompt_tokens == sum(len(prompt) for prompt in prompts)
    line = tokenizer().convert_tokens_to_ids("\n")  # where an answer of these tasks ends
    ends = [line, *tinies["tiny:llama"].tokenizer.all_special_ids]
    spoken = [tuple(takewhile(lambda token: token not in ends, said[str(p)].token_ids)) for p in prompts]
    assert any(spoken)
    assert list(ids) == [(*prompt, *spoke) for prompt, spoke in zip(prompts, spoken, strict=True)]


@pytest.mark.parametrize("nmi", ["arithmetic", "max"])
def test_the_numbers_of_a_curve_are_scikit_learns_on_the_stored_clusters(nmi, tinies, file, tmp_path):
    outcome = run_drift(study(file, nmi=nmi), tmp_path / "out", models=tinies)
    cells = [json.loads(text)["measured"] for text in files(tmp_path / "out").values()]
    for place, told in enumerate(outcome.summary.models[0].curve.layers):
        values = [
            normalized_mutual_info_score(cell["assignments"][0], cell["assignments"][place], average_method=nmi)
            for cell in cells
        ]
        assert told.layer == place
        assert told.nmi.mean == pytest.approx(np.mean(values), abs=1e-9)
        assert told.nmi.std == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_parts_and_solutions_decide_which_tokens_are_clustered(tinies, file, tmp_path):
    def tokens(place: str, **more) -> list[int]:
        outcome = run_drift(study(file, **more), tmp_path / place, models=tinies)
        return [run.tokens for run in outcome.summary.models[0].runs]

    both = run_drift(study(file), tmp_path / "both", models=tinies).summary.models[0].runs
    assert tokens("prompt", part="prompt") == [run.prompt_tokens for run in both]
    assert tokens("solution", part="solution") == [run.solution_tokens for run in both]
    assert tokens("none", solution="none") == [run.prompt_tokens for run in both]
    gold = tokens("gold", solution="gold")
    runs = draw_runs(study(file), find(str(file)))
    assert gold == [
        sum(len(tokenizer().encode(f"{item.question} {item.gold}")) for item in run) for run in runs
    ]  # fmt: skip


def test_layer_zero_may_be_what_block_zero_gives_and_tokens_are_followed_from_there(tinies, file, tmp_path):
    (entry,) = run_drift(study(file, layer_zero="block"), tmp_path / "out", models=tinies).summary.models
    assert [layer.layer for layer in entry.curve.layers] == [1, 2, 3]
    assert entry.curve.layers[0].nmi.mean == 1
    assert (entry.tokens.start, entry.tokens.end) == (1, 3)
    with pytest.raises(UsageError, match="layer 0 is not clustered"):
        run_drift(study(file, layer_zero="block", between=[0, 2]), tmp_path / "out", models=tinies)


def test_of_few_blocks_no_shape_is_tested_and_tokens_are_followed_over_all_of_them(tinies, file, tmp_path):
    summary = run_drift(study(file), tmp_path / "out", models=tinies).summary
    (entry,) = summary.models
    assert entry.curve.shape is None
    assert (entry.tokens.start, entry.tokens.end) == (0, 3)
    (entry,) = run_drift(study(file, between=[1, 2]), tmp_path / "out", models=tinies).summary.models
    assert (entry.tokens.start, entry.tokens.end) == (1, 2)


def test_runs_that_all_have_all_items_are_said_to_differ_by_the_clustering_alone(tinies, file, tmp_path):
    summary = run_drift(study(file, items=30, runs=2), tmp_path / "out", models=tinies).summary
    assert any("Every run has all 30 items" in note for note in summary.notes)
    summary = run_drift(study(file, items=29, runs=2), tmp_path / "other", models=tinies).summary
    assert not any("Every run has all" in note for note in summary.notes)


def test_with_one_run_there_is_no_spread(tinies, file, tmp_path):
    summary = run_drift(study(file, runs=1), tmp_path / "out", models=tinies).summary
    assert {layer.nmi.std for layer in summary.models[0].curve.layers} == {None}


def test_critical_blocks_of_a_layer_study_stand_beside_the_curves(tinies, file, tmp_path):
    told = bare({str(file): [{"layer": 1, "critical": True}]}, "tiny:gpt2")
    (tmp_path / "summary.json").write_text(json.dumps(told))
    what = study(file, models=NAMES, study=str(tmp_path))
    summary = run_drift(what, tmp_path / "out", models=tinies).summary
    assert [entry.critical for entry in summary.models] == [None, {f"jsonl:{file}": (1,)}]
    assert any("tiny:llama" in note and "no such model" in note for note in summary.notes)
    with pytest.raises(UsageError, match="not about tiny:llama"):
        run_drift(study(file, study=str(tmp_path)), tmp_path / "out2", models=tinies)


# -- what cannot be done


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"clusters": 500}, r"500 clusters were asked for, and run \d has \d+ different tokens.*--clusters"),
        ({"clusters": 30}, r"30 clusters were asked for, and run \d has \d+ different tokens.*--layer-zero block"),
        ({"part": "solution", "max_new_tokens": 1, "clusters": 7}, r"7 clusters .* different tokens of the solutions"),
        ({"prompt_style": "chat"}, r"no chat template"),
        ({"prompt_style": "chatt"}, r"no prompt style 'chatt'.*chat"),
        ({"between": [0, 9]}, r"no layer 9.*tiny:llama has 3 blocks"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_numbers_and_the_way_out(more, said, tinies, file, tmp_path):
    with pytest.raises(UsageError, match=said):
        run_drift(study(file, **more), tmp_path / "out", models=tinies)
    assert not (tmp_path / "out" / CELLS).exists()


def test_where_positions_are_added_to_tokens_there_may_be_more_clusters_than_different_tokens(tinies, file, tmp_path):
    summary = run_drift(study(file, models=NAMES[1:], clusters=30, runs=1), tmp_path / "out", models=tinies).summary
    assert summary.models[0].curve.layers[0].labels["token"].mean < 1


def test_prompts_of_one_token_each_have_no_clusters_to_find(tinies, tmp_path):
    rows = ({"id": f"{n}", "prompt": "", "answer": "1"} for n in range(6))
    file = write(tmp_path / "empty.jsonl", rows)
    try:
        find(str(file))
    except UsageError:
        file = write(tmp_path / "one.jsonl", ({"id": f"{n}", "prompt": ".", "answer": "1"} for n in range(6)))
    with pytest.raises(UsageError, match=r"different tokens of the prompts"):
        run_drift(study(file, part="prompt", clusters=3), tmp_path / "out", models=tinies)


def test_a_later_model_that_cannot_chat_is_refused_before_the_first_works(file, tmp_path):
    chatty, mute = save(tmp_path / "chatty"), save(tmp_path / "mute", "gpt2")
    speaker = tokenizer()
    speaker.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    speaker.save_pretrained(chatty)
    what = study(file, models=[str(chatty), str(mute)], prompt_style="chat")
    with pytest.raises(UsageError, match=r"mute has no chat template"):
        run_drift(what, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_changed_under_its_name_is_refused(file, tmp_path):
    place = save(tmp_path / "model")
    what = study(file, models=[str(place)])
    run_drift(what, tmp_path / "out")
    changed = load(str(place))
    changed.network.requires_grad_(False).model.norm.weight.mul_(2)
    changed.network.save_pretrained(place)
    with pytest.raises(LesionError, match="not those that this study began with"):
        run_drift(what, tmp_path / "out")


def test_hidden_states_lie_in_the_study_s_folder_and_those_of_a_killed_run_go(tinies, file, tmp_path, monkeypatch):
    out, places = tmp_path / "out", []
    left = out / drift_measuring.STATES / "lesion-states-killed"
    left.mkdir(parents=True)
    (left / "layer-0000.float32").write_bytes(b"left")
    real = drift_measuring.drift

    def seen(states, *arguments, **named):
        assert not left.exists()
        places.append(states.folder.parent)
        return real(states, *arguments, **named)

    monkeypatch.setattr(drift_measuring, "drift", seen)
    run_drift(study(file), out, models=tinies)
    assert places == [out / drift_measuring.STATES] * 2
    assert not (out / drift_measuring.STATES).exists()


def test_the_summary_tells_the_null_as_mean_and_quantile_over_shuffles(tinies, file, tmp_path):
    entry = run_drift(study(file, runs=1), tmp_path / "out", models=tinies).summary.models[0]
    for layer in entry.curve.layers:
        assert layer.null.mean < layer.null_high.mean
        assert layer.null.std is None


# -- defaults on little data


def test_the_number_of_clusters_follows_the_tokens_where_none_is_said(tinies, file, tmp_path):
    outcome = run_drift(study(file, clusters=None, models=NAMES), tmp_path / "out", models=tinies)
    placeless, placed = outcome.summary.models
    notes = [note for note in outcome.summary.notes if "clusters instead of 50" in note]
    for entry, note in zip((placeless, placed), notes, strict=True):
        different = int(note.split("since a run has ")[1].split()[0])
        assert entry.clusters == different // 2
        assert note.startswith(f"{entry.name}: {entry.clusters} clusters instead of 50, since a run has")
    assert placeless.clusters < placed.clusters  # where positions are added to tokens, more of them differ
    asked = study(file, clusters=placeless.clusters)
    same = run_drift(asked, tmp_path / "same", models=tinies).summary.models[0]
    assert same.curves == placeless.curves
    with undrawn():
        page = outcome.report().read_text(encoding="utf-8")
    assert f", {placeless.clusters}, {placed.clusters} clusters;" in page


def test_a_task_with_fewer_items_than_a_run_takes_gives_all_with_notes(tinies, file, tmp_path):
    listener = Listener()
    outcome = run_drift(study(file, items=31), tmp_path / "out", watcher=listener, models=tinies)
    assert [read.items for read in outcome.summary.models[0].runs] == [30, 30]
    assert f"{file} has 30 items, fewer than the 31 asked for; all of them are used." in listener.notes
    assert any(note.startswith("Every run has all 30 items") for note in outcome.summary.notes)
