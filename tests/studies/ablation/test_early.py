"""Early answers of a layer study: those of plain decoding behind the beginning of every chain."""

import pytest

import lesion as api
from alone import greedy
from commandline import lesion, write
from lesion.core.store import Store
from lesion.edits.edit import as_edit
from lesion.errors import UsageError
from lesion.models.load import load
from lesion.studies.ablation.analyses import chains
from lesion.studies.ablation.result import Material
from lesion.tasks.catalogue import find
from lesion.tasks.early import EarlyAnswers, early_name
from lesion.tasks.prompts import encode

ITEMS, LIMITS = 4, (0, 3, 6)


@pytest.fixture(scope="module")
def bundled():
    return load("bundled:llama-base", dtype="float32")


@pytest.fixture(scope="module")
def task(tmp_path_factory) -> str:
    """Calculations of the primer as a file of GSM8K."""
    items = find("primer:arithmetic").load()[:ITEMS]
    rows = [{"question": item.question, "answer": f"{item.solution} #### {item.gold}"} for item in items]
    return f"gsm8k:{write(tmp_path_factory.mktemp('task') / 'sums.jsonl', rows)}"


@pytest.fixture(scope="module")
def result(bundled, task, tmp_path_factory):
    return api.ablate(
        bundled, task, layers=[2, 5], items="all", max_new_tokens=20, early_answers=LIMITS, anyway=True,
        out=str(tmp_path_factory.mktemp("study") / "out"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def answers(result):
    with Store.read(result.folder) as store:
        return store.answers()


def test_early_answers_are_those_of_plain_decoding_behind_the_beginning_of_the_chain(bundled, task, answers):
    whole = answers[answers["task"] == task].set_index(["edit", "item"])
    assert len(whole) == 3 * ITEMS
    asked = 0
    for limit in LIMITS:
        early = answers[answers["task"] == early_name(task, limit)].set_index(["edit", "item"])
        said = whole["tokens"] - (whole["finish"] == "stop")  # without the token that ended it
        assert set(early.index) == set(whole.index[said > limit])
        for (edit, item), row in early.iterrows():
            of = EarlyAnswers(find(task), limit)
            question = next(each for each in of.load() if each.id == item)
            prompt = encode(bundled, find(task), question, row["prompt_style"], max_new_tokens=1)
            start = of.asked(bundled.tokenizer, prompt, whole.loc[edit, item]["text"])
            guess = bundled.tokenizer(row["text"], add_special_tokens=False)["input_ids"]
            # Three tokens more than what was answered: behind it stands its end, or the texts differ.
            said = greedy(bundled, start, as_edit(edit), min(24, len(guess) + 3), guess)
            text = bundled.tokenizer.decode(said, skip_special_tokens=True).partition("\n")[0]
            assert row["text"] == text, (limit, edit, item)
            asked += 1
    assert asked


def test_the_accuracy_at_a_limit_takes_early_answers_of_longer_chains_and_the_others_as_they_are(task, result, answers):
    own = answers[(answers["task"] == task) & (answers["edit"] == "baseline")]
    late = answers[(answers["task"] == early_name(task, 3)) & (answers["edit"] == "baseline")].set_index("item")
    (curve, *_) = Material(result.summary).curves
    about = {"model": curve.model, "task": task, "unit": curve.unit, "factor": curve.factor}
    under = chains.Under(**about, cut="unedited", edit="baseline")
    texts = chains.Texts(under, own, chains.Language.of((), list(own["text"])), {3: late.reset_index()})
    naive = [
        bool(late.loc[row["item"]]["correct"]) if row["tokens"] > 3 else bool(row["correct"])
        for _, row in own.iterrows()
    ]
    assert texts.answered(3).tolist() == naive
    rows = {row.limit: row for row in texts.within(0.95)}
    assert rows[3].early.value == sum(naive) / len(naive)
    assert texts.answered(4) is None
    assert all(row.early is None for limit, row in rows.items() if limit != 3)


def test_the_same_command_asks_nothing_again(bundled, task, result):
    again = api.ablate(
        bundled, task, layers=[2, 5], items="all", max_new_tokens=20, early_answers=LIMITS, anyway=True,
        out=str(result.folder),
    )  # fmt: skip
    assert again.evaluated == 0
    assert again.summary == result.summary


@pytest.mark.parametrize(
    ("tasks", "options", "says"),
    [
        (("primer:atlas",), {}, "none of the tasks is judged as mathematics"),
        ((), {"stop_when": "decided"}, "do not go together"),
    ],
)
def test_where_there_are_no_chains_to_cut_off_it_is_refused(tasks, options, says, bundled, task, tmp_path):
    with pytest.raises(UsageError, match=says):
        api.ablate(bundled, tasks or task, early_answers=4, items=ITEMS, out=str(tmp_path / "o"), **options)


def test_questions_of_ones_own_that_are_judged_as_mathematics_have_chains_too(bundled, tmp_path):
    rows = [{"prompt": f"{n} + 1 =", "answer": str(n + 1)} for n in range(3)]
    own = f"{write(tmp_path / 'own.jsonl', rows)}?judge=math"
    result = api.ablate(
        bundled, own, layers=[2], max_new_tokens=6, early_answers=[3, 9], anyway=True, out=str(tmp_path / "o")
    )
    with Store.read(result.folder) as store:
        tasks = store.answers().groupby("task")["tokens"].agg(["size", "max"])
    assert early_name(own, 3) in tasks.index
    assert early_name(own, 9) not in tasks.index


def test_as_many_early_answers_as_may_follow_are_announced_also_where_the_chains_are_there(task, tmp_path, capsys):
    def asked(layers, *more):
        options = ["--layers", layers, "--items", 2, "--max-new-tokens", 8, "--anyway", "--out", tmp_path / "o"]
        tasks = ["--task", task, "--task", "primer:atlas"]
        return lesion(capsys, "ablate", "bundled:llama-base", *tasks, *options, *more)

    assert asked("2").code == 0
    # Two items of the one task of chains, unedited and without two blocks, each after 0 and after 2 tokens.
    assert "Up to 12 early answers follow" in " ".join(asked("2,5", "--early-answers", "0,2").err.split())


def test_that_no_chain_is_long_enough_is_said(task, tmp_path, capsys):
    options = ["--layers", 2, "--items", 2, "--max-new-tokens", 4, "--early-answers", 50, "--anyway"]
    done = lesion(capsys, "ablate", "bundled:llama-base", "--task", task, *options, "--out", tmp_path / "o")
    assert done.code == 0
    assert "longer than 50 tokens" in " ".join(done.err.split())


def test_a_chain_that_leaves_no_room_in_the_context_is_said_and_stops_nothing(task, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(EarlyAnswers, "asked", lambda self, tokenizer, prompt, chain: (5,) * 512)
    options = ["--layers", 2, "--items", 2, "--max-new-tokens", 8, "--early-answers", 3, "--anyway"]
    done = lesion(capsys, "ablate", "bundled:llama-base", "--task", task, *options, "--out", tmp_path / "o")
    assert done.code == 0
    assert "has no room for some of early:3" in " ".join(done.err.split())
