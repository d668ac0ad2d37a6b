import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.edits import spectra
from lesion.edits.edit import Truncate
from lesion.edits.spectra import ACCURACY, Spectrum, accurate, decompose
from lesion.errors import LesionError


def matrix(rows: int, columns: int, dtype: torch.dtype = torch.float32, condition: float = 1e4, seed: int = 0):
    """Random singular vectors, singular values that fall evenly on a logarithmic scale."""
    generator = torch.Generator().manual_seed(seed)
    left, _ = torch.linalg.qr(torch.randn(rows, rows, generator=generator, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, generator=generator, dtype=torch.float64))
    rank = min(rows, columns)
    values = torch.logspace(0, -np.log10(condition), rank, dtype=torch.float64)
    return ((left[:, :rank] * values) @ right[:rank]).to(dtype)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (32, 32), (1, 9), (9, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("side", ["top", "bottom"])
def test_every_kept_part_is_that_of_an_exact_decomposition_in_float64(shape, dtype, side):
    weight = matrix(*shape, dtype)
    left, values, right = np.linalg.svd(weight.double().numpy(), full_matrices=False)
    spectrum = decompose(weight)
    assert np.allclose(spectrum.values.numpy(), values, rtol=1e-8, atol=1e-8 * values[0])
    for keep in (0.1, 0.33, 0.5, 0.9):
        start, stop = Truncate("0.mlp.up", keep, side).kept(min(shape))
        expected = (left[:, start:stop] * values[start:stop]) @ right[start:stop]
        # One rounding to the dtype of the weights, and nothing else.
        allowed = torch.finfo(dtype).eps * np.abs(expected) + 1e-8 * values[0]
        assert (np.abs(spectrum.kept(weight, start, stop).double().numpy() - expected) <= allowed).all()


def test_all_components_are_the_matrix_to_the_bit_and_none_are_zeros():
    weight = matrix(16, 24, torch.bfloat16)
    spectrum = decompose(weight)
    assert torch.equal(spectrum.kept(weight, 0, 16), weight)
    assert not spectrum.kept(weight, 5, 5).any()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 12), st.integers(0, 100))
def test_top_and_bottom_of_a_spectrum_add_up_to_the_matrix(rows, columns, cut, seed):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    rank = min(rows, columns)
    spectrum = decompose(weight)
    cut = min(cut, rank)
    both = spectrum.kept(weight, 0, cut).double() + spectrum.kept(weight, cut, rank).double()
    assert torch.allclose(both, weight.double(), atol=1e-6)


def test_a_matrix_of_low_rank_has_zeros_for_the_rest_of_its_spectrum():
    weight = torch.randn(20, 2) @ torch.randn(2, 30)
    spectrum = decompose(weight)
    assert float(spectrum.values[2:].max()) < 1e-6 * float(spectrum.values[0])
    assert torch.allclose(spectrum.kept(weight, 0, 2), weight, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_tiny_and_huge_weights_keep_their_spectrum(scale):
    weight = matrix(12, 20)
    values = decompose(weight).values
    assert torch.allclose(decompose(weight * scale).values / scale, values, rtol=1e-5)


def test_a_matrix_of_zeros_has_a_spectrum_of_zeros():
    assert not decompose(torch.zeros(4, 6)).values.any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(bad):
    weight = torch.ones(3, 4)
    weight[1, 2] = bad
    with pytest.raises(LesionError, match=r"3\.mlp\.up has weights that are not finite"):
        decompose(weight, "3.mlp.up")


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (1, 9)])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20])
def test_a_decomposition_is_told_from_one_that_is_none_of_the_matrix(shape, scale):
    weight = matrix(*shape) * scale
    spectrum = decompose(weight)
    assert accurate(spectrum, weight)
    assert accurate(decompose(torch.zeros(shape)), torch.zeros(shape))
    turn = 1e3 * ACCURACY**0.5
    longer = Spectrum(spectrum.basis, spectrum.values * (1 + turn), shape)
    stretched = Spectrum(spectrum.basis * (1 + turn), spectrum.values, shape)
    assert not accurate(longer, weight)
    assert not accurate(stretched, weight)
    if min(shape) > 1:  # two components of which neither is one
        turned = spectrum.basis.clone()
        first, second = spectrum.basis[:, 0], spectrum.basis[:, 1]
        turned[:, 0], turned[:, 1] = first * np.cos(turn) + second * np.sin(turn), second - turn * first
        assert not accurate(Spectrum(turned, spectrum.values, shape), weight)


class Elsewhere(torch.Tensor):
    """A matrix that says that it lies on an accelerator."""

    device = torch.device("cuda")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


@pytest.mark.parametrize("failure", ["inaccurate", "out of memory", "none"])
def test_what_an_accelerator_does_not_take_apart_a_cpu_does(failure, monkeypatch):
    weight, whole, places = matrix(12, 20), spectra._decomposed, []

    def decomposed(matrix):
        places.append(matrix.device.type)
        spectrum = whole(matrix.as_subclass(torch.Tensor))
        if matrix.device.type == "cpu" or failure == "none":
            return spectrum
        if failure == "out of memory":
            raise torch.OutOfMemoryError
        return Spectrum(spectrum.basis.flip(-1), spectrum.values, spectrum.shape)

    monkeypatch.setattr(spectra, "_decomposed", decomposed)
    monkeypatch.setattr(Spectrum, "on", lambda spectrum, device: spectrum)
    found, expected = decompose(weight.as_subclass(Elsewhere)), whole(weight)
    assert places == (["cuda"] if failure == "none" else ["cuda", "cpu"])
    assert torch.equal(found.basis, expected.basis)
    assert torch.equal(found.values, expected.values)
