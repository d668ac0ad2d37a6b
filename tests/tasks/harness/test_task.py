"""Tasks of lm-evaluation-harness are asked and judged, item for item, as the harness does with its own `hf` model."""

import copy
import importlib.util
import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import lesion
from commandline import lesion as command
from harnesstasks import arithmetic, hushed, write_task, write_tasks
from lesion.edits.edit import ScaleBlock
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_gold, encode_solved
from lesion.tasks.harness import library as harness_library
from lesion.tasks.harness.rules import preferred
from lesion.tasks.task import Answer, Task
from lesion.tasks.wrapped import Gold

pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed: pip install 'lesion[harness]'")
pytestmark = pytest.mark.filterwarnings("ignore")

# Without its first block the model knows next to nothing.
DAMAGE = ScaleBlock(0)
GENERATED = ("local_gsm8k", "local_shots")
CHOSEN = ("local_arc", "local_arc_more", "local_winogrande", "local_lambada")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("harness") / "tasks")


@pytest.fixture(scope="module")
def model():
    return lesion.load("bundled:llama-base")


def harness_says(model, folder: Path, names, edit=None, **settings) -> dict[str, list[dict]]:
    """The harness's own record of every document, by task, from its `hf` model on the (edited) network."""
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    with hushed(), lesion.applied(model, edit) if edit is not None else nullcontext():
        lm = HFLM(pretrained=model.network, tokenizer=copy.deepcopy(model.tokenizer), batch_size=4)
        told = simple_evaluate(model=lm, tasks=list(names), task_manager=manager, bootstrap_iters=0, **settings)
    return told["samples"]


@pytest.fixture(scope="module")
def theirs(model, folder):
    names = (*GENERATED, *CHOSEN, "local_wikitext")
    return {edit: harness_says(model, folder, names, edit) for edit in (None, DAMAGE)}


@pytest.fixture(scope="module")
def ours(model, folder):
    """Every answer of a study over all tasks, baseline and damaged."""
    names = [f"harness:{name}?path={folder}" for name in (*GENERATED, *CHOSEN, "local_wikitext")]
    names += [f"harness:{name}?filter=flexible-extract&path={folder}" for name in GENERATED]
    names += [f"harness:local_arc?metric=acc_norm&path={folder}"]
    return lesion.ablate(model, names, items="all", layers="0").answers


def pairs(ours, theirs, folder, name: str, options: str = "", rule: str | None = None):
    """(our row, the harness's record) of every document, baseline and damaged."""
    typed = f"harness:{name}?{options}path={folder}"
    items = find(typed).load()
    for edit, records in theirs.items():
        rows = ours[(ours.task == typed) & (ours.edit == ("baseline" if edit is None else str(edit)))].set_index("item")
        for record in records[name]:
            if rule in (None, record["filter"]):
                yield rows.loc[items[record["doc_id"]].id], record


def mixed(verdicts) -> bool:
    """Whether some are right and some wrong, so that agreement says something."""
    return {*map(bool, verdicts)} == {True, False}


@pytest.mark.parametrize("rule", ["strict-match", "flexible-extract"])
@pytest.mark.parametrize("name", GENERATED)
def test_generated_answers_and_their_verdicts_are_the_harness_s(ours, theirs, folder, name, rule):
    options = "" if rule == "strict-match" else f"filter={rule}&"
    found = list(pairs(ours, theirs, folder, name, options, rule))
    for row, record in found:
        assert row.text == record["resps"][0][0]
        assert bool(row.correct) == bool(record["exact_match"])
        assert row.parsed == (None if record["filtered_resps"][0] == "[invalid]" else record["filtered_resps"][0])
    assert name == "local_shots" or mixed(row.correct for row, _ in found)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("local_arc", "acc"), ("local_arc", "acc_norm"), ("local_winogrande", "acc"), ("local_lambada", "acc")],
)
def test_choices_are_scored_and_judged_as_the_harness_does(ours, theirs, folder, name, metric):
    options = "" if metric == "acc" else f"metric={metric}&"
    found = list(pairs(ours, theirs, folder, name, options))
    for row, record in found:
        scores = [score for score, _ in record["filtered_resps"]]
        assert row.scores == pytest.approx(scores, rel=1e-4, abs=1e-5)
        assert bool(row.correct) == bool(record[metric])
    assert mixed(row.correct for row, _ in found)


def test_accuracy_by_length_differs_from_plain_accuracy_somewhere(theirs):
    records = theirs[DAMAGE]["local_arc"]
    assert [record["acc"] for record in records] != [record["acc_norm"] for record in records]


