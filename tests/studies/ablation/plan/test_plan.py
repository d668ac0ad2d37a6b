"""A plan is written before any answer, holds the study to it, and its tests are corrected for each other alone."""

import json
from pathlib import Path

import pandas as pd
import pytest
from oracle import Listener, Oracle

from commandline import lesion, refused, write
from lesion.edits.edit import ScaleBlock
from lesion.errors import LesionError, UsageError
from lesion.report import wording
from lesion.report.table import Table
from lesion.statistics.critical import Pairs, p_critical
from lesion.statistics.paired import holm
from lesion.statistics.power import detectable, power
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.analyses import plan as analysis
from lesion.studies.ablation.plan import FILE, planned, prospects, read, register
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.result import Material
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise
from runs import run_ablation as run
from tiny import model

ITEMS = 30
CRITICAL = {"task": "", "place": "1", "expect": "critical"}


@pytest.fixture
def sums(tmp_path) -> Path:
    return write(
        tmp_path / "sums.jsonl", ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": "right"} for n in range(ITEMS + 9))
    )


def study(sums: Path, *hypotheses: dict, **values) -> Study:
    tables = [{**each, "task": str(sums)} for each in hypotheses]
    settings = {"models": ["tiny:llama"], "items": ITEMS, "decoding": {"max_new_tokens": 4}, **values}
    return Study.make(tasks=[str(sums)], hypotheses=tables, **settings)


def evaluate(plan: Study, folder: Path, oracle: Oracle | None = None):
    return run(plan, folder, models={"tiny:llama": model("llama")}, make_engine=oracle or Oracle())


def summarised(plan: Study, sums, edits, lost):
    """The summary of answers in which every edit, by its text, has so many items wrong: the first."""
    rows = [
        {
            "model_name": "tiny:llama", "task": str(sums), "edit": edit, "item": f"i{item}", "correct": item >= wrong,
            "finish": "stop", "parsed": "1", "scores": (), "ranks": (), "text": "1", "tokens": 1, "engine": "e",
        }
        for edit, wrong in lost.items()
        for item in range(ITEMS)
    ]  # fmt: skip
    items = pd.DataFrame([{"task": str(sums), "item": f"i{item}", "gold": "1"} for item in range(ITEMS)])
    return summarise(plan, {"tiny:llama": edits}, pd.DataFrame(rows), items)


def sentences(of) -> tuple[str, ...]:
    """What is claimed of a plan, with plain spaces."""
    (claim,) = analysis.planned(of)
    return tuple(text.replace(wording.SPACE, " ") for text in claim.sentences)


def test_the_tests_of_a_plan_are_corrected_for_each_other_alone(sums, tmp_path):
    plan = study(sums, CRITICAL, {"task": "", "place": "2", "expect": "spared"})
    register(tmp_path, plan, 0)
    lost = {"baseline": 0, "0×0": 0, "1×0": 25, "2×0": 0}
    summary = summarised(plan, sums, [ScaleBlock(layer) for layer in range(3)], lost)
    of = planned(tmp_path, summary)
    first, second = of.outcomes
    p = [p_critical(Pairs(25, 5, 0)), p_spared(Pairs(0, 30, 0))]
    assert [first.p, second.p] == pytest.approx(p)
    assert [first.p_corrected, second.p_corrected] == pytest.approx(holm(p))
    assert [first.confirmed, second.confirmed] == [value <= 0.05 for value in holm(p)]
    shown = analysis.part(Material(summary.model_copy(update={"planned": of})))
    assert shown.claims == analysis.planned(of)
    lead, clearest = sentences(of)
    assert lead == "Confirmed: 2 of 2 expectations written down before any answer."
    assert clearest.startswith(f"Block 1 is critical for {sums}: drop 83.3 points [")
    frame = Table.of(shown.rows).frame
    assert list(frame["p_corrected"]) == pytest.approx(holm(p))
    assert list(frame["drop"]) == pytest.approx([25 / 30, 0])


