"""Evaluating edits of weights: what is planned, asked and kept, and that the answers are those of the edited model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from oracle import Listener, Oracle, observed

from commandline import questions, write
from lesion.core.run import Run
from lesion.core.store import Store
from lesion.edits.apply import applied
from lesion.edits.edit import ScaleParameters
from lesion.edits.selections.controls import Random
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.selection import count
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import LesionError, UsageError
from lesion.studies.isolation.plan import BOOSTS, CandidateEdit, plan, read_plan
from lesion.studies.isolation.run import evaluate
from lesion.studies.isolation.study import EvaluationStudy
from tiny import tokenizer

ITEMS = 6


@pytest.fixture
def sums(tmp_path) -> Path:
    rows = ({"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": "right"} for n in range(ITEMS))
    return write(tmp_path / "sums.jsonl", rows)


def study(*tasks: Path | str, **values) -> EvaluationStudy:
    told = {"model": "tiny:llama", "items": ITEMS, "decoding": {"max_new_tokens": 4}, **values}
    return EvaluationStudy.make(tasks=[str(task) for task in tasks], **told)


def mathneuro(llama, keep: float = 0.1, seed: int = 1) -> MathNeuro:
    return MathNeuro(observed(llama, seed), (observed(llama, seed + 50),), keep)


def planned(llama, *selections, factors=(0.0,), controls: int = 2):
    return plan(
        llama, [CandidateEdit(ScaleParameters(selection), 10, 0) for selection in selections], factors, controls
    )


def asked(llama, folder: Path, what: EvaluationStudy, made, engine=None, watcher=None, **roles):
    run = Run.at(folder, "isolation", watcher or Listener(), engine or Oracle())
    return evaluate(what, what.model, llama, made, run, **roles)


def test_a_boost_stands_beside_the_block_and_the_mlp_that_hold_most_of_its_weights(llama):
    selection = mathneuro(llama)
    selected: dict[int, int] = {}
    for part in count(selection, llama):
        if part.block is not None:
            selected[part.block] = selected.get(part.block, 0) + part.selected
    most = max(selected, key=selected.__getitem__)
    entries, edits, _ = planned(llama, selection, factors=(0.0, 1.5), controls=1)
    boost = next(entry for entry in entries if entry.tried and entry.factor == 1.5)
    expected = [f"{most}{unit}×{factor:g}" for unit in ("", ".mlp") for factor in BOOSTS]
    assert list(boost.rivals) == expected == [entry.edit for entry in entries if entry.rival_of == boost.edit]
    assert {str(edits[name]) for name in expected} == set(expected)
    assert all(not entry.rivals for entry in entries if entry is not boost)
    # A boost of weights that lie in no block has none.
    (head,) = (entry for entry in planned(llama, Listed(("head[3,4]",)), factors=(1.5,))[0] if entry.tried)
    assert not head.rivals


def test_every_edit_under_every_factor_is_planned_with_its_random_controls(llama):
    one, other = mathneuro(llama), mathneuro(llama, 0.2)
    entries, edits, _ = planned(llama, one, other, factors=(0.0, 1.5), controls=3)
    own = [entry for entry in entries if entry.tried]
    assert [(entry.label, entry.factor) for entry in own] == [
        (label, factor) for label in ("mathneuro-0.1", "mathneuro-0.2") for factor in (0.0, 1.5)
    ]
    assert list(edits) == [entry.edit for entry in entries]
    for entry in own:
        drawn = [e for e in entries if e.random_of == entry.edit]
        assert tuple(e.edit for e in drawn) == entry.randoms
        assert [(e.method, e.seed, e.factor, e.selected) for e in drawn] == [
            ("random", seed, entry.factor, entry.selected) for seed in range(3)
        ]
        assert (entry.method, entry.samples, entry.repeat, entry.seed) == ("mathneuro", 10, 0, None)
        assert entry.achieved == pytest.approx(entry.factor, abs=1e-6)
        assert entry.share == entry.selected / entry.total


def test_selections_of_equal_counts_in_every_matrix_share_their_random_controls(llama):
    one, other = Wanda(observed(llama, 1), 0.1), Wanda(observed(llama, 2), 0.1)
    assert [c.selected for c in count(one, llama)] == [c.selected for c in count(other, llama)]
    entries, *_ = planned(llama, one, other, mathneuro(llama), factors=(0.0, 2.0))
    by = {(entry.label, entry.digest, entry.factor): entry for entry in entries}
    for factor in (0.0, 2.0):
        first, second = by[one.label, one.digest, factor], by[other.label, other.digest, factor]
        assert first.randoms == second.randoms != ()
        assert {e.random_of for e in entries if e.edit in first.randoms} == {first.edit}
    assert by[one.label, one.digest, 0.0].randoms != by[one.label, one.digest, 2.0].randoms
    # Two selections × two factors share two draws a factor; the third has its own.
    assert len([e for e in entries if e.random_of is not None]) == 2 * 2 + 2 * 2


def test_a_factor_of_one_is_left_out_with_a_note(llama):
    entries, _, notes = planned(llama, mathneuro(llama), factors=(0.0, 1.0), controls=0)
    assert [entry.factor for entry in entries] == [0.0]
    assert notes == ("The factor 1 changes nothing and is not asked: it is the baseline.",)
    with pytest.raises(UsageError, match=r"×1: the factor 1 changes nothing, .* another factor, such as 0"):
        planned(llama, mathneuro(llama), factors=(1.0,))


def test_an_empty_selection_is_refused(llama):
    with pytest.raises(LesionError, match="is empty on tiny:llama"):
        planned(llama, Magnitude(0.1, ("9.mlp.up",)))


def test_baseline_and_every_edit_are_asked_every_item_once(llama, sums, tmp_path):
    oracle, listener = Oracle(), Listener()
    made = planned(llama, mathneuro(llama))
    summary, new, total = asked(llama, tmp_path / "out", study(sums), made, oracle, watcher=listener)
    cells = Counter((request.prompt, str(request.edit)) for request in oracle.asked)
    assert set(cells.values()) == {1}
    assert {name for _, name in cells} == {"baseline", *(entry.edit for entry in made[0])}
    assert (new, total, len(cells), listener.count) == (4 * ITEMS, 4 * ITEMS, 4 * ITEMS, 4 * ITEMS)
    assert listener.begun == [("tiny:llama", ITEMS, 0), ("tiny:llama", 4 * ITEMS, ITEMS)]  # the baseline first
    assert [cell.edit for cell in summary.tasks[0].cells] == [entry.edit for entry in made[0]]
    assert summary.tasks[0].cells[0].random.draws == 2


def test_edits_added_to_a_folder_later_are_all_that_is_asked_and_the_summary_holds_both(llama, sums, tmp_path):
    first = planned(llama, mathneuro(llama), controls=1)
    asked(llama, tmp_path / "out", study(sums), first, skill=str(sums), notes=["note one"])
    second = planned(llama, mathneuro(llama, 0.3), controls=1)
    oracle = Oracle()
    summary, new, total = asked(llama, tmp_path / "out", study(sums), second, oracle, notes=["note two"])
    assert oracle.edits == [entry.edit for entry in second[0]]
    assert (new, total) == (2 * ITEMS, 3 * ITEMS)
    assert [entry.edit for entry in summary.edits] == [entry.edit for entry in (*first[0], *second[0])]
    kept = read_plan(tmp_path / "out")
    assert (kept.skill, kept.notes) == (str(sums), ("note one", "note two"))
    # The same in one go: the same numbers.
    both = planned(llama, mathneuro(llama), mathneuro(llama, 0.3), controls=1)
    whole, _, _ = asked(llama, tmp_path / "whole", study(sums), both, skill=str(sums))
    assert whole.tasks == summary.tasks


def test_asking_for_fewer_random_controls_later_does_not_forget_those_that_were_asked(llama, sums, tmp_path):
    asked(llama, tmp_path / "out", study(sums), planned(llama, mathneuro(llama), controls=3))
    oracle = Oracle()
    summary, new, _ = asked(llama, tmp_path / "out", study(sums), planned(llama, mathneuro(llama), controls=1), oracle)
    assert (new, oracle.asked) == (0, [])
    assert summary.tasks[0].cells[0].random.draws == 3


def test_more_tasks_and_items_are_asked_beside_those_there_and_give_what_one_run_gives(llama, sums, tmp_path):
    other = questions(tmp_path / "other.jsonl", ITEMS)
    made = planned(llama, mathneuro(llama), controls=1)
    few, evaluated, _ = asked(llama, tmp_path / "out", study(sums, items=4), made)
    assert evaluated == 4 * 3
    engine = Oracle()
    grown, evaluated, _ = asked(llama, tmp_path / "out", study(sums, other), made, engine)
    whole, *_ = asked(llama, tmp_path / "whole", study(sums, other), made)
    assert grown == whole
    assert len(engine.asked) == evaluated == 2 * ITEMS * 3 - 4 * 3
    again, evaluated, _ = asked(llama, tmp_path / "out", study(sums, items=4), made, Oracle(0))
    assert evaluated == 0
    assert again == few


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"edits": []}', "null"])
def test_a_damaged_plan_is_told_in_words(damage, tmp_path):
    (tmp_path / "plan.json").write_text(damage)
    with pytest.raises(LesionError, match=r"plan\.json is damaged \(.+\); remove it"):
        read_plan(tmp_path)


def test_chance_is_the_accuracy_of_guessing_whatever_the_kind_of_task(llama, sums, tmp_path):
    """Half of the candidate years are later, one of four choices is right, and a sum is not guessed."""
    rows = ({"id": f"q{n}", "prompt": f"{n}?", "choices": list("abcd"), "answer": "abcd"[n % 4]} for n in range(ITEMS))
    quiz = write(tmp_path / "quiz.jsonl", rows)
    expected = {"greater_than": 0.5, str(sums): 0.0, str(quiz): 0.25}
    found, _, _ = asked(llama, tmp_path / "out", study(*expected), planned(llama, mathneuro(llama), controls=0))
    assert {task.name: task.chance for task in found.tasks} == expected
    assert json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))["chance"] == expected


def naive(llama, prompt: str, tokens: int) -> str:
    spell = tokenizer()
    ids = torch.tensor([spell(prompt).input_ids])
    with torch.inference_mode():
        out = llama.network.generate(ids, max_new_tokens=tokens, do_sample=False, pad_token_id=0)
    text = spell.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    return text.partition("\n")[0]


def test_answers_are_those_of_plain_generation_with_one_edit_at_a_time(llama, tmp_path):
    task = questions(tmp_path / "q.jsonl", 5)
    made = planned(llama, mathneuro(llama, 0.3), factors=(0.0, 3.0), controls=1)
    entries, edits, _ = made
    what = study(task, items="all", decoding={"max_new_tokens": 6})
    evaluate(what, what.model, llama, made, Run.at(tmp_path / "out", "isolation", Listener()))
    with Store.read(tmp_path / "out") as store:
        found = store.answers()
    told = {(row["edit"], row["question"]): row["text"] for row in found.to_dict("records")}
    assert len(told) == 5 * (1 + len(entries))
    for name in ("baseline", *edits):
        for n in range(5):
            prompt = f"{n} + {n} ="
            if name == "baseline":
                assert told[name, prompt] == naive(llama, prompt, 6)
            else:
                with applied(llama, edits[name]):
                    assert told[name, prompt] == naive(llama, prompt, 6)
    # What is compared must differ somewhere, or the edits were never there.
    assert any(told[name, f"{n} + {n} ="] != told["baseline", f"{n} + {n} ="] for name in edits for n in range(5))


def test_running_text_is_scored_under_every_edit_as_plain_logits_say(llama, tmp_path):
    (tmp_path / "prose.txt").write_text("once there was a fox. it ran.\n\n" * 3)
    made = planned(llama, mathneuro(llama, 0.3), controls=0)
    what = study(f"text:{tmp_path / 'prose.txt'}", items="all")
    entries, edits, _ = made
    summary, _, _ = evaluate(what, what.model, llama, made, Run.at(tmp_path / "out", "isolation", Listener()))
    ids = torch.tensor([tokenizer()(("once there was a fox. it ran.\n\n" * 3).strip()).input_ids])

    def loss() -> float:
        with torch.inference_mode():
            logits = llama.network(ids).logits[0].double().log_softmax(-1)
        return -float(logits[:-1].gather(1, ids[0, 1:, None]).mean())

    (task,) = summary.tasks
    assert task.baseline.tokens == ids.shape[1] - 1
    assert task.baseline.result.value == pytest.approx(torch.tensor(loss()).exp().item(), rel=1e-4)
    with applied(llama, edits[entries[0].edit]):
        edited = loss()
    assert task.cells[0].result.value == pytest.approx(torch.tensor(edited).exp().item(), rel=1e-4)


def test_an_edit_that_breaks_the_model_everywhere_is_told_and_the_others_are_not_lost(llama, tmp_path):
    (tmp_path / "prose.txt").write_text("once there was a fox. it ran.\n\n" * 3)
    sums = questions(tmp_path / "q.jsonl", 3)
    made = planned(llama, mathneuro(llama, 0.3), factors=(0.0, 1e30), controls=0)
    what = study(f"text:{tmp_path / 'prose.txt'}", sums, items="all")

    summary, _, _ = evaluate(what, what.model, llama, made, Run.at(tmp_path / "out", "isolation", Listener()))
    text, numbers = summary.tasks
    assert text.cells[0].result.value is not None
    assert (text.cells[1].result.value, text.cells[1].rates.nonfinite) == (None, 1)
    assert (numbers.cells[1].result.value, numbers.cells[1].rates.nonfinite) == (0, 1)


def test_a_random_control_moves_as_many_weights_of_every_matrix(llama):
    selection = mathneuro(llama)
    entries, edits, _ = planned(llama, selection, controls=2)
    counts = {c.address: c.selected for c in count(selection, llama)}
    for entry in entries[1:]:
        edit = edits[entry.edit]
        assert isinstance(edit, ScaleParameters)
        assert isinstance(edit.selection, Random)
        assert {c.address: c.selected for c in count(edit.selection, llama)} == counts


def test_planning_leaves_the_weights_as_they_were(llama):
    before = {name: tensor.clone() for name, tensor in llama.network.state_dict().items()}
    planned(llama, mathneuro(llama), factors=(0.0, -3.0))
    for name, tensor in llama.network.state_dict().items():
        assert torch.equal(tensor.view(torch.int32), before[name].view(torch.int32)), name
