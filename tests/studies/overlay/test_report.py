"""The page of an overlay: its charts, what its sentences say, its tables, and that names stay names."""

import io
import re

import pandas as pd
import pytest
from page_checks import HOSTILE, Elements
from rich.console import Console

from lesion.core.values import read_summary
from lesion.report import drawing, wording
from lesion.report.publishing import html
from lesion.studies.overlay import charts, tables
from lesion.studies.overlay import findings as prose
from lesion.studies.overlay.report import OverlayResult
from lesion.studies.overlay.result import Correlation, ModelProfiles, OverlaySummary, Profile
from lesion.studies.overlay.summary import corrected, correlations, needed
from runs import page_of

UNITS = {"layers": "points", "drift": "nmi", "isolation": "share", "truncation": "nats"}


def profile(label, values, kind="layers", model="made", critical=(), blocks=None, **more):
    low, high = (tuple(value + by for value in values) for by in (-0.05, 0.05))
    return Profile(
        model=model, kind=kind, label=label, blocks=tuple(range(len(values))) if blocks is None else blocks,
        values=tuple(map(float, values)), low=low, high=high, unit=UNITS[kind], critical=critical, **more,
    )  # fmt: skip


def model_of(profiles, name="made", pairs=None) -> ModelProfiles:
    pairs = correlations(profiles) if pairs is None else pairs
    return ModelProfiles(model=name, fingerprint=None, profiles=profiles, correlations=pairs)


def overlay(*models: ModelProfiles, folders=("a", "b"), notes=("A note.",)) -> OverlaySummary:
    return OverlaySummary(version="0.1.0", folders=folders, models=corrected(models), notes=notes)


def made(model="made", label="drop · sums") -> ModelProfiles:
    profiles = (
        profile(label, (0.1, 0.2, 0.3, 0.4, 0.5, 0.9), critical=(0, 5), model=model),
        profile("lost in the block", (0.01, 0.02, 0.03, 0.04, 0.05, 0.3), "drift", model=model),
        profile("after the block", (0.9, 0.8, 0.7, 0.6, 0.5, 0.4), "drift", ranked=False, model=model),
        profile("density", (0.3, 0.1, 0.2, 0.1, 0.1), "isolation", blocks=(0, 1, 2, 4, 5), model=model),
    )
    return model_of(profiles, model)


def layers_of(chart) -> dict[str, dict]:
    """The layers of a chart by their mark and the field of their first place, each with its own rows."""
    specified = drawing.specification(chart)
    layers = {}
    for layer in specified["layer"]:
        for part in layer.get("layer", [layer]):
            data = part.get("data") or layer.get("data") or specified.get("data")
            place = (part.get("encoding", {}) | specified.get("encoding", {})).get("x", {}).get("field", "")
            layers[f"{part['mark']['type']} {place}".strip()] = {**part, "rows": specified["datasets"][data["name"]]}
    return layers


