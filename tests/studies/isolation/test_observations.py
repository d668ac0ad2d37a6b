"""What was observed is kept in one file, used again as long as it fits, and refused in words when damaged."""

import json
import struct
from pathlib import Path

import pytest
import torch
from oracle import Listener, observed
from safetensors.torch import load_file, save_file

import lesion.studies.isolation.selections as observations
from commandline import write
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.studies.isolation.selections import FILE, draw_texts, observe_all, read
from lesion.studies.isolation.study import IsolationStudy
from tiny import tiny, tokenizer


def task(file: Path, sign: str, count: int = 8) -> Path:
    return write(file, ({"id": f"{n}", "prompt": f"{n} {sign} 1", "answer": f"{n}"} for n in range(count)))


@pytest.fixture
def data(tmp_path) -> tuple[Path, Path]:
    return task(tmp_path / "skill.jsonl", "+"), task(tmp_path / "control.jsonl", "-")


@pytest.fixture
def passes(monkeypatch) -> list[str]:
    """The data sets that the model was really run on."""
    seen: list[str] = []
    real = observations.observe

    def counted(model, drawn, **settings):
        seen.append(Path(drawn.data).stem)
        return real(model, drawn, **settings)

    monkeypatch.setattr(observations, "observe", counted)
    return seen


def study(data: tuple[Path, ...], **values) -> IsolationStudy:
    skill, *controls = map(str, data)
    return IsolationStudy.make(**{"model": "tiny:llama", "skill": skill, "controls": controls, "samples": 3, **values})


def look(what: IsolationStudy, llama, folder: Path):
    folder.mkdir(exist_ok=True)
    texts = draw_texts(what, llama)
    return observe_all(llama, texts, folder, Listener()), texts


def test_the_file_gives_back_every_number_to_the_bit(llama, tmp_path):
    kept = {f"key {n} é": observed(llama, n) for n in range(3)}
    observations.write(tmp_path / FILE, kept)
    again = read(tmp_path / FILE)
    assert list(again) == list(kept)
    for one, other in zip(kept.values(), again.values(), strict=True):
        assert other.digest == one.digest
        assert (other.provenance, other.tokens) == (one.provenance, one.tokens)
        for name, vector in one.tensors().items():
            assert torch.equal(other.tensors()[name], vector), name


def test_a_second_run_looks_at_no_text_and_has_the_same_sums(llama, data, tmp_path, passes):
    first, _ = look(study(data), llama, tmp_path / "out")
    assert passes == ["skill", "control"]
    second, _ = look(study(data), llama, tmp_path / "out")
    assert passes == ["skill", "control"]
    assert list(first) == list(second) == [str(file) for file in data]
    for name in first:
        assert first[name][3, 0].digest == second[name][3, 0].digest
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == [FILE]


def test_who_may_read_other_new_files_may_read_the_statistics(llama, tmp_path):
    observations.write(tmp_path / FILE, {"key": observed(llama, 1)})
    (tmp_path / "other").write_text("")
    assert (tmp_path / FILE).stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"seed": 1}, ["skill", "control"]),
        ({"samples": 4}, ["skill", "control"]),
        ({"samples": [3, 4]}, ["skill", "control"]),
        ({"repeats": 2}, ["skill", "control"]),
        ({"replacement": True}, ["skill", "control"]),
        ({"prompt_style": "plain"}, ["skill", "control"]),
        ({"share": [0.1, 0.2], "methods": ["wanda", "lape"], "tasks": ["primer:atlas"], "name": "other"}, []),
    ],
    ids=str,
)
def test_only_what_changes_the_texts_is_observed_again(change, again, llama, data, tmp_path, passes):
    look(study(data), llama, tmp_path / "out")
    passes.clear()
    look(study(data, **change), llama, tmp_path / "out")
    assert passes == again


def test_another_control_alone_is_observed_beside_what_is_there(llama, data, tmp_path, passes):
    look(study(data), llama, tmp_path / "out")
    passes.clear()
    more = task(tmp_path / "more.jsonl", "*")
    found, _ = look(study((*data, more)), llama, tmp_path / "out")
    assert passes == ["more"]
    assert list(found) == [str(file) for file in (*data, more)]