def test_a_study_with_other_hypotheses_is_refused_and_nothing_is_asked(sums, tmp_path):
    evaluate(study(sums, CRITICAL), tmp_path / "out")
    changed = study(sums, {**CRITICAL, "place": "2"})
    oracle = Oracle()
    with pytest.raises(LesionError, match=r"was made on .* this study has other hypotheses"):
        evaluate(changed, tmp_path / "out", oracle)
    with pytest.raises(LesionError, match="this study has other hypotheses"):
        evaluate(study(sums), tmp_path / "out", oracle)
    with pytest.raises(LesionError, match="this study has other items"):
        evaluate(study(sums, CRITICAL, items=ITEMS + 1), tmp_path / "out", oracle)
    assert oracle.asked == []
    assert evaluate(study(sums, CRITICAL), tmp_path / "out").evaluated == 0


def test_a_plan_that_was_changed_after_it_was_made_is_refused(sums, tmp_path):
    evaluate(study(sums, CRITICAL), tmp_path / "out")
    path = tmp_path / "out" / FILE
    document = json.loads(path.read_text())
    document["content"]["hypotheses"][0]["place"] = "2"
    path.write_text(json.dumps(document))
    with pytest.raises(LesionError, match="was changed after it was made"):
        recall(tmp_path / "out")


def test_a_hypothesis_may_name_a_head_and_a_head_that_there_is_not_is_refused(sums, tmp_path):
    edits = {"edits": {"unit": ["head"], "layers": "1"}}
    plan = study(sums, {"task": "", "place": "1.attention.head.2", "expect": "spared"}, **edits)
    result = evaluate(plan, tmp_path / "heads")
    (outcome,) = result.summary.planned.outcomes
    assert outcome.place == "1.attention.head.2"
    assert outcome.drop is not None
    assert outcome.expected == f"head{wording.SPACE}1.2 spares {sums}"
    missing = study(sums, {"task": "", "place": "1.attention.head.99", "expect": "spared"}, **edits)
    with pytest.raises(UsageError, match=r"about 1\.attention\.head\.99, which this study does not evaluate"):
        evaluate(missing, tmp_path / "missing")
    with pytest.raises(UsageError, match="add its unit"):
        study(sums, {"task": "", "place": "1.attention.head.2", "expect": "spared"}, edits={"layers": "1"})


def test_hypotheses_that_come_after_answers_are_said_to_be_no_plan(sums, tmp_path):
    evaluate(study(sums), tmp_path / "out")
    outcome = evaluate(study(sums, CRITICAL), tmp_path / "out")
    assert outcome.summary.planned.answers == 4 * ITEMS
    assert f"after {4 * ITEMS} answers came, so that this is no plan" in sentences(outcome.summary.planned)[0]


def test_another_model_in_the_folder_is_not_part_of_the_plan(sums, tmp_path):
    evaluate(study(sums, CRITICAL), tmp_path / "out")
    both = study(sums, CRITICAL, models=["tiny:llama", "tiny:other"])
    models = {"tiny:llama": model("llama"), "tiny:other": model("gpt_neox")}
    outcome = run(both, tmp_path / "out", models=models, make_engine=Oracle())
    assert [each.model for each in outcome.summary.planned.outcomes] == ["tiny:llama"]


def test_the_command_writes_the_plan_before_the_study_runs(sums, tmp_path, capsys):
    plan = study(sums, CRITICAL, models=["bundled:llama-base"])
    file = tmp_path / "study.toml"
    file.write_text(plan.to_toml(), encoding="utf-8")
    done = lesion(capsys, "plan", file, "--out", tmp_path / "out")
    assert done.code == 0
    document = read(tmp_path / "out")
    assert document["sha256"] in done.out
    words = " ".join(done.out.split())
    assert all(
        f"{100 * each['power']:.0f} % at {100 * each['baseline']:.0f} %" in words for each in document["prospects"]
    )
    assert [each["power"] for each in document["prospects"]] == [
        power("critical", ITEMS, share, 0.75, 1) for share in (1.0, 0.75, 0.5, 0.25)
    ]
    again = lesion(capsys, "plan", file, "--out", tmp_path / "out")
    assert (again.code, "already" in again.out) == (0, True)
    outcome = run(plan, tmp_path / "out", models={"bundled:llama-base": model("llama")}, make_engine=Oracle())
    assert outcome.summary.planned.made == document["made"]


