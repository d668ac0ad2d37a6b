"""Parts of a page about families: their rows and marks, from the numbers of a made study."""

import itertools
import re

import made
import made_invariance
import pytest
from scipy.stats import spearmanr

from lesion.report import parts
from lesion.report.blocks import Figure, flat
from lesion.report.drawing import specification
from lesion.report.publishing import html
from lesion.report.table import Table
from lesion.studies.ablation.analyses import invariance
from lesion.studies.ablation.invariance.result import FamilyResult, Member, Verdict
from lesion.studies.ablation.result import AblationSummary, Material

BASE = "bundled:llama-base"


@pytest.fixture(scope="module")
def summary() -> AblationSummary:
    return made_invariance.study()[0]


def every(summary: AblationSummary) -> list[parts.Part]:
    made = [analysis(Material(summary)) for analysis in (invariance.part, invariance.other_tasks, invariance.training)]
    return [part for part in made if part is not None]


def tables(part: parts.Part) -> dict[str, Table]:
    return {block.name: block for block in flat(part.own) if isinstance(block, Table)}


def cells(figure: Figure) -> list[list[dict]]:
    """What the map of every panel draws."""
    return [
        [row for data in specification(panel.charts[0])["datasets"].values() for row in data] for panel in figure.panels
    ]


def changed(summary: AblationSummary, change) -> AblationSummary:
    """The summary with its families changed as JSON."""
    form = summary.model_dump(mode="json")
    for entry in form["invariance"]["families"]:
        change(entry)
    return AblationSummary.model_validate(form)


def test_a_study_without_families_has_no_such_parts():
    assert every(made.study()[0]) == []


def test_every_block_of_every_variant_is_drawn_and_boxed_where_it_is_critical(summary):
    part = every(summary)[0]
    assert [claim.subject for claim in part.claims] == ["llama", "qwen2"]
    (figure,) = (block for block in flat(part.own) if isinstance(block, Figure) and block.name == "invariance")
    assert len(figure.panels) == 4  # two families, two tasks
    drawn = iter(cells(figure))
    for family in summary.invariance.families:
        for task in family.tasks:
            of_task = next(drawn)
            assert {row["y"] for row in of_task} == {family.labels[member.model] for member in family.finished}
            for member in family.finished:
                own = [row for row in of_task if row["y"] == family.labels[member.model]]
                assert tuple(row["x"] for row in own if row["marked"]) == task.critical(member.model)
    results = {(model, result.task): result for model, result in summary.results}
    for place, cell in part.rows.records:
        result = results[place.model, place.task]
        drop = next(each.drop.value for each in result.cells if each.layer == cell.layer)
        assert place.lost_share == pytest.approx(drop / result.baseline.accuracy.value)


def test_children_and_controls_stand_in_one_table_and_bases_of_other_seeds_each_against_each():
    seeds = [{"source": f"seed-{n}", "family": "llama", "variant": f"control: another seed {n}"} for n in (1, 2)]
    noise = {"source": "noisy", "family": "llama", "variant": "control: noise"}
    summary, _, _ = made_invariance.study.__wrapped__(
        (BASE, "bundled:llama-rlvr", noise, *seeds), ("primer:arithmetic",)
    )
    curves = {curve.model: curve.cells for curve in summary.curves}
    drops = {model: [cell.drop.value for cell in own] for model, own in curves.items()}
    critical = {model: {cell.layer for cell in own if cell.critical} for model, own in curves.items()}

    own = tables(every(summary)[0])
    against = own["controls-llama"].frame
    assert list(against["role"]) == ["child", "control", "control", "control"]
    for row, model in zip(against.to_dict("records"), ("bundled:llama-rlvr", "noisy", "seed-1", "seed-2"), strict=True):
        assert row["rho"] == pytest.approx(spearmanr(drops[BASE], drops[model]).statistic)
        assert row["shared"] == len(critical[BASE] & critical[model])
        assert row["low"] <= row["true"] <= row["high"]

    among = own["seeds-llama"].frame
    pairs = list(itertools.combinations((BASE, "seed-1", "seed-2"), 2))
    assert len(among) == len(pairs) == 3
    for row, (a, b) in zip(among.to_dict("records"), pairs, strict=True):
        assert row["rho"] == pytest.approx(spearmanr(drops[a], drops[b]).statistic)
        assert row["jaccard"] == len(critical[a] & critical[b]) / len(critical[a] | critical[b])
        assert row["first"] == ", ".join(map(str, sorted(critical[a])))
    assert len(own["pairs-llama"].frame) == 10 - 4 - 1  # one pair of seeds is without the base


