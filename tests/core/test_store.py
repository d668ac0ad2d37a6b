"""The store: what is written stays, whatever happens to process, disk or folder; in what studies differ is said."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lesion.core.row import Asked, StoredAnswer, answer_key, numbers_from_json, numbers_to_json, storable
from lesion.core.store import Store, differences, refuse_another, study_there
from lesion.errors import LesionError
from lesion.outputs import own
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.task import Item

STUDY = ("a" * 64, 'items = 100\nmodels = ["m"]\n')


def row(item: int | str = 0, edit: str = "baseline", **other: object) -> StoredAnswer:
    facts: dict[str, object] = {
        "model": "f00d", "model_name": "bundled:one", "edit": edit, "task": "primer:atlas", "item": str(item),
        "decoding": "greedy max=8 stop=[]", "prompt_style": "raw", "text": f"answer {item}", "tokens": 3,
        "finish": "stop", "correct": True, "parsed": "3", "question": f"question {item}", "gold": f"gold {item}",
        "group": "easy",
    }  # fmt: skip
    return StoredAnswer(**(facts | other))  # type: ignore[arg-type]


@contextmanager
def child(folder: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """A process that opens the store of `folder` as `store`, runs `body`, and is killed at the end."""
    script = f"import os, sys, time\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n" + textwrap.dedent(
        f"""
        from test_store import STUDY, row
        from lesion.core.store import Store
        store = Store.open({str(folder)!r}, *STUDY)
        print("ready", flush=True)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script + textwrap.dedent(body)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_row_comes_back_as_it_was_written(tmp_path):
    written = row(5, "3.mlp×0.5", correct=False, parsed=None, scores=(-1.25, -3.5), finish="length")
    with Store.open(tmp_path / "new" / "folder", *STUDY) as store:
        assert store.write([written]) == 1
    with Store.read(tmp_path / "new" / "folder") as store:
        answers = store.answers()
        assert store.study == STUDY
    assert len(answers) == 1
    read = answers.iloc[0].to_dict()
    assert read.pop("key") == written.key
    assert StoredAnswer(**read) == written
    assert answers["correct"].dtype == bool
    assert answers["parsed"].iloc[0] is None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), gold=st.text(), parsed=st.none() | st.text())
def test_any_text_survives_except_lone_surrogates_which_become_replacement_characters(
    tmp_path_factory, text, gold, parsed
):
    def expected(value: str) -> str:
        # Spelt out by hand: pairs join, singles are replaced, the rest stays.
        result, index = [], 0
        while index < len(value):
            one, two = value[index], value[index + 1 : index + 2]
            if "\ud800" <= one <= "\udbff" and "\udc00" <= two <= "\udfff" and two:
                result.append(chr(0x10000 + ((ord(one) - 0xD800) << 10) + (ord(two) - 0xDC00)))
                index += 1
            else:
                result.append("\ufffd" if "\ud800" <= one <= "\udfff" else one)
            index += 1
        return "".join(result)

    with Store.open(tmp_path_factory.mktemp("text"), *STUDY) as store:
        store.write([row(text=text, gold=gold, parsed=parsed)])
        answer = store.answers().iloc[0]
    assert answer["text"] == expected(text) == storable(text)
    assert answer["gold"] == expected(gold)
    assert answer["parsed"] == (None if parsed is None else expected(parsed))


@given(st.lists(st.floats()))
def test_scores_keep_every_bit_and_what_is_not_finite_reads_as_nan(scores):
    text = numbers_to_json(tuple(scores))
    if text is not None:
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = numbers_from_json(text)
    expected = [score if abs(score) < float("inf") else float("nan") for score in scores]
    assert [repr(score) for score in back] == [repr(score) for score in expected]


PARTS = st.tuples(*[st.text(max_size=3)] * 7)


@given(PARTS, PARTS)
def test_two_answers_share_a_key_only_when_every_part_is_the_same(first, second):
    assert (answer_key(*first) == answer_key(*second)) == (first == second)


