"""Replacements are values: they compare, hash, survive text, JSON and files, and are refused where they cannot be."""

import json
from dataclasses import replace

import pytest
import torch
from replaced import some_reference

from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleMlp, as_edit, of_places, of_replacements, with_factor
from lesion.edits.files.artefact import save_edit
from lesion.edits.files.as_weights import edit_files
from lesion.edits.reference import read_reference
from lesion.edits.replace import Replace
from lesion.edits.selections.controls import matched_controls
from lesion.edits.table import tabulate
from lesion.edits.text import from_json, parse, simplified, to_json
from lesion.errors import LesionError, UsageError
from lesion.reprs import LONGEST
from tiny import model


@pytest.fixture(scope="module")
def subject():
    return model("llama")


@pytest.fixture(scope="module")
def reference(subject):
    return some_reference(subject)


@pytest.fixture(scope="module")
def references(reference):
    return {reference.digest: reference}


def test_text_and_json_read_back_as_the_same_edit(reference, references):
    texts = {
        Replace("2", "mean", reference): "2→mean@{}",
        Replace("1.attention", "resample", reference): "1.attention→resample@{}",
        Replace("0.mlp", "resample", reference, 3): "0.mlp→resample 3@{}",
        Replace("1", "position", reference): "1→position@{}",
        Compose((Replace("2", "mean", reference), ScaleMlp(0))): "2→mean@{} + 0.mlp×0",
    }
    for edit, text in texts.items():
        assert str(edit) == text.format(reference.digest)
        assert parse(str(edit), references=references) == edit
        assert hash(parse(str(edit), references=references)) == hash(edit)
        assert from_json(json.loads(json.dumps(to_json(edit))), references=references) == edit
        assert len(repr(edit)) <= LONGEST
    assert len({*texts, *(parse(str(edit), references=references) for edit in texts)}) == len(texts)


def test_arrows_of_two_kinds_ranges_and_sums_without_spaces_are_read(reference, references):
    digest = reference.digest
    assert parse(f"02 -> mean@{digest}", references=references) == Replace("2", "mean", reference)
    each = [Replace(f"{layer}.mlp", "resample", reference, 1) for layer in (0, 1, 2)]
    assert parse(f"0-2.mlp->resample 1@{digest}+1x0", references=references) == Compose((*each, ScaleBlock(1)))
    ending = replace(reference, fingerprint="")
    # A digest that ends as a number with an exponent does.
    ending.__dict__["digest"] = "0123456789abcd3e"
    both = parse("1→mean@0123456789abcd3e+0x0", references={ending.digest: ending})
    assert both == Compose((Replace("1", "mean", ending), ScaleBlock(0)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1→mean", "write ADDRESS→KIND@DIGEST"),
        ("1→mean@123", "write ADDRESS→KIND@DIGEST"),
        ("1.mlp.up→mean@0123456789abcdef", "block, branch or query head, which are all that can be replaced"),
        ("1.attention.group.0→mean@0123456789abcdef", r"write 23, 23\.attention, 23\.mlp or 23\.attention\.head\.4"),
        ("→mean@0123456789abcdef", "write ADDRESS→KIND@DIGEST"),
        ("3-1→mean@0123456789abcdef", "no range of blocks"),
        ("1→mean@0123456789abcdef", "which text alone does not hold"),
    ],
)
def test_text_that_is_no_replacement_is_refused(references, text, why):
    for known in ({}, references):
        with pytest.raises(UsageError, match=why):
            parse(text, references=known)


