"""The page of an overlay: its charts, what its sentences say, its tables, and that names stay names."""

import io
import json
import re

import pandas as pd
import pytest
from page_checks import HOSTILE, Elements
from rich.console import Console

from lesion.errors import LesionError
from lesion.studies.overlay import charts as overlay_charts
from lesion.studies.overlay import findings as overlay_prose
from lesion.studies.overlay import report as page
from lesion.studies.overlay.profiles import Profile
from lesion.studies.overlay.summary import Correlation, Of, Overlay, corrected, correlations, recalled, summarise

NAN = float("nan")


def profile(label, values, kind="layers", model="made", critical=(), blocks=None, **more):
    blocks = tuple(range(len(values))) if blocks is None else blocks
    low, high = (tuple(value + by for value in values) for by in (-0.05, 0.05))
    unit = {"layers": "points", "drift": "nmi", "isolation": "share", "truncation": "nats"}[kind]
    return Profile(model, kind, label, blocks, tuple(map(float, values)), low, high, unit, critical, **more)


def summary(model="made", label="drop · sums"):
    profiles = (
        profile(label, (0.1, 0.2, 0.3, 0.4, 0.5, 0.9), critical=(0, 5), model=model),
        profile("lost in the block", (0.01, 0.02, 0.03, 0.04, 0.05, 0.3), "drift", model=model),
        profile("after the block", (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), "drift", ranked=False, model=model),
        profile("density", (0.3, 0.1, 0.2, 0.1, 0.1), "isolation", blocks=(0, 1, 2, 4, 5), model=model),
    )
    return summarise(Overlay((Of(model, "f1", profiles, correlations(profiles)),), ("a", "b"), ("A note.",)))


def test_an_overlay_becomes_a_page_tables_and_a_figure(tmp_path):
    written = page.write(tmp_path / "deep" / "out", summary())
    files = {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")}
    assert files == {
        "lesion.json",
        "report.html",
        "summary.json",
        "overlay.csv",
        "correlations.csv",
        "figures/overlay.png",
    }
    assert json.loads((written.parent / "summary.json").read_text("utf-8")) == summary()
    table = pd.read_csv(written.parent / "overlay.csv")
    assert len(table) == 6 * 3 + 5
    assert table[table["label"] == "density"]["block"].tolist() == [0, 1, 2, 4, 5]
    assert table[table["critical"]]["block"].tolist() == [0, 5]


def test_the_same_overlay_gives_the_same_bytes(tmp_path):
    one, other = (page.write(tmp_path / name, summary()) for name in ("one", "other"))
    for path in one.parent.rglob("*.*"):
        assert path.read_bytes() == (other.parent / path.relative_to(one.parent)).read_bytes(), path.name


def test_every_profile_is_drawn_over_the_same_blocks_and_critical_ones_are_shaded_in_every_row():
    [of] = recalled(summary()).models
    for one in of.profiles:
        drawn = str(overlay_charts.chart(of, one, overlay_charts.SIZES[1]))
        ticks = re.findall(r'text-anchor="middle">(\d+)<', drawn)
        assert ticks == ["0", "1", "2", "3", "4", "5"]
        assert drawn.count('class="baseband"') == 2
        assert drawn.count('class="hit"') == len(one.blocks)
    missing = str(overlay_charts.chart(of, of.profiles[3], overlay_charts.SIZES[0]))
    assert 'text-anchor="middle">–<' in missing


def test_columns_stand_on_zero_and_reach_their_values():
    of = Of("made", None, (profile("gain", (-0.2, 0.4), "truncation"), profile("drop", (0.1, 0.2))), ())
    drawn = str(overlay_charts.chart(of, of.profiles[0], overlay_charts.SIZES[1]))
    zero = float(re.search(r'class="grid zero" d="M[\d.]+ ([\d.]+)H', drawn)[1])
    columns = [
        tuple(map(float, found)) for found in re.findall(r'"repeat" d="M[\d.]+ ([\d.]+)H[\d.]+V([\d.]+)H', drawn)
    ]
    assert [foot for foot, _ in columns] == [zero, zero]
    assert columns[0][1] - zero == pytest.approx((zero - columns[1][1]) / 2, abs=0.1)


def test_agreement_beyond_chance_is_told_with_its_corrected_p_and_what_depth_leaves_of_it():
    [finding] = overlay_prose.findings(recalled(summary()).models)
    assert finding.headline[0].startswith(
        "Of 3 pairs of profiles from different studies of made, 1 agrees beyond chance"
    )
    assert "drop · sums rises with lost in the block (ρ\N{NO-BREAK SPACE}1, corrected p" in finding.headline[0]
    [coarse] = [sentence for sentence in finding.sentences if "Few blocks make p coarse" in sentence]
    assert "must reach |ρ|\N{NO-BREAK SPACE}.94 over 6 blocks and 1 over 5 blocks to stay" in coarse
    assert "Block\N{NO-BREAK SPACE}5 is the largest of drop · sums and lost in the block." in finding.sentences
    assert "By chance, about 1 in 6 pairs of unrelated profiles share their largest block." in finding.sentences


def test_without_agreement_the_page_says_so_and_how_much_would_be_needed():
    profiles = (profile("drop", (0.1, 0.5, 0.2, 0.6, 0.3, 0.4)), profile("lost", (3, 1, 2, 2.5, 1.5, 0.5), "drift"))
    [finding] = overlay_prose.findings(corrected([Of("made", None, profiles, correlations(profiles))]))
    assert finding.headline[0].startswith("No two studies of made agree beyond chance about its blocks: of 1 pair none")
    assert "must reach |ρ|" in finding.sentences[0]


def test_one_kind_of_study_alone_is_not_tested_against_itself():
    profiles = (profile("a", (0.1, 0.5, 0.2, 0.6)), profile("b", (0.1, 0.4, 0.2, 0.6)))
    models = [Of(name, None, profiles, correlations(profiles)) for name in ("made", "other")]
    *peaks, missing = overlay_prose.findings(models)
    assert [one.headline for one in peaks] == [(), ()]  # block 1 is the largest of a and b, in each
    assert missing.subject == overlay_prose.MISSING
    assert len(missing.headline) == 1
    assert missing.headline[0].startswith("All that is told of made and other comes from one kind of study (layer abl")
    assert "add the folder of `lesion drift`, `lesion isolate` or `lesion truncate` on" in missing.headline[0]
    out = io.StringIO()
    Console(file=out, width=300).print(page.text_tables(summarise(Overlay(tuple(models), (), ()))))
    assert out.getvalue().count("one kind of study") == 1


def test_the_surest_pair_is_named_before_a_larger_rho_over_fewer_blocks_whose_number_is_told():
    profiles = (profile("drop", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)), profile("lost", (1, 2, 3, 4, 5, 6), "drift"))
    told = (
        Correlation("drop", "few", 4, 1.0, 0.08, 0.16, NAN),
        Correlation("drop", "weak", 6, 0.5, 0.04, 0.16, NAN),
        Correlation("drop", "lost", 6, 0.8, 0.04, 0.16, NAN),
    )
    of = Of("made", None, profiles, told)
    assert [one.b for one in overlay_prose.tested(of)] == ["lost", "weak", "few"]
    [finding] = overlay_prose.findings([of])
    assert "The strongest is drop with lost (ρ\N{NO-BREAK SPACE}.80, p" in finding.headline[1]
    [finding] = overlay_prose.findings([Of("made", None, profiles, told[:1])])
    assert "(ρ\N{NO-BREAK SPACE}1 over 4 blocks, p" in finding.headline[1]


