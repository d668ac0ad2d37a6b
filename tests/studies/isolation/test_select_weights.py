"""Isolating into a folder: selections as files, their numbers, and what the person is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from oracle import Listener, observed

import architectures_zoo as zoo
from commandline import write
from lesion.edits.files.artefact import read_edit
from lesion.edits.selections.controls import Random
from lesion.edits.selections.topk import Magnitude, Wanda
from lesion.errors import LesionError, UsageError
from lesion.models.load import wrap
from lesion.studies.isolation.plan import method_of
from lesion.studies.isolation.selections import draw_texts, isolate
from lesion.studies.isolation.study import METHODS, IsolationStudy
from tiny import model, tokenizer


def task(file: Path, text: str, count: int = 12) -> Path:
    rows = ({"id": f"{n}", "prompt": text.format(n=n, m=n * 7 % 10), "answer": f"{n}"} for n in range(count))
    return write(file, rows)


@pytest.fixture
def data(tmp_path) -> tuple[Path, Path]:
    return task(tmp_path / "skill.jsonl", "{n} + {m} ="), task(tmp_path / "control.jsonl", "a fox ran {m} miles,")


def study(data: tuple[Path, ...], **values) -> IsolationStudy:
    skill, *controls = map(str, data)
    told = {"model": "tiny:llama", "skill": skill, "controls": controls, "samples": 3, "share": 0.2}
    return IsolationStudy.make(**{**told, **values})


def done(what: IsolationStudy, llama, folder: Path):
    """The numbers."""
    return isolate(what, llama, folder, Listener(), draw_texts(what, llama), llama)[1]


def names(found) -> list[str]:
    return [selection.file for selection in found.selections]


def test_every_method_leaves_its_selection_as_a_file_that_reads_back_as_the_same(llama, data, tmp_path):
    what = study(data, methods=list(METHODS), samples=12)
    candidates, found = isolate(what, llama, tmp_path / "out", Listener(), draw_texts(what, llama), llama)
    assert names(found) == [f"{method}-0.2.edit" for method in METHODS]
    for method, made, entry in zip(METHODS, candidates, found.selections, strict=True):
        again = read_edit(tmp_path / "out" / entry.file)
        (selection,) = again.selections.values()
        assert (selection.digest, again.factors) == (made.edit.selection.digest, (0.0,))
        assert (entry.digest, entry.method) == (selection.digest, method)
        masks = {address: selection.mask(address, matrix.read()) for address, matrix in llama.anatomy.scored.items()}
        told = {
            f"{part.block}.{part.matrix}" if part.block is not None else part.matrix: part for part in entry.matrices
        }
        assert {address: part.selected for address, part in told.items()} == {
            address: int(mask.sum()) for address, mask in masks.items()
        }
        assert {address: part.total for address, part in told.items()} == {
            address: mask.numel() for address, mask in masks.items()
        }
        assert entry.selected == sum(int(mask.sum()) for mask in masks.values())
        assert entry.share == entry.selected / entry.total


def test_files_of_several_sizes_repeats_and_shares_have_names_of_their_own(llama, data, tmp_path):
    what = study(data, methods=["mathneuro", "magnitude"], samples=[2, 3], repeats=2, share=[0.1, 0.2])
    found = done(what, llama, tmp_path / "out")
    assert sorted(names(found)) == sorted(
        [
            f"mathneuro-{keep}-n{size}{repeat}.edit"
            for keep in ("0.1", "0.2")
            for size in (2, 3)
            for repeat in ("", "-repeat1")
        ]
        + ["magnitude-0.1.edit", "magnitude-0.2.edit"]
    )
    assert len({read_edit(tmp_path / "out" / name).digest for name in names(found)}) == len(names(found))
    # Overlap: one pair of repeats for each share and size, none for what sees no data.
    assert [(one.method, one.keep, one.samples, len(one.iou)) for one in found.overlaps] == [
        ("mathneuro", keep, size, 1) for keep in (0.1, 0.2) for size in (2, 3)
    ]


def test_shares_that_differ_by_very_little_do_not_overwrite_each_other(llama, data, tmp_path):
    found = done(study(data, share=[0.1, 0.1000000001]), llama, tmp_path / "out")
    assert names(found) == ["mathneuro-0.1.edit", "mathneuro-0.1000000001.edit"]


def test_the_summary_tells_texts_coverage_and_provenance(llama, data, tmp_path):
    found = done(study(data, repeats=2, seed=3), llama, tmp_path / "out")
    assert (found.model, found.fingerprint, found.blocks) == ("tiny:llama", llama.fingerprint, 3)
    assert (found.study.skill, found.study.controls) == (str(data[0]), (str(data[1]),))
    assert (found.study.samples, found.study.repeats, found.study.seed, found.disjoint) == ((3,), 2, 3, True)
    assert [(entry.data, entry.role, entry.repeat, entry.texts) for entry in found.texts] == [
        (str(data[0]), "skill", 0, 3),
        (str(data[0]), "skill", 1, 3),
        (str(data[1]), "control", 0, 3),
        (str(data[1]), "control", 1, 3),
    ]
    assert all(entry.tokens > 0 and entry.cut == 0 for entry in found.texts)
    scored = {entry.name for entry in found.coverage if entry.scored}
    assert scored == set(llama.anatomy.scored)
    assert sum(entry.weights for entry in found.coverage) == sum(
        parameter.numel() for parameter in llama.network.parameters()
    )


def test_the_weights_are_only_read(llama, data, tmp_path):
    before = {name: tensor.clone() for name, tensor in llama.network.state_dict().items()}
    done(study(data, methods=list(METHODS)), llama, tmp_path / "out")
    for name, tensor in llama.network.state_dict().items():
        assert torch.equal(tensor.view(torch.int32), before[name].view(torch.int32)), name


def test_texts_longer_than_the_context_are_cut_counted_and_told(llama, data, tmp_path):
    long = write(
        tmp_path / "long.jsonl",
        ({"id": f"{n}", "prompt": "so " * (100 if n < 2 else 5) + f"{n}", "answer": "y"} for n in range(4)),
    )
    found = done(study((long, data[1]), samples=4), llama, tmp_path / "out")
    assert f"{long}: 2 of 4 calibration texts were longer than the context and were cut." in found.notes
    (skill,) = (entry for entry in found.texts if entry.role == "skill")
    # Two of 256 tokens, the context; two of `<s>`, five times `so `, a digit and the answer.
    assert (skill.cut, skill.tokens) == (2, 2 * 256 + 2 * (1 + 15 + 1 + 1))


def test_repeats_that_cannot_be_disjoint_are_noted(llama, data, tmp_path):
    found = done(study(data, samples=8, repeats=2), llama, tmp_path / "out")
    assert any("too few items for 2 repeats without a common text" in note for note in found.notes)
    assert found.disjoint is False


def test_a_selection_that_is_empty_is_noted_and_the_others_are_kept(llama, data, tmp_path):
    # The whole of every matrix is in the control's share, and so nothing is left of the skill's.
    found = done(study(data, share=[1.0, 0.2]), llama, tmp_path / "out")
    assert names(found) == ["mathneuro-0.2.edit"]
    assert [one.keep for one in found.selections] == [0.2]
    assert any("mathneuro-1 is empty on tiny:llama" in note for note in found.notes)


def test_where_every_selection_is_empty_or_everything_it_is_an_error(llama, data, tmp_path):
    with pytest.raises(LesionError, match="mathneuro-1 is empty on tiny:llama"):
        done(study(data, share=1.0), llama, tmp_path / "out")
    with pytest.raises(LesionError, match="wanda-1 is everything that tiny:llama has"):
        done(study(data, share=1.0, methods="wanda"), llama, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.edit"))


def test_too_few_neurons_for_lape_is_noted(llama, data, tmp_path):
    found = done(study(data, share=0.9, methods=["lape"], samples=12), llama, tmp_path / "out")
    assert any(note.startswith("lape-0.9: only ") and "fewer than the 129" in note for note in found.notes)


def test_experts_that_saw_no_token_are_told_and_never_selected(data, tmp_path):
    mixtral = model("mixtral")
    found = done(study(data, samples=1), mixtral, tmp_path / "out")
    silent = {
        entry.name.rpartition(".")[0] for entry in found.coverage if entry.reason == "no token of the skill came to it"
    }
    (entry,) = found.selections
    for part in entry.matrices:
        if f"{part.block}.{part.matrix}".rpartition(".")[0] in silent:
            assert part.selected == 0
    assert any(note.startswith(f"{len(silent)} experts saw no token") for note in found.notes) == bool(silent)


def test_weights_that_several_blocks_share_are_refused_before_anything_is_read(data, tmp_path):
    shared = wrap(zoo.made("zamba"), tokenizer(), "tiny:zamba")
    with pytest.raises(UsageError, match=r"1.attention.* and 3.attention.* of tiny:zamba are one parameter"):
        done(study(data, model="tiny:zamba"), shared, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_calibration_file_is_told_by_name(llama, data, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UsageError, match=r"empty\.jsonl is empty"):
        done(study((data[0], tmp_path / "empty.jsonl")), llama, tmp_path / "out")


def test_the_method_of_a_selection_is_told_by_its_recipe(llama):
    wanda = Wanda(observed(llama, 1), 0.1)
    assert method_of(wanda) == ("wanda", 0.1)
    assert method_of(Wanda(observed(llama, 1), 0.1, per="row")) == ("wanda-rows", 0.1)
    assert method_of(Magnitude(0.3)) == ("magnitude", 0.3)
    assert method_of(Random(wanda)) == ("random", None)
    assert method_of(wanda - Magnitude(0.3)) == ("custom", None)