def test_a_continuation_is_right_when_greedy_decoding_says_it(ours, theirs, folder):
    for row, record in pairs(ours, theirs, folder, "local_lambada"):
        assert bool(row.correct) == record["filtered_resps"][0][1]
        assert row.parsed == (row.gold if row.correct else "")


def test_running_text_is_scored_as_in_the_harness_also_where_it_takes_several_windows(ours, theirs, folder, model):
    found = list(pairs(ours, theirs, folder, "local_wikitext"))
    for row, record in found:
        assert row.scores == pytest.approx([record["filtered_resps"][0]], rel=1e-5)
        assert row.tokens == len(model.tokenizer.encode(record["arguments"][0][0]))
        assert row.correct
    assert max(row.tokens for row, _ in found) > 2 * model.context


def test_a_prompt_that_is_too_long_loses_its_beginning_and_the_watcher_is_told(model, folder):
    notes = []
    watcher = type(
        "Notes", (), {"begin": lambda *_: 0, "answered": lambda *_: 0, "note": lambda _, text: notes.append(text)}
    )
    lesion.ablate(model, f"harness:local_shots?path={folder}", items=2, layers="1", watcher=watcher())
    assert any(
        "the prompt is longer than the context" in note and "its beginning is left out" in note for note in notes
    )


@pytest.mark.parametrize("shots", [0, 2])
def test_few_shot_prompts_are_those_of_the_harness_s_command(model, folder, shots):
    records = harness_says(model, folder, ["local_shots"], num_fewshot=shots, limit=6)["local_shots"]
    items = find(f"harness:local_shots?shots={shots}&path={folder}").load()
    wanted = {record["doc_id"]: record["arguments"][0][0] for record in records}
    assert {place: items[place].question for place in wanted} == wanted
    assert items[0].question.count("Question:") == shots + 1


def test_a_group_is_asked_as_one_task_whose_items_say_where_they_come_from(ours, folder):
    group = find(f"harness:local_group?path={folder}")
    assert isinstance(group, Task)
    members = {name: find(f"harness:{name}?path={folder}") for name in ("local_arc", "local_arc_more")}
    items = list(group.load())
    assert [item.group for item in items] == [name for name, task in members.items() for _ in task.load()]
    alone = [item for task in members.values() for item in task.load()]
    assert [(item.question, item.choices, item.gold) for item in items] == [
        (item.question, item.choices, item.gold) for item in alone
    ]
    for item, single in zip(items, alone, strict=True):
        scores = tuple(-1.0 - (choice != item.gold) for choice in item.choices)
        answer = Answer(item.gold, scores=scores, greedy=(False,) * len(scores))
        assert group.judge(item, answer).correct
        assert members[item.group].judge(single, answer).correct


def test_the_gold_answer_of_a_choice_has_the_score_of_that_choice(model, ours, folder):
    name = f"harness:local_arc?path={folder}"
    rows = ours[(ours.task == name) & (ours.edit == "baseline")].set_index("item")
    task = find(f"gold:{name}")
    for item in list(task.load())[:4]:
        prompt, continuation = encode_gold(model, task, item)
        (told,) = TransformersEngine(model).answer([Request("it", prompt, choices=(continuation,))])
        scores = dict(zip(item.choices, rows.loc[item.id].scores, strict=True))
        assert told.answer.scores[0] == pytest.approx(scores[item.gold], abs=1e-4)


def test_a_gold_solution_follows_its_prompt_as_in_the_harness_s_examples(model, folder):
    task = find(f"harness:local_gsm8k?path={folder}")
    item, row = task.load()[0], arithmetic(1)[0]
    prompt, continuation = encode_gold(model, Gold(task), item)
    text = f"Question: {row['question']}\nAnswer: {row['answer']}"
    assert [*prompt, *continuation] == model.tokenizer.encode(text)
    assert list(encode_solved(model, task, item)) == model.tokenizer.encode(text)
    assert calibration_items(task) == task.load()


def test_the_choice_of_a_metric_is_the_largest_for_its_length():
    rng = np.random.default_rng(0)
    for _ in range(50):
        choices = ["é" * int(rng.integers(1, 9)) + "a" * int(rng.integers(0, 9)) for _ in range(4)]
        scores = tuple(map(float, -rng.exponential(5, 4)))
        plain, norm, size = (preferred(metric, scores, choices) for metric in ("acc", "acc_norm", "acc_bytes"))
        assert scores[plain] == max(scores)
        assert scores[norm] / len(choices[norm]) == max(s / len(c) for s, c in zip(scores, choices, strict=True))
        per_byte = [s / len(c.encode()) for s, c in zip(scores, choices, strict=True)]
        assert per_byte[size] == max(per_byte)


