"""Optimal ablation: the constant that hurts a model least in the place of what a block, branch or query head gives.

Li and Janson (2024, arXiv 2409.09951, section 2) define the loss that no constant can avoid, Δ = min_a E[L(M_a(X))],
where M_a adds a at every position. Here the first token of a text keeps its mean, since many models have massive
activations there (Sun et al. 2024, arXiv 2402.17762), in whose place one constant for all positions cannot stand. As
they do for circuits, L is the Kullback–Leibler divergence KL(p ‖ p_a) of the next-token distribution without and
with the ablation: it asks for what the unedited model does, right or wrong. It is taken where tokens of a text's
solution are predicted, which is what a task judges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.activations.batching import budget_of
from lesion.activations.calibration import Calibration
from lesion.activations.contributions import (
    PLACES,
    TOKENS_ON_ACCELERATOR,
    TOKENS_ON_CPU,
    Kind,
    observed,
    refuse_several_draws,
)
from lesion.arguments import validated
from lesion.edits.edit import BASELINE, Edit
from lesion.edits.gates import gated
from lesion.edits.reference import Fit, Reference
from lesion.edits.replace import Replace, ReplacedUnit, place_of
from lesion.engines.checking import check_texts
from lesion.errors import UsageError, nearest
from lesion.models.load import Model
from lesion.models.owner import observing
from lesion.progress import Silent, Watcher

STEPS = 50
"""Steps of Adam, at most, for each place."""
CHECKS = 10
"""The held-out texts are looked at after so many steps."""
PATIENCE = 3
"""A place is done when so many looks in a row show nothing better."""
TEXTS = 8
"""Texts of one step."""
RATE = 0.3
"""Adam's first step, in spreads of each feature (the median distance of what the place adds from its median); later
steps fall linearly towards a twentieth of it."""
HELD_OUT = 5
"""One text of so many is held out."""
FEWEST_TEXTS = 10
NUMBERS = 1 << 27
"""So many probabilities of the unedited model are kept, 512 MB; of longer solutions the beginnings count."""


@validated
@observing("an optimal reference", unedited=True)
def optimal_reference(
    model: Model,
    calibration: Calibration,
    places: Sequence[str] | None = None,
    *,
    start: Reference | None = None,
    steps: int = STEPS,
    seed: int = 0,
    batch_tokens: int | None = None,
    watcher: Watcher | None = None,
) -> Reference:
    """Fit the constants that hurt least in the place of what blocks and branches add, or of what query heads give at
    the input of the attention's output matrix, for `Replace` of kind `optimal`.

    Every constant starts at the mean over all tokens but the first, and descends by Adam on four fifths of the texts,
    drawn by the seed; the one that does best on the other fifth is kept, so that none is worse there than the mean. At
    the first token the mean over first tokens stays. A watcher is told of places where nothing was better than the
    mean. Several places are fitted at once, as rows of one batch.

    Cost of a place, at most: `steps` · `TEXTS` texts forward and, from the place upwards, backward, and the held-out
    texts forward steps / `CHECKS` + 1 times. No edited weight, no gradient of weights.

    Args:
        model: which is only read.
        calibration: of one draw, without replacement: prompts with their gold solutions. No item on which the
            edits are evaluated should be among them.
        places: their addresses, as `23`, `23.attention`, `23.mlp`, `23.attention.head.4`; None for every block.
        start: contributions of the same texts (`lesion.reference`; of heads with `units="head"`) with `mean` and
            `resample`; None to read them here.
        steps: of Adam, at most.
        seed: of the held-out texts and the order of the others.
        batch_tokens: the most tokens of a batch, padding included; one place is fitted at a time where two exceed it.
        watcher: who is told how it goes.

    Returns:
        A reference of kind `optimal`, with the divergences of mean and optimum on the held-out texts in `fits`.

    Raises:
        UsageError: a number is below 1, there are fewer than `FEWEST_TEXTS` texts, several draws or texts drawn twice,
            `start` is of another model or has no mean of a place, or the places are none.
        LesionError: what a place adds cannot be read or is not finite, or the network does not know a token.
    """
    wanted = [str(block.index) for block in model.anatomy.blocks] if places is None else list(dict.fromkeys(places))
    watcher = watcher or Silent()
    if start is None:
        units: list[ReplacedUnit] = sorted({place_of(address)[1] for address in wanted})
        kinds: set[Kind] = {"mean", "resample"}
        start = observed(model, calibration, kinds, units or PLACES, seed=seed, watcher=watcher)
    vectors: dict[str, Tensor] = {}
    fits: dict[str, Fit] = {}
    for address, vector, fit in fitted(model, calibration, wanted, start, steps, seed, batch_tokens, watcher):
        vectors[address], fits[address] = vector, fit
    return Reference(model.name, model.fingerprint, calibration.label, start.tokens, {"optimal": vectors}, fits)


def fitted(
    model: Model,
    calibration: Calibration,
    places: Sequence[str],
    start: Reference,
    steps: int,
    seed: int,
    batch_tokens: int | None,
    watcher: Watcher,
) -> Iterator[tuple[str, Float[Tensor, "2 width"], Fit]]:
    """The address, constants and fit of every place as soon as it is done; see `optimal_reference`."""
    texts = calibration.texts
    for number, what in ((steps, "steps"), (len(places), "places")):
        if number < 1:
            raise UsageError(f"{number} {what} were asked for; ask for at least 1.")
    refuse_several_draws(calibration)
    if len(texts) < FEWEST_TEXTS:
        raise UsageError(
            f"An optimum is fitted on at least {FEWEST_TEXTS} texts, and {calibration.data} gives {len(texts)}; draw"
            " more texts, or take the mean."
        )
    if start.fingerprint != model.fingerprint:
        raise UsageError(
            f"The reference {start.digest} is of {start.model}, which has other weights than {model.name}; make it of"
            " this model with lesion.reference."
        )
    for layer, unit, _ in map(place_of, places):
        model.anatomy.refuse_sum(layer, unit)
    means, samples = (start.vectors.get(kind, {}) for kind in ("mean", "resample"))
    if unknown := [place for place in places if place not in means or place not in samples]:
        raise UsageError(
            f"The reference {start.digest} has no mean and resample of {unknown[0]}"
            f"{nearest(unknown[0], list(means))}; leave start out, and it is made of these texts."
        )
    check_texts(model, texts)
    objective = _Objective(model, calibration)
    order = sorted(range(len(texts)), key=lambda text: order_of(seed, text))
    held = order[: len(order) // HELD_OUT]
    texts_of = partial(_texts_of, pool=order[len(held) :], seed=seed)
    longest = max(map(len, texts))
    budget = budget_of(model, batch_tokens, TOKENS_ON_CPU, TOKENS_ON_ACCELERATOR)
    together = max(1, budget.tokens // (longest * min(TEXTS, len(texts) - len(held))))
    watcher.begin(model.name, len(places) * steps, 0, f"steps of {len(places)} optima on {calibration.data}")
    with torch.inference_mode(False), torch.enable_grad():
        objective.read()
        for first in range(0, len(places), together):
            group = [_Place(Replace(place, "mean", start)) for place in places[first : first + together]]
            _descend(objective, group, held, texts_of, steps, watcher)
            for place in group:
                if place.fit.steps == 0:
                    watcher.note(
                        f"Optimal ablation of {place.part.address} on {calibration.data}: no constant did better on the"
                        " held-out texts than the mean, which is kept."
                    )
                yield place.part.address, place.best, place.fit


def order_of(seed: int, text: int) -> bytes:
    """What texts are sorted by; the first of them are held out."""
    return hashlib.sha256(f"optimal {seed}:{text}".encode()).digest()


class _Place:
    """A place while its constant is fitted: `mean` + `spread` · `shift` at every token but the first."""

    def __init__(self, part: Replace) -> None:
        self.part = part
        sampled = part.reference.vectors["resample"][part.address]
        distances = (sampled - sampled.median(0).values).abs().median(0).values
        self.spread = distances.clamp(min=1e-3 * float(distances.mean()) + 1e-8)[None]
        self.shift = torch.zeros_like(self.spread).requires_grad_()
        self.best = part.vectors.clone()
        self.fit = Fit(float("inf"), float("inf"), 0)
        self.waited = 0

    @property
    def constant(self) -> Float[Tensor, "2 width"]:
        """What is added now to the first token and to all others, with its gradient."""
        first, others = self.part.vectors.split(1)
        return torch.cat([first, others + self.spread * self.shift])

    def look(self, loss: float, step: int) -> None:
        """Keep the present constant where it is the best on the held-out texts so far; the first is the mean."""
        if step == 0:
            self.fit = Fit(loss, loss, 0)
        elif loss < self.fit.optimal:
            self.fit, self.best, self.waited = Fit(self.fit.mean, loss, step), self.constant.detach().clone(), 0
        else:
            self.waited += 1


def _descend(
    objective: _Objective,
    group: Sequence[_Place],
    held: Sequence[int],
    texts_of: Callable[[int], list[int]],
    steps: int,
    watcher: Watcher,
) -> None:
    """Fit a group of places, the rows of every batch shared among them, until each is done."""
    optimiser = torch.optim.Adam([place.shift for place in group], RATE)
    going, reported = list(group), 0
    for step in range(steps + 1):
        if step % CHECKS == 0 or step == steps:
            with torch.no_grad():
                losses = torch.zeros(len(going), dtype=torch.float64)
                for begin in range(0, len(held), TEXTS):
                    some = held[begin : begin + TEXTS]
                    losses += objective(going, some).double().cpu() * len(some) / len(held)
            for place, loss in zip(going, losses.tolist(), strict=True):
                place.look(loss, step)
            done = [place for place in going if place.waited >= PATIENCE or step == steps]
            going = [place for place in going if place not in done]
            watcher.answered(len(done) * (steps - reported) + len(going) * (step - reported))
            reported = step
        if not going:
            return
        optimiser.param_groups[0]["lr"] = RATE * (1 - 0.95 * step / steps)
        optimiser.zero_grad()
        loss = objective(going, texts_of(step))
        gradients = torch.autograd.grad(loss.sum(), [place.shift for place in going])
        for place, gradient in zip(going, gradients, strict=True):
            place.shift.grad = gradient
        optimiser.step()


def _texts_of(step: int, pool: Sequence[int], seed: int) -> list[int]:
    """Those of a step: a seeded order of all, begun anew in another order when they run out."""
    size = min(TEXTS, len(pool))
    each = len(pool) // size
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed * 1_000_003 + step // each))
    begin = step % each * size
    return [pool[place] for place in order[begin : begin + size].tolist()]


class _Objective:
    """KL(p ‖ p_a) of every place of a group, in nats, averaged over the tokens of a solution and then over texts."""

    def __init__(self, model: Model, calibration: Calibration) -> None:
        self.model = model
        self.texts = calibration.texts
        words = int(model.network.config.get_text_config(decoder=True).vocab_size)
        most = max(1, NUMBERS // (words * len(self.texts)))
        self.predicting = [
            _predicting(len(text), start, most)
            for text, start in zip(self.texts, calibration.starts or [0] * len(self.texts), strict=True)
        ]
        self.unedited: list[Tensor] = []

    def read(self) -> None:
        """Keep the next-token distributions of the unedited model."""
        with torch.no_grad():
            for begin in range(0, len(self.texts), TEXTS):
                texts = range(begin, min(begin + TEXTS, len(self.texts)))
                logs = self._logits([BASELINE] * len(texts), texts, {}).float().log_softmax(-1)
                self.unedited += logs.split([len(self.predicting[text]) for text in texts])

    def __call__(self, places: Sequence[_Place], texts: Sequence[int]) -> Float[Tensor, " places"]:
        """The divergence of each place on some texts."""
        edits = [place.part for place in places for _ in texts]
        logits = self._logits(edits, [*texts] * len(places), {place.part: place.constant for place in places})
        after = logits.float().log_softmax(-1)
        before = torch.cat([self.unedited[text] for text in texts]).repeat(len(places), 1)
        lengths = torch.tensor([len(self.predicting[text]) for text in texts], device=after.device)
        weights = (1.0 / lengths).repeat_interleave(lengths) / len(texts)
        divergences = (before.exp() * (before - after)).sum(-1).view(len(places), -1)
        return (divergences * weights).sum(1)

    def _logits(
        self, edits: Sequence[Edit], texts: Sequence[int], vectors: Mapping[Replace, Tensor]
    ) -> Float[Tensor, "predicted words"]:
        """What follows at the places that predict a solution, text after text; the head reads no other."""
        model, width = self.model, max(len(self.texts[text]) for text in texts)
        rows = [self.texts[text] for text in texts]
        ids = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in rows], device=model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
        row_of = [row for row, text in enumerate(texts) for _ in self.predicting[text]]
        where = torch.tensor([row_of, [at for text in texts for at in self.predicting[text]]])

        def choose(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][tuple(where.to(args[0].device))][None], *args[1:])

        head = model.network.get_output_embeddings()
        apart = isinstance(head, nn.Module)
        with head.register_forward_pre_hook(choose) if apart else nullcontext(), gated(model) as gates:
            gates.put(vectors)
            gates.assign(edits)
            logits = model.network(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return logits[0] if apart else logits[tuple(where.to(logits.device))]


def _predicting(length: int, start: int, most: int) -> range:
    """The positions that predict a token of a text's solution, at most so many; without one, all but the last."""
    first = start - 1 if 0 < start < length else 0
    return range(first, min(max(length - 1, first + 1), first + most))
