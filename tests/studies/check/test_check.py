"""A check: prompts exactly as they are sent, what is odd about answers, and what would make more of them right."""

import json
from pathlib import Path
from typing import Any

import pytest

import lesion
from commandline import lesion as command
from lesion.core.readiness import CheckedTask, OddAnswers, OtherStyle, oddities
from lesion.core.row import StoredAnswer
from lesion.report.values import Estimate
from lesion.studies.check.report import CheckResult, CheckSummary, readiness
from lesion.tasks.task import Item

EXACT = Item("1", "Q: What is 2 + 2?", "4", metadata={"judge": "exact"})


def answer(text: str, *, correct: bool = False, parsed: str | None = "", finish: str = "stop") -> StoredAnswer:
    read = (text.strip() or None) if parsed == "" else parsed
    return StoredAnswer("f", "m", "baseline", "t", "1", "greedy", "raw", text, 3, finish, correct, read)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "odd"),
    [
        (answer("4", correct=True), ()),
        (answer(" \n"), ("empty",)),
        (answer("q:  what is 2 + 2? I wonder"), ("echoes the question",)),
        (answer("4\nQ: What is 3 + 3?\n6"), ("goes on", "right within a sentence")),
        (answer("well, let me", finish="length"), ("cut off",)),
        (answer("well", parsed=None), ("unread",)),
        (answer("The answer is 4."), ("right within a sentence",)),
        (answer("The answer is 44."), ()),
    ],
)
def test_what_is_odd_about_an_answer(said: StoredAnswer, odd: tuple[str, ...]) -> None:
    assert oddities(EXACT, said, generated=True) == odd


def test_a_choice_can_only_be_unread() -> None:
    assert oddities(EXACT, answer("", parsed=None), generated=False) == ()
    assert oddities(EXACT, answer("yes", parsed=None), generated=False) == ("unread",)


def checked(
    right: int, *odd: tuple[str, int], guessing: float = 0.0, other: OtherStyle | None = None, **rest: Any
) -> CheckedTask:
    values = {"surprise": 2.0, "random": 10.0, "style": "raw", "chosen": False, "kind": "generate", **rest}
    return CheckedTask(
        task="t",
        items=10,
        right=right,
        accuracy=Estimate(value=right / 10),
        guessing=guessing,
        tokens=3.0,
        at_limit=4,
        odd=tuple(OddAnswers(oddity=name, answers=count) for name, count in odd),
        other=other,
        prompts=(),
        **values,
    )


@pytest.mark.parametrize(
    ("task", "says", "chat"),
    [
        (checked(9), "9 of 10 answers are right.", True),
        (
            checked(0, ("empty", 10), other=OtherStyle(style="chat", right=9, within=0)),
            "0 of 10 answers are right; 10 are empty. This is a chat model, and the prompts are not in its chat"
            " template. With --prompt-style chat 9 of 10 are right.",
            True,
        ),
        (
            checked(1, ("right within a sentence", 8)),
            "1 of 10 answers are right; 8 are judged wrong though the gold answer stands in them."
            " With --task 't?judge=contains' 9 of 10 are right.",
            True,
        ),
        (
            checked(0, ("empty", 10), other=OtherStyle(style="plain", right=0, within=8)),
            "0 of 10 answers are right; 10 are empty. With --prompt-style plain and --task 't?judge=contains'"
            " 8 of 10 are right.",
            False,
        ),
        (
            checked(2, ("cut off", 8)),
            "2 of 10 answers are right; 8 are cut off at the token limit. Many answers meet the limit of 4 tokens:"
            " try more with --max-new-tokens.",
            True,
        ),
        (checked(10, guessing=0.5), "10 of 10 answers are right, and guessing has 50 %.", False),
        (
            checked(6, guessing=0.5),
            "6 of 10 answers are right, and guessing has 50 %. 10 questions do not tell this from guessing: check more"
            " with --items, or give an easier task.",
            False,
        ),
        (
            checked(0, ("cut off", 8), surprise=11.2),
            "0 of 10 answers are right; 8 are cut off at the token limit. The prompts surprise the model as random"
            " tokens would (11.2 nats a token; random 10.0): does the tokenizer belong to these weights? Many answers"
            " meet the limit of 4 tokens: try more with --max-new-tokens.",
            True,
        ),
        (
            checked(0, surprise=11.2),
            "0 of 10 answers are right. The prompts surprise the model as random tokens would (11.2 nats a token;"
            " random 10.0): does the tokenizer belong to these weights?",
            True,
        ),
    ],
)
def test_the_claim_says_how_it_goes_and_what_to_change(task: CheckedTask, says: str, chat: bool) -> None:
    (claim,) = readiness([task], chat)
    assert claim.text.replace("\N{NO-BREAK SPACE}", " ") == says


def test_a_chat_model_is_asked_in_its_template_and_raw_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = tmp_path / "towns.jsonl"
    atlas = lesion.find_task("primer:atlas").load()[:10]
    questions.write_text(
        "\n".join(json.dumps({"prompt": item.question, "answer": item.gold}) for item in atlas), encoding="utf-8"
    )
    done = command(capsys, "check", "bundled:llama-instruct", "--task", questions, "--out", tmp_path / "check")
    assert done.code == 0, done.err
    shown = " ".join(done.out.split())
    assert "in the prompt style chat (the model has a chat template)" in shown
    assert shown.count("<s><|user|>") == 3
    assert "<|assistant|>" in shown
    result = lesion.check("bundled:llama-instruct", str(questions), prompt_style="raw", progress=False)
    (task,) = result.summary.tasks
    assert (task.style, task.other_style) == ("raw", "chat")
    assert task.other is not None
    assert task.other.right > task.right
    assert "--prompt-style chat" in result.claims[0].text
    assert task.prompts[0].prompt == f"<s> {next(each.question for each in atlas if each.gold == task.prompts[0].gold)}"


def test_a_style_that_helps_one_task_and_harms_another_is_not_proposed_for_both(tmp_path: Path) -> None:
    helped = checked(0, other=OtherStyle(style="chat", right=9, within=0))
    harmed = checked(9, other=OtherStyle(style="chat", right=0, within=0))
    values: list[dict[str, Any]] = [{"chat": True, "tasks": tasks} for tasks in ((helped, harmed), (helped, helped))]
    both, one = (CheckResult(tmp_path, CheckSummary.model_construct(**made)).checks() for made in values)
    assert [(check.command, '"style": "chat"' in check.text) for check in (*both, *one)] == [
        ("", True),
        ("check", False),
    ]