def test_broken_off_answers_are_read_by_nobody(folder):
    task = find(f"harness:local_arc?path={folder}")
    assert not task.judge(task.load()[0], Answer("", finish="nonfinite")).correct
    text = find(f"harness:local_wikitext?path={folder}")
    assert not text.judge(text.load()[0], Answer("", finish="nonfinite")).correct


def test_an_engine_that_does_not_tell_of_greedy_decoding_cannot_be_judged_by_it(folder):
    task = find(f"harness:local_lambada?path={folder}")
    with pytest.raises(LesionError, match="choose another: --engine transformers"):
        task.judge(task.load()[0], Answer("", scores=(-1.0,)))


def test_what_an_answer_is_judged_by_is_part_of_the_items(folder, tmp_path):
    def rules(pattern: str) -> str:
        reader = [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]
        write_task(
            tmp_path, "mine", arithmetic(2), include="gsm8k/gsm8k.yaml", filter_list=[{"name": "x", "filter": reader}]
        )
        return find(f"harness:mine?shots=0&path={tmp_path}").load()[0].metadata["rules"]

    assert rules("#### ([0-9]+)") == rules("#### ([0-9]+)") != rules("([0-9]+)")


def refusal(folder: Path, name: str, error=UsageError) -> str:
    with pytest.raises(error) as caught:
        find(name.replace("HERE", f"path={folder}"))
    return str(caught.value)


def test_names_that_do_not_exist_are_told_with_the_nearest(folder):
    assert "no task 'gsm8k_cott' (nearest: gsm8k_cot," in refusal(folder, "harness:gsm8k_cott")
    said = refusal(folder, "harness:local_ark?HERE")
    assert "nearest: local_arc" in said
    assert f"{folder} has local_arc, local_arc_more, local_group, local_gsm8k" in said
    assert "it has strict-match, flexible-extract" in refusal(folder, "harness:local_gsm8k?filter=none&HERE")
    assert "nearest: acc_norm" in refusal(folder, "harness:local_arc?metric=acc_nom&HERE")
    assert "is no folder" in refusal(folder, f"harness:x?path={folder}/none")
    assert "give the folder" in refusal(folder, f"harness:x?path={folder}/local_arc.yaml")
    assert "harness:NAME" in refusal(folder, "harnes:gsm8k")


def test_a_task_whose_metric_says_neither_right_nor_wrong_is_refused_by_name(tmp_path, folder):
    for metric, how in (("bleu", "bleu"), ("f1", "mean")):
        write_task(
            tmp_path,
            f"by_{metric}",
            arithmetic(2),
            include="gsm8k/gsm8k.yaml",
            filter_list=None,
            metric_list=[{"metric": metric, "aggregation": how, "higher_is_better": True}],
        )
    said = refusal(tmp_path, "harness:by_bleu?HERE")
    assert "bleu is no mean over answers" in said
    assert "lesion.harness_model --model lesion" in said
    assert "f1 counts parts of an answer" in refusal(tmp_path, "harness:by_f1?HERE")
    assert "these do: acc" in refusal(folder, "harness:local_lambada?metric=perplexity&HERE")
    assert "has no right and wrong answers" in refusal(folder, "harness:local_wikitext?metric=acc&HERE")


JUDGES = """
def overlap(doc, results):
    said, gold = (set(text.split()) for text in (results[0], doc["answer"]))
    shared = len(said & gold) / max(1, len(said | gold))
    return {"score": shared, "same": float(said == gold), "errors": float(said != gold)}

def strict(doc, results):
    if results[0] != doc["answer"]:
        raise ValueError("this is no answer")
    return {"score": 1.0}
"""


def judged(folder: Path, name: str, judge: str, *metrics: str) -> str:
    """The name of a task whose answers are judged by a function of its own."""
    listed = [{"metric": one, "aggregation": "mean", "higher_is_better": one != "errors"} for one in metrics]
    rules = {"include": "gsm8k/gsm8k.yaml", "num_fewshot": 0, "filter_list": None, "metric_list": listed}
    write_task(folder, name, arithmetic(3), **rules)
    (folder / "judges.py").write_text(JUDGES, encoding="utf-8")
    with (folder / f"{name}.yaml").open("a", encoding="utf-8") as file:
        file.write(f"\nprocess_results: !function judges.{judge}\n")
    return f"harness:{name}?path={folder}"


def test_a_metric_that_gives_fractions_is_refused_before_a_model_is_loaded(tmp_path, capsys, monkeypatch):
    name = judged(tmp_path, "overlaps", "overlap", "score")
    said = refusal(tmp_path, name)
    # Half of a right answer shares about half of its words with it.
    assert re.search(r"score gives 0\.\d+ to an answer, which is neither right \(1\) nor wrong \(0\)", said)
    monkeypatch.setattr("lesion.engines.factory.load", lambda *_, **__: pytest.fail("a model was loaded"))
    told = command(capsys, "ablate", "bundled:llama-base", "--task", name, "--out", tmp_path / "study")
    assert told.code == 2
    assert "score gives 0." in told.err


