"""The command `lesion drift`, and `run` and `report` on drift studies: what they leave, print and refuse."""

from pathlib import Path

import pytest

import lesion as library
from commandline import lesion, questions, undrawn
from lesion.core.store import Store
from lesion.studies.drift.study import DriftStudy
from tiny import model

FEW = ["--items", 6, "--runs", 2, "--starts", 1, "--max-new-tokens", 4]


@pytest.fixture(scope="module")
def sums(tmp_path_factory) -> Path:
    return questions(tmp_path_factory.mktemp("data") / "sums.jsonl", 20)


def test_every_open_choice_of_the_paper_is_an_option_that_reaches_the_study(capsys, checkpoint, sums, tmp_path):
    options = {
        "--part": "prompt", "--solution": "gold", "--normalise": "unit", "--nmi": "max", "--layer-zero": "block",
        "--elbow": "all", "--between": "1,2", "--prompt-style": "plain", "--seed": 3, "--level": 0.9,
        "--dtype": "float32", "--batch-size": 2, "--device": "cpu",
    }  # fmt: skip
    given = [piece for pair in options.items() for piece in pair]
    done = lesion(capsys, "drift", checkpoint, "--task", sums, "--clusters", 3, *FEW, *given, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    with Store.read(tmp_path / "out") as store:
        study = DriftStudy.parse(store.study[1])
    for name, value in options.items():
        value_read = getattr(study, name.removeprefix("--").replace("-", "_"))
        assert value_read == ((1, 2) if name == "--between" else value), name


def test_from_python_a_loaded_model_gives_table_tokens_and_report(sums, tmp_path):
    result = library.drift(
        model("llama"), str(sums), clusters=[4, 3], runs=2, items=6, starts=1, max_new_tokens=4, out=tmp_path / "out"
    )
    assert len(result.table_full) == 2 * 4
    drawn = result.table_full[result.table_full["clusters"] == 4]
    assert drawn["nmi"].iloc[0] == 1
    assert {"null", "cosine", "cka", "nmi with token class", "nmi with token"} <= set(drawn.columns)
    assert drawn["cka"].notna().all()
    assert {"token", "class", "count", "left", "share"} <= set(result.tables["tokens"].columns)
    assert result.evaluated > 0
    with undrawn():
        assert result.report() == tmp_path / "out/report.html"
