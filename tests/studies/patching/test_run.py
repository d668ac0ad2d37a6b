"""A patching study end to end: command, page, resumption, growth and what is refused."""

from __future__ import annotations

import pandas as pd
import pytest

import lesion
from commandline import lesion as command
from rowfiles import write
from tiny import model as tiny_model

ROWS = [
    {"prompt": f"the {thing} of {place} is", "answer": answer, "tempting": "zz", "group": thing}
    for thing, place, answer in (
        ("key", "ab", " rot"),
        ("key", "cd", " gelb"),
        ("key", "efg", " blau"),
        ("cup", "h", " x"),
    )
]


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> str:
    return str(write(tmp_path_factory.mktemp("rows") / "rows.jsonl", *ROWS))


def test_a_study_measures_counts_what_it_leaves_out_and_goes_on(model, rows, tmp_path):
    first = lesion.patch(model, rows, layers=[0], out=tmp_path, progress=False)
    (task,) = first.summary.tasks
    assert (task.pairs, len(task.left_out), task.layers) == (2, 2, (0,))
    assert any("2 of 4 items left out" in note for note in first.notes)
    assert first.evaluated == first.planned > 0
    again = lesion.patch(model, rows, layers=[0], out=tmp_path, progress=False)
    assert (again.evaluated, again.planned) == (0, first.planned)
    assert again.summary == first.summary
    grown = lesion.patch(model, rows, out=tmp_path, progress=False)
    assert grown.evaluated == grown.planned - first.planned
    recalled = lesion.result(tmp_path)
    assert recalled.summary == grown.summary
    pd.testing.assert_frame_equal(recalled.table_full, grown.table_full)


def test_the_last_block_at_the_last_token_holds_everything(model, rows):
    table = lesion.patch(model, rows, progress=False).table_full
    whole = table[(table.place == "block") & (table.layer == 2) & (table.position == "last")]
    assert whole.effect.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    assert not ((table.place == "block") & (table.position == "all")).any()


def test_heads_are_patched_one_by_one_and_have_maps_and_a_table(model, rows, tmp_path):
    lesion.patch(model, rows, layers=[1], unit="attention", position="last", out=tmp_path, progress=False)
    result = lesion.patch(model, rows, layers=[1], unit="head", position=["last", "all"], out=tmp_path, progress=False)
    table = result.table_full
    count = model.network.config.num_attention_heads
    assert table["head"].tolist() == [head for _ in range(2) for head in range(count) for _ in range(2)]
    assert set(table["position"]) == {"last", "all"}
    assert result.evaluated == result.planned - 2 * result.summary.tasks[0].pairs  # both runs were stored
    result.report()
    assert {"denoising-heads.svg", "noising-heads.svg"} <= {path.name for path in (tmp_path / "figures").iterdir()}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--task", "primer:arithmetic"), "primer:arithmetic has no tempting tokens"),
        (("--task", "shuffled:ioi"), "shuffled:ioi has no rule by which to corrupt a prompt"),
        (("--task", "ioi", "--layers", "12"), "there is no block 12: bundled:llama-base has blocks 0 to 7"),
        (("--task", "ioi", "--unit", "block", "--position", "all"), "restores everything by construction"),
        (("--task", "ioi", "--engine", "vllm"), "engine is vllm; activations are patched on transformers only"),
    ],
)
def test_what_cannot_be_patched_is_refused_in_a_sentence(words, complaint, capsys, tmp_path):
    done = command(capsys, "patch", "bundled:llama-base", *words, "--out", tmp_path / "new")
    assert done.code != 0
    assert complaint in done.complaint
    assert not (tmp_path / "new").exists()


def test_items_without_a_pair_and_another_study_in_the_folder_are_refused(model, rows, tmp_path):
    alone = str(write(tmp_path / "alone.jsonl", ROWS[0], ROWS[3]))
    with pytest.raises(lesion.UsageError, match=r"None of 2 items .* has a corrupted prompt of as many tokens"):
        lesion.patch(model, alone, progress=False)
    lesion.patch(model, rows, layers=[0], out=tmp_path / "out", progress=False)
    with pytest.raises(lesion.LesionError, match="holds another patching study"):
        lesion.patch(model, rows, layers=[0], seed=1, out=tmp_path / "out", progress=False)