def printed(summary: OverlaySummary, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(tables.text_tables(summary))
    return out.getvalue()


def test_an_overlay_becomes_a_page_tables_and_figures(tmp_path):
    summary = overlay(made())
    written = OverlayResult(tmp_path / "deep" / "out", summary).report()
    files = {path.relative_to(written.parent).as_posix() for path in written.parent.rglob("*.*")}
    assert files == {
        *("lesion.json", "report.html", "summary.json", "overlay.csv", "correlations.csv"),
        *(f"figures/{name}.{form}" for name in ("overlay", "correlations") for form in ("png", "svg")),
    }
    assert read_summary(OverlaySummary, written.parent, "") == summary
    table = pd.read_csv(written.parent / "overlay.csv")
    assert len(table) == 6 * 3 + 5
    assert table[table["label"] == "density"]["block"].tolist() == [0, 1, 2, 4, 5]
    assert table[table["critical"]]["block"].tolist() == [0, 5]
    pairs = pd.read_csv(written.parent / "correlations.csv")
    assert list(pairs) == ["model", *tables.PAIR]
    assert len(pairs) == 3


def test_the_same_overlay_gives_the_same_bytes(tmp_path):
    first, second = (OverlayResult(tmp_path / name, overlay(made())).report() for name in ("one", "other"))
    for path in first.parent.rglob("*.*"):
        assert path.read_bytes() == (second.parent / path.relative_to(first.parent)).read_bytes(), path.name


def test_every_profile_is_drawn_over_the_same_blocks_and_critical_ones_are_shaded_in_every_row():
    model = made()
    for each in model.profiles:
        layers = layers_of(charts.profile_chart(model, each))
        (axis,) = {
            tuple(layer["encoding"]["x"]["scale"]["domain"]) for layer in layers.values() if "x" in layer["encoding"]
        }
        assert axis == (-0.6, 5.6)
        shades = layers_of(alone(charts.profile_chart(model, each), 0))["rect from"]["rows"]
        assert [(row["from"], row["to"]) for row in shades] == [(-0.5, 0.5), (4.5, 5.5)]
        assert len(layers["rect from"]["rows"]) == len(each.blocks)
    missing = layers_of(charts.profile_chart(model, model.profiles[3]))["text x"]
    assert [row["x"] for row in missing["rows"]] == [3]


def alone(chart, number):
    """A chart with one of its layers."""
    copy = chart.copy()
    copy.layer = [chart.layer[number]]
    return copy


def test_columns_stand_on_zero_and_reach_their_values_in_percentage_points():
    model = model_of((profile("gain", (-0.2, 0.4)), profile("drop", (0.1, 0.2))))
    layers = layers_of(charts.profile_chart(model, model.profiles[0]))
    column = layers["rect left"]
    assert (column["encoding"]["y"]["field"], column["encoding"]["y2"]["field"]) == ("zero", "y")
    assert [(row["zero"], row["y"]) for row in column["rows"]] == [(0.0, -20.0), (0.0, 40.0)]
    low, high = column["encoding"]["y"]["scale"]["domain"]
    assert low < -25 < 45 < high
    interval = layers["rule x"]
    assert [(row["low"], row["high"]) for row in interval["rows"]] == [(-25.0, -15.0), (35.0, 45.0)]


def test_the_matrix_has_every_pair_of_ranked_profiles_and_boxes_those_that_agree():
    model = overlay(made()).models[0]
    rows = layers_of(charts.matrix_chart(model))["text x"]["rows"]
    assert [(row["x"], row["y"]) for row in rows] == [
        ("1", "2 lost in the block"), ("1", "3 density"), ("2", "3 density"),
    ]  # fmt: skip
    assert [row["marked"] for row in rows] == [pair.p_corrected <= 0.05 for pair in model.correlations]
    assert rows[0]["text"].startswith("1\np .")


def test_agreement_beyond_chance_is_told_with_its_corrected_p_and_what_depth_leaves_of_it():
    [finding] = prose.findings(overlay(made()))
    assert finding.headline[0].startswith("Agreement beyond chance in 1 of 3 pairs of different studies: ")
    assert "drop · sums rises with lost in the block (ρ\N{NO-BREAK SPACE}1, corrected p" in finding.headline[0]
    [coarse] = [sentence for sentence in finding.sentences if sentence.startswith("After correction")]
    assert "takes |ρ| ≥ .94 over 6 blocks and |ρ| = 1 over 5 blocks" in coarse.replace(wording.SPACE, " ")
    assert "Block\N{NO-BREAK SPACE}5 is the largest of drop · sums and lost in the block." in finding.sentences
    assert "By chance, about 1 in 6 pairs of profiles share it." in finding.sentences


def test_without_agreement_the_page_says_so_and_how_much_would_be_needed():
    profiles = (profile("drop", (0.1, 0.5, 0.2, 0.6, 0.3, 0.4)), profile("lost", (3, 1, 2, 2.5, 1.5, 0.5), "drift"))
    [finding] = prose.findings(overlay(model_of(profiles)))
    assert finding.headline[0].startswith("No agreement is shown in 1 pair of different studies")
    assert "takes |ρ|" in finding.sentences[0]


def test_that_only_perfect_agreement_would_pass_is_no_evidence_and_the_headline_says_so():
    profiles = (profile("drop", (0.1, 0.5, 0.2, 0.6, 0.3)), profile("lost", (3, 1, 2, 2.5, 1.5), "drift"))
    [finding] = prose.findings(overlay(model_of(profiles)))
    assert finding.headline[0].startswith("Whether the studies point at the same blocks cannot be told")
    assert "only perfect agreement over 5 blocks would pass" in finding.headline[0]


def test_no_agreement_is_told_with_the_least_that_would_pass():
    profiles = (profile("drop", (0.1, 0.5, 0.2, 0.6, 0.3, 0.4)), profile("lost", (3, 1, 2, 2.5, 1.5, 0.5), "drift"))
    [finding] = prose.findings(overlay(model_of(profiles)))
    least = needed(6, 1)
    assert f"|ρ| ≥ {wording.rho(least)} over 6 blocks)" in finding.headline[0].replace(wording.SPACE, " ")


def test_one_kind_of_study_alone_is_not_tested_against_itself():
    profiles = (profile("a", (0.1, 0.5, 0.2, 0.6)), profile("b", (0.1, 0.4, 0.2, 0.6)))
    models = [model_of(profiles, name) for name in ("made", "other")]
    *peaks, missing = prose.findings(overlay(*models))
    assert [finding.headline for finding in peaks] == [(), ()]  # block 1 is the largest of a and b, in each
    assert missing.subject == prose.MISSING
    assert len(missing.headline) == 1
    assert missing.headline[0].startswith("Of made and other there is one kind of study (layer abl")
    assert "add a folder of `lesion drift`, `lesion isolate` or `lesion truncate` on" in missing.headline[0]


def test_the_surest_pair_is_named_before_a_larger_rho_over_fewer_blocks_whose_number_is_told():
    profiles = (profile("drop", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)), profile("lost", (1, 2, 3, 4, 5, 6), "drift"))
    pairs = (
        Correlation(a="drop", b="few", blocks=4, rho=1.0, p=0.08, p_corrected=0.16),
        Correlation(a="drop", b="weak", blocks=6, rho=0.5, p=0.04, p_corrected=0.16),
        Correlation(a="drop", b="lost", blocks=6, rho=0.8, p=0.04, p_corrected=0.16),
    )
    model = model_of(profiles, pairs=pairs)
    assert [pair.b for pair in model.tested] == ["lost", "weak", "few"]
    [finding] = prose.findings(overlay(model))
    assert "The strongest is drop with lost (ρ\N{NO-BREAK SPACE}.80, p" in finding.headline[1]
    [finding] = prose.findings(overlay(model_of(profiles, pairs=pairs[:1])))
    assert "(ρ\N{NO-BREAK SPACE}1 over 4 blocks, p" in finding.headline[1]


