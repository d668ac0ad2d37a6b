"""Spectra are computed once, kept in memory and in a bounded folder, and never taken for those of other weights."""

import os

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import tiny
from lesion.edits import spectra as kept
from lesion.edits.edit import Truncate
from lesion.edits.spectra import SMALLEST, Spectra, decompose, spectra
from lesion.edits.weights import written
from lesion.errors import LesionError, UsageError
from lesion.files import cache_folder

# Just large enough to be worth a file.
SHAPE = (SMALLEST, SMALLEST + 8)


def weight(seed: int = 0, shape: tuple[int, int] = SHAPE) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def counts(found: Spectra) -> tuple[int, int, int]:
    return found.computed, found.read, found.reused


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.glob("*/*"))


def test_a_spectrum_is_computed_once_found_in_memory_and_read_by_another_process_in_the_same_bits(tmp_path):
    first = Spectra("model", tmp_path)
    found = first.of("0.mlp.up", weight())
    assert first.of("0.mlp.up", weight().clone()) is found
    assert counts(first) == (1, 0, 1)
    assert first.seconds > 0
    later = Spectra("model", tmp_path)
    again = later.of("0.mlp.up", weight())
    assert counts(later) == (0, 1, 0)
    assert later.seconds == 0
    assert torch.equal(again.basis, found.basis)
    assert torch.equal(again.values, found.values)
    assert again.shape == found.shape == SHAPE
    assert later.of("0.mlp.up", weight()) is again
    assert counts(later) == (0, 1, 1)


def test_other_weights_another_address_and_another_model_have_spectra_of_their_own(tmp_path):
    first = Spectra("model", tmp_path)
    one, two = first.of("0.mlp.up", weight()), first.of("0.mlp.up", weight(1))
    assert not torch.equal(one.values, two.values)
    first.of("1.mlp.up", weight())
    other = Spectra("other", tmp_path)
    other.of("0.mlp.up", weight())
    assert counts(first) == (3, 0, 0)
    assert counts(other) == (1, 0, 0)
    later = Spectra("model", tmp_path)
    assert torch.equal(later.of("0.mlp.up", weight(1)).values, two.values)
    assert torch.equal(later.of("0.mlp.up", weight()).values, one.values)
    assert counts(later) == (0, 2, 0)


def test_one_weight_that_changes_is_another_matrix(tmp_path):
    found = Spectra("model", tmp_path)
    changed = weight()
    found.of("0.mlp.up", changed)
    changed[3, 4] += 1
    found.of("0.mlp.up", changed)
    assert found.computed == 2


def test_the_same_values_in_another_dtype_are_one_spectrum(tmp_path):
    # What float32 holds of a half-precision matrix is that matrix.
    half = weight().to(torch.bfloat16)
    found = Spectra("model", tmp_path)
    one = found.of("0.mlp.up", half)
    assert torch.equal(found.of("0.mlp.up", half.float()).values, one.values)


def test_small_matrices_are_not_worth_a_file(tmp_path):
    found = Spectra("model", tmp_path)
    found.of("0.mlp.up", weight(shape=(SMALLEST - 1, 400)))
    assert files(tmp_path) == []
    assert counts(Spectra("model", tmp_path)) == (0, 0, 0)


def size_of_one(tmp_path) -> int:
    Spectra("probe", tmp_path / "probe").of("0.mlp.up", weight())
    (file,) = (tmp_path / "probe").glob("*/*")
    return file.stat().st_size


def test_a_folder_that_is_full_gives_up_what_was_used_longest_ago_of_whatever_model(tmp_path):
    room = 2.5 * size_of_one(tmp_path) / 2**30
    folder = tmp_path / "bounded"
    Spectra("first", folder, room).of("0.mlp.up", weight(0))
    Spectra("second", folder, room).of("0.mlp.up", weight(1))
    ages = {path.parent.name: path for path in folder.glob("*/*")}
    os.utime(ages["first"], (1000, 1000))
    os.utime(ages["second"], (2000, 2000))
    # Read again, the older one is the one used last.
    reader = Spectra("first", folder, room)
    reader.of("0.mlp.up", weight(0))
    assert reader.read == 1
    Spectra("third", folder, room).of("0.mlp.up", weight(2))
    assert {path.parent.name for path in folder.glob("*/*")} == {"first", "third"}


def test_what_a_killed_process_left_half_written_is_given_up_too(tmp_path):
    room = 1.5 * size_of_one(tmp_path) / 2**30
    folder = tmp_path / "bounded"
    left = folder / "model" / ".0.mlp.up-0123456789abcdef.safetensors.x1y2"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"0" * size_of_one(tmp_path))
    os.utime(left, (1000, 1000))
    Spectra("model", folder, room).of("0.mlp.up", weight())
    assert not left.exists()
    assert len(files(folder)) == 1


