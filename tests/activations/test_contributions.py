"""A reference holds what plain hooks see, one text at a time: means over tokens, and those of some texts."""

from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from replaced import contributions, of_heads

import lesion.activations.contributions as contributions_of_lesion
import tiny
from lesion.activations.calibration import Calibration, Draw
from lesion.activations.contributions import reference
from lesion.edits.reference import Reference, read_reference
from lesion.errors import LesionError, UsageError
from tiny import BUILDS, model

LENGTHS = (3, 9, 8, 14, 1, 6)


def calibrated(draws: tuple[Draw, ...] = (Draw(6, 0, tuple(range(6))),)) -> Calibration:
    return Calibration("data", "raw", 3, False, True, tuple("abcdef"), tiny.texts(LENGTHS), (False,) * 6, draws)


BOTH = ("mean", "resample")


def first_and_others(every: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Means over the first tokens of the texts, and over all others."""
    by_text = every.split(LENGTHS)
    return torch.stack([of[0] for of in by_text]).mean(0), torch.cat([of[1:] for of in by_text]).mean(0)


def whole_texts(lengths: tuple[int, ...]) -> list[int]:
    """Numbers of the tokens of the texts of these lengths."""
    ends = dict(zip(LENGTHS, accumulate(LENGTHS), strict=True))
    return [token for length in lengths for token in range(ends[length] - length, ends[length])]


@pytest.fixture(autouse=True)
def few_texts_have_a_mean_of_their_own(monkeypatch):
    monkeypatch.setattr(contributions_of_lesion, "FEWEST_TEXTS", 3)


def assert_as_plain_hooks_see(collected: Reference, expected: dict[str, torch.Tensor], last: str) -> None:
    """What a reference holds, by what hooks saw at every token; what `last` adds tells all tokens apart."""
    tokens = torch.cdist(collected.vectors["resample"][last].double(), expected[last]).argmin(1)
    assert tokens.tolist() == whole_texts(collected.texts)
    for kind in ("mean", "position", "resample"):
        assert collected.vectors[kind].keys() == expected.keys()
    for address, every in expected.items():
        by_text = every.split(LENGTHS)
        # Three texts have an eighth token, two a ninth.
        at = [torch.stack([of[position] for of in by_text if len(of) > position]).mean(0) for position in range(8)]
        first, others = first_and_others(every)
        for kind, numbers in (("mean", [first, others]), ("position", [*at, others])):
            given = collected.vectors[kind][address].double()
            torch.testing.assert_close(given, torch.stack(numbers), rtol=1e-4, atol=1e-5)
        # The same tokens at every place.
        sampled = collected.vectors["resample"][address].double()
        torch.testing.assert_close(sampled, every[tokens], rtol=1e-4, atol=1e-4)


EVERY = ["mean", "position", "resample"]


@pytest.mark.parametrize("family", BUILDS)
def test_means_and_samples_are_those_of_plain_hooks(family):
    subject, texts = model(family), calibrated()
    collected = reference(subject, texts, kinds=EVERY, vectors=20, batch_tokens=20)
    assert collected.tokens == sum(map(len, texts.texts))
    assert collected.fingerprint == subject.fingerprint
    assert 0 < sum(collected.texts) <= 20
    assert_as_plain_hooks_see(collected, contributions(subject.network, family, texts.texts), "2")


@pytest.mark.parametrize("family", [family for family in BUILDS if family != "unknown"])
def test_what_heads_give_is_what_plain_hooks_see_before_the_output_matrix(family):
    subject, texts = model(family), calibrated()
    collected = reference(subject, texts, kinds=EVERY, units="head", batch_tokens=20)
    assert sorted(collected.texts) == sorted(LENGTHS)
    assert_as_plain_hooks_see(collected, of_heads(subject.network, family, texts.texts), "2.attention.head.3")


def test_heads_beside_blocks_change_neither_and_are_kept_in_a_file(tmp_path):
    subject = model("llama")
    both = reference(subject, calibrated(), units=("mlp", "head"), kinds=BOTH)
    for kind, places in reference(subject, calibrated(), kinds=BOTH).vectors.items():
        for address, vectors in places.items():
            if address.endswith("mlp"):
                assert torch.equal(both.vectors[kind][address], vectors)
    assert len(both.vectors["mean"]) == 3 * (1 + 4)
    assert read_reference(both.save(tmp_path / "both")) == both


def test_another_kind_is_a_reference_of_its_own():
    subject = model("llama")
    assert reference(subject, calibrated(), kinds=["resample", "mean"]) == reference(
        subject, calibrated(), kinds=["mean", "resample"]
    )
    mean = reference(subject, calibrated(), kinds="mean")
    assert mean == reference(subject, calibrated()) != reference(subject, calibrated(), kinds=BOTH)
    assert mean.vectors == {"mean": mean.vectors["mean"]}


def test_the_batch_does_not_matter_but_the_seed_does():
    subject = model("llama")
    together, one_by_one = (
        reference(subject, calibrated(), kinds=BOTH, vectors=8, batch_tokens=most) for most in (1000, 1)
    )
    for kind, places in together.vectors.items():
        for address, vectors in places.items():
            torch.testing.assert_close(one_by_one.vectors[kind][address], vectors, rtol=1e-4, atol=1e-5)
    assert reference(subject, calibrated(), kinds=BOTH, vectors=8) == together
    assert reference(subject, calibrated(), kinds=BOTH, vectors=8, seed=1) != together


def test_texts_are_taken_for_every_draw_and_more_while_they_fit():
    subject = model("llama")
    every = reference(subject, calibrated(), kinds=BOTH).texts
    assert sorted(every) == sorted(LENGTHS)
    for draws, vectors in ((1, 1), (3, 1), (2, 20), (6, 1)):
        collected = reference(subject, calibrated(), kinds=BOTH, draws=draws, vectors=vectors)
        fitting = next((count for count in range(6, 0, -1) if sum(every[:count]) <= vectors), 0)
        assert collected.texts == every[: max(draws, fitting)]
        assert {len(of) for of in collected.vectors["resample"].values()} == {sum(collected.texts)}


def test_what_cannot_be_is_refused(monkeypatch):
    monkeypatch.setattr(contributions_of_lesion, "FEWEST_TEXTS", 7)
    subject = model("llama")
    two = calibrated((Draw(3, 0, (0, 1, 2)), Draw(3, 1, (3, 4, 5))))
    for texts in (two, replace(calibrated(), replacement=True)):
        with pytest.raises(UsageError, match="one draw of texts without replacement"):
            reference(subject, texts)
    for arguments, why in (
        ({"vectors": 0}, "ask for at least 1"),
        ({"draws": 0}, "ask for at least 1"),
        ({"draws": 7, "kinds": "resample"}, "7 draws of resample take as many texts, and data gives 6"),
        ({"kinds": ()}, "at least one kind"),
        ({"units": ()}, "at least one unit"),
        ({"units": "neuron"}, "units"),
        ({"kinds": "median"}, "kinds"),
        ({"kinds": ["mean", "position"]}, "over at least 7 texts, and data gives 6"),
    ):
        with pytest.raises(UsageError, match=why):
            reference(subject, calibrated(), **arguments)
    apart = replace(calibrated(), starts=(1, 5, 5, 5, 1, 5))
    for kind in ("position", "resample"):
        with pytest.raises(UsageError, match=r"prompts of data have 1 to 5 tokens, .*lesion\.aligned"):
            reference(subject, apart, kinds=kind)
    assert reference(subject, apart) == reference(subject, calibrated())
    with pytest.raises(UsageError, match="The heads of block 0 of tiny:unknown are not known"):
        reference(model("unknown"), calibrated(), units="head")
    with torch.no_grad():
        subject.anatomy.matrix("1.mlp.down").tensor.fill_(float("nan"))
    with pytest.raises(LesionError, match=r"What the heads of block 2 of tiny:llama give is not finite"):
        reference(subject, calibrated(), units="head")
    with pytest.raises(LesionError, match=r"What 1\.mlp of tiny:llama adds .* is not finite"):
        reference(subject, calibrated())
