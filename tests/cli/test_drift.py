"""The command `lesion drift`, and `run` and `report` on drift studies: what they leave, print and refuse."""

from pathlib import Path

import pytest

import lesion as library
from commandline import lesion, questions, refused
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


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--clusters", "500"], ["500 clusters", "tokens", "--clusters"]),
        (["--clusters", "4,x"], ["--clusters takes whole numbers by commas", "'x'"]),
        (["--part", "prompts"], ["part must be prompt, solution or both"]),
        (["--between", "0,9"], ["no layer 9", "3 blocks"]),
        (["--between", "2,1"], ["2, 1 does not go from an earlier layer to a later one"]),
        (["--study", "nowhere"], ["nowhere", "--study"]),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_two(more, says, capsys, checkpoint, sums, tmp_path):
    arguments = ["drift", checkpoint, "--task", sums, *(["--clusters", 4] if "--clusters" not in more else [])]
    few = FEW if not {"--runs", "--items"} & set(more) else ["--starts", 1]
    refused(lesion(capsys, *arguments, *few, *more, "--out", tmp_path / "out"), 2, *says)


def test_from_python_a_loaded_model_gives_table_tokens_and_report(sums, tmp_path):
    result = library.drift(
        model("llama"), str(sums), clusters=[4, 3], runs=2, items=6, starts=1, max_new_tokens=4, out=tmp_path / "out"
    )
    assert len(result.table) == 2 * 4
    drawn = result.table[result.table["clusters"] == 4]
    assert drawn["nmi"].iloc[0] == 1
    assert {"null", "cosine", "cka", "nmi with token class", "nmi with token"} <= set(drawn.columns)
    assert drawn["cka"].notna().all()
    assert {"token", "class", "count", "left", "share"} <= set(result.tokens.columns)
    assert result.evaluated > 0
    assert result.report() == tmp_path / "out/report.html"
