"""Overlays: which profiles meet, how their ranks agree, and what is refused."""

import itertools
import math
import re

import made_profiles as made
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lesion.errors import UsageError
from lesion.report.publishing import html
from lesion.statistics.paired import holm
from lesion.studies.overlay import summary as overlay
from lesion.studies.overlay.report import OverlayResult, do_studies_agree
from lesion.studies.overlay.summary import needed, permutation_p, spearman, summarise

values = st.lists(st.integers(-4, 4), min_size=4, max_size=5)


@pytest.fixture
def folders(tmp_path):
    """A layer study, a drift study and an isolation of one model; drops and densities have the same order."""
    return [
        made.isolation(tmp_path / "iso", [made.selection("mathneuro", 0.01, [10, 30, 20, 50, 40, 60])]),
        made.drift(tmp_path / "drift", [1.0, 0.95, 0.85, 0.8, 0.5, 0.3, 0.2]),
        made.layers(tmp_path / "abl", {"sums": [0.1, 0.3, 0.2, 0.5, 0.4, 0.9]}, critical=(5,)),
    ]


@settings(max_examples=25, deadline=None)
@given(values.flatmap(lambda x: st.tuples(st.just(x), st.permutations(x))))
def test_rho_and_its_exact_p_are_those_of_a_loop_over_all_orders(pair):
    x, y = (np.array(side, dtype=float) for side in pair)
    rho = spearman(x, y)
    if np.ptp(x) == 0:
        assert math.isnan(rho)
        assert math.isnan(permutation_p(x, y))
        return
    assert rho == pytest.approx(stats.spearmanr(x, y).statistic)
    orders = list(itertools.permutations(range(len(y))))
    first, second = stats.rankdata(x), stats.rankdata(y)
    as_large = sum(abs(np.corrcoef(first, second[list(order)])[0, 1]) >= abs(rho) - 1e-9 for order in orders)
    assert permutation_p(x, y) == as_large / len(orders)


def test_beyond_eight_blocks_orders_are_drawn_by_the_seed_and_p_is_never_0():
    x = np.arange(20.0)
    assert permutation_p(x, x) == 1 / (overlay.DRAWS + 1)
    noisy = np.random.default_rng(3).normal(size=20)
    assert permutation_p(x, noisy, 1) == permutation_p(x, noisy, 1)
    assert permutation_p(x, noisy) == pytest.approx(stats.spearmanr(x, noisy).pvalue, abs=0.03)


def test_studies_of_one_model_meet_whatever_the_order_of_the_folders(folders):
    summary = summarise(folders)
    [of] = summary.models
    labels = [profile.label for profile in of.profiles]
    assert labels[0] == "drop · sums"
    assert [profile.kind for profile in of.profiles] == ["layers", "drift", "drift", "isolation"]
    assert of.fingerprint == "f1"
    assert of.blocks == tuple(range(6))
    assert labels == [profile.label for profile in summarise(folders[::-1]).models[0].profiles]


def test_equal_orders_have_rho_1_and_p_is_corrected_over_the_pairs_of_different_studies(folders):
    [of] = summarise(folders).models
    by_pair = {(one.a, one.b): one for one in of.correlations}
    same = by_pair["drop · sums", "density · mathneuro, 1 % · sums"]
    assert same.rho == pytest.approx(1.0)
    assert same.p == 2 / math.factorial(6)
    tested = [one for one in of.correlations if one.p is not None]
    assert [one.p_corrected for one in tested] == pytest.approx(holm(one.p for one in tested))
    assert len(tested) == 3  # the drift curve takes no part, only the loss in a block


def test_of_pairs_fixed_beforehand_alone_there_is_a_p(folders):
    [every] = summarise(folders).models
    summary = summarise(folders, pairs=["DROP · sums ~ density"])
    [of] = summary.models
    tested = [one for one in of.correlations if one.p is not None]
    assert [{one.a, one.b} for one in tested] == [{"drop · sums", "density · mathneuro, 1 % · sums"}]
    assert tested[0].p_corrected == tested[0].p == 2 / math.factorial(6)
    assert [one.rho for one in of.correlations] == [one.rho for one in every.correlations]
    [same] = (one for one in every.correlations if (one.a, one.b) == (tested[0].a, tested[0].b))
    assert same.p_corrected > tested[0].p
    [claim] = do_studies_agree(summary)
    assert claim.rows == ((of, tested[0]),)
    assert claim.sentences[-1].startswith("1 of 1 pair of different studies that were fixed beforehand agree")


def test_a_page_writes_tasks_in_short_and_a_pair_may_be_given_as_it_stands_there(folders, tmp_path):
    *others, _ = folders
    search = made.truncation(tmp_path / "cut", [made.cell(layer, 0.1 * layer, 0.5) for layer in range(6)])
    drops = {"primer:atlas": [0.1, 0.3, 0.2, 0.5, 0.4, 0.9]}
    summary = summarise([*others, search, made.layers(tmp_path / "facts", drops)], pairs=["drop · atlas ~ density"])
    [of] = summary.models
    assert [profile.tasks for profile in of.profiles] == [("primer:atlas",), *[("sums",)] * (len(of.profiles) - 1)]
    assert of.profiles[0].label == "drop · primer:atlas"
    result = OverlayResult("folder", summary)
    assert "rop · atlas rises with density" in result.verdict
    assert re.findall(r"primer:\w+", html(result.page())) == ["primer:atlas"]  # the note on short names


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("drop", r"'drop' is no pair; write parts of two labels with ~ between"),
        ("drop ~ ", r"is no pair"),
        ("drop · sums ~ d", r"'d' fits several profiles: drop · sums; drift, NMI lost"),
        ("drop ~ lape", r"names no two profiles .* write parts of two of these with ~ between: drop · sums; drift"),
        ("drop ~ drop", r"names no two profiles of different studies"),
    ],
)
def test_a_pair_that_names_no_two_profiles_is_refused_with_their_labels(folders, pair, told):
    with pytest.raises(UsageError, match=told):
        summarise(folders, pairs=[pair])


