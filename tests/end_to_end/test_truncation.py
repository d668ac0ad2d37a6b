"""A search as a person runs it: on real files with a real checkpoint, on the bundled model, and from Python."""

import json

import pytest
import torch

import lesion
from commandline import lesion as command
from lesion.edits.edit import BASELINE
from lesion.edits.text import parse
from lesion.tasks.catalogue import draw, find
from oneencoding import contrasted


@pytest.mark.parametrize(
    ("task", "kind"),
    [
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


# -- from Python
