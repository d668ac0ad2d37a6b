"""Readout: the final norm and the head of a model, as a linear map of the stream once the norm's scale is frozen.

RMSNorm and LayerNorm divide by a number that depends on the whole stream and are linear otherwise (Elhage et al. 2021,
"Handling layer normalization"). With that number taken from the stream of the pass itself, the logit of a token is the
sum of what everything in the stream adds to it. Which norm it is shows in what it computes, never in its name.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lesion.errors import LesionError
from lesion.models.load import Model

EXACT, ROUNDED = 1e-4, 3e-2
"""How far computation and formula may be apart, as a share of the largest value: in float32, and in half precision."""


@dataclass(frozen=True, eq=False)
class Frozen:
    """The final norm at some streams, its scale frozen: norm(x) = scale · gain · centre(x) + offset.

    Attributes:
        norm: of whose centring, gain and offset the map is made.
        scale: one over the root mean square, or over the standard deviation, up to a factor that the gain takes up.
    """

    norm: Norm
    scale: Float[Tensor, " tokens"]

    def __call__(self, contributions: Float[Tensor, "*some tokens width"]) -> Float[Tensor, "*some tokens width"]:
        """What the normed stream has of contributions to the stream, float64; the offset is no contribution's."""
        return self.norm.linear(contributions.double()) * self.scale[:, None]


@dataclass(frozen=True, eq=False)
class Norm:
    """A final norm in float32: RMSNorm or LayerNorm, with any gain and offset.

    Attributes:
        module: the norm itself, in float32.
        centred: whether the mean of the stream is taken out first (LayerNorm).
        gain, offset: by which every dimension is multiplied, up to a common factor, and which is added; float64.
    """

    module: nn.Module
    centred: bool
    gain: Float[Tensor, " width"]
    offset: Float[Tensor, " width"]

    @classmethod
    def of(cls, module: nn.Module, like: Float[Tensor, "*some width"], model: str) -> Norm:
        """What a norm computes, found out from a few inputs of the width and on the device of a stream."""
        in_float = copy.deepcopy(module).float()
        width, device = like.shape[-1], like.device
        # Mean 0 and no dimension at 0, so that the gain of both norms can be read from the output.
        probe = torch.ones(width, device=device)
        probe[1::2] = -1.0
        if width % 2:
            probe[0] = probe[2 % width] = 0.5
        with torch.inference_mode():
            out, other, raised = (in_float(x[None])[0].double() for x in (probe, -probe, probe + 2.0))
        centred = torch.allclose(raised, out, rtol=1e-3, atol=1e-5)
        norm = cls(in_float, centred, gain=(out - other) / 2 / probe.double(), offset=(out + other) / 2)
        streams = torch.randn(3, width, generator=torch.Generator().manual_seed(0)).to(device)
        norm.frozen(streams, model)
        return norm

    def linear(self, stream: Float[Tensor, "*some width"]) -> Float[Tensor, "*some width"]:
        """The part of the norm that is linear: centred, if it centres, times the gain."""
        centre = stream.mean(-1, keepdim=True) if self.centred else 0.0
        return (stream - centre) * self.gain

    def frozen(self, streams: Float[Tensor, "tokens width"], model: str) -> Frozen:
        """The norm with the scale that it has at these streams."""
        with torch.inference_mode():
            normed = self.module(streams.float()[None])[0].double() - self.offset
        linear = self.linear(streams.double())
        scale = (normed * linear).sum(-1) / (linear * linear).sum(-1)
        if not close(linear * scale[:, None], normed, EXACT):
            raise LesionError(
                f"The final norm of {model} ({type(self.module).__name__}) is neither an RMSNorm nor a LayerNorm, so"
                " what a block writes towards a token cannot be told; use `lesion ablate` for this model."
            )
        return Frozen(self, scale)


@dataclass(frozen=True, eq=False)
class Readout:
    """How a model reads logits off its last stream: norm, head, and what stands behind the head.

    Attributes:
        module: the final norm of the network; norm: what it computes.
        head: the output head, a plain matrix [vocabulary, width], with or without a bias.
        factor: by which the head's output is multiplied; `cap`: of the softcap behind it (Gemma 2); None without one.
    """

    model: Model
    module: nn.Module
    norm: Norm
    head: nn.Linear
    factor: float
    cap: float | None

    @cached_property
    def mean_row(self) -> Float[Tensor, " width"]:
        """The mean of the head's rows over the vocabulary, float64: what the mean logit is read with."""
        return self.head.weight.detach().mean(0, dtype=torch.float64)

    def raw(self, streams: Float[Tensor, "*some width"]) -> Float[Tensor, "*some vocabulary"]:
        """What the head would give if these were the model's last streams (the logit lens, nostalgebraist 2020)."""
        with torch.inference_mode():
            raw: Tensor = self.head(self.norm.module(streams.float()).to(self.head.weight))
        return raw

    def behind(self, raw: Tensor) -> Tensor:
        """Logits of what the head gives."""
        return raw * self.factor if self.cap is None else self.cap * torch.tanh(raw.float() / self.cap)

    def directions(
        self, tokens: Int[Tensor, " tokens"], against: Int[Tensor, " tokens"] | None
    ) -> tuple[Float[Tensor, "tokens width"], Float[Tensor, " tokens"]]:
        """What the normed stream is multiplied by to give the logit of each token, relative to the mean over the
        vocabulary or to the logit of another token, before any softcap; and what the head's bias adds to it. float64.
        """
        weight = self.head.weight.detach()
        bias = weight.new_zeros(len(weight)) if self.head.bias is None else self.head.bias.detach()
        others = self.mean_row if against is None else weight[against].double()
        other_bias = bias.double().mean() if against is None else bias[against].double()
        return (weight[tokens].double() - others) * self.factor, (bias[tokens].double() - other_bias) * self.factor


