"""The memory laboratory's page and claims say what the numbers say, and only that."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from lesion.report import plots
from lesion.report.publishing import html
from lesion.report.values import Estimate
from lesion_labs.memory import report, run, theory
from lesion_labs.memory.report import MemoryResult
from memories import memory
from runs import altered, page_of


def measured(**options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CLASSES", (2, 3, 4))
        patch.setattr(run, "NOISES", (0.3, 0.5))
        patch.setattr(run, "SEEDS", 2)
        patch.setattr(theory, "VOCABULARIES", (8, 16, 32))
        patch.setattr(theory, "SEEDS", 3)
        patch.setattr(theory, "BATCH", 400)
        patch.setattr(theory, "RESAMPLES", 50)
        return run.measured(memory(**{"classes": 4, "width": 24, "noise": 0.6, "steps": 600} | options))


@pytest.fixture(scope="module")
def summary():
    return measured()


@pytest.fixture(scope="module")
def written(summary, tmp_path_factory):
    """The report of the summary, written into a folder once."""
    return MemoryResult(tmp_path_factory.mktemp("memory"), summary).report()


def result_of(summary) -> MemoryResult:
    return MemoryResult(Path("no-folder"), summary)


def texts(made) -> list[str]:
    return [claim.text.replace("\N{NO-BREAK SPACE}", " ") for claim in made]


def words(page):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_the_page_says_the_claims_with_the_numbers_of_the_summary(summary, written):
    page = words(written.read_text("utf-8"))
    result = result_of(summary)
    for claim in result.claims:
        for sentence in claim.sentences:
            assert " ".join(sentence.split()) in page
    (dropped,) = [row for row in summary.truncated if (row.side, row.rank) == ("bottom", 3)]
    assert summary.best == dropped
    assert result.verdict.replace("\N{NO-BREAK SPACE}", " ") == (
        "With the 3 smallest of 4 components of W kept, the common class's probability goes from"
        f" {100 * summary.full.p_noise:.1f} % to {100 * dropped.p_noise.mean:.1f} %."
    )


def test_truncation_that_helps_nothing_is_not_said_to_help(summary):
    def claim(loss):
        kept = [
            altered(part, clean_loss=Estimate(value=loss)) if part.best else part for part in result_of(summary).kept
        ]
        return texts(report.what_truncation_does(summary.full, kept))[0]

    assert claim(summary.full.clean_loss + 1).startswith("No part of the spectrum has a smaller clean loss than the")
    assert "probability goes from" in claim(summary.full.clean_loss / 2)
    assert "random projections of that rank" in claim(0.0)
    assert "nothing kept" in claim(0.0)


def test_a_spectrum_of_one_value_is_neither_cut_nor_compared_with_another():
    single = measured(classes=3, width=1, codes="gaussian", steps=50)
    truncation, spectrum = texts(result_of(single).claims)[:2]
    assert truncation == "W has a single component: there is nothing to truncate."
    assert spectrum == "W has a single singular value, with 1.000 of the common class's code."
    assert single.sizes == ()
    assert "largest other" not in words(html(page_of(MemoryResult, single))).partition("The study")[0]


def test_the_side_that_is_named_is_the_side_that_was_measured(summary):
    place = summary.full.noise
    (text,) = texts(report.where_the_noise_lies(summary))
    assert text.startswith(
        f"In the spectrum of W the noise lies at the top after 600 steps: its singular value is {place.ratio:.3g}"
    )
    moved = altered(place, side="bottom")
    turned = altered(summary, training=(*summary.training[:-1], altered(summary.full, noise=moved)))
    (text,) = texts(report.where_the_noise_lies(turned))
    assert "the noise lies at the bottom" in text
    assert "After the first step it was at the top." in text
    absent = altered(summary, training=(altered(summary.full, noise=altered(place, side="absent", rank=0)),))
    assert texts(report.where_the_noise_lies(absent)) == ["The code of the common class is not in W at all."]


def with_last_side(sizes, side_of):
    """The sizes with another side after the last step."""
    return [altered(size, places=(*size.places[:-1], altered(size.last, side=side_of(size)))) for size in sizes]


def test_the_sides_that_hold_the_noise_are_counted(summary):
    top = with_last_side(summary.sizes, lambda size: None if (size.codes, size.classes) == ("gaussian", 3) else "top")
    turned = with_last_side(top, lambda size: "bottom" if size.key == (2, 2, 0.3) else size.last.side)
    plain = sum(size.codes == "orthonormal" for size in turned)
    agreeing = plain - sum(size.classes == 3 and size.codes == "gaussian" for size in turned)
    assert texts(report.which_side_holds_the_noise(turned)) == [
        f"In the spectrum the noise lies at the top in {plain - 1} of {plain} settings with orthonormal codes; in 1 at"
        f" the bottom. With gaussian codes it is the same side in {agreeing} of {plain}."
    ]
    assert report.which_side_holds_the_noise(()) == ()


def test_the_settings_that_a_cut_cleans_are_counted(summary):
    cleaned = [
        size for size in summary.sizes if size.cuts.without_largest.clean_loss <= 0.1 * size.cuts.full.clean_loss
    ]
    assert 0 < len(cleaned) < len(summary.sizes)
    (text,) = texts(report.which_cut_cleans(summary.sizes))
    assert f"removes at least 90 % of the clean loss in {len(cleaned)} of {len(summary.sizes)} settings" in text


def test_signals_are_told_with_their_powers_and_without_powers_of_ten(summary):
    step = summary.first_step
    (text,) = texts(report.what_is_learned_first(step))
    power = step.power("constant", "feed_forward")
    assert f"scales with the vocabulary as V to {power.batches.value:.3f}".replace("-", "−") in text
    point = altered(step.points[2], feed_forward=0.0393, value=1e-6)
    large = altered(step, points=(*step.points[:2], point, *step.points[3:]))
    assert "At V = 32 the feed-forward's is 39,300 times recall's." in texts(report.what_is_learned_first(large))[0]
    unknown = altered(step, powers=[altered(each, batches=Estimate(value=None)) for each in step.powers])
    assert "as V to a power that batches do not show (exactly" in texts(report.what_is_learned_first(unknown))[0]


def test_without_noise_nothing_is_said_of_a_noise_that_is_not_there():
    quiet = measured(noise=0.0, steps=50)
    text = words(html(page_of(MemoryResult, quiet)))
    assert "Without noise nothing has to be forgotten" in text
    assert not re.search(r"\bnan\b", text.lower())
    (claim,) = texts(report.what_is_learned_first(quiet.first_step))
    assert claim.startswith("Without noise the feed-forward has no signal")
    assert "learns the noise" not in claim


def test_the_checks_name_the_random_control_and_the_tie(summary):
    assert [check.mood for check in result_of(summary).checks()] == ["good"]
    (random,) = [row for row in summary.truncated if (row.control, row.rank) == ("random", summary.best.rank)]
    lucky = altered(random, clean_loss=altered(random.clean_loss, low=0.0))
    rows = [lucky if row is random else row for row in summary.truncated]
    assert result_of(altered(summary, truncated=rows)).checks()[0].mood == "bad"
    tie = altered(summary, study=altered(summary.study, noise=0.5))
    assert any("ties" in check.text for check in result_of(tie).checks())


def test_sizes_that_the_sweep_leaves_out_are_named():
    assert run.left_out(memory(classes=64, width=80)) == [
        "The sweep over sizes goes up to 32 classes: the memory of 64 is not part of it."
    ]
    assert "codes of 10, 20, 32 classes" in run.left_out(memory(classes=10, width=9, codes="gaussian"))[0]
    assert run.left_out(memory()) == []


def test_every_truncation_has_one_row_everything_and_nothing_once(summary):
    table = result_of(summary).table_full
    assert len(table) == 4 + 3 + 3 + 1  # the largest, the smallest, random; nothing kept
    assert list(table["rank"]).count(4) == list(table["rank"]).count(0) == 1
    (best,) = table.index[table["best"]]
    assert table["clean_loss"][best] == summary.best.clean_loss.mean
    for row in summary.truncated:
        if row.control == "random":
            shown = table[(table["kind"] == "random") & (table["rank"] == row.rank)]
            numbers = shown[["p_noise", "p_noise_low", "p_noise_high"]].to_numpy().tolist()
            assert numbers == [[row.p_noise.mean, row.p_noise.low, row.p_noise.high]]


def test_the_spectrum_is_told_apart_into_the_noise_and_the_others(summary):
    for moment in summary.training:
        values = list(moment.singular_values)
        assert moment.noise_value == values.pop(moment.noise.rank - 1)
        assert (moment.largest_other, moment.smallest_other) == (max(values), min(values))
        assert sorted([moment.noise_value, *moment.others]) == sorted(moment.singular_values)


@pytest.mark.parametrize("values", [[1e-7, 0.3], [1, 20_000], [0.02, 9.9], [5], [3, 3.1], [1, 10**8], [], [0, -1, 2]])
def test_a_logarithmic_axis_has_a_few_round_ticks_and_room_for_every_value_above_zero(values):
    axis = plots.ratio_axis("step", values)
    assert all(axis.low < value < axis.high for value in values if value > 0)
    assert 2 <= len(axis.ticks) <= 7
    assert all(axis.low <= tick <= axis.high * (1 + 1e-12) for tick in axis.ticks)
    assert all(tick % 1 == 0 for tick in plots.ratio_axis("step", [1, 9], whole=True).ticks)


def test_a_size_says_when_the_noise_changed_sides(summary):
    (four,) = [size for size in summary.sizes if (size.codes, size.key) == ("orthonormal", (4, 4, 0.3))]
    (flip,) = four.flips
    assert (four.first_side, four.last_side) == ("bottom", "top")
    assert four.changed_sides == f"{flip.after}–{flip.before}"
    assert four.first_strength < 0 < four.last_strength
    assert four.without_largest == four.cuts.without_largest.clean_loss
