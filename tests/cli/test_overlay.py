"""`lesion overlay`: what it leaves and prints, `report` on its folder, and what it refuses."""

from pathlib import Path

import made_profiles as made
import pytest
from made import bare

from commandline import lesion


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """A layer study and a drift study of one made model."""
    drops = [{"layer": i, "drop": {"value": d}, "critical": d > 0.5} for i, d in enumerate((0.9, 0.1, 0.2, 0.3, 0.7))]
    made.folder(tmp_path / "ablation", "summary.json", bare({"sums": drops}))
    made.drift(tmp_path / "drift", [1.0, 0.6, 0.55, 0.5, 0.4, 0.3])
    return [tmp_path / "ablation", tmp_path / "drift"]


@pytest.mark.parametrize(
    ("which", "out", "says"),
    [
        ([0, 1], "drift", "summary.json is there already"),
        ([0, 0], "out", "named twice"),
        ([0], "out", "Only one profile"),
        ([0, 1], "strange", "summary.json is there already"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(capsys, folders, tmp_path, which, out, says):
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "summary.json").write_text('{"models": []}')
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.*")}
    done = lesion(capsys, "overlay", *(folders[i] for i in which), "--out", tmp_path / out)
    assert done.code == 2
    assert says in done.complaint
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.*")} == before