def test_the_threshold_counts_the_pairs_of_all_models_and_tells_its_blocks():
    told = summary()
    told["models"].append({**told["models"][0], "model": "other"})
    one, _ = overlay_prose.findings(recalled(told).models)
    assert "the strongest of 6 pairs of all models must reach |ρ|" in one.sentences[0]
    assert "over 6 blocks to stay" in one.sentences[0]
    assert "with 6 pairs of all models even a perfect agreement over 5 blocks stays above 0.05" in one.sentences[0]
    assert "all pairs of different studies of all models" in page.page(told)


def test_the_page_says_that_the_first_step_of_drift_is_left_out():
    assert "agrees with itself at 1, so that this step is large by construction" in page.page(summary())


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.804, ".80"), (-0.31, "−.31"), (-0.001, ".00"), (NAN, "–")])
def test_a_correlation_has_two_decimals(value, text):
    assert overlay_prose.rho(value) == text


def test_names_of_models_tasks_and_folders_stay_text():
    told = summary(HOSTILE[0], HOSTILE[6])
    told["study"]["folders"] = list(HOSTILE)
    told["notes"] = list(HOSTILE)
    hostile, tame = page.page(told), page.page(summary())
    tags = {tag for tag, _ in Elements(hostile).found}
    assert tags == {tag for tag, _ in Elements(tame).found}
    assert len(Elements(hostile).inside["script"]) == 2
    assert not [a for _, a in Elements(hostile).found if "style" in a or any(name.startswith("on") for name in a)]


def test_the_terminal_shows_the_pairs_of_different_studies_the_strongest_first():
    out = io.StringIO()
    Console(file=out, width=100).print(page.text_tables(summary()))
    assert out.getvalue().index("lost in the block") < out.getvalue().index("density")
    assert "coarse" in out.getvalue()


def test_the_summary_of_something_else_is_refused(tmp_path):
    with pytest.raises(LesionError, match="not one of an overlay"):
        page.write(tmp_path, {"models": [{"model": "m", "tasks": []}]})
