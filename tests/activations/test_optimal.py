"""The constant that hurts least: where algebra knows it, and against a plain hook with torch's Adam."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from headed import projection
from replaced import module_of
from torch import Tensor

from lesion.activations import optimal
from lesion.activations.calibration import Calibration, Draw
from lesion.activations.contributions import observed, reference
from lesion.activations.optimal import optimal_reference
from lesion.edits.apply import applied
from lesion.edits.reference import Reference, read_reference
from lesion.edits.replace import Replace
from lesion.errors import UsageError
from lesion.models.load import Model
from tiny import model

TEXTS = 25
ENDING = 9
COUNT = 200


def calibrated(ending: tuple[int, ...] = (), count: int = TEXTS) -> Calibration:
    """Texts of several lengths whose solutions begin at their fifth token; or they are prompts with the same ending."""
    generator = torch.Generator().manual_seed(1)
    texts = tuple(
        (*torch.randint(3, 60, (4 + text % 4 * (not ending),), generator=generator).tolist(), *(ending or (5, 17)))
        for text in range(count)
    )
    ids = tuple(f"i{text}" for text in range(count))
    draws = (Draw(count, 0, tuple(range(count))),)
    starts = (5 if ending else 4,) * count
    return Calibration("data", "raw", 0, False, True, ids, texts, (False,) * count, draws, starts)


def predictions(subject: Model, texts: Calibration) -> list[Tensor]:
    """Log-probabilities of the tokens of each solution's places, text by text."""
    with torch.no_grad():
        return [
            subject.network(torch.tensor([list(text)])).logits[0, start - 1 : -1].double().log_softmax(-1)
            for text, start in zip(texts.texts, texts.starts, strict=True)
        ]


def divergences(subject: Model, texts: Calibration, edit: Replace) -> Tensor:
    """KL of every text without and with an edit, in nats per token, by the definition."""
    before = predictions(subject, texts)
    with applied(subject, edit):
        after = predictions(subject, texts)
    return torch.stack([(p.exp() * (p - q)).sum(-1).mean() for p, q in zip(before, after, strict=True)])


def at_positions(vectors: Sequence[Tensor], output: Tensor) -> Tensor:
    """The first vector at the first token of a text, the second at all others."""
    return torch.stack([vectors[0], *[vectors[1]] * (output.shape[1] - 1)]).expand_as(output)


def by_hand(subject: Model, family: str, texts: Calibration, start: Reference, steps: int) -> float:
    """The least loss that Adam comes to on all texts, of one length, with a plain hook at the MLP of block 1."""
    first, others = start.vectors["mean"]["1.mlp"]
    added = others.clone().requires_grad_()
    before = torch.stack(predictions(subject, texts))
    ids = torch.tensor([list(text) for text in texts.texts])
    optimiser = torch.optim.Adam([added], 0.05)
    module = module_of(subject.network, family, 1, "mlp")
    handle = module.register_forward_hook(lambda module, args, output: at_positions((first, added), output))
    losses = []
    for _ in range(steps):
        after = subject.network(ids).logits[:, texts.starts[0] - 1 : -1].double().log_softmax(-1)
        loss = (before.exp() * (before - after)).sum(-1).mean()
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    handle.remove()
    return min(losses)