def test_fewer_samples_of_what_was_observed_at_several_sizes_are_taken_from_the_file(llama, data, tmp_path, passes):
    look(study(data, samples=[2, 3]), llama, tmp_path / "out")
    passes.clear()
    found, _ = look(study(data, samples=[2]), llama, tmp_path / "out")
    assert passes == []
    assert list(found[str(data[0])]) == [(2, 0)]


def test_texts_that_changed_under_their_old_ids_are_observed_again(llama, data, tmp_path, passes):
    before, _ = look(study(data), llama, tmp_path / "out")
    passes.clear()
    # As many tokens, the same ids: nothing but the texts themselves tells.
    data[0].write_text(data[0].read_text().replace("+ 1", "+ 9"))
    after, _ = look(study(data), llama, tmp_path / "out")
    assert passes == ["skill"]
    assert before[str(data[0])][3, 0].digest != after[str(data[0])][3, 0].digest


def test_other_weights_under_the_same_name_are_observed_again(llama, data, tmp_path, passes):
    look(study(data), llama, tmp_path / "out")
    passes.clear()
    other = wrap(tiny("mistral"), tokenizer(), "tiny:llama")
    look(study(data), other, tmp_path / "out")
    assert passes == ["skill", "control"]


def test_every_data_set_is_drawn_before_the_first_is_observed(llama, data, tmp_path, passes):
    with pytest.raises(UsageError, match="no file"):
        look(study((data[0], tmp_path / "absent.jsonl")), llama, tmp_path / "out")
    assert passes == []


def test_more_samples_than_there_are_texts_is_wrong_use(llama, data, tmp_path, passes):
    # Both are named at once, and what helps.
    says = r"9 calibration texts .*skill.jsonl has 8 and .*control.jsonl has 8: give --samples 8, .* or --replacement"
    with pytest.raises(UsageError, match=says):
        look(study(data, samples=9), llama, tmp_path / "out")
    assert passes == []


def damaged(path: Path, how: str) -> None:
    whole = path.read_bytes()
    size = struct.unpack("<Q", whole[:8])[0]
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut short":
        path.write_bytes(whole[: len(whole) - 100])
    elif how == "cut in the header":
        path.write_bytes(whole[: size // 2])
    elif how == "no safetensors":
        path.write_bytes(b"not one at all" * 20)
    else:
        tensors = load_file(path)
        header = json.loads(json.loads(whole[8 : 8 + size])["__metadata__"]["lesion"])
        if how == "vector gone":
            tensors.pop(next(iter(tensors)))
        elif how == "one number another":
            next(iter(tensors.values()))[0] += 1
        elif how == "another draw":
            header["entries"]["0" * 64] = header["entries"].pop(next(iter(header["entries"])))
        elif how == "vector of another size":
            name = next(iter(tensors))
            tensors[name] = tensors[name][:-1].clone()
        elif how == "later version":
            header["version"] = 2
        elif how == "entry gone":
            del next(iter(header["entries"].values()))["readers"]
        elif how == "wrong kind":
            next(iter(header["entries"].values()))["texts"] = "many"
        save_file(tensors, path, metadata={} if how == "no header" else {"lesion": json.dumps(header)})


@pytest.mark.parametrize(
    "how",
    [
        *("empty", "cut short", "cut in the header", "no safetensors", "no header", "vector gone"),
        *("vector of another size", "later version", "entry gone", "wrong kind", "one number another", "another draw"),
    ],
)
def test_a_damaged_file_is_refused_in_words_that_say_what_to_do(how, llama, data, tmp_path):
    look(study(data), llama, tmp_path / "out")
    damaged(tmp_path / "out" / FILE, how)
    with pytest.raises(LesionError, match=r"(?s)statistics\.safetensors does not hold .*; remove it"):
        look(study(data), llama, tmp_path / "out")


def test_a_file_that_cannot_be_written_is_told_and_leaves_nothing_half(llama, tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(LesionError, match=r"cannot be written: .*--out"):
        observations.write(tmp_path / FILE, {"key": observed(llama, 1)})
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE]