def test_of_several_metrics_the_one_that_says_right_or_wrong_is_taken(tmp_path):
    name = judged(tmp_path, "several", "overlap", "score", "same")
    assert find(name).subtasks["several"].metric == "same"
    said = refusal(tmp_path, f"{name}&metric=score")
    assert "The metric score of" in said
    assert "these do: same." in said


def test_a_metric_that_is_better_the_lower_it_is_does_not_say_right(tmp_path):
    said = refusal(tmp_path, judged(tmp_path, "mistaken", "overlap", "errors"))
    assert "errors is better the lower it is, so that 1 does not mean right" in said


def test_a_judge_that_fails_on_made_up_answers_is_given_the_benefit_of_the_doubt(tmp_path):
    task = find(judged(tmp_path, "strict", "strict", "score"))
    item = task.load()[0]
    assert task.judge(item, Answer(item.gold)).correct


def test_a_metric_that_turns_out_to_be_a_fraction_is_refused_at_the_first_answer(folder, monkeypatch):
    task = find(f"harness:local_gsm8k?path={folder}")
    monkeypatch.setattr(task.subtasks["local_gsm8k"].task, "process_results", lambda *_: {"exact_match": 0.5})
    with pytest.raises(LesionError, match=r"exact_match of local_gsm8k gave 0\.5"):
        task.judge(task.load()[0], Answer("#### 3"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"do_sample": True, "temperature": 0.7}, "wants to sample its answers"),
        ({"num_beams": 4}, "wants to decode with num_beams"),
    ],
)
def test_a_task_that_wants_another_decoding_is_asked_only_when_that_is_said(tmp_path, settings, said):
    name = f"decoded_{next(iter(settings))}"
    write_task(
        tmp_path,
        name,
        arithmetic(2),
        include="gsm8k/gsm8k.yaml",
        num_fewshot=0,
        generation_kwargs={"until": "\n", "max_gen_toks": 7, "repetition_penalty": 1.0, **settings},
    )
    message = refusal(tmp_path, f"harness:{name}?HERE")
    assert said in message
    assert f"write 'harness:{name}?path={tmp_path}&decoding=study'" in message
    task = find(f"harness:{name}?path={tmp_path}&decoding=study")
    assert (task.max_new_tokens, task.stop) == (7, ("\n",))


def test_what_lesion_cannot_ask_of_a_task_is_refused(tmp_path, folder):
    write_task(tmp_path, "code", arithmetic(2), include="gsm8k/gsm8k.yaml", unsafe_code=True)
    write_task(tmp_path, "none", arithmetic(2), include="gsm8k/gsm8k.yaml", num_fewshot=0)
    assert "runs the code that a model writes" in refusal(tmp_path, "harness:code?HERE")
    assert "solved questions to 0 by itself" in refusal(tmp_path, "harness:none?shots=3&HERE")
    (tmp_path / "none.json").unlink()
    assert "could not be loaded" in refusal(tmp_path, "harness:none?HERE", LesionError)
    assert "take 'harness:local_arc" in refusal(folder, "fewshot:3:harness:local_arc?HERE")
    assert "instead of shuffled: take gold:harness:local_arc" in refusal(folder, "shuffled:harness:local_arc?HERE")


def test_a_group_of_tasks_that_are_asked_differently_is_refused_with_their_names(tmp_path):
    write_tasks(tmp_path)
    (tmp_path / "all.yaml").write_text("group: all_of_them\ntask:\n  - local_arc\n  - local_gsm8k\n")
    assert "ask one of them: local_arc, local_gsm8k" in refusal(tmp_path, "harness:all_of_them?HERE")


def test_other_prompt_styles_are_refused_before_anything_is_asked(model, folder):
    with pytest.raises(UsageError, match="without a style; leave prompt_style 'plain' out"):
        lesion.ablate(model, f"harness:local_arc?path={folder}", items=2, prompt_style="plain")


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "lm_eval" else there(name, *rest)
    )
    with pytest.raises(UsageError, match=r"pip install 'lesion\[harness\]'"):
        find("harness:gsm8k_cot")


def test_the_packaged_tasks_are_known_without_an_index_of_them_all():
    known = harness_library.packaged()
    assert known["gsm8k_cot"].name == "gsm8k-cot.yaml"
    assert {"mmlu", "arc_easy", "winogrande", "lambada_openai"} <= set(known)
