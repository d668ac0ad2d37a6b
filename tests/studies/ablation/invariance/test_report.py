"""The section on invariance: families on the page of a layer study, from the numbers of the study."""

import itertools
import re

import made
import made_invariance
import pytest
from page_checks import HOSTILE, Elements
from scipy.stats import spearmanr

from lesion.report import wording
from lesion.report.blocks import Figure, flat
from lesion.report.drawing import specification
from lesion.report.publishing import html
from lesion.report.table import Table
from lesion.studies.ablation import report as page
from lesion.studies.ablation.invariance import charts, tables
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.invariance.result import FamilyResult, Member
from lesion.studies.ablation.result import AblationSummary

SPACE = "\N{NO-BREAK SPACE}"


@pytest.fixture(scope="module")
def layer_study():
    return made_invariance.study()


@pytest.fixture(scope="module")
def text(layer_study):
    return html(page.report(*layer_study))


def rows(chart) -> list[dict]:
    return [row for data in specification(chart)["datasets"].values() for row in data]


def part(text):
    """The section's text without tags, spaces run together."""
    section = text[text.index('<section id="invariance"') : text.index('<section id="accuracy"')]
    return " ".join(re.sub(r"<[^>]*>", " ", section).replace(SPACE, " ").split())


def family(layer_study, name) -> charts.OfFamily:
    return next(of for of in charts.families(layer_study[0]) if of.family.family == name)


def changed(summary, change) -> AblationSummary:
    """The summary with its families changed as JSON."""
    form = summary.model_dump(mode="json")
    for entry in form["invariance"]["families"]:
        change(entry)
    return AblationSummary.model_validate(form)


def test_a_study_without_families_has_no_such_section():
    assert 'id="invariance"' not in html(page.report(*made.study()))
    assert invariance.section(made.study()[0]) is None
    assert charts.families(made.study()[0]) == []


def test_every_family_has_its_word_and_its_paragraph(layer_study, text):
    for entry in layer_study[0].invariance.families:
        verdict = entry.verdict
        assert f"{entry.family}: {verdict.word} {verdict.text.partition('. ')[0]}." in part(text)
        for task, word in verdict.by_task.items():
            assert f"{task}: {word}" in part(text)


def test_all_variants_of_a_family_are_on_one_plot_per_task_and_checkpoints_are_not(layer_study):
    llama, qwen = charts.families(layer_study[0])
    assert tuple(llama.finished.panels) == made_invariance.TASKS
    assert llama.finished.labels == ("base", "instruct", "rlvr")
    assert qwen.finished.labels == ("base", "instruct")
    assert all(len(curves) == 3 for curves in llama.finished.panels.values())


def test_the_strip_is_coloured_where_and_only_where_a_block_is_critical(layer_study):
    for of in charts.families(layer_study[0]):
        for task in of.family.tasks:
            drawn = rows(charts.critical(of, task))
            for member in of.family.finished:
                own = [row for row in drawn if row["y"] == of.family.labels[member.model]]
                assert tuple(row["x"] for row in own if row["value"] is not None) == task.critical(member.model)
                assert tuple(row["x"] for row in own if row["marked"]) == task.critical(member.model)
                result = of.curves[member.model, task.task].result
                lost = result.cells[2].drop.value / result.baseline.accuracy.value
                assert own[2]["text"] == f"{100 * lost:.0f}"


def test_the_matrix_holds_every_pair_of_variants_once(layer_study):
    llama, qwen = charts.families(layer_study[0])
    drawn = rows(charts.correlations(llama, llama.family.tasks[0]))
    assert [(row["x"], row["y"]) for row in drawn] == [("base", "instruct"), ("base", "rlvr"), ("instruct", "rlvr")]
    (pair,) = qwen.family.tasks[0].pairs
    (cell,) = rows(charts.correlations(qwen, qwen.family.tasks[0]))
    assert cell["text"].splitlines()[0] == wording.rho(pair.rho.value)
    assert cell["marked"] == (pair.rho.p_corrected <= 0.05)


def test_children_and_controls_stand_in_one_table_and_bases_of_other_seeds_each_against_each():
    seeds = [{"source": f"seed-{n}", "family": "llama", "variant": f"control: another seed {n}"} for n in (1, 2)]
    noise = {"source": "noisy", "family": "llama", "variant": "control: noise"}
    summary, _, _ = made_invariance.study.__wrapped__(
        ("bundled:llama-base", "bundled:llama-rlvr", noise, *seeds), ("primer:arithmetic",)
    )
    (of,) = charts.families(summary)
    drops = {model: [cell.drop.value for cell in curve.cells] for (model, _), curve in of.curves.items()}
    critical = {model: {cell.layer for cell in curve.cells if cell.critical} for (model, _), curve in of.curves.items()}
    base = "bundled:llama-base"

    against = tables.with_base(of.family, "95 %", "controls").frame
    assert list(against["role"]) == ["child", "control", "control", "control"]
    for row, model in zip(against.to_dict("records"), ("bundled:llama-rlvr", "noisy", "seed-1", "seed-2"), strict=True):
        assert row["rho"] == pytest.approx(spearmanr(drops[base], drops[model]).statistic)
        assert row["shared"] == len(critical[base] & critical[model])
        assert row["low"] <= row["true"] <= row["high"]

    among = tables.seeds(of.family, "95 %", "seeds").frame
    pairs = list(itertools.combinations((base, "seed-1", "seed-2"), 2))
    assert len(among) == len(pairs) == 3
    for row, (a, b) in zip(among.to_dict("records"), pairs, strict=True):
        assert row["rho"] == pytest.approx(spearmanr(drops[a], drops[b]).statistic)
        assert row["jaccard"] == len(critical[a] & critical[b]) / len(critical[a] | critical[b])
        assert row["first"] == wording.layer_runs(critical[a])
    names = [block.name for block in flat(invariance.section(summary).blocks) if isinstance(block, Table)]
    assert names[:2] == ["controls-llama", "seeds-llama"]