def readout(model: Model, tokens: Sequence[int]) -> Readout:
    """How a model reads its logits, found by one pass over a few tokens."""
    head = model.network.get_output_embeddings()
    width = int(model.network.config.get_text_config(decoder=True).hidden_size)
    if not isinstance(head, nn.Linear) or not head.weight.is_floating_point() or head.weight.shape[1:] != (width,):
        what = type(head).__name__ if isinstance(head, nn.Module) else "none"
        raise LesionError(
            f"The head of {model.name} ({what}) is no plain matrix of {width} columns, so no block's part in a"
            " logit can be read from it; load the model unquantised, or use `lesion ablate`."
        )
    seen = _Seen(model, head)
    logits = seen.run(tokens)
    module = seen.norm()
    if module is None:
        raise LesionError(
            f"Between the last block and the head of {model.name} stands something else than one final norm, so no"
            " block's part in a logit can be read; use `lesion ablate` for this model."
        )
    factor, cap = _behind(model, seen.raw, logits)
    return Readout(model, module, Norm.of(module, seen.stream, model.name), head, factor, cap)


class _Seen:
    """What one pass showed: what the last block gave, every module outside of the blocks, and what the head got."""

    def __init__(self, model: Model, head: nn.Module) -> None:
        self.model, self.head = model, head
        inside = {part for block in model.anatomy.blocks for part in block.module.modules()}
        last = model.anatomy.blocks[-1].module
        self.outside = [part for part in model.network.modules() if part not in inside and part is not head]
        self.last = last
        self.calls: list[tuple[nn.Module, object, object]] = []
        self.stream = torch.empty(0)

    def run(self, tokens: Sequence[int]) -> Tensor:
        """Run the tokens; their logits."""

        def leaves(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object) -> None:
            self.calls.append((module, args[0] if args else next(iter(kwargs.values()), None), first(output)))

        def block(module: nn.Module, args: tuple[object, ...], output: object) -> None:
            given = first(output)
            self.stream = given if isinstance(given, Tensor) else self.stream

        def reads(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            self.read, self.raw = args[0], output

        with ExitStack() as stack, torch.inference_mode():
            for module in self.outside:
                stack.enter_context(module.register_forward_hook(leaves, with_kwargs=True))
            stack.enter_context(self.last.register_forward_hook(block))
            stack.enter_context(self.head.register_forward_hook(reads))
            ids = torch.tensor([list(tokens)], device=self.model.device)
            logits: Tensor = self.model.network(input_ids=ids, use_cache=False).logits
        return logits

    def norm(self) -> nn.Module | None:
        """The module that was given what the last block gave, and gave what the head was given."""
        for module, given, gave in self.calls:
            if _same(given, self.stream) and _same(gave, self.read) and not _same(given, gave):
                return module
        return None


def first(output: object) -> object:
    """What a module gives, or the first of several things."""
    return output[0] if isinstance(output, tuple | list) else output


def _same(one: object, other: object) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other.to(one.device))


def tolerance(model: Model) -> float:
    """How far computation and formula may be apart for a model."""
    return EXACT if model.dtype == torch.float32 else ROUNDED


def close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether two tensors are no further apart than that share of the second's largest value."""
    return bool((one - other).abs().max() <= tolerance * other.abs().max())


def _behind(model: Model, raw: Tensor, logits: Tensor) -> tuple[float, float | None]:
    """The factor and the softcap that turn what the head gives into logits."""
    before, after = raw.double(), logits.double()
    apart = tolerance(model)
    cap = getattr(model.network.config.get_text_config(decoder=True), "final_logit_softcapping", None)
    if cap is not None and close(cap * torch.tanh(before / cap), after, apart):
        return 1.0, float(cap)
    factor = float((before * after).sum() / (before * before).sum())
    factor = 1.0 if abs(factor - 1) <= apart else factor
    if cap is None and close(before * factor, after, apart):
        return factor, None
    raise LesionError(
        f"{model.name} changes the logits behind its head in a way that is neither a factor nor a softcap, so no"
        " block's part in them can be told; use `lesion ablate` for this model."
    )