def test_it_hurts_less_than_the_mean_and_no_more_than_what_a_plain_hook_finds():
    family, written = "llama", "1.mlp.down"  # of GPT-2 the head below is fitted
    subject, texts = model(family), calibrated((ENDING, 11), count=COUNT)
    with torch.no_grad():
        subject.anatomy.matrix(written).tensor.mul_(5)  # so that the constant matters
    start = observed(subject, texts, {"mean", "resample"})
    fitted = optimal_reference(subject, texts, ["1.mlp"], start=start)
    held = sorted(range(COUNT), key=lambda text: optimal.order_of(0, text))[: COUNT // optimal.HELD_OUT]
    others = [text for text in range(COUNT) if text not in held]
    mean, best = (
        divergences(subject, texts, Replace("1.mlp", kind, of)) for kind, of in (("mean", start), ("optimal", fitted))
    )
    # The losses that it states are those of the held-out texts, by the definition.
    fit = fitted.fits["1.mlp"]
    assert fit.mean == pytest.approx(float(mean[held].mean()), rel=1e-3)
    assert fit.optimal == pytest.approx(float(best[held].mean()), rel=1e-3)
    assert fit.optimal < fit.mean
    assert best[others].mean() < mean[others].mean()
    # The plain hook descends on all texts, the held-out ones too.
    least = by_hand(subject, family, texts, start, 60)
    assert float(best.mean()) < least + 0.3 * (float(mean.mean()) - least)


@pytest.mark.parametrize(("family", "head"), [("llama", 1), ("gpt2", 0)])
def test_a_head_is_fitted_as_a_plain_hook_before_the_output_matrix_would(family, head):
    subject, texts, address = model(family), calibrated((ENDING, 11), count=COUNT), f"1.attention.head.{head}"
    with torch.no_grad():
        subject.anatomy.matrix("1.attention.o").tensor.mul_(10)  # so that the constant matters
    start = observed(subject, texts, {"mean", "resample"}, units="head")
    fitted = optimal_reference(subject, texts, [address])
    mean, best = start.vectors["mean"][address], fitted.vectors["optimal"][address]
    before, ids = torch.stack(predictions(subject, texts)), torch.tensor([list(text) for text in texts.texts])

    def losses(vectors: Sequence[Tensor]) -> Tensor:
        def put(module, args):
            heads = [*args[0].split(vectors[0].shape[-1], -1)]
            heads[head] = at_positions(vectors, heads[head])
            return (torch.cat(heads, -1),)

        handle = projection(subject.network, family, 1).register_forward_pre_hook(put)
        after = subject.network(ids).logits[:, texts.starts[0] - 1 : -1].double().log_softmax(-1)
        handle.remove()
        return (before.exp() * (before - after)).sum(-1).mean(-1)

    held = sorted(range(COUNT), key=lambda text: optimal.order_of(0, text))[: COUNT // optimal.HELD_OUT]
    with torch.no_grad():
        of_mean, of_best = losses(mean), losses(best)
    assert fitted.fits[address].mean == pytest.approx(float(of_mean[held].mean()), rel=1e-3)
    assert fitted.fits[address].optimal == pytest.approx(float(of_best[held].mean()), rel=1e-3)
    # The plain hook descends on all texts, the held-out ones too.
    vector, descended = mean[1].clone().requires_grad_(), []
    optimiser = torch.optim.Adam([vector], 0.05)
    for _ in range(40):
        loss = losses((mean[0], vector)).mean()
        descended.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float(of_best.mean()) < min(descended) + 0.3 * (float(of_mean.mean()) - min(descended))


def test_lengths_and_padding_change_no_divergence():
    subject, texts = model("llama"), calibrated()
    start = observed(subject, texts, {"mean", "resample"})
    fitted = optimal_reference(subject, texts, ["1"], start=start, steps=1)
    held = sorted(range(TEXTS), key=lambda text: optimal.order_of(0, text))[: TEXTS // optimal.HELD_OUT]
    mean = divergences(subject, texts, Replace("1", "mean", start))
    assert fitted.fits["1"].mean == pytest.approx(float(mean[held].mean()), rel=1e-3)


def test_where_predictions_need_one_contribution_that_one_is_found():
    """Without attention a prediction depends on its token alone; all texts end alike: what is added there is best."""
    subject = model("llama")
    with torch.no_grad():
        for block in subject.anatomy.blocks:
            subject.anatomy.matrix(f"{block.index}.attention.o").tensor.zero_()
    texts = calibrated(ending=(ENDING, 11))
    start = observed(subject, texts, {"mean", "resample"})
    fitted = optimal_reference(subject, texts, ["1.mlp"], start=start, steps=100)
    with torch.no_grad():
        seen = []
        handle = module_of(subject.network, "llama", 1, "mlp").register_forward_hook(
            lambda module, args, output: seen.append(output[0, 0])
        )
        subject.network(torch.tensor([[ENDING]]))
        handle.remove()
    mean, found = start.vectors["mean"]["1.mlp"][1], fitted.vectors["optimal"]["1.mlp"][1]
    assert fitted.fits["1.mlp"].optimal < 0.01 * fitted.fits["1.mlp"].mean
    assert (found - seen[0]).norm() < 0.7 * (mean - seen[0]).norm()


def test_places_fitted_together_are_those_fitted_alone_and_the_seed_decides(monkeypatch):
    subject, texts = model("llama"), calibrated()
    start = observed(subject, texts, {"mean", "resample"})
    monkeypatch.setattr(optimal, "CHECKS", 2)
    together = optimal_reference(subject, texts, ["0", "2.attention"], start=start, steps=6)
    for address, fit in together.fits.items():
        alone = optimal_reference(subject, texts, [address], start=start, steps=6, batch_tokens=1)
        assert fit.optimal == pytest.approx(alone.fits[address].optimal, rel=1e-3)
    assert optimal_reference(subject, texts, ["0", "2.attention"], start=start, steps=6) == together
    assert optimal_reference(subject, texts, ["0", "2.attention"], start=start, steps=6, seed=1) != together


def test_the_mean_stays_where_nothing_is_better_and_that_is_said(monkeypatch):
    class Notes:
        said: tuple[str, ...] = ()

        def begin(self, *about):
            self.total = about[1]

        def answered(self, count):
            self.done = getattr(self, "done", 0) + count

        def note(self, text):
            self.said += (text,)

    subject, texts, watcher = model("llama"), calibrated(), Notes()
    start = observed(subject, texts, {"mean", "resample"})
    monkeypatch.setattr(optimal, "RATE", 1e6)  # steps so long that every one is worse
    fitted = optimal_reference(subject, texts, ["1"], start=start, steps=40, watcher=watcher)
    assert torch.equal(fitted.vectors["optimal"]["1"], start.vectors["mean"]["1"])
    assert fitted.fits["1"].steps == 0
    assert any("no constant did better on the held-out texts than the mean" in text for text in watcher.said)
    assert watcher.done == watcher.total == 40


def test_it_is_read_as_it_was_written_and_is_another_reference_than_the_mean(tmp_path):
    subject, texts = model("llama"), calibrated()
    fitted = optimal_reference(subject, texts, ["1"], steps=1)
    read = read_reference(fitted.save(tmp_path / "optimum"))
    assert (read, read.fits) == (fitted, fitted.fits)
    assert str(Replace("1", "optimal", read)) == f"1→optimal@{fitted.digest}"
    with pytest.raises(UsageError, match=r"has no optimal of 2; lesion\.optimal_reference\(model, texts, \['2'\]\)"):
        Replace("2", "optimal", read)


def test_what_cannot_be_fitted_is_refused():
    subject, texts = model("llama"), calibrated()
    start = observed(subject, texts, {"mean", "resample"})
    few = replace(texts, texts=texts.texts[:9], starts=texts.starts[:9])
    for arguments, why in (
        ({"places": ["7"]}, "there is no block 7: tiny:llama has blocks 0 to 2"),
        ({"places": []}, "0 places were asked for"),
        ({"steps": 0}, "0 steps were asked for"),
        ({"start": reference(model("qwen2"), texts)}, "is of tiny:qwen2, which has other weights than tiny:llama"),
        ({"start": reference(subject, texts, kinds="mean")}, "has no mean and resample of 0"),
        ({"calibration": few}, "at least 10 texts, and data gives 9"),
        ({"calibration": replace(texts, replacement=True)}, "one draw of texts without replacement"),
    ):
        with pytest.raises(UsageError, match=why):
            optimal_reference(**{"model": subject, "calibration": texts, "start": start, **arguments})