def test_over_training_rows_go_by_step_and_the_onset_is_marked_where_a_block_becomes_critical_for_good(layer_study):
    of = family(layer_study, "llama")
    task = of.family.tasks[0]
    (training,) = charts.trainings(of, task).values()
    drawn = rows(charts.over_time(of, task, training))
    labels = list(dict.fromkeys(row["y"] for row in drawn))
    assert labels == ["step 8, cannot do it", "step 64", "end (base)"]
    marked = {(row["y"], row["x"]) for row in drawn if charts.ONSET in row["text"]}
    names = of.family.labels | {"bundled:llama-base": "end (base)"}
    assert marked == {(names[onset.model], str(onset.layer)) for onset in task.onset if onset.model}
    assert marked
    qwen = family(layer_study, "qwen2")
    assert charts.trainings(qwen, qwen.family.tasks[0]) == {}


def test_one_task_stands_against_another_with_what_both_lose_there(layer_study, text):
    of = family(layer_study, "llama")
    entry = next(e for e in of.family.between_tasks if e.model == "bundled:llama-base")
    assert f"{100 * entry.relative_a:.0f} %" in part(text)
    assert "one task against another in the same model" in part(text)


def test_each_training_and_task_has_a_figure_and_families_of_one_depth_no_second_one_of_accuracies(layer_study):
    blocks = flat(invariance.section(layer_study[0]).blocks)
    assert [block.name for block in blocks if isinstance(block, Figure) and block.name] == [
        "invariance-time-llama-primer-arithmetic",
        "invariance-time-llama-primer-atlas",
    ]


def test_models_of_different_depth_lie_over_their_relative_depth(layer_study):
    def deeper(entry):
        if entry["family"] == "qwen2":
            entry["members"][1]["blocks"] = 12

    of = family((changed(layer_study[0], deeper),), "qwen2")
    assert of.family.depths_differ
    drawn = rows(charts.by_depth(of, "primer:atlas"))
    assert [row["x"] for row in drawn if row["series"] == "base"] == pytest.approx([n / 5 for n in range(6)], abs=1e-5)
    assert [row["x"] for row in drawn if row["series"] == "instruct"] == pytest.approx(
        [n / 11 for n in range(6)], abs=1e-5
    )


def test_variants_that_share_a_word_go_by_their_names():
    members = [
        Member(model="a", source="a", variant="base"), Member(model="b", source="b", variant="instruct"),
        Member(model="c", source="c", variant="instruct"), Member(model="d", source="d"),
        Member(model="a@step5", source="a", variant="base", step=5),
    ]  # fmt: skip
    verdict = {"word": "cannot tell", "text": "", "reasons": (), "by_task": {}, "between": None}
    empty = {"notes": (), "tasks": (), "between_tasks": (), "base": "a"}
    family_result = FamilyResult(family="f", members=members, verdict=verdict, **empty)
    assert family_result.labels == {"a": "base", "b": "b", "c": "c", "d": "d", "a@step5": "step 5"}


def test_numbers_that_are_not_known_are_dashes_and_break_nothing(layer_study):
    def unknown(entry):
        nothing = {"value": None, "low": None, "high": None, "p": None, "p_corrected": None}
        for task in entry["tasks"]:
            task["joint"] = None
            for pair in task["pairs"]:
                pair |= {"rho": nothing, "true": nothing, "ceiling": None}
        for between in entry["between_tasks"]:
            between |= {"rho": nothing, "true": nothing, "difference": nothing, "relative_b": None}

    assert "None" not in part(html(page.report(changed(layer_study[0], unknown), *layer_study[1:])))


def test_hostile_names_and_sentences_stay_text(layer_study, text):
    def hostile(entry):
        entry["family"] = HOSTILE[0]
        entry["notes"] = HOSTILE[:5]
        entry["verdict"] |= {"text": HOSTILE[1], "reasons": HOSTILE[:5]}
        for member in entry["members"]:
            member["variant"] = f"{member['variant']}{HOSTILE[6]}"

    summary = changed(layer_study[0], hostile)
    elements = Elements(html(page.report(summary, *layer_study[1:])))
    assert {tag for tag, _ in elements.found} == {tag for tag, _ in Elements(text).found}
    assert not [a for _, a in elements.found if any(name.startswith("on") for name in a)]
    names = [
        block.name for block in flat(invariance.section(summary).blocks) if isinstance(block, Figure) and block.name
    ]
    assert len(names) == len(set(names)) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)


def test_an_interval_that_is_not_there_is_called_not_measurable_and_a_rho_at_its_ceiling_so(layer_study):
    of = family(layer_study, "qwen2")
    (pair,) = of.family.tasks[0].pairs

    def shown(rho, low, high, corrected=None):
        true = pair.true.model_copy(update={"value": corrected, "low": low, "high": high})
        changes = {"rho": pair.rho.model_copy(update={"value": rho}), "true": true, "ceiling": 0.95}
        return charts.pair_text(pair.model_copy(update=changes), of.family.labels)

    assert "as high as two measurements of one profile reach (about .95)" in shown(0.97, None, None)
    assert "of the true profiles not measurable" in shown(0.97, None, None)
    assert "two equal profiles would reach about .95" in shown(0.9, 0.91, 1.0, 0.98)
    assert f".98 [.91,{SPACE}1], the noise that lowers ρ taken out" in shown(0.9, 0.91, 1.0, 0.98)
    assert charts.limits(None, None) == "not measurable"
