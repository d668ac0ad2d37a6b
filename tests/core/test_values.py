"""Values of results: frozen, written as JSON and read back as they were; a file of another form is one clear error."""

import json
import math
from typing import Literal

import numpy as np
import pytest
from pydantic import ValidationError

from lesion.core.values import Summary, read_summary, summary_kind
from lesion.errors import LesionError
from lesion.report.values import Estimate, Mean, Number, Value


class Row(Value):
    """A row of a made result."""

    name: str
    drop: Estimate
    share: Number = None
    blocks: tuple[int, ...] = ()


class Made(Summary):
    """A made result."""

    kind: Literal["made"] = "made"
    rows: tuple[Row, ...]


@pytest.fixture
def made():
    rows = [
        Row(name="a: b.c", drop=Estimate(value=0.1 + 0.2, low=-1e-17, high=math.nan), share=math.inf, blocks=(1, 2)),
        Row(name="</script> ü \u2028", drop=Estimate(value=None)),
    ]
    return Made(rows=rows, notes=("one", "two"))


def test_a_summary_is_read_back_as_it_was_to_the_last_bit(made, tmp_path):
    made.write(tmp_path)
    again = read_summary(Made, tmp_path, "run it again")
    assert again == made
    assert again.rows[0].drop.value == 0.1 + 0.2
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_a_number_that_is_not_finite_is_none_and_null(value):
    assert Estimate(value=value).value is None
    text = Made(rows=[Row(name="a", drop=Estimate(value=value))]).text()
    assert json.loads(text, parse_constant=pytest.fail)["rows"][0]["drop"]["value"] is None


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_has_to_be_known_is_refused_where_it_is_made_not_where_it_is_read(value):
    with pytest.raises(ValidationError, match="finite"):
        Mean(mean=value)


def test_a_value_cannot_be_changed_and_equal_values_are_equal(made):
    with pytest.raises(ValidationError, match="frozen"):
        made.rows[0].name = "other"
    assert Estimate(value=0.5) == Estimate(value=0.5)
    assert len({Estimate(value=0.5), Estimate(value=0.5)}) == 1


def test_a_mean_has_the_standard_deviation_between_runs_and_of_one_run_none():
    values = [0.5, 0.25, 0.75]
    assert Mean.of(values) == Mean(mean=np.mean(values), std=np.std(values, ddof=1))
    assert Mean.of([0.5]) == Mean(mean=0.5)
    assert Mean.of([0.5, math.nan]) is None


def test_an_unknown_key_is_refused_with_the_file_the_place_and_what_to_do(made, tmp_path):
    stored = json.loads(made.text())
    stored["rows"][1]["drop"]["std"] = 3
    (tmp_path / "summary.json").write_text(json.dumps(stored), encoding="utf-8")
    with pytest.raises(LesionError) as error:
        read_summary(Made, tmp_path, "run it again")
    assert str(error.value) == (
        f"{tmp_path / 'summary.json'} is damaged (rows.1.drop.std: Extra inputs are not permitted); run it again."
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[" * 5000, "nested"),
        ("[]", "a list"),
        ("null", "null"),
        ('"text"', "text"),
        ("9" * 5000, "digits"),
        ("{}", "rows: Field required"),
        ('{"rows": []} x', "JSON"),
        ('{"rows": [], "rows": []}', "a key stands in it twice"),
        ('{"rows": 3}', "rows: Input should be a valid tuple"),
        ('{"kind": "other", "rows": []}', "kind: Input should be 'made'"),
        ('{"kind": ["made"], "rows": []}', "kind: Input should be 'made'"),
        ('{"rows": [{"name": "a"}]}', "rows.0.drop: Field required"),
        ('{"rows": [{"name": "a", "drop": {"value": "much"}}]}', "rows.0.drop.value: Input should be a valid number"),
        ('{"rows": [], "\\u001b[31m\\u202e": 1}', r"\x1b[31m\u202e: Extra inputs"),
        ('{"rows": [], "\\ud800": 1}', "half a character"),
        ('{"rows": [], "' + "x" * 500 + '": 1}', "…: Extra inputs"),
    ],
)
def test_a_file_of_another_form_is_one_clear_error(text, place, tmp_path):
    (tmp_path / "summary.json").write_text(text, encoding="utf-8")
    with pytest.raises(LesionError) as error:
        read_summary(Made, tmp_path, "run it again")
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'summary.json'} is damaged (")
    assert place in message
    assert message.endswith("); run it again.")
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 400


def test_a_folder_without_a_summary_has_none_and_one_with_a_summary_tells_its_kind(made, tmp_path):
    assert read_summary(Made, tmp_path, "") is None
    assert summary_kind(tmp_path) is None
    (tmp_path / "summary.json").write_text('{"models": []}')
    assert summary_kind(tmp_path) is None
    made.write(tmp_path)
    assert summary_kind(tmp_path) == "made"
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(LesionError, match=r"summary\.json is damaged"):
        summary_kind(tmp_path)


def test_a_summary_that_cannot_be_written_is_said_with_the_folder(made, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LesionError, match=r"file cannot be written: .*--out"):
        made.write(tmp_path / "file")