def test_over_training_lines_go_by_step_and_say_what_the_model_can_do(summary):
    part = every(summary)[2]
    (figure,) = part.figures()
    labels = list(dict.fromkeys(row["y"] for row in cells(figure)[0]))
    assert [label.partition(" (")[0] for label in labels] == ["step 8", "step 64", "base"]
    assert labels[0].endswith("(0\N{NO-BREAK SPACE}%)")
    onset = tables(part)["onset"].frame
    named = {(row.task, row.layer): row.begins for row in onset.itertuples()}
    family = summary.invariance.families[0]
    assert {place for place, begins in named.items() if begins} == {
        (task.task, layer) for task in family.tasks for layer in task.critical(family.base)
    }


def test_tasks_of_one_model_stand_against_each_other(summary):
    part = every(summary)[1]
    frame = Table.of(part.rows).frame
    between = [entry for family in summary.invariance.families for entry in family.between_tasks]
    assert list(frame["relative_a"]) == [entry.relative_a for entry in between]
    assert list(frame["difference"]) == pytest.approx([entry.difference.value for entry in between])
    assert len(cells(part.figures()[0])) == 2


def test_models_of_different_depth_lie_over_their_relative_depth(summary):
    def deeper(entry):
        if entry["family"] == "qwen2":
            entry["members"][1]["blocks"] = 12

    (curves,) = every(changed(summary, deeper))[0].figures()
    drawn = [row for row in cells(curves)[1] if "series" in row]
    assert [row["x"] for row in drawn if row["series"] == "base"] == pytest.approx([20 * n for n in range(6)])
    assert max(row["x"] for row in drawn if row["series"] == "instruct") == pytest.approx(100 * 5 / 11)


def test_variants_that_share_a_word_go_by_their_names():
    members = [
        Member(model="a", source="a", variant="base"), Member(model="b", source="b", variant="instruct"),
        Member(model="c", source="c", variant="instruct"), Member(model="d", source="d"),
        Member(model="a@step5", source="a", variant="base", step=5),
    ]  # fmt: skip
    empty = {"notes": (), "tasks": (), "between_tasks": (), "base": "a"}
    verdict = Verdict(word="cannot tell", by_task={}, between=None)
    family = FamilyResult(family="f", members=members, verdict=verdict, **empty)
    assert family.labels == {"a": "base", "b": "b", "c": "c", "d": "d", "a@step5": "step 5"}


def page(summary: AblationSummary) -> str:
    return html(parts.page("Families", "layers", every(summary), version="1", facts=(("a", "b"),)))


def test_numbers_that_are_not_known_break_nothing(summary):
    def unknown(entry):
        nothing = {"value": None, "low": None, "high": None, "p": None, "p_corrected": None}
        for task in entry["tasks"]:
            task["joint"] = None
            for pair in task["pairs"]:
                pair |= {"rho": nothing, "true": nothing, "ceiling": None}
        for between in entry["between_tasks"]:
            between |= {"rho": nothing, "true": nothing, "difference": nothing, "relative_b": None}

    whole = re.sub(r"<script.*?</script>", "", page(changed(summary, unknown)), flags=re.DOTALL)
    assert not re.search("None|nan", re.sub(r"<style.*?</style>|<[^>]*>", " ", whole, flags=re.DOTALL))
