"""The logs in `logs/`, as inspect_ai 0.3.285 and lm-evaluation-harness 0.4.13 wrote them.

Run `python write_logs.py inspect FOLDER` or `python write_logs.py harness FOLDER`: each half needs its library, and
inspect_ai, which lesion does not need, an environment of its own.
"""

import json
import sys
from pathlib import Path

QUESTIONS = [(2, 2), (3, 4), (5, 1), (6, 3), (1, 8), (4, 4), (7, 2), (9, 1), (8, 5), (6, 7), (9, 9), (3, 8)]
WRONG = {"a": {3, 8}, "b": {3, 4, 5, 6, 8, 9, 10, 11}, "twice": {(3, 1), (4, 1), (4, 2), (7, 2)}}
"""Which items each model of the logs of inspect_ai answers wrongly; of `twice` in which epoch."""
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
KINDS = {
    "sums": """output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 4}
filter_list:
  - {name: strict, filter: [{function: take_first}]}
  - {name: lower, filter: [{function: lowercase}, {function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "choices": """output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
}


def inspect_logs(place: Path) -> None:
    """`a.eval`, `b.eval`, and `twice.eval` of two epochs."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match

    samples = [Sample(input=f"{x}+{y}=", target=str(x + y), id=f"s{i}") for i, (x, y) in enumerate(QUESTIONS)]
    for name, wrong in WRONG.items():
        epochs, outputs = 2 if name == "twice" else 1, []
        for epoch in range(1, epochs + 1):
            for number, sample in enumerate(samples):
                text = "none" if number in wrong or (number, epoch) in wrong else str(sample.target)
                outputs.append(ModelOutput.from_content(f"mockllm/{name}", text))
                # Without usage the mock model counts tokens with a vocabulary that it downloads.
                outputs[-1].usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        model = get_model(f"mockllm/{name}", custom_outputs=outputs, memoize=False)
        task = Task(name="sums", dataset=MemoryDataset(samples), scorer=[match(), includes()])
        options = {"epochs": epochs, "max_samples": 1, "log_format": "eval", "display": "none", "log_images": False}
        (log,) = eval(task, model=model, log_dir=str(place / "new"), **options)
        Path(log.location.removeprefix("file://")).rename(place / f"{name}.eval")
    (place / "new").rmdir()


def harness_logs(place: Path) -> None:
    """`base` and `instruct`: the folders of two bundled models that answer `sums` and `choices`."""
    import lm_eval
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    import lesion.harness_model  # noqa: F401 (registers the model `lesion`)

    rows = [
        {"question": f"{x}+{y}=", "answer": str(x + y), "choices": [str(x + y), str(x + y + 1)], "gold": 0}
        for x, y in QUESTIONS
    ]
    data = place / "questions.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, kind in KINDS.items():
        (place / f"{name}.yaml").write_text(TASK.format(name=name, data=data) + kind)
    for name in ("base", "instruct"):
        tracker = EvaluationTracker(output_path=str(place / name))
        found = lm_eval.simple_evaluate(
            "lesion",
            model_args={"pretrained": f"bundled:llama-{name}"},
            tasks=list(KINDS),
            task_manager=TaskManager(include_path=str(place)),
            device="cpu",
            batch_size=8,
            log_samples=True,
            evaluation_tracker=tracker,
        )
        samples = found.pop("samples")
        tracker.save_results_aggregated(found, samples)
        for task, answers in samples.items():
            tracker.save_results_samples(task, answers)
    for path in place.rglob("results_*.json"):  # without what it says of the machine
        path.write_text(
            json.dumps({key: json.loads(path.read_text())[key] for key in ("results", "model_name")}) + "\n"
        )
    for path in (data, *(place / f"{name}.yaml" for name in KINDS)):
        path.unlink()


if __name__ == "__main__":
    {"inspect": inspect_logs, "harness": harness_logs}[sys.argv[1]](Path(sys.argv[2]).absolute())