def damages():
    def tensors(change):
        def damage(path):
            inside = load_file(path)
            change(inside)
            with safe_open(path, framework="pt") as file:
                told = file.metadata()
            save_file(inside, path, metadata=told)

        return damage

    def put(name, value):
        return tensors(lambda t: t.__setitem__(name, value(t[name])))

    def flipped(place):
        def damage(path):
            data = bytearray(path.read_bytes())
            data[place] ^= 0x80
            path.write_bytes(bytes(data))

        return damage

    def renamed(path):
        Spectra("model", path.parents[1]).of("1.mlp.up", weight(1))
        path.with_name(next(p.name for p in path.parent.glob("1.mlp.up-*"))).replace(path)

    def without_digest(path):
        save_file(load_file(path), path)

    return {
        "one sign": flipped(-8 * (SMALLEST + 44) - 1),
        "one bit of the last number": flipped(-8),
        "two columns in each other's place": put("basis", lambda t: t[:, [1, 0, *range(2, t.shape[1])]].contiguous()),
        "the file of another matrix": renamed,
        "no digest": without_digest,
        "cut short": lambda path: path.write_bytes(path.read_bytes()[:-9]),
        "empty": lambda path: path.write_bytes(b""),
        "something else": lambda path: path.write_bytes(b"not a tensor in sight" * 9),
        "a tensor less": tensors(lambda t: t.pop("values")),
        "another dtype": put("basis", lambda t: t.float()),
        "another shape": put("basis", lambda t: t[:-1].clone()),
        "fewer values": put("values", lambda t: t[:-1].clone()),
        "not a number": put("basis", lambda t: t.clone().fill_(float("nan"))),
        "one entry far off": put("basis", lambda t: t.clone().index_fill_(0, torch.tensor([3]), 2.0)),
        "the spectrum of other weights": put("values", lambda t: t * 1.01),
        "values that are none": put("values", lambda t: t.clone().fill_(float("nan"))),
    }


@pytest.mark.parametrize("name", list(damages()))
def test_a_damaged_file_costs_a_decomposition_and_is_mended(name, tmp_path):
    right = Spectra("model", tmp_path).of("0.mlp.up", weight())
    (path,) = tmp_path.glob("*/*")
    damages()[name](path)
    found = Spectra("model", tmp_path)
    assert torch.equal(found.of("0.mlp.up", weight()).basis, right.basis)
    assert counts(found) == (1, 0, 0)
    mended = Spectra("model", tmp_path)
    assert torch.equal(mended.of("0.mlp.up", weight()).values, right.values)
    assert counts(mended) == (0, 1, 0)


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    found = Spectra("model", tmp_path / "file")
    found.of("0.mlp.up", weight())
    found.of("0.mlp.up", weight())
    assert counts(found) == (1, 0, 1)
    assert (tmp_path / "file").read_text() == ""


def test_weights_that_are_not_finite_leave_nothing_behind(tmp_path):
    broken = weight()
    broken[0, 0] = float("nan")
    found = Spectra("model", tmp_path)
    with pytest.raises(LesionError, match=r"0\.mlp\.up has weights that are not finite"):
        found.of("0.mlp.up", broken)
    assert counts(found) == (0, 0, 0)
    assert files(tmp_path) == []


# -- where, and how much, is said in the environment


def test_the_place_is_the_one_that_is_named_or_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LESION_CACHE", str(tmp_path / "mine"))
    Spectra("model").of("0.mlp.up", weight())
    assert [path.parent.name for path in (tmp_path / "mine").glob("spectra/*/*")] == ["model"]
    monkeypatch.delenv("LESION_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("spectra") == tmp_path / "xdg" / "lesion" / "spectra"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder("spectra") == tmp_path / "home" / ".cache" / "lesion" / "spectra"


def test_a_limit_of_0_keeps_nothing_on_disk_and_reads_nothing(monkeypatch, tmp_path):
    Spectra("model", tmp_path).of("0.mlp.up", weight())
    monkeypatch.setenv("LESION_CACHE_GIB", "0")
    found = Spectra("model", tmp_path)
    found.of("0.mlp.up", weight())
    found.of("1.mlp.up", weight(1))
    assert counts(found) == (2, 0, 0)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("text", ["", "much", "-1", "nan", "inf", "4 GiB"])
def test_a_limit_that_is_no_number_from_0_is_refused(text, monkeypatch, tmp_path):
    monkeypatch.setenv("LESION_CACHE_GIB", text)
    with pytest.raises(UsageError, match=r"LESION_CACHE_GIB is how many GiB.*not"):
        Spectra("model", tmp_path)


# -- of a model


def test_a_model_has_one_collection_for_every_keep_and_side_of_its_matrices():
    model = tiny.model("llama")
    before = counts(spectra(model))
    for keep, side in ((0.0, "top"), (0.3, "top"), (0.3, "bottom"), (0.9, "top"), (1.0, "top")):
        with written(model, (), [Truncate("1.mlp.up", keep, side), Truncate("0.mlp.up", 0.5)]):
            pass
    assert before == (0, 0, 0)
    assert spectra(model).computed == 2
    # Keep 1 asks for no decomposition.
    assert spectra(model).reused == 9 - 2


def test_weights_that_an_outer_edit_has_changed_are_decomposed_as_they_are():
    model = tiny.model("llama")
    nested = Truncate("1.mlp.up", 0.5), Truncate("1.mlp.up", 0.5, "bottom")
    with written(model, (), nested[:1]):
        half = model.anatomy.matrix("1.mlp.up").read()
        with written(model, (), nested[1:]):
            # The bottom half of the spectrum of a matrix of half the rank is nothing.
            assert float(model.anatomy.matrix("1.mlp.up").read().abs().max()) < 1e-5 * float(half.abs().max())
    assert spectra(model).computed == 2


def test_what_does_not_fit_the_memory_is_forgotten_but_stays_on_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "MEMORY", int(1.5 * 8 * SMALLEST**2))
    found = Spectra("model", tmp_path)
    for seed in (0, 1, 0):
        found.of(f"{seed}.mlp.up", weight(seed))
    assert counts(found) == (2, 1, 0)


def test_a_spectrum_follows_its_matrix_to_another_device():
    spectrum = decompose(torch.randn(3, 5))
    moved = spectrum.on(torch.device("meta"))
    assert moved.basis.device.type == moved.values.device.type == "meta"
    assert spectrum.on(torch.device("cpu")) is spectrum
