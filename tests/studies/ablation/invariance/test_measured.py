"""What a task asks for is read from its name."""

import pytest

from lesion.studies.ablation.invariance.summary import subject


@pytest.mark.parametrize(
    ("task", "what"),
    [
        ("primer:arithmetic", "mathematics"), ("gsm8k", "mathematics"), ("fewshot:4:gsm8k", "mathematics"),
        ("math500", "mathematics"), ("primer:atlas", "recall"), ("triviaqa", "recall"), ("primer:reading", "reading"),
        ("race", "reading"), ("embrace", None), ("questions.jsonl", None),
    ],
)  # fmt: skip
def test_a_whole_word_of_the_name_says_it(task, what):
    assert subject(task) == what