def test_an_answer_is_stored_once_and_the_first_stays(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        assert store.keys() == set()
        assert store.write([row(text="first"), row(1)]) == 2
        assert store.write([row(text="second"), row(2)]) == 1
        assert store.keys() == {row().key, row(1).key, row(2).key}
        assert len(store) == 3
        assert store.answers()["text"].iloc[0] == "first"


def test_the_table_does_not_depend_on_the_order_in_which_answers_came(tmp_path):
    rows = [row(item, edit) for item in (10, 9, 2) for edit in ("baseline", "0×0", "1×0")]
    items = [Item(id=str(item), question=f"question {item}", gold=f"gold {item}", group="easy") for item in (10, 9, 2)]
    tables = []
    for name, order in (("forth", rows), ("back", rows[::-1])):
        with Store.open(tmp_path / name, *STUDY) as store:
            store.add_items("primer:atlas", map(Asked, items))
            for one in order:
                store.write([one])
            tables.append(store.answers())
    assert tables[0].equals(tables[1])
    assert list(tables[0]["item"])[:3] == ["10", "9", "2"]  # as noted, not as letters sort


def test_answers_can_be_asked_for_one_model_or_task(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        store.write([row(), row(task="gsm8k"), row(model="beef", model_name="two")])
        assert len(store.answers()) == 3
        assert set(store.answers(model="two")["model"]) == {"beef"}
        assert list(store.answers(model="bundled:one", task="gsm8k")["task"]) == ["gsm8k"]
        assert len(store.answers(task="absent")) == 0


def test_all_rows_of_one_write_are_stored_or_none(tmp_path):
    def interrupted() -> Iterator[StoredAnswer]:
        yield row(1)
        raise KeyboardInterrupt

    with Store.open(tmp_path, *STUDY) as store:
        store.write([row(0)])
        with pytest.raises(KeyboardInterrupt):
            store.write(interrupted())
        assert list(store.items()["item"]) == ["0"]
        assert store.write([row(1)]) == 1


def test_models_are_kept_with_their_metadata_in_order(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        store.add_model("beef", "two", {"blocks": 8})
        store.write([row()])
        store.add_model("beef", "two")
        models = store.models()
    assert list(models["name"]) == ["two", "bundled:one"]
    assert list(models["metadata"]) == [{"blocks": 8}, {}]


def test_weights_that_changed_under_a_name_are_refused(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        store.write([row()])
        with pytest.raises(LesionError, match=r"bundled:one are not those .*beef, before f00d.*--out"):
            store.add_model("beef", "bundled:one")
        with pytest.raises(LesionError, match="copy and bundled:one are the same weights"):
            store.write([row(1, model_name="copy")])
        assert len(store) == 1


def test_an_item_that_changed_under_its_id_is_refused(tmp_path):
    item = Item(id="0", question="question 0", gold="gold 0", group="easy")
    with Store.open(tmp_path, *STUDY) as store:
        store.write([row()])
        store.add_items("primer:atlas", [Asked(item, "digest")])
        store.add_items("primer:atlas", [Asked(item, "digest")])
        with pytest.raises(LesionError, match=r"Item 0 of primer:atlas is judged or put otherwise .*--out"):
            store.add_items("primer:atlas", [Asked(item, "another")])
        for change in ({"question": "?"}, {"gold": "?"}, {"group": "?"}):
            with pytest.raises(LesionError, match=r"Item 0 of primer:atlas reads differently .*--out"):
                store.add_items("primer:atlas", [Asked(replace(item, **change), "digest")])


def test_a_store_made_by_another_study_is_refused_and_says_what_differs(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        store.write([row()])
    other = 'items = 200\nname = "n"\nmodels = ["m"]\nseed = 3\n'
    with pytest.raises(LesionError) as caught:
        Store.open(tmp_path, "b" * 64, other)
    message = str(caught.value)
    assert "another study (seed: not set there, 3 here)" in message
    assert "--out" in message
    with Store.open(tmp_path, *STUDY) as store:  # the refusal let go of the lock, and nothing is lost
        assert len(store) == 1


def test_a_second_process_is_refused_by_name_of_the_first_and_readers_are_not(tmp_path):
    with child(tmp_path, "store.write([row()])\nprint('written', flush=True)\ntime.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        with pytest.raises(LesionError, match=rf"Another process \(pid {process.pid}\) is writing in .*--out"):
            Store.open(tmp_path, *STUDY)
        with Store.read(tmp_path) as store:
            assert list(store.answers()["item"]) == ["0"]
    with Store.open(tmp_path, *STUDY) as store:  # the child was killed: its lock died with it
        assert len(store) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_worker_that_outlives_its_parent_does_not_keep_the_lock(tmp_path):
    body = """
        worker = os.fork()
        if worker == 0:
            os.close(1)
            time.sleep(60)
        print(worker, flush=True)
        time.sleep(60)
        """
    with child(tmp_path, body) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        with pytest.raises(LesionError, match="Another process"):  # the fork did not free the parent's lock
            Store.open(tmp_path, *STUDY)
    deadline = time.monotonic() + 20  # on a busy machine the worker itself may not have begun to run yet
    try:
        while True:
            try:
                Store.open(tmp_path, *STUDY).close()
                break
            except LesionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        os.kill(worker, 0)  # it is still there, so the opening proved something
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("after", [1, 40])
def test_kill_9_loses_no_answer_that_was_written_and_leaves_no_half_batch(tmp_path, after):
    body = """
        for batch in range(100_000):
            store.write([row(3 * batch + part, text="x" * 3000) for part in range(3)])
            print(batch, flush=True)
        """
    with child(tmp_path, body) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
        reported = [after, *(int(line) for line in process.stdout if line.endswith("\n"))]
    with Store.open(tmp_path, *STUDY) as store:
        keys = store.keys()
        assert len(store.answers()) == len(keys)
    assert len(keys) % 3 == 0
    assert len(keys) // 3 > reported[-1]
    assert {row(item).key for item in range(len(keys))} == keys


def test_a_full_disk_is_said_and_everything_before_it_is_safe(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 20}")
        with pytest.raises(LesionError, match=r"disk is full: .* make room and run the same command again"):
            any(store.write([row(index, text="x" * 4000)]) == 0 for index in range(100))
        stored = len(store)
        assert 0 < stored < 100
        assert store.keys() == {row(index).key for index in range(stored)}
        store._connection.execute("PRAGMA max_page_count = 100000")  # room was made
        assert store.write([row(stored, text="x" * 4000)]) == 1
    with Store.open(tmp_path, *STUDY) as store:
        assert len(store) == stored + 1


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LesionError, match=r"cannot be written .*--out"):
            Store.open(folder, *STUDY)


def test_a_file_that_is_not_a_database_is_refused_and_left_alone(tmp_path):
    own(tmp_path, "layers")
    (tmp_path / "answers.sqlite").write_text("my notes " * 100)
    for opening in (lambda: Store.open(tmp_path, *STUDY), lambda: Store.read(tmp_path)):
        with pytest.raises(LesionError, match="not an SQLite file"):
            opening()
    assert (tmp_path / "answers.sqlite").read_text() == "my notes " * 100


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path):
    own(tmp_path, "layers")
    connection = sqlite3.connect(tmp_path / "answers.sqlite")
    connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.commit()
    connection.close()
    before = (tmp_path / "answers.sqlite").read_bytes()
    for opening in (lambda: Store.open(tmp_path, *STUDY), lambda: Store.read(tmp_path)):
        with pytest.raises(LesionError, match="another program"):
            opening()
    assert (tmp_path / "answers.sqlite").read_bytes() == before


@pytest.mark.parametrize(("version", "says"), [(3, r"earlier lesion \(format 3, now 5\).*--out"), (99, "newer lesion")])
def test_a_store_of_an_earlier_or_newer_format_is_refused(tmp_path, version, says):
    with Store.open(tmp_path, *STUDY) as store:
        store._connection.execute(f"PRAGMA user_version = {version}")
    for opening in (lambda: Store.open(tmp_path, *STUDY), lambda: Store.read(tmp_path)):
        with pytest.raises(LesionError, match=says):
            opening()


def test_reading_where_nothing_was_run_is_said(tmp_path):
    with pytest.raises(LesionError, match="There is no study in"):
        Store.read(tmp_path)
    own(tmp_path, "layers")
    (tmp_path / "answers.sqlite").touch()  # killed before its tables were made
    with pytest.raises(LesionError, match="holds no study yet"):
        Store.read(tmp_path)
    with Store.open(tmp_path, *STUDY) as store:
        assert len(store) == 0


def test_a_reader_changes_nothing(tmp_path):
    with Store.open(tmp_path, *STUDY) as store:
        store.write([row()])
    with Store.read(tmp_path) as store, pytest.raises(LesionError, match="cannot be opened"):
        store.write([row(1)])
    with Store.read(tmp_path) as store:
        assert len(store) == 1


def test_hostile_texts_survive(tmp_path):
    texts = ["a\x00b", "\x00", "x" * 5_000_000, "'; DROP TABLE answers; --", "\ufeff\uffff", "\ud83d\ude00", "😀\ud83d"]
    with Store.open(tmp_path, *STUDY) as store:
        store.write(row(index, text=text, question=text) for index, text in enumerate(texts))
    with Store.read(tmp_path) as store:
        back = store.answers()
    assert list(back["text"]) == [*texts[:5], "😀", "😀\ufffd"]
    assert list(back["question"]) == list(back["text"])


@pytest.mark.parametrize("damage", ["overwritten", "cut off"])
def test_a_damaged_store_is_refused_with_advice_and_left_alone(tmp_path, damage):
    with Store.open(tmp_path, *STUDY) as store:
        store.write(row(index, text="x" * 2000) for index in range(100))
    file = tmp_path / "answers.sqlite"
    content = file.read_bytes()
    broken = content[:8192] + b"\xff" * 65536 + content[73728:] if damage == "overwritten" else content[:40960]
    file.write_bytes(broken)
    for opening in (lambda: Store.open(tmp_path, *STUDY), lambda: Store.read(tmp_path)):
        with pytest.raises(LesionError, match=r"is damaged .*\.recover.*--out"):
            opening()
    assert file.read_bytes() == broken


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ({"seed": 0}, {"seed": 0}, ""),
        ({"seed": 0}, {"seed": 1}, "seed: 0 there, 1 here"),
        ({}, {"seed": 1}, "seed: not set there, 1 here"),
        ({"keep": [0.5, 1]}, {"keep": [0.75]}, "keep: 0.5, 1 there, 0.75 here"),
        ({"a": 1, "b": 2}, {"a": 2, "b": 3}, "a: 1 there, 2 here; b: 2 there, 3 here"),
        ({"decoding": {"n": 1, "m": 2}}, {"decoding": {"n": 1}}, "decoding.m: 2 there, not set here"),
        ({"prompt": "x" * 200}, {"prompt": "y"}, f"prompt: {'x' * 159}… there, y here"),
    ],
)
def test_what_differs_is_said_key_by_key(there, here, words):
    assert differences(there, here, here) == words


def drift(**values):
    return DriftStudy.make(**{"models": ["hub/model"], "task": "gsm8k", **values})


def test_the_folder_of_another_study_is_refused_and_what_decides_answers_is_named(tmp_path):
    with pytest.raises(LesionError) as refused:
        refuse_another(tmp_path, "drift study", drift(dtype="float16", runs=2), drift(max_new_tokens=9))
    assert str(refused.value) == (
        f"{tmp_path} holds another drift study (max_new_tokens: not set there, 9 here; dtype: float16 there, auto"
        " here). Give another folder with --out, or run the study that was started there."
    )


@pytest.mark.parametrize("there", [None, drift(), drift(models=["other"], runs=2, clusters=5, name="b", level=0.9)])
def test_a_folder_of_the_same_study_or_of_none_takes_more(tmp_path, there):
    refuse_another(tmp_path, "drift study", there, drift())


def test_what_alone_is_compared_is_named_or_what_else_differs(tmp_path):
    models = [drift(models=[{"source": "hub/model", "revision": revision}]) for revision in ("v1", "v2")]
    with pytest.raises(LesionError, match=r"\(models: hub/model v1 there, hub/model v2 here\)"):
        refuse_another(tmp_path, "study", *models, same=False, compared=["models", "task"])
    with pytest.raises(LesionError, match=r"another study \(other data\)\."):
        refuse_another(tmp_path, "study", *models, same=False, compared=["task"], otherwise="other data")


def test_a_summary_that_is_damaged_holds_no_study(tmp_path):
    assert study_there(DriftSummary, tmp_path) is None
    (tmp_path / "summary.json").write_text('{"kind": "drift"')
    assert study_there(DriftSummary, tmp_path) is None