def test_without_hypotheses_or_about_what_is_not_evaluated_there_is_no_plan(sums):
    with pytest.raises(UsageError, match="no hypotheses"):
        prospects(study(sums))
    with pytest.raises(UsageError, match="not among the tasks"):
        Study.make(models=["m"], tasks=["a"], hypotheses=[{**CRITICAL, "task": "b"}])
    with pytest.raises(UsageError, match=r"add its unit to edits\.unit"):
        study(sums, {**CRITICAL, "place": "1.mlp"})
    with pytest.raises(UsageError, match="hypotheses"):
        study(sums, {**CRITICAL, "expect": "broken"})
    with pytest.raises(UsageError, match=r"two hypotheses are about 1 and"):
        study(sums, CRITICAL, {**CRITICAL, "expect": "spared"})


def test_a_planned_place_has_to_be_evaluated(sums, tmp_path):
    with pytest.raises(UsageError, match=r"about 9, which this study does not evaluate in tiny:llama"):
        evaluate(study(sums, {**CRITICAL, "place": "9"}), tmp_path / "a")
    with pytest.raises(UsageError, match=r"about 1, which this study does not evaluate"):
        evaluate(study(sums, CRITICAL, edits={"layers": "0"}), tmp_path / "b")
    evaluate(study(sums, CRITICAL), tmp_path / "c")
    with pytest.raises(UsageError, match=r"about 1, which this study does not evaluate"):
        evaluate(study(sums, CRITICAL, edits={"layers": "0"}), tmp_path / "c")


def test_the_command_refuses_a_place_that_the_model_does_not_have(sums, tmp_path, capsys):
    file = tmp_path / "study.toml"
    far = study(sums, {**CRITICAL, "place": "8"}, models=["bundled:llama-base"])
    file.write_text(far.to_toml(), encoding="utf-8")
    done = lesion(capsys, "plan", file, "--out", tmp_path / "out")
    refused(done, 2, "about 8, which this study does not evaluate in bundled:llama-base")
    assert not (tmp_path / "out").exists()


def test_a_refused_run_leaves_the_folder_as_it_was(sums, tmp_path):
    evaluate(study(sums, CRITICAL), tmp_path / "out")
    with pytest.raises(LesionError, match="other items"):
        evaluate(study(sums, CRITICAL, items=ITEMS + 1), tmp_path / "out")
    listener = Listener()
    run(study(sums, CRITICAL), tmp_path / "out", models={"tiny:llama": model("llama")}, make_engine=Oracle(),
        watcher=listener)  # fmt: skip
    assert not [note for note in listener.notes if "does not ask for" in note]


def test_a_test_that_did_not_pass_says_what_it_could_have_found(sums, tmp_path):
    plan = study(sums, CRITICAL, {"task": "", "place": "2", "expect": "spared"})
    register(tmp_path, plan, 0)
    summary = summarised(plan, sums, [ScaleBlock(1), ScaleBlock(2)], {"baseline": 10, "1×0": 18, "2×0": 14})
    of = planned(tmp_path, summary)
    assert [each.right for each in of.outcomes] == [20, 20]
    assert [each.detectable for each in of.outcomes] == [detectable(each.expect, 20, 2) for each in of.outcomes]
    loss = 100 * detectable("critical", 20, 2)
    told = sentences(of)
    assert told[0] == "Confirmed: 0 of 2 expectations written down before any answer."
    assert told[1].startswith(f"Not confirmed: block 1 is critical for {sums} (drop 26.7 points [")
    assert told[1].endswith(f"with 20 right answers, a loss of {loss:.0f} % or more is called critical.")


def test_what_is_not_measured_yet_is_counted(sums, tmp_path):
    plan = study(sums, CRITICAL, {"task": "", "place": "2", "expect": "spared"})
    register(tmp_path, plan, 0)
    summary = summarised(plan, sums, [ScaleBlock(2)], {"baseline": 0, "2×0": 0})
    assert sentences(planned(tmp_path, summary))[0].endswith("before any answer (1 not measured yet).")