def test_the_threshold_counts_the_pairs_of_all_models_and_tells_its_blocks():
    summary = overlay(made(), made("other"))
    first, _ = prose.findings(summary)
    assert "After correction over 6 pairs of all models, p ≤ 0.05 takes |ρ|" in first.sentences[0]
    assert "over 6 blocks, and" in first.sentences[0]
    assert "cannot be reached over 5 blocks." in first.sentences[0]
    assert "all pairs of different studies of all models" in html(page_of(OverlayResult, summary))


def test_the_page_says_that_the_first_step_of_drift_is_left_out():
    assert "agrees with itself at 1, so that this step is large by construction" in html(
        page_of(OverlayResult, overlay(made()))
    )


@pytest.mark.parametrize(("value", "text"), [(1.0, "1"), (0.804, ".80"), (-0.31, "−.31"), (-0.001, ".00"), (None, "–")])
def test_a_correlation_has_two_decimals(value, text):
    assert wording.rho(value) == text


def test_names_of_models_tasks_and_folders_stay_text():
    names = tuple(name.replace("\ud800", "\ufffd") for name in HOSTILE)
    hostile = html(page_of(OverlayResult, overlay(made(names[0], names[6]), folders=names, notes=names)))
    tame = html(page_of(OverlayResult, overlay(made())))
    assert {tag for tag, _ in Elements(hostile).found} == {tag for tag, _ in Elements(tame).found}
    assert len(Elements(hostile).inside["script"]) == len(Elements(tame).inside["script"])
    assert not [a for _, a in Elements(hostile).found if any(name.startswith("on") for name in a)]


def test_the_terminal_shows_the_pairs_of_different_studies_the_strongest_first():
    text = printed(overlay(made()))
    assert text.index("lost in the block") < text.index("density")
    assert "After correction" in text
    assert not re.search("nan|None|\N{REPLACEMENT CHARACTER}", text)


def test_profiles_over_too_few_blocks_have_a_page_without_any_correlation():
    profiles = (profile("a", (0.1, 0.5, 0.2)), profile("b", (0.1, 0.4, 0.2)))
    summary = overlay(model_of(profiles))
    assert [pair.rho for pair in summary.models[0].correlations] == [None]
    assert "Spearman's ρ between profiles of made" in html(page_of(OverlayResult, summary)).replace("&#39;", "'")
