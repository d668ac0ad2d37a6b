"""A search as a person runs it: on real files with a real checkpoint, on the bundled model, and from Python."""

import json
from functools import partial

import pytest
import torch

import lesion
from commandline import lesion as command
from commandline import write
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.edits.text import parse
from lesion.tasks.catalogue import draw, find
from lesion_labs.recall.report import RecallResult
from oneencoding import contrasted
from tiny import model


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("ioi:{data}/ioi/ioi.json", "contrast"),
        ("facts:{data}/counterfact/known_1000.json", "contrast"),
        ("mmlu:{data}/mmlu", "choose"),
        ("gsm8k:{data}/gsm8k/test.jsonl", "generate"),
    ],
)
def test_tasks_of_every_kind_are_searched_by_on_the_real_files(task, kind, capsys, shared, tmp_path):
    name, out = task.format(data=shared / "data"), tmp_path / "out"
    options = ["--matrices", "mlp.up", "--layers", "1,4", "--keep", "0.5,0.1", "--items", 6, "--max-new-tokens", 4]
    done = command(capsys, "truncate", shared / "models/stories260K", "--task", name, *options, "--out", out)
    assert done.code == 0, done.err
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    (told,) = summary["tasks"]
    assert (told["name"], told["kind"], told["validation_items"], told["test_items"]) == (name, kind, 2, 4)
    assert [cell["edit"] for cell in summary["cells"]] == [
        f"{layer}.mlp.up top {keep}" for layer in (1, 4) for keep in (0.5, 0.1)
    ]
    assert all(one["gold"] is not None for one in summary["unedited"])
    assert bool(summary["tokens"]) == (kind == "contrast")
    assert (out / "report.html").is_file()


def test_what_a_search_says_of_contrasts_is_what_plain_passes_say_under_the_written_edit(capsys, shared, tmp_path):
    """Independent: the edit written into the weights, one prompt at a time, by the network alone."""
    name, out = f"ioi:{shared}/data/ioi/ioi.json", tmp_path / "out"
    checkpoint = shared / "models/stories260K"
    options = ["--matrices", "attention.o,mlp.up", "--layers", "2", "--keep", "0.3", "--side", "both", "--items", 8]
    assert command(capsys, "truncate", checkpoint, "--task", name, *options, "--out", out).code == 0
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    loaded = lesion.load(str(checkpoint), dtype="float32")
    items = draw(find(name), 8, 0)

    def golds(edit, some):
        found = []
        for item in some:
            prompt, (token,) = contrasted(loaded.tokenizer, item.question, [item.gold])
            with lesion.applied(loaded, edit), torch.inference_mode():
                found.append(
                    float(loaded.network(torch.tensor([prompt])).logits[0, -1].double().log_softmax(-1)[token])
                )
        return sum(found) / len(found)

    for cell in summary["cells"]:
        assert cell["outcomes"][0]["gold"] == pytest.approx(golds(parse(cell["edit"]), items[:2]), abs=2e-4)
    assert summary["unedited"][1]["gold"] == pytest.approx(golds(BASELINE, items[2:]), abs=2e-4)


def test_on_the_bundled_model_cuts_take_hold_and_no_gain_is_claimed_where_there_is_no_room_for_one(capsys, tmp_path):
    out = tmp_path / "out"
    done = command(
        capsys, "truncate", "bundled:llama-base", "--task", "primer:atlas?form=contrast",
        "--matrices", "mlp.down,attention.o", "--layers", "0-3", "--keep", "0.5,0.0", "--items", 60, "--out", out,
    )  # fmt: skip
    assert done.code == 0, done.err
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["unedited"][1]["accuracy"]["value"] > 0.9
    assert {cell["rank"] for cell in summary["cells"]} == {64, 0}
    drops = [outcome["drop"]["value"] for cell in summary["cells"] for outcome in cell["outcomes"]]
    assert max(drops) > 0.5  # the cuts take hold
    assert summary["nothing"] or summary["best_tests"][0]["gain"]["value"] < 0.2


# -- from Python


@pytest.fixture
def pairs(tmp_path) -> str:
    rows = ({"id": f"{n}", "prompt": f"{n} + {n} = ", "answer": f"{n % 7}", "tempting": "t"} for n in range(12))
    return str(write(tmp_path / "pairs.jsonl", rows))


def test_a_search_gives_its_edit_its_table_and_its_report_and_leaves_the_model_as_it_was(pairs, tmp_path):
    loaded = model("llama")
    before = {name: tensor.clone() for name, tensor in loaded.network.state_dict().items()}
    search = partial(
        lesion.truncate, loaded, pairs, matrices=["mlp"], keep=[0.75, 0.25], side="both", objective="gold", items="all"
    )
    found = search(out=tmp_path / "out")
    assert len(found.table) == len(found.summary.cells) == 3 * 3 * 2 * 2
    assert {"edit", "keep", "side", "rank", "accuracy", "drop"} <= set(found.table.columns)
    assert found.evaluated > 0
    assert found.report() == tmp_path / "out" / "report.html"
    for name, tensor in loaded.network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert found.edit == tmp_path / "out" / "best.edit"
    edit = lesion.read_edit(found.edit).edit
    assert str(edit) == found.summary.chosen
    assert isinstance(edit, lesion.Truncate)
    assert search(out=found.folder).evaluated == 0


def test_where_nothing_is_better_there_is_no_edit(pairs):
    found = lesion.truncate(model("llama"), pairs, matrices="mlp.up", layers=[0], keep=0.97, items=4)
    assert found.summary.chosen is None
    assert found.edit is None


def test_study_runs_files_of_every_kind(pairs, tmp_path):
    text = 'kind = "truncation"\nmodel = "bundled:llama-base"\ntasks = ["primer:atlas?form=contrast"]\nitems = 4\n'
    (tmp_path / "t.toml").write_text(text + 'matrices = "mlp.up"\nlayers = "0"\nkeep = 0.5\n')
    found = lesion.study(tmp_path / "t.toml", tmp_path / "t")
    assert isinstance(found, lesion.TruncationResult)
    with Store.read(tmp_path / "t") as store:
        assert len(store) == found.evaluated
    (tmp_path / "r.toml").write_text(
        'kind = "recall"\nsteps = 2\nvocabulary = 8\nwidth = 8\nlength = 12\nbatch = 2\nmeasured = 2\nkeep = [0.5]\n'
    )
    trained = lesion.study(tmp_path / "r.toml", tmp_path / "r")
    assert isinstance(trained, RecallResult)
    assert trained.report() == tmp_path / "r" / "report.html"
