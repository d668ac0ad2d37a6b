"""A second study from outside, in one file: driven whole and compared with a plain forward pass."""

import csv
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import block_influence
import lesion
from block_influence import METHOD, InfluenceResult, InfluenceStudy
from lesion.report import wording
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> InfluenceResult:
    study = InfluenceStudy.make(
        name="influence", models=["bundled:llama-base"], tasks=["primer:arithmetic", "primer:atlas"], items=5
    )
    return METHOD.run(study, tmp_path_factory.mktemp("influence") / "out")


def test_it_is_small():
    assert len(Path(block_influence.__file__).read_text("utf-8").splitlines()) <= 250


def test_its_numbers_are_those_of_a_plain_forward_pass(result):
    model, task = lesion.load("bundled:llama-base"), find("primer:arithmetic")
    turned = []
    for item in draw(task, 5, 0):
        last: list[torch.Tensor] = []  # transformers gives the last state behind the final norm
        hook = model.network.model.norm.register_forward_pre_hook(lambda _, inputs, last=last: last.append(inputs[0]))
        with torch.no_grad():
            states = model.network(torch.tensor([encode(model, task, item)]), output_hidden_states=True).hidden_states
        hook.remove()
        streams = pairwise([*states[:-1], *last])
        turned.append([(1 - torch.cosine_similarity(a, b, dim=-1).double()).mean().item() for a, b in streams])
    expected = np.array(turned).mean(axis=0)
    first = result.summary.tasks[0]
    assert [block.influence.value for block in first.blocks] == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-6)


def test_page_file_terminal_and_verdict_come_from_its_rows_and_claims(result):
    text = result.report().read_text("utf-8")
    assert "Which blocks turn the residual stream least?" in text
    assert result.verdict.replace(wording.SPACE, " ").startswith("arithmetic: Block ")
    assert all(claim.rows and claim.rule == "least" for claim in result.claims)
    with (result.folder / "block-influence.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [float(row["influence"]) for row in rows] == result.table_full["influence"].tolist()
    console = Console(file=io.StringIO(), width=80)
    console.print(result.text())
    assert "Block" in console.file.getvalue()
    assert (result.folder / "figures" / "block-influence.svg").is_file()
    again = InfluenceResult.recall(result.folder)
    assert again is not None
    assert again.summary == result.summary
