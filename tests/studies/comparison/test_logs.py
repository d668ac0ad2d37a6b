"""Logs of other programs: those in `logs/`, which `write_logs.py` made, and damaged ones."""

import csv
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from made_answers import folder
from scipy.stats import binomtest, permutation_test, ttest_1samp

import lesion
from lesion.cli.main import code
from lesion.errors import UsageError
from lesion.report import drawing, theme
from lesion.statistics.detectable import found_with_power
from lesion.statistics.paired import mcnemar_exact, paired_drop
from lesion.studies.comparison.logs import _archive, _member

sys.path.insert(0, str(Path(__file__).parent))
from write_logs import QUESTIONS, WRONG

LOGS = Path(__file__).parent / "logs"
RIGHT = {
    name: {f"s{i}": i not in wrong for i in range(len(QUESTIONS))} for name, wrong in WRONG.items() if name != "twice"
}


def cell(result, pair: int = 0):
    return result.summary.pairs[pair].cells[0]


def write_jsonl(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_logs_of_inspect_give_the_numbers_of_a_naive_count(tmp_path):
    result = lesion.compare(LOGS / "a.eval", LOGS / "b.eval")
    a, b = (list(RIGHT[name].values()) for name in "ab")
    gained, lost = sum(y > x for x, y in zip(a, b, strict=True)), sum(y < x for x, y in zip(a, b, strict=True))
    found = cell(result)
    assert (found.counts.gained, found.counts.lost, found.items) == (gained, lost, 12)
    assert found.difference.p == pytest.approx(binomtest(gained, gained + lost).pvalue)
    assert [side.label for side in result.summary.sides] == ["mockllm/a", "mockllm/b"]
    assert "sums: of the scorers match and includes, match is compared." in result.summary.notes
    assert result.items["answer_b"].tolist()[:4] == ["4", "7", "6", "none"]
    assert result.items["question"][0] == "2+2="
    assert result.items["gold"][0] == "4"


def test_the_same_answers_in_our_own_store_give_the_same_numbers(tmp_path):
    ours = [folder(tmp_path / name, {"baseline": RIGHT[name]}, model=name) for name in "ab"]
    by_log, by_store = cell(lesion.compare(LOGS / "a.eval", LOGS / "b.eval")), cell(lesion.compare(*ours))
    assert by_log.model_dump(exclude={"task"}) == by_store.model_dump(exclude={"task"})


def test_a_json_log_is_read_as_the_zip_that_holds_the_same(tmp_path):
    header, samples = _archive(LOGS / "b.eval")
    (tmp_path / "b.json").write_text(text := json.dumps(header | {"samples": list(samples)}))
    (place := tmp_path / "logs").mkdir()  # as `lesion export --inspect-log` names it
    (place / "2026-01-01T00-00-00+00-00_sums-b_3f2a.json").write_text(text)
    assert (
        cell(lesion.compare(LOGS / "a.eval", place)).counts
        == cell(lesion.compare(LOGS / "a.eval", LOGS / "b.eval")).counts
    )
    assert cell(lesion.compare(LOGS / "a.eval", tmp_path / "b.json")) == cell(
        lesion.compare(LOGS / "a.eval", LOGS / "b.eval")
    )


def test_epochs_of_an_item_are_one_item_with_its_share_right(tmp_path):
    result = lesion.compare(LOGS / "a.eval", LOGS / "twice.eval")
    shares = np.ones(12)
    for number, _ in WRONG["twice"]:
        shares[number] -= 0.5
    differences = shares - np.array(list(RIGHT["a"].values()))
    found = cell(result)
    assert (found.items, found.unit, found.counts) == (12, "points", None)
    assert found.difference.value == pytest.approx(differences.mean())
    interval = ttest_1samp(differences, 0).confidence_interval()
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high))
    exact = permutation_test((differences,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert found.difference.p == pytest.approx(exact, abs=0.02)
    assert found.b.high == 1.0, "Student's interval of a share ends where shares do"
    assert found.b.low == pytest.approx(ttest_1samp(shares, 0).confidence_interval().low)
    assert "24 answers to 12 items; an item counts once" in " ".join(result.summary.notes)


def test_folders_of_the_harness_are_read_with_their_metric_and_filter():
    result = lesion.compare(LOGS / "base", LOGS / "instruct")
    rows = [
        json.loads(line)
        for name in ("base", "instruct")
        for line in next((LOGS / name).rglob("samples_choices_*")).read_text().splitlines()
    ]
    a, b = ([row["acc"] for row in rows[start : start + 12]] for start in (0, 12))
    found = next(each for each in result.summary.pairs[0].cells if each.task == "choices")
    assert found.counts.gained == sum(y > x for x, y in zip(a, b, strict=True))
    assert found.a.value == pytest.approx(np.mean(a))
    assert found.b.value == pytest.approx(np.mean(b))
    assert [side.model for side in result.summary.sides] == ["bundled:llama-base", "bundled:llama-instruct"]
    notes = " ".join(result.summary.notes)
    assert "choices: of the metrics acc and acc_norm, acc is compared." in notes
    assert "sums: of the filters strict and lower, strict is compared." in notes


def test_metrics_of_which_less_is_better_are_compared_as_such_and_only_where_there_is_no_other(tmp_path):
    def written(name: str, mean: float) -> Path:
        place = tmp_path / name
        place.mkdir()
        for task, metrics in (("speech", ["wer"]), ("words", ["perplexity", "acc"])):
            rows = [
                {"doc_id": i, "target": "t", "filtered_resps": [], **dict.fromkeys(metrics, mean)} for i in range(9)
            ]
            write_jsonl(place / f"samples_{task}_2026-01-01T00-00-00.1.jsonl", rows)
        rising = {"speech": {"wer": False}, "words": {"perplexity": False, "acc": True}}
        about = {"model_name": name, "higher_is_better": rising}
        (place / "results_2026-01-01T00-00-00.1.json").write_text(json.dumps(about))
        return place

    summary = lesion.compare(written("a", 0.5), written("b", 0.25)).summary
    assert {cell.task: cell.difference.value for cell in summary.pairs[0].cells} == {"speech": 0.25, "words": -0.25}
    assert "words: of the metrics acc and perplexity, acc is compared." in summary.notes


def test_logs_of_two_programs_are_matched_by_the_question_and_said_to_be_judged_otherwise():
    samples = next((LOGS / "base").rglob("samples_sums_*"))
    result = lesion.compare(LOGS / "a.eval", samples)
    assert cell(result).items == 12
    notes = " ".join(result.summary.notes)
    assert "are matched by their questions, not by ids" in notes
    assert "is judged by match and bundled:llama-base by exact_match (strict)" in notes


def test_every_eval_ever_and_lmms_eval(tmp_path):
    def instance(name, item, score):
        return {
            "schema_version": "instance_level_eval_0.2.2", "evaluation_id": "e", "model_id": name, "sample_id": item,
            "evaluation_name": "gsm8k", "interaction_type": "single_turn",
            "input": {"raw": f"{item}?", "reference": ["4"]}, "output": {"raw": ["4"]}, "answer_attribution": [],
            "evaluation": {"score": score, "is_correct": score > 0.5},
        }  # fmt: skip

    eee = [
        write_jsonl(tmp_path / f"{name}_samples.jsonl", [instance(name, f"q{i}", float(i < right)) for i in range(9)])
        for name, right in (("x", 8), ("y", 2))
    ]
    assert cell(lesion.compare(*eee)).counts.lost == 6

    def document(i, score):
        return {
            "doc_id": i, "input": f"{i}?", "target": "yes", "resps": [["yes"]], "filtered_resps": ["yes"],
            "doc_hash": str(i), "mme_score": {"question_id": i, "score": score},
        }  # fmt: skip

    lmms = []
    for name, scores in (("x", (1.0, 0.25, 0.5)), ("y", (0.5, 0.25, 0.125))):
        (tmp_path / name).mkdir()
        rows = [document(i, score) for i, score in enumerate(scores)]
        write_jsonl(tmp_path / name / "20261128_120000_samples_mme.jsonl", rows)
        lmms.append(tmp_path / name)
    found = cell(lesion.compare(*lmms))
    assert (found.unit, found.task) == ("score", "mme")
    assert found.difference.value == pytest.approx(np.mean([-0.5, 0, -0.375]))


def plain(path: Path, verdicts, **more) -> Path:
    return write_jsonl(path, [{"id": item, "correct": right} | more for item, right in verdicts.items()])


def test_plain_rows_may_be_json_lines_or_csv_and_stand_beside_a_study(tmp_path):
    verdicts = {f"q{i}": i % 3 > 0 for i in range(12)}
    with (tmp_path / "b.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["ID", "Correct"], *((item, str(not right)) for item, right in verdicts.items())])
    study = folder(tmp_path / "study", {"baseline": verdicts}, model="study")
    a = plain(tmp_path / "a.jsonl", verdicts)
    result = lesion.compare(a, tmp_path / "b.csv")
    assert (cell(result).counts.gained, cell(result).counts.lost) == (4, 8)
    beside = lesion.compare(study, tmp_path / "b.csv")
    assert cell(beside).task == "sums"
    assert cell(beside).counts == cell(result).counts
    assert "b has no questions and no right answers; whether these are the same was not checked." in " ".join(
        beside.summary.notes
    )
    assert lesion.result(result.folder).items.equals(result.items)


def test_a_grid_of_verdicts_is_there_without_questions_and_answers(tmp_path):
    right = {"a": {f"q{i}": i < 4 for i in range(6)}, "b": {f"q{i}": i > 0 for i in range(5)}}
    places = [plain(tmp_path / f"{name}.jsonl", verdicts) for name, verdicts in right.items()]
    carried = lesion.compare(*places).page().carried
    assert [(cell["label"], cell["verdicts"]) for cell in carried["cells"]] == [("a", "11110"), ("b", "01111")]
    assert [item[0] for item in carried["tasks"][0]["items"]] == [f"q{i}" for i in range(5)]
    assert all(number >= 0 for cell in carried["cells"] for number in cell["parsed"])  # none is called unreadable
    assert {cell["finish"] for cell in carried["cells"]} == {"-----"}


def test_the_grid_has_every_side_and_no_scores(tmp_path):
    """A side may be called as the first side is called there; scores are neither right nor wrong."""
    right = {f"q{i}": i < 4 for i in range(6)}
    places = [plain(tmp_path / f"{name}.jsonl", right) for name in ("a", "b", "baseline")]
    cells = lesion.compare(*places).page().carried["cells"]
    assert [cell["label"] for cell in cells] == ["a", "b", "baseline"]
    assert len({cell["edit"] for cell in cells}) == 3
    scores = [plain(tmp_path / f"{name}.jsonl", dict.fromkeys(right, 0.25 * (name == "s"))) for name in "st"]
    assert lesion.compare(*scores).page().carried["cells"] == []


def test_colours_are_those_of_the_key_also_where_units_differ(tmp_path):
    """Accuracy without a shown difference, and scores with one, in panels of axes of their own."""
    rows = {name: [{"id": i, "correct": i % 2, "task": "alpha"} for i in range(40)] for name in "ab"}
    for name in "ab":
        rows[name] += [{"id": i, "correct": 3 + i % 5 / 10 + (name == "b"), "task": "bleu"} for i in range(40)]
    result = lesion.compare(*(write_jsonl(tmp_path / f"{name}.jsonl", rows[name]) for name in "ab"))
    figure = result.page().opening.figure
    key = {series.name: theme.tone(series.index) for series in figure.legend}
    assert set(key) == {"no difference shown", "second higher"}
    drawn = [
        row["colour"]
        for panel in figure.panels
        for data in drawing.specification(panel.charts[0])["datasets"].values()
        for row in data
        if "colour" in row
    ]
    assert drawn == [key["no difference shown"], key["second higher"]]


def test_of_sides_that_share_items_with_the_first_alone_each_has_its_own_number(tmp_path):
    verdicts = {f"q{i}": i % 5 > 0 for i in range(100)}
    halves = [{f"q{i}": False for i in part} for part in (range(50), range(50, 100))]
    places = [plain(tmp_path / f"m{n}.jsonl", each) for n, each in enumerate((verdicts, *halves))]
    result = lesion.compare(*places)
    assert result.basis == "The same items, compared one by one (items: 50 items)."
    assert not [check for check in result.checks() if "0 items" in check.text]
    assert result.verdict.startswith("Of 2 other models 2 differ from m0")


@pytest.mark.parametrize("name", ["question", "item"])
def test_a_side_called_as_a_column_keeps_the_columns(name, tmp_path):
    verdicts = dict.fromkeys([f"q{i}" for i in range(6)], False)
    result = lesion.compare(plain(tmp_path / "a.jsonl", verdicts), plain(tmp_path / f"{name}.jsonl", verdicts))
    assert result.wrong_in_all["item"].to_list() == list(verdicts)
    assert f"side {name}" in result.wrong_in_all


def test_groups_of_a_log_are_clusters(tmp_path):
    rows = [{"id": i, "correct": i % 4 > 0, "group": f"g{i // 6}"} for i in range(60)]
    a = write_jsonl(tmp_path / "a.jsonl", rows)
    b = write_jsonl(tmp_path / "b.jsonl", [row | {"correct": row["id"] // 6 % 2 > 0} for row in rows])
    found = cell(lesion.compare(a, b))
    assert found.shared.clusters == 10
    assert found.clustered.clusters == 10


def test_scores_are_tested_by_sign_flips_in_their_own_unit(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.random(14), rng.random(14)
    places = [
        write_jsonl(tmp_path / f"{name}.jsonl", [{"id": i, "score": x} for i, x in enumerate(scores)])
        for name, scores in (("a", a), ("b", b))
    ]
    result = lesion.compare(*places)
    exact = permutation_test((b - a,), np.sum, permutation_type="samples", n_resamples=np.inf).pvalue
    assert cell(result).difference.p == pytest.approx(exact, abs=0.02)
    text = " ".join(result.findings)
    assert "nats" not in text
    assert "points" not in text
    assert "would be found with 80 % power" in text


def test_a_difference_of_scores_names_its_task_as_it_is(tmp_path):
    rows = [{"id": i, "task": "history of art", "score": i / 20} for i in range(14)]
    more = [row | {"score": row["score"] + 0.1 + row["score"] / 9} for row in rows]
    result = lesion.compare(write_jsonl(tmp_path / "a.jsonl", rows), write_jsonl(tmp_path / "b.jsonl", more))
    assert result.verdict.endswith("higher on history of art than a.")


def test_what_would_have_been_found_is_found_so_often():
    """Of 400 draws with the difference that the claim names, about 80 % are significant."""
    n, discordant, rng = 1000, 0.2, np.random.default_rng(1)
    one, other = np.zeros((2, n), dtype=bool)
    one[:100], other[100:200] = True, True
    interval = paired_drop(one, other)
    difference = found_with_power((interval.high - interval.low) / 2, 0.95, 1)
    draws = rng.multinomial(n, [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant], size=400)
    assert 0.72 < np.mean([mcnemar_exact(*map(int, draw[:2])) <= 0.05 for draw in draws]) < 0.88


def cut(path: Path, place: Path, keep: float) -> Path:
    data = path.read_bytes()
    place.write_bytes(data[: int(len(data) * keep)])
    return place


def rewritten(place: Path, change) -> Path:
    """`b.eval` with its header changed and packed anew, None: without header."""
    with zipfile.ZipFile(LOGS / "b.eval") as old, zipfile.ZipFile(place, "w") as new:
        for name in old.namelist():
            data = _member(old, name)
            if name == "header.json":
                header = change(json.loads(data))
                if header is None:
                    continue
                data = json.dumps(header).encode()
            new.writestr(name, data)
    return place


def wide(place: Path) -> Path:
    place.write_text("id,correct\n7,1,1\n8,0,1\n")
    return place


def failed(header):
    return header | {"status": "error", "error": {"message": "out of credit"}}


def test_damaged_and_mismatched_logs_are_refused_with_what_to_do(tmp_path):
    a, samples = LOGS / "a.eval", next((LOGS / "base").rglob("samples_sums_*"))
    broken = tmp_path / "flipped.eval"
    data = bytearray((LOGS / "b.eval").read_bytes())
    data[len(data) // 3 : len(data) // 3 + 40] = bytes(40)
    broken.write_bytes(data)
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps({"status": "success", "eval": {"model": "m", "task": "sums"}, "samples": []}))
    cases = {
        cut(LOGS / "b.eval", tmp_path / "cut.eval", 0.5): "is no whole .eval file.*copy or download it again",
        broken: "is damaged .*copy or download it again",
        rewritten(tmp_path / "failed.eval", failed): r"status error: out of credit\).*inspect eval-retry",
        rewritten(tmp_path / "started.eval", lambda header: None): "no header. Finish it with `inspect eval-retry",
        empty: "holds no samples",
        next((LOGS / "base").rglob("results_*.json")): "name the samples_",
        cut(samples, tmp_path / "samples_sums.jsonl", 0.5): "line 1[0-9]: this is no JSON object, as of a file cut off",
        write_jsonl(tmp_path / "words.jsonl", [{"id": 1, "correct": "perhaps"}]): "row 1: perhaps .*neither right",
        write_jsonl(tmp_path / "none.jsonl", [{"id": 1, "mood": 3}]): "no column for the value: it has id and mood",
        write_jsonl(tmp_path / "empty.jsonl", []): "is empty",
        write_jsonl(tmp_path / "unscored.jsonl", [{"id": 1, "score": None}]): "no answer has a score",
        wide(tmp_path / "wide.csv"): "more fields than its first line",
        write_jsonl(tmp_path / "blank.jsonl", [{"id": "", "correct": 1}]): "row 1: there is no id",
        write_jsonl(
            tmp_path / "restarts.jsonl", [{"id": i, "subject": s, "correct": 1} for s in "ab" for i in range(3)]
        ): "id 0 stands for several questions; give every question an id of its own",
        plain(tmp_path / "others.jsonl", {"q1": True}): "have no item of a task in common",
        plain(tmp_path / "products.jsonl", {"q1": True}, task="products"): "a has sums .*products",
    }  # fmt: skip
    for path, says in cases.items():
        with pytest.raises(lesion.LesionError, match=says):
            lesion.compare(a, path)
    with pytest.raises(lesion.LesionError, match=r"no item of sums in common.* Leave out what did not answer it"):
        lesion.compare(a, tmp_path / "products.jsonl", tasks=["sums"])


def test_of_scores_with_several_values_the_same_one_is_compared_in_every_sample_and_file(tmp_path):
    header, samples = _archive(LOGS / "b.eval")
    samples, places = list(samples), []
    for number, order in enumerate((("one", "two"), ("two", "one"))):
        values = {"one": 1, "two": 0}
        several = [
            {**sample, "scores": {"s": {"value": {name: values[name] for name in order[:: -1 if at else 1]}}}}
            for at, sample in enumerate(samples)
        ]
        places.append(tmp_path / f"{number}.json")
        places[-1].write_text(json.dumps(header | {"samples": several}))
    result = lesion.compare(*places)
    assert (cell(result).a.value, cell(result).b.value) == (1.0, 0.0)
    notes = " ".join(result.summary.notes)
    assert "judged by s (one)" in notes
    assert "s (two)" in notes


def test_files_that_name_no_model_are_not_of_one_model_for_being_called_alike(tmp_path):
    places = [tmp_path / name / "results.jsonl" for name in ("base", "tuned")]
    for place in places:
        place.parent.mkdir()
        plain(place, {f"q{i}": i > 3 for i in range(8)})
    result = lesion.compare(*places)
    assert "same model" not in " ".join(result.findings)


def test_items_are_matched_by_question_where_that_pairs_more_of_them(tmp_path):
    rows = [{"id": i, "question": f"What is {i} + 1?", "correct": i % 2} for i in range(20)]
    turned = [row | {"id": 0 if row["id"] == 0 else 20 - row["id"]} for row in rows]
    a, b = (write_jsonl(tmp_path / f"{name}.jsonl", each) for name, each in (("a", rows), ("b", turned)))
    found = cell(lesion.compare(a, b))
    assert (found.items, found.counts.changed) == (20, 0)


def test_of_two_answers_in_a_row_the_one_that_is_called_so_is_the_right_one(tmp_path):
    rows = [{"question": f"{i} + 1?", "answer": i + 1, "prediction": 2, "correct": i == 1} for i in range(8)]
    items = lesion.compare(*(write_jsonl(tmp_path / f"{name}.jsonl", rows) for name in "ab")).items
    assert (items["gold"][3], items["answer_a"][3]) == ("4", "2")


def test_verdicts_are_not_compared_with_scores_on_another_scale(tmp_path):
    a = plain(tmp_path / "a.jsonl", {f"q{i}": i > 3 for i in range(8)})
    rows = [{"id": f"q{i}", "score": 100 * (i > 3)} for i in range(8)]
    with pytest.raises(lesion.LesionError, match="bring both to one scale"):
        lesion.compare(a, write_jsonl(tmp_path / "b.jsonl", rows))


def test_early_answers_of_a_study_are_no_tasks_to_compare(tmp_path):
    verdicts = {"baseline": {f"q{i}": i > 3 for i in range(8)}}
    studies = [
        folder(tmp_path / name, verdicts, model=name, task=task) for name in "ab" for task in ("sums", "early:64:sums")
    ]
    result = lesion.compare(*dict.fromkeys(studies))
    assert [task.name for task in result.summary.tasks] == ["sums"]
    assert "a: early answers are left out." in result.summary.notes


def test_what_is_left_out_or_doubled_is_said(tmp_path):
    rows = [{"id": i, "score": None if i == 3 else i % 2} for i in range(8)]
    a, b = (write_jsonl(tmp_path / f"{name}.jsonl", rows) for name in "ab")
    assert "a.jsonl, items: 1 answer without a score left out." in lesion.compare(a, b).summary.notes
    two = tmp_path / "two"
    two.mkdir()
    for name in ("2026-01-01_a.eval", "2026-01-02_a.eval"):
        (two / name).write_bytes((LOGS / "a.eval").read_bytes())
    notes = " ".join(lesion.compare(two, LOGS / "a.eval").summary.notes)
    assert "2026-01-02_a.eval is compared, and 2026-01-01_a.eval is left out" in notes
    assert "are of one model, mockllm/a" in notes


def test_json_is_all_that_is_printed_and_worse_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    a, b = str(LOGS / "a.eval"), str(LOGS / "b.eval")
    assert code(["compare", a, b, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["pairs"][0]["cells"][0]["difference"]["value"] == pytest.approx(-0.5)
    assert not list(tmp_path.iterdir())
    high = 100 * summary["pairs"][0]["cells"][0]["difference"]["high"]
    for margin, left in ((-high - 0.1, 3), (-high + 0.1, 0)):
        assert code(["compare", a, b, "--json", "--fail-if", "worse", "--margin", str(margin)]) == left
        assert ("mockllm/b is worse than mockllm/a by more than" in capsys.readouterr().err) == bool(left)
    assert code(["compare", b, a, "--json", "--fail-if", "worse"]) == 0
    for wrong in (["--fail-if", "better"], ["--margin", "1"], ["--fail-if", "worse", "--margin", "-1"]):
        assert code(["compare", a, b, "--json", *wrong]) == 2


@pytest.mark.parametrize("left_out", ["the whole task", "every id"])
def test_a_task_without_an_answer_fails_as_if_all_were_wrong(tmp_path, capsys, left_out):
    def rows(task: str, mark: str = "q") -> list[dict]:
        return [{"task": task, "id": f"{mark}{i}", "correct": i < 15} for i in range(20)]

    a = write_jsonl(tmp_path / "a.jsonl", rows("sums") + rows("facts"))
    b = write_jsonl(tmp_path / "b.jsonl", rows("facts") + (rows("sums", "r") if left_out == "every id" else []))
    wrong = write_jsonl(tmp_path / "wrong.jsonl", [{**row, "correct": False} for row in rows("sums")])
    high = -100 * lesion.compare(a, wrong, out=tmp_path / "out").summary.pairs[0].cells[0].difference.high
    for margin, left in ((high - 0.01, 3), (high + 0.01, 0)):
        assert code(["compare", str(a), str(b), "--json", "--fail-if", "worse", "--margin", str(margin)]) == left
        assert "sums: b has no score for 20 items of 20 in a" in capsys.readouterr().err
    assert code(["compare", str(a), str(b), "--json", "--task", "facts", "--fail-if", "worse"]) == 0
    assert code(["compare", str(b), str(a), "--json", "--fail-if", "worse"]) == (3 if left_out == "every id" else 0)


def test_of_a_last_side_of_several_models_every_one_is_judged(tmp_path):
    a = plain(tmp_path / "a.jsonl", {f"q{i}": True for i in range(20)})
    rows = [{"model": name, "id": f"q{i}", "correct": name == "same"} for name in ("worse", "same") for i in range(20)]
    both = write_jsonl(tmp_path / "both.jsonl", rows)
    assert code(["compare", str(a), str(both), "--json", "--fail-if", "worse"]) == 3


def test_a_list_of_objects_semicolons_and_tabs_are_read_as_lines_and_commas_are(tmp_path):
    verdicts = {f"q{i}": i % 3 > 0 for i in range(30)}
    lines = plain(tmp_path / "lines.jsonl", dict.fromkeys(verdicts, True))
    rows = [{"id": item, "correct": verdict} for item, verdict in verdicts.items()]
    (tmp_path / "list.json").write_text(json.dumps(rows, indent=1))
    for name, separator in (("comma", ","), ("semicolon", ";"), ("tab", "\t")):
        text = "".join(f"{item}{separator}{int(verdict)}\n" for item, verdict in verdicts.items())
        (tmp_path / f"{name}.csv").write_text(f"id{separator}correct\n{text}")
    places = [tmp_path / name for name in ("list.json", "comma.csv", "semicolon.csv", "tab.csv")]
    pairs = lesion.compare(lines, *places).summary.pairs
    assert [pair.cells[0].counts.lost for pair in pairs] == [10, 10, 10, 10]
    (tmp_path / "list.json").write_text("[[1, 2]]")
    with pytest.raises(UsageError, match="list of something else than objects"):
        lesion.compare(lines, tmp_path / "list.json")


def test_a_number_that_no_float_holds_is_named(tmp_path):
    lines = plain(tmp_path / "lines.jsonl", {"q1": True, "q2": True})
    huge = write_jsonl(tmp_path / "huge.jsonl", [{"id": "q1", "score": 1}, {"id": "q2", "score": 10**400}])
    with pytest.raises(UsageError, match=r"row 2: 1000\S+ in the column score is neither"):
        lesion.compare(lines, huge)


@pytest.mark.parametrize("groups", [None, 20])
@pytest.mark.parametrize("left_out", ["without a score", "without a row", "in one of two epochs"])
def test_what_has_no_score_fails_as_if_it_were_wrong(tmp_path, capsys, left_out, groups):
    right = {f"q{i}": i % 10 < 8 for i in range(100)}

    def row(item: str, verdict: bool | None) -> dict:
        group = {} if groups is None else {"group": f"g{int(item[1:]) % groups}"}
        return {"id": item, "correct": verdict, **group}

    unscored = [item for item in right if int(item[1:]) < 60]
    epochs = 2 if left_out == "in one of two epochs" else 1
    whole = [row(item, verdict) for item, verdict in right.items()]
    rest = [each for each in whole if each["id"] not in unscored]
    gone = [] if left_out == "without a row" else [row(item, None) for item in unscored]
    half = [*whole, *rest, *gone] if epochs == 2 else [*rest, *gone]
    as_wrong = [row(item, False) for item in unscored] + rest + (whole if epochs == 2 else [])
    a, b, c = (
        write_jsonl(tmp_path / f"{name}.jsonl", rows) for name, rows in zip("abc", (whole, half, as_wrong), strict=True)
    )
    expected = lesion.compare(a, c, out=tmp_path / "out").summary.pairs[0].cells[0]
    high = max(each.high for each in (expected.difference, expected.clustered) if each is not None)
    for margin, left in ((-high - 0.001, 3), (-high + 0.001, 0)):
        command = ["compare", str(a), str(b), "--json", "--fail-if", "worse", "--margin", str(100 * margin)]
        assert code(command) == left
        said = capsys.readouterr()
        assert "b has no score for 60 items of 100 in a" in said.err
    unscored_cell = json.loads(said.out)["pairs"][0]["cells"][0]["unscored"]
    assert unscored_cell["value"] == pytest.approx(expected.difference.value)
    assert unscored_cell["high"] == pytest.approx(high)


def test_no_torch_is_imported():
    script = "import sys; from lesion.cli.main import code; code(sys.argv[1:]); assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", script, "compare", str(LOGS / "a.eval"), str(LOGS / "b.eval"), "--json"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("program", "package", "names"),
    [("inspect", "inspect_ai", ("a.eval", "b.eval", "twice.eval")), ("harness", "lm_eval", ("base", "instruct"))],
)
def test_logs_that_another_program_writes_now_give_the_same_numbers(program, package, names, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed: logs that it writes now are not tried")
    # On its own: what its libraries warn each other of is no error of ours.
    subprocess.run([sys.executable, Path(__file__).with_name("write_logs.py"), program, tmp_path], check=True)
    now = lesion.compare(*(tmp_path / name for name in names))
    kept = lesion.compare(*(LOGS / name for name in names))
    assert now.summary.pairs == kept.summary.pairs
