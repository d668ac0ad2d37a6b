"""Tasks of lm-evaluation-harness on local files: its packaged YAML files, included, over questions of the primer."""

import json
import logging
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lesion.tasks.catalogue import find

QUESTIONS = 6


def _yaml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)  # JSON is YAML


def write_task(folder: Path, name: str, rows: Sequence[dict[str, Any]], **config: Any) -> None:
    """A task of that name in the folder, on a file of rows beside it; `include` names a packaged YAML file."""
    import lm_eval.tasks

    data = folder / f"{name}.json"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    if "include" in config:
        config["include"] = str(Path(lm_eval.tasks.__file__).parent / config["include"])
    split = config.pop("split", "test")
    files = {"data_files": {split: str(data)}, "cache_dir": str(folder / "cache")}
    config = {
        **config,
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": files,
        "training_split": None,
        "validation_split": None,
        "test_split": None,
        "fewshot_split": config.get("fewshot_split"),
        f"{split}_split": split,
    }
    lines = [f"{key}: {_yaml(value)}" for key, value in config.items()]
    (folder / f"{name}.yaml").write_text("\n".join(lines), encoding="utf-8")


def arithmetic(count: int = QUESTIONS) -> list[dict[str, str]]:
    """Rows like those of GSM8K."""
    return [{"question": item.question, "answer": item.solution} for item in find("primer:arithmetic").load()[:count]]


def atlas(count: int = QUESTIONS) -> list[tuple[str, str, list[str]]]:
    """Questions with the right answer and four options, one of them right, of different lengths."""
    items = find("primer:atlas").load()
    rows = []
    for index, item in enumerate(items[:count]):
        others = [other.gold for other in items if other.group == item.group and other.gold != item.gold]
        options = list(dict.fromkeys(others))[:3]
        options.insert(index % 4, item.gold)
        rows.append((item.question, item.gold, options))
    return rows


def write_tasks(folder: Path) -> Path:
    """One task of every kind, and a group.

    `local_gsm8k` (generation, two filters), `local_shots` (the same with eight examples, too long for a context of 512
    tokens), `local_arc` (choices, acc and acc_norm), `local_winogrande` (choices in the questions), `local_lambada`
    (the last word), `local_wikitext` (running text, of which one document exceeds a context of 512 tokens),
    `local_group` of `local_arc` and `local_arc_more`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_task(
        folder,
        "local_gsm8k",
        arithmetic(),
        include="gsm8k/gsm8k.yaml",
        num_fewshot=None,
        # As it is packaged, but for the length of answers, which of a damaged model have no end.
        generation_kwargs={"until": ["Question:", "</s>", "<|im_end|>"], "do_sample": False, "max_gen_toks": 40},
    )
    write_task(
        folder,
        "local_shots",
        arithmetic(9),
        include="gsm8k/gsm8k.yaml",
        num_fewshot=8,
        fewshot_split="test",
        generation_kwargs={"until": ["Question:", "\n\n"], "max_gen_toks": 16, "do_sample": False},
    )
    for name, rows in (("local_arc", atlas()), ("local_arc_more", atlas(14)[QUESTIONS:])):
        write_task(
            folder,
            name,
            [
                {
                    "question": question,
                    "choices": {"text": options, "label": list("ABCD")},
                    "answerKey": "ABCD"[options.index(right)],
                }
                for question, right, options in rows
            ],
            include="arc/arc_easy.yaml",
        )
    write_task(
        folder,
        "local_winogrande",
        [
            {
                "sentence": f"Question: {question}\nAnswer: _ is where it is, says {right}.",
                "option1": options[0],
                "option2": options[1],
                "answer": str(1 + (right == options[1])),
            }
            for question, right, options in atlas()
        ],
        include="winogrande/default.yaml",
        split="validation",
    )
    write_task(
        folder,
        "local_lambada",
        [{"text": f"Question: {question}\nAnswer: {right}"} for question, right, _ in atlas()],
        include="lambada/lambada_openai.yaml",
    )
    told = [f"{row['question']} {row['answer']} " for row in arithmetic(20)]
    write_task(
        folder,
        "local_wikitext",
        [{"page": "".join(told)}, {"page": told[0]}, {"page": "".join(told[3:6])}],
        include="wikitext/wikitext.yaml",
    )
    (folder / "local_group.yaml").write_text("group: local_group\ntask:\n  - local_arc\n  - local_arc_more\n")
    return folder


@contextmanager
def hushed():
    """The harness says nothing of its own accord, and asks pip nothing for its record of the environment."""
    import lm_eval.evaluator

    logging.disable(logging.WARNING)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lm_eval.evaluator, "add_env_info", lambda results: None)
            yield
    finally:
        logging.disable(logging.NOTSET)
