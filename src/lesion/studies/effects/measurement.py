"""Measuring one item: what every place writes towards the gold tokens, and what is lost without it.

Everything is teacher-forced: the model reads the prompt and the gold solution, and each gold token is judged at the
position before it. One clean pass gives the lens, the direct effects and the block influence; the total effects are
rows of few passes, each row from the block on that its edit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lesion.activations.readout import Norm, Readout, close, first, tolerance
from lesion.edits.edit import BASELINE, Scale
from lesion.edits.gates import Gates, gated
from lesion.edits.table import tabulate
from lesion.edits.units import ScaleHead
from lesion.engines.transformers.memory import ran_out
from lesion.engines.transformers.prefill import prefill, rows_to_score
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.report.values import Value


@dataclass(frozen=True)
class CleanPass:
    """What a pass showed.

    Attributes:
        streams: what enters block 0, and what every block gives, float32.
        branches: by address (`3.mlp`), what the attention or the MLP of a block adds, float32.
        heads: by block, what each of its query heads adds, by its number (`_head_contributions`).
        raw: what the head gives at the last positions.
    """

    streams: list[Float[Tensor, "tokens width"]]
    branches: dict[str, Float[Tensor, "tokens width"]]
    heads: dict[int, Callable[[int], Float[Tensor, "tokens width"]]]
    raw: Float[Tensor, "kept vocabulary"]

    def contribution(self, edit: Scale) -> Float[Tensor, "tokens width"]:
        """What a block, branch or head adds to the stream."""
        if isinstance(edit, ScaleHead):
            return self.heads[edit.layer](edit.head)
        if edit.unit != "block":
            return self.branches[edit.address]
        return self.streams[edit.layer + 1].double() - self.streams[edit.layer].double()


def clean_pass(readout: Readout, text: Text, edits: Sequence[Scale]) -> CleanPass:
    """Run a text through a model; refused where what edits change cannot be told apart."""
    model, blocks = readout.model, readout.model.anatomy.blocks
    read, kept = text.read, len(text.gold)
    headed = dict.fromkeys(edit.layer for edit in edits if isinstance(edit, ScaleHead))
    branched = any(edit.unit != "block" for edit in edits)
    seen: dict[tuple[object, ...], Tensor] = {}

    def keep(key: tuple[object, ...], stream: object, what: str) -> None:
        if not isinstance(stream, Tensor) or stream.numel() % len(read) or not bool(stream.isfinite().all()):
            raise LesionError(
                f"What {what} of {model.name} cannot be read or is not finite; load the model in bfloat16 or float32."
            )
        seen[key] = stream.detach().reshape(len(read), -1).float().clone()  # a later module may write into it

    with ExitStack() as stack, torch.inference_mode():

        def before(module: nn.Module, name: str, key: tuple[object, ...], what: str) -> None:
            def hook(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
                keep(key, args[0] if args else kwargs.get(name), what)

            stack.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

        def after(module: nn.Module, key: tuple[object, ...], what: str) -> None:
            def hook(module: nn.Module, args: tuple[object, ...], output: object) -> None:
                keep(key, first(output), what)

            stack.callback(module.register_forward_hook(hook).remove)

        for block in blocks:
            before(block.module, "hidden_states", ("enters", block.index), f"enters block {block.index}")
            after(block.module, ("leaves", block.index), f"leaves block {block.index}")
        tails = [
            (f"{block.index}.{branch.name}", branch.tails) for block in blocks for branch in block.branches if branched
        ]
        for address, modules in tails:
            for number, tail in enumerate(modules):
                after(tail, (address, number), f"{address} adds")
        for index in headed:
            matrix, what = model.anatomy.heads(index).matrix.module, f"of heads of block {index}"
            before(matrix, "input", ("heads", index), f"the output matrix is given {what}")
            after(matrix, ("mixed", index), f"it makes {what}")
        ended = stack.enter_context(final(model, readout.module))
        ids = torch.tensor([list(read)], device=model.device)
        # Given a number, Gemma's last blocks run on so many tokens.
        model.network(input_ids=ids, use_cache=False, logits_to_keep=torch.arange(len(read) - kept, len(read)))
    factors = _factors(model, seen)
    added = {
        address: torch.stack([seen[address, n] * factors[address, n] for n in range(len(modules))]).sum(0)
        for address, modules in tails
        if modules
    }
    streams = [seen["enters", 0], *(seen["leaves", block.index] for block in blocks)]
    heads = {}
    for index in headed:
        key = f"{index}.attention", _holding(model, index)
        behind = _behind(model, index, seen["mixed", index], seen[key])
        heads[index] = _head_contributions(model, index, seen["heads", index], behind, factors[key])
    return CleanPass(streams, added, heads, ended[1][0, -kept:])


def _holding(model: Model, layer: int) -> int:
    """Which tail of the attention of a block its heads pass through: that with their matrix, or the only one."""
    attention = model.anatomy.block(layer).attention
    assert attention is not None
    matrix = model.anatomy.heads(layer).matrix.module
    return next((n for n, tail in enumerate(attention.tails) if matrix in tail.modules()), len(attention.tails) - 1)


@contextmanager
def final(model: Model, norm: nn.Module) -> Iterator[list[Tensor]]:
    """What the next pass ends with: what enters the final norm, and what the head gives, before factor and softcap."""
    ended: list[Tensor] = []

    def enters(module: nn.Module, args: tuple[Any, ...]) -> None:
        ended[:] = [args[0]]  # some networks norm what they embed by it too

    def leaves(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        ended.append(output)

    head = model.network.get_output_embeddings()
    with ExitStack() as stack:
        stack.callback(norm.register_forward_pre_hook(enters).remove)
        stack.callback(head.register_forward_hook(leaves).remove)
        yield ended


def _factors(model: Model, seen: Mapping[Any, Tensor]) -> dict[Any, float]:
    """By what each block multiplies what the tails of its branches give before it adds that, by their keys."""

    def apart(one: Tensor, other: Tensor) -> bool:
        largest = max(float(one.abs().max()), float(other.abs().max()))
        return bool((one - other).abs().max() > tolerance(model) * largest)

    factors: dict[Any, float] = {}
    for block in model.anatomy.blocks:
        index = block.index
        entered, left = seen["enters", index], seen["leaves", index]
        if index and apart(entered, seen["leaves", index - 1].to(entered.device)):
            raise LesionError(
                f"What enters block {index} of {model.name} is not what left block {index - 1}, so direct effects would"
                " not add up to the logit; use `lesion ablate` for this model."
            )
        keys = [key for key in seen if key[0] in {f"{index}.{branch.name}" for branch in block.branches}]
        factors.update(dict.fromkeys(keys, 1.0))
        # Rounding is that of the streams, whose difference may be small beside them.
        if len({address for address, _ in keys}) == 2 and apart(entered + sum(seen[key] for key in keys), left):
            parts = torch.stack([seen[key].flatten() for key in keys], 1).double().cpu()
            fitted = torch.linalg.lstsq(parts, (left.double() - entered).cpu().view(-1, 1)).solution
            if apart(entered.cpu() + (parts @ fitted).view(entered.shape), left.cpu()):
                raise LesionError(
                    f"Attention and MLP of block {index} of {model.name} do not add up to what the block adds, so their"
                    " direct effects cannot be told; measure whole blocks with --unit block."
                )
            factors.update(zip(keys, fitted[:, 0].tolist(), strict=True))
    return factors


def _head_contributions(
    model: Model,
    layer: int,
    given: Float[Tensor, "tokens heads_size"],
    behind: Callable[[Tensor], Tensor],
    factor: float,
) -> Callable[[int], Float[Tensor, "tokens width"]]:
    """What each query head of one block adds to the stream in one pass, by its number, float64.

    Attention adds f(W_O [head_0; head_1; …] + b), where f is nothing, or a norm whose scale is frozen as it is in the
    pass (Gemma 2, OLMo 2), and maybe a number of the architecture (Granite, Falcon-H1). So the heads and the part of
    the bias add up to what the attention adds. `given` is [head_0; head_1; …], `behind` is f, `factor` that number.
    """
    heads = model.anatomy.heads(layer)
    matrix = heads.matrix.storage.view(heads.matrix.tensor)

    def of(head: int) -> Float[Tensor, "tokens width"]:
        columns = slice(head * heads.size, (head + 1) * heads.size)
        return behind(given[:, columns].double() @ matrix[:, columns].detach().double().T) * factor

    return of


def _behind(model: Model, layer: int, mixed: Tensor, gave: Tensor) -> Callable[[Tensor], Tensor]:
    """What stands behind the output matrix: nothing, or a norm with its scale frozen."""
    if close(mixed, gave, tolerance(model)):
        return lambda stream: stream
    attention = model.anatomy.block(layer).attention
    assert attention is not None
    try:
        return Norm.of(attention.tail, mixed, model.name).frozen(mixed, model.name)
    except (LesionError, RuntimeError, TypeError, ValueError) as error:
        raise LesionError(
            f"Behind the output matrix of {layer}.attention of {model.name} stands something else than a norm, so what"
            " a head adds cannot be told; measure --unit attention."
        ) from error


LOGITS = 1 << 25
"""Logits of one pass, over its rows, at most."""


@dataclass(frozen=True)
class Text:
    """An item as a model reads it.

    Attributes:
        prompt, gold: token ids of the prompt, and of what is right to say after it; each at least one.
        tempting: the token that tempts in the place of the first gold token; None: the mean over the vocabulary is
            what the gold logits are compared with.
        classes: of every gold token (`lesion.tasks.gold_classes`); none where they are not told apart.
    """

    prompt: tuple[int, ...]
    gold: tuple[int, ...]
    tempting: int | None = None
    classes: tuple[str, ...] = ()

    @property
    def read(self) -> tuple[int, ...]:
        """What the model reads: all but the last gold token."""
        return (*self.prompt, *self.gold[:-1])


class ClassSums(Value):
    """The gold tokens of one class in one item, under teacher forcing.

    Attributes:
        tokens: how many there are.
        top: how many of them are the most probable token.
        log_probability: the sum of their log-probabilities, in nats.
        top_without: by place, how many are the most probable token when it is switched off.
        loss: by place, by how much the sum of the log-probabilities is lower then.
    """

    tokens: int
    top: int
    log_probability: float
    top_without: dict[str, int]
    loss: dict[str, float]


class Measured(Value):
    """All numbers of one item: means over its gold tokens.

    Logits are those of the gold tokens minus the mean logit over the vocabulary, or minus that of the tempting token,
    before any softcap. Log-probabilities are in nats.

    Attributes:
        tokens: how many gold tokens there are.
        lens, log_rank, top: per layer (0: what enters block 0; l: after block l − 1; the last one is the whole model)
            the log-probability of the gold tokens, the logarithm of their rank, from 1, and the share of them that are
            the most probable one.
        logit: of the whole model.
        embedding, offset: the parts of it that come from what enters block 0, and from the biases of norm and head.
        direct: by place (`3`, `3.attention`, `3.attention.head.5`), what it adds to the logit through the frozen final
            norm.
        total: by place, by how much the logit is lower when the place is switched off.
        frozen: by place, the same with the scale that the final norm has in the whole model. `direct` minus this is
            what later blocks make up for, this minus `total` what the norm does.
        loss: by place, by how much the log-probability is lower then.
        influence: per block, 1 − cosine of its input and its output, mean over the tokens of the text.
        classes: sums over the gold tokens of each class that the item has.
    """

    tokens: int
    lens: tuple[float, ...]
    log_rank: tuple[float, ...]
    top: tuple[float, ...]
    logit: float
    embedding: float
    offset: float
    direct: dict[str, float]
    total: dict[str, float]
    frozen: dict[str, float]
    loss: dict[str, float]
    influence: tuple[float, ...]
    classes: dict[str, ClassSums]


def measure(readout: Readout, text: Text, edits: Sequence[Scale], rows: int | None = None) -> Measured:
    """All numbers of one item."""
    model, kept = readout.model, len(text.gold)
    passed = clean_pass(readout, text, edits)
    last = passed.streams[-1][-kept:]
    frozen = readout.norm.frozen(last, model.name)
    gold = torch.tensor(text.gold, device=last.device)
    against = None if text.tempting is None else torch.full_like(gold, text.tempting)
    directions, head_bias = readout.directions(gold, against)

    def direct(contribution: Float[Tensor, "tokens width"]) -> float:
        return float((frozen(contribution[-kept:]) * directions).sum(-1).mean())

    layers = [*(readout.raw(stream[-kept:]) for stream in passed.streams[:-1]), passed.raw]
    scores = [_score(readout, raw, text) for raw in layers]
    without = _without(readout, text, edits, lambda left: direct(last - left), rows)
    clean = scores[-1]
    return Measured(
        tokens=kept,
        lens=[_mean(score.log_probability) for score in scores],
        log_rank=[_mean(score.log_rank) for score in scores],
        top=[_mean(score.top) for score in scores],
        logit=_mean(clean.logit),
        embedding=direct(passed.streams[0]),
        offset=float(((frozen.norm.offset * directions).sum(-1) + head_bias).mean()),
        direct={edit.address: direct(passed.contribution(edit)) for edit in edits},
        total={place: _mean(clean.logit) - _mean(score.logit) for place, (score, _) in without.items()},
        frozen={place: gone for place, (_, gone) in without.items()},
        loss={place: _mean(clean.log_probability - score.log_probability) for place, (score, _) in without.items()},
        influence=[_influence(before, after) for before, after in pairwise(passed.streams)],
        classes=_classes(text, clean, {place: score for place, (score, _) in without.items()}),
    )


@dataclass(frozen=True)
class _Score:
    """Numbers of every gold token of a text."""

    logit: Float[Tensor, " kept"]
    log_probability: Float[Tensor, " kept"]
    log_rank: Float[Tensor, " kept"]
    top: Bool[Tensor, " kept"]


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def _classes(text: Text, clean: _Score, without: Mapping[str, _Score]) -> dict[str, ClassSums]:
    return {
        name: ClassSums(
            tokens=len(own),
            top=int(clean.top[own].sum()),
            log_probability=(nats := float(clean.log_probability[own].sum())),
            top_without={place: int(score.top[own].sum()) for place, score in without.items()},
            loss={place: nats - float(score.log_probability[own].sum()) for place, score in without.items()},
        )
        for name in dict.fromkeys(text.classes)
        for own in [[place for place, other in enumerate(text.classes) if other == name]]
    }


def _score(readout: Readout, raw: Float[Tensor, "kept vocabulary"], text: Text, under: str = "") -> _Score:
    """Scores of the gold tokens by what the head gives at the positions before them; `under` ends the complaint."""
    raw = raw.double()
    if not bool(raw.isfinite().all()):
        raise LesionError(
            f"Logits of {readout.model.name} are not finite{under}; load the model in bfloat16 or float32."
        )
    gold = torch.tensor(text.gold, device=raw.device)[:, None]
    gold_logits = raw.gather(1, gold)[:, 0]
    other = raw.mean(1) if text.tempting is None else raw[:, text.tempting]
    higher = (raw > gold_logits[:, None]).sum(1).double()
    return _Score(
        logit=((gold_logits - other) * readout.factor).cpu(),
        log_probability=readout.behind(raw).log_softmax(-1).gather(1, gold)[:, 0].cpu(),
        log_rank=(higher + 1).log().cpu(),
        top=(higher == 0).cpu(),
    )


def _influence(before: Float[Tensor, "tokens width"], after: Float[Tensor, "tokens width"]) -> float:
    """1 − cosine, mean over tokens (block influence: Men et al. 2024, arXiv 2403.03853, eq. 1); summed in float64."""
    before, after = before.double(), after.double()
    return float((1 - (before * after).sum(-1) / (before.norm(dim=-1) * after.norm(dim=-1))).mean())


def _without(
    readout: Readout, text: Text, edits: Sequence[Scale], gone: Callable[[Tensor], float], rows: int | None
) -> dict[str, tuple[_Score, float]]:
    """By place that is switched off, the scores of the gold tokens and `frozen` of `Measured`.

    Rows of neighbouring blocks run together, so that they share what lies below.
    """
    model, kept = readout.model, len(text.gold)
    waiting = sorted(edits, key=lambda edit: edit.layer)
    vocabulary = readout.head.weight.shape[0]
    rows = rows or max(1, min(rows_to_score(model, len(text.read)), LOGITS // (kept * vocabulary)))
    scores = {}
    with gated(model) as gates, torch.inference_mode():
        while waiting:
            try:
                results = _under(readout, gates, text, waiting[:rows])
            except RuntimeError as error:
                if not ran_out(error) or rows == 1:
                    raise
                rows //= 2
                continue
            for edit, left, raw in zip(waiting, *results, strict=False):
                score = _score(readout, raw, text, f" with {edit.address} switched off")
                scores[edit.address] = score, gone(left.to(raw.device))
            waiting = waiting[rows:]
    return scores


def _under(readout: Readout, gates: Gates, text: Text, edits: Sequence[Scale]) -> tuple[Tensor, Tensor]:
    """The last streams and what the head gives, [edits, kept, …], at the positions before the gold tokens."""
    kept, table = len(text.gold), tabulate(edits, readout.model.anatomy)
    with final(readout.model, readout.module) as ended:
        passed = prefill(readout.model, gates, [text.read] * len(edits), table, text.read[0], kept=kept)
    gates.assign_everywhere(BASELINE)
    streams, raw = (each[:, -kept:].index_select(0, passed.places.to(each.device)) for each in ended)
    return streams, raw