def test_p_is_corrected_over_the_pairs_of_all_models(folders, tmp_path):
    more = [
        made.layers(tmp_path / "more", {"sums": [0.3, 0.1, 0.2, 0.6, 0.5, 0.4]}, model="other"),
        made.drift(tmp_path / "turns", [1.0, 0.95, 0.85, 0.8, 0.5, 0.3, 0.2], model="other"),
    ]
    summary = summarise([*folders, *more])
    tested = [one for of in summary.models for one in of.correlations if one.p is not None]
    assert len(tested) == 4
    assert len({of.model for of in summary.models}) == 2
    assert [one.p_corrected for one in tested] == pytest.approx(holm(one.p for one in tested))
    [alone] = summarise(folders).models
    assert min(one.p_corrected for one in tested) > min(
        one.p_corrected for one in alone.correlations if one.p is not None
    )
    assert {of.needed.pairs for of in summary.models} == {4}


def test_two_profiles_of_one_kind_have_a_rho_and_no_p(tmp_path):
    [of] = summarise(
        [made.layers(tmp_path / "a", {"sums": [0.1, 0.3, 0.2, 0.5], "facts": [0.1, 0.3, 0.2, 0.4]})]
    ).models
    [one] = of.correlations
    assert one.rho == pytest.approx(1.0)
    assert one.p is None
    assert one.p_corrected is None


def test_what_is_left_beyond_depth_is_the_correlation_of_the_residuals_of_the_ranks(folders):
    [of] = summarise(folders).models
    one = next(one for one in of.correlations if {one.a[:4], one.b[:5]} == {"drop", "drift"})
    a, b = (next(p.values for p in of.profiles if p.label == label) for label in (one.a, one.b))
    drop, lost = a[1:], b  # the step out of the reference layer is not ranked
    a, b = drop, lost
    depth = np.arange(5.0)
    residual = [r - np.polyval(np.polyfit(depth, r, 1), depth) for r in map(stats.rankdata, (a, b))]
    assert one.beyond_depth == pytest.approx(np.corrcoef(*residual)[0, 1])


def test_only_blocks_that_both_have_are_ranked_and_of_fewer_than_four_nothing_is_told(tmp_path):
    few = made.layers(tmp_path / "a", {"sums": [0.1, None, 0.2, None, 0.4, None]})
    drift = made.drift(tmp_path / "b", [1.0, 0.9, 0.7, 0.6, 0.2, 0.1, 0.0])
    one = summarise([few, drift]).models[0].correlations[0]
    assert one.blocks == 2
    assert one.rho is None
    assert one.p is None


@pytest.mark.parametrize(("blocks", "pairs"), [(6, 3), (8, 1), (8, 16), (5, 1)])
def test_the_rho_that_is_needed_is_the_least_one_that_correction_leaves_significant(blocks, pairs):
    least = needed(blocks, pairs)
    depth = np.arange(float(blocks))
    p = {}
    for order in itertools.islice(itertools.permutations(range(blocks)), 0, None, 97):
        y = np.array(order, dtype=float)
        p.setdefault(round(abs(spearman(depth, y)), 9), y)
    for rho, y in list(p.items())[:12]:
        assert (permutation_p(depth, y) * pairs <= 0.05) == (least is not None and rho >= least - 1e-9)


def test_too_few_blocks_can_show_nothing():
    assert needed(4, 10) is None
    assert needed(5, 0) is None


def test_equal_labels_get_the_folder_s_name(tmp_path):
    first, second = (made.layers(tmp_path / name, {"sums": [0.1, 0.3, 0.2, 0.5]}) for name in ("one", "two"))
    labels = [profile.label for profile in summarise([first, second]).models[0].profiles]
    assert labels == ["drop · sums (one)", "drop · sums (two)"]


def test_a_model_with_a_single_profile_is_left_out_with_a_note_and_alone_it_is_an_error(tmp_path, folders):
    lonely = made.layers(tmp_path / "lonely", {"sums": [0.1, 0.3, 0.2, 0.5]}, model="other")
    summary = summarise([*folders, lonely])
    assert [of.model for of in summary.models] == ["made"]
    assert any(note.startswith("other has only one profile") for note in summary.notes)
    with pytest.raises(UsageError, match=r"Only one profile per model was found \(other: drop · sums\)"):
        summarise([lonely])


def test_other_weights_under_one_name_are_refused_with_both_fingerprints(tmp_path, folders):
    other = made.truncation(tmp_path / "t", [made.cell(0, 0.1), made.cell(1, 0.2)], fingerprint="f2")
    with pytest.raises(UsageError, match=r"made is not the same model in .*iso \(fingerprint f1\).*fingerprint f2\)"):
        summarise([*folders, other])


def test_a_folder_named_twice_is_refused_also_by_another_path(tmp_path, folders):
    with pytest.raises(UsageError, match="named twice"):
        summarise([*folders, tmp_path / "abl" / ".." / "abl"])
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(UsageError, match="is no folder"):
        summarise([tmp_path / "circle" / "x"])
    with pytest.raises(UsageError, match="Name the folders"):
        summarise([])