def test_what_the_reference_does_not_hold_is_refused(reference):
    for arguments, why in (
        (("1.mlp.up", "mean"), "not the address of a block, branch or query head"),
        (("1.mlp.neuron.3", "mean"), "not the address of a block, branch or query head"),
        (("head", "mean"), "not the address of a block, branch or query head"),
        (("1.attention.head.2", "mean"), r"lesion\.reference\(model, texts, kinds='mean', units='head'\) makes one"),
        (("1.attention.head.2", "optimal"), r"optimal_reference\(model, texts, \['1\.attention\.head\.2'\]\) fits it"),
        (("7", "mean"), r"has no mean of 7; it has those of \d+ places, from 0 to "),
        (("7", "position"), r"has no position of 7; it has those of \d+ places, from 0 to "),
        (("1", "position", 2), "leave draw out"),
        (("1", "median"), "no kind of replacement"),
        (("1", "mean", 2), "leave draw out"),
        (("1", "resample", -1), "counted from 0"),
    ):
        address, kind, *draw = arguments
        with pytest.raises(UsageError, match=why):
            Replace(address, kind, reference, *draw)
    with pytest.raises(UsageError, match="takes contributions from a reference"):
        Replace("1", "mean", torch.zeros(32))
    for value in (
        {"replace": "1", "kind": "mean", "draw": 0, "reference": "0" * 16},
        to_json(Replace("1", "mean", reference)),
    ):
        with pytest.raises(UsageError, match="text alone does not hold"):
            from_json(value)


def test_it_is_an_edit_of_places(reference):
    edit = as_edit([Replace("2", "mean", reference), ScaleBlock(1)])
    assert of_places(edit) == edit
    assert of_replacements(edit) == (Replace("2", "mean", reference),)
    assert of_replacements(BASELINE) == ()


def test_it_begins_where_its_place_lies_and_rows_take_theirs(subject, reference):
    edits = [
        BASELINE,
        Replace("2.mlp", "mean", reference),
        Compose((Replace("1", "resample", reference), ScaleBlock(2))),
    ]
    table = tabulate(edits, subject.anatomy)
    assert table.first_edited().tolist() == [3, 2, 1]
    assert table.select(torch.tensor([2, 0, 1])).first_edited().tolist() == [1, 3, 2]


def test_named_once_and_what_changes_nothing_gone(reference):
    part = Replace("1", "mean", reference)
    assert simplified(Compose((part, ScaleBlock(0, 0.5), part, ScaleBlock(2, 1)))) == Compose(
        (ScaleBlock(0, 0.5), part)
    )


def test_controls_replace_the_same_unit_of_another_block(subject, reference):
    controls = matched_controls(Replace("1.mlp", "resample", reference, 2), subject, 5)
    assert set(controls) == {Replace(address, "resample", reference, 2) for address in ("0.mlp", "2.mlp")}


def test_where_it_cannot_be_it_is_refused_by_name(subject, reference, tmp_path):
    edit = Compose((ScaleBlock(0), Replace("1", "mean", reference)))
    for refused, why in (
        (lambda: with_factor(edit, 0.5), "is a replacement and has no factor"),
        (lambda: save_edit(tmp_path / "a.edit", edit, subject), r"keep the reference with reference\.save"),
        (lambda: edit_files(edit, lambda: subject), "an ordinary checkpoint has no parameter"),
    ):
        with pytest.raises(UsageError, match=f"1→mean@{reference.digest}.*{why}"):
            refused()


def test_a_reference_is_read_as_it_was_written(reference, tmp_path):
    file = reference.save(tmp_path / "texts.safetensors")
    read = read_reference(file)
    assert read == reference
    assert (read.model, read.label, read.tokens) == (reference.model, reference.label, reference.tokens)
    for kind, places in reference.vectors.items():
        assert all(torch.equal(read.vectors[kind][address], vectors) for address, vectors in places.items())


def test_another_number_model_or_kind_is_another_reference(reference):
    changed = {kind: dict(places) for kind, places in reference.vectors.items()}
    changed["mean"]["1"] = changed["mean"]["1"] + 1e-6
    others = [replace(reference, fingerprint="0" * 16), replace(reference, vectors=changed)]
    assert len({reference.digest, *(other.digest for other in others)}) == 3
    assert reference not in others


def test_a_damaged_or_other_file_is_refused(subject, reference, tmp_path):
    data = reference.save(tmp_path / "whole").read_bytes()
    flipped = bytearray(data)
    flipped[-1] ^= 1
    for name, content, why in (
        ("flipped", bytes(flipped), "changed or damaged"),
        ("cut", data[:-5], "cannot be read as a reference"),
        ("text", b"hello", "cannot be read as a reference"),
        ("none", b"", "cannot be read as a reference"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(LesionError, match=why):
            read_reference(tmp_path / name)
    with pytest.raises(UsageError, match="There is no file"):
        read_reference(tmp_path / "absent")
