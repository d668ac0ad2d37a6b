"""A decoder whose step is captured: static keys and values, every row under its own edit, no Python in the loop.

What a row multiplies lies in one buffer, [blocks, 3, rows]: the factors of what a block, its attention and its MLP add
to the residual stream. On an accelerator a step is recorded once for each length of the window and replayed; on a CPU
the same code runs eagerly. Networks of the kinds of Llama and Qwen2 alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

BLOCK, ATTENTION, MLP = range(3)
# Widths of the window of keys and values grow in steps of so many tokens; each width is a recording of its own.
WINDOW = 128
PREFILL = 16384
"""Tokens of prompts computed in one pass."""


class Weights(NamedTuple):
    """Of one block."""

    norm_1: Tensor
    query: Tensor
    query_bias: Tensor | None
    key: Tensor
    key_bias: Tensor | None
    value: Tensor
    value_bias: Tensor | None
    output: Tensor
    norm_2: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor


class Shape(NamedTuple):
    """Sizes that all blocks share."""

    heads: int
    key_heads: int
    size: int
    epsilon: float


def weights_of(block: Any) -> Weights:
    """The weights of a block of transformers' Llama or Qwen2."""
    attention, mlp = block.self_attn, block.mlp
    biases = [getattr(attention, f"{name}_proj").bias for name in ("q", "k", "v")]
    return Weights(
        block.input_layernorm.weight,
        attention.q_proj.weight, biases[0],
        attention.k_proj.weight, biases[1],
        attention.v_proj.weight, biases[2],
        attention.o_proj.weight,
        block.post_attention_layernorm.weight,
        mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight,
    )  # fmt: skip


def normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square normalisation as transformers rounds it."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding; x [rows, heads, tokens, size]."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def added(stream: Tensor, branch: Tensor, factor: Tensor | None) -> Tensor:
    """What a branch gives, times its row's factor, on top of the stream: one product and sum, rounded once."""
    return stream + branch if factor is None else torch.addcmul(stream, branch, factor).to(stream.dtype)


def scaled(before: Tensor, after: Tensor, factor: Tensor) -> Tensor:
    """before + factor · (after − before), exact at 0 and at 1."""
    if factor.dtype == before.dtype:
        return torch.lerp(before, after, factor)
    return torch.lerp(before.to(factor.dtype), after.to(factor.dtype), factor).to(before.dtype)


def run_block(
    stream: Float[Tensor, "rows tokens width"],
    cosine: Tensor,
    sine: Tensor,
    keys: Float[Tensor, "rows key_heads window size"],
    values: Float[Tensor, "rows key_heads window size"],
    place: tuple[Tensor, Tensor] | None,
    mask: Tensor | None,
    factors: tuple[Tensor, Tensor, Tensor] | None,
    weights: Weights,
    shape: Shape,
) -> Float[Tensor, "rows tokens width"]:
    """One block, on a prompt (`place` and `mask` are None) or on one token a row.

    Args:
        place: rows and columns of `keys` and `values` that the token is written to.
        mask: [rows, 1, 1, window], True where a row may look.
        factors: of block, attention and MLP, each [rows, 1, 1]; None where nothing is edited.
    """
    rows, tokens, _ = stream.shape
    heads, key_heads, size, epsilon = shape
    x = normed(stream, weights.norm_1, epsilon)
    query = functional.linear(x, weights.query, weights.query_bias).view(rows, tokens, heads, size).transpose(1, 2)
    key = functional.linear(x, weights.key, weights.key_bias).view(rows, tokens, key_heads, size).transpose(1, 2)
    value = functional.linear(x, weights.value, weights.value_bias).view(rows, tokens, key_heads, size).transpose(1, 2)
    query, key = turned(query, cosine, sine), turned(key, cosine, sine)
    if place is None:
        keys[:, :, :tokens], values[:, :, :tokens] = key, value
        key, value = (part.repeat_interleave(heads // key_heads, 1) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    else:
        keys[place[0], :, place[1]], values[place[0], :, place[1]] = key[:, :, 0], value[:, :, 0]
        # The query heads that share keys are so many tokens of one head: nothing is repeated.
        together = query.view(rows, key_heads, heads // key_heads, size)
        mixed = functional.scaled_dot_product_attention(together, keys, values, attn_mask=mask)
        mixed = mixed.reshape(rows, heads, 1, size)
    given = functional.linear(mixed.transpose(1, 2).reshape(rows, tokens, -1), weights.output)
    middle = added(stream, given, None if factors is None else factors[ATTENTION])
    x = normed(middle, weights.norm_2, epsilon)
    up = functional.silu(functional.linear(x, weights.gate)) * functional.linear(x, weights.up)
    given = functional.linear(up, weights.down)
    if factors is None:
        return added(middle, given, None)
    return scaled(stream, added(middle, given, factors[MLP]), factors[BLOCK])


class CapturedStep:
    """Greedy decoding of a fixed number of rows.

    Args:
        network: of the kind of Llama or Qwen2, without gradients.
        rows: decoded at once.
        length: tokens of a prompt and its answer at most.
        factors: [blocks, 3, rows] (`BLOCK`, `ATTENTION`, `MLP`); None leaves the edits out of the step altogether.
        compiled: fuse what lies between the products of a block by `torch.compile`. The window is then always whole.
    """

    def __init__(
        self,
        network: Any,
        rows: int,
        length: int,
        factors: Float[Tensor, "blocks units rows"] | None = None,
        compiled: bool = False,
    ) -> None:
        config, trunk = network.config, network.model
        weight = network.get_input_embeddings().weight
        self.device, self.dtype = weight.device, weight.dtype
        self.embedding, self.head, self.norm = weight, network.lm_head.weight, trunk.norm.weight
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.shape = Shape(config.num_attention_heads, config.num_key_value_heads, size, config.rms_norm_eps)
        self.weights = [weights_of(block) for block in trunk.layers]
        self.rows, self.length, self.compiled = rows, length, compiled
        self.block = torch.compile(run_block, dynamic=False) if compiled else run_block
        new = {"device": self.device, "dtype": self.dtype}
        form = (rows, self.shape.key_heads, length, size)
        self.keys = [torch.zeros(form, **new) for _ in self.weights]
        self.values = [torch.zeros(form, **new) for _ in self.weights]
        everywhere = torch.arange(length, device=self.device)
        cosine, sine = trunk.rotary_emb(torch.zeros(1, **new), everywhere[None])
        self.cosine, self.sine = cosine[0], sine[0]
        self.columns, self.row = everywhere, torch.arange(rows, device=self.device)
        self.positions = torch.zeros(rows, dtype=torch.long, device=self.device)
        self.tokens = torch.zeros(rows, dtype=torch.long, device=self.device)
        self.count = torch.zeros(1, dtype=torch.long, device=self.device)
        self.answers = torch.zeros(rows, length, dtype=torch.long, device=self.device)
        self.factors: Tensor | None = None
        if factors is not None:
            self.factors = self._exact(factors)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def _exact(self, factors: Tensor) -> Tensor:
        """In the dtype of the network where that holds the factors exactly, else in float32."""
        held = factors.to(self.dtype)
        fits = bool((held.double() == factors.double()).all())
        return (held if fits else factors.float()).to(self.device)

    def edit(self, factors: Float[Tensor, "blocks units rows"]) -> None:
        """Put other edits in force, without another recording."""
        assert self.factors is not None
        self.factors.copy_(factors)

    def _of_rows(self, block: int, rows: slice) -> tuple[Tensor, Tensor, Tensor] | None:
        if self.factors is None:
            return None
        block_factor, attention, mlp = self.factors[block, :, rows, None, None]
        return block_factor, attention, mlp

    @torch.inference_mode()
    def prefill(self, prompts: Sequence[Sequence[int]]) -> None:
        """Compute the prompts and the first token of every answer."""
        longest = max(map(len, prompts))
        padded = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts]).to(self.device)
        ends = torch.tensor([len(prompt) for prompt in prompts]).to(self.device)
        cosine, sine = self.cosine[:longest], self.sine[:longest]
        for start in range(0, self.rows, step := max(1, PREFILL // longest)):
            part = slice(start, min(start + step, self.rows))
            stream = functional.embedding(padded[part], self.embedding)
            for number, weights in enumerate(self.weights):
                keys, values = self.keys[number][part], self.values[number][part]
                factors = self._of_rows(number, part)
                stream = run_block(stream, cosine, sine, keys, values, None, None, factors, weights, self.shape)
            last = stream[torch.arange(len(stream), device=self.device), ends[part] - 1]
            self.tokens[part] = self._most_probable(last)
        self.positions.copy_(ends)
        self.answers[:, 0] = self.tokens
        self.count.fill_(1)
        self.longest = longest

    def _most_probable(self, stream: Float[Tensor, "rows width"]) -> Int[Tensor, " rows"]:
        return functional.linear(normed(stream, self.norm, self.shape.epsilon), self.head).argmax(-1)

    def _step(self, window: int) -> None:
        """One token of every row, from buffers into buffers."""
        stream = functional.embedding(self.tokens, self.embedding)[:, None]
        cosine, sine = (table[self.positions][:, None, None] for table in (self.cosine, self.sine))
        mask = (self.columns[:window] <= self.positions[:, None])[:, None, None]
        place, every = (self.row, self.positions), slice(None)
        for number, weights in enumerate(self.weights):
            keys, values = (held[number][:, :, :window] for held in (self.keys, self.values))
            factors = self._of_rows(number, every)
            stream = self.block(stream, cosine, sine, keys, values, place, mask, factors, weights, self.shape)
        self.tokens.copy_(self._most_probable(stream[:, 0]))
        self.answers.index_copy_(1, self.count, self.tokens[:, None])
        self.count += 1
        self.positions += 1

    def window(self, held: int) -> int:
        """The width of the window for a row that holds so many tokens before the step."""
        return self.length if self.compiled else min(self.length, (held // WINDOW + 1) * WINDOW)

    @torch.inference_mode()
    def step(self, held: int) -> None:
        """A step in which no row holds more than `held` tokens before it."""
        window = self.window(held)
        if self.device.type != "cuda":
            self._step(window)
            return
        if window not in self.graphs:
            self._capture(window)
        self.graphs[window].replay()

    def _capture(self, window: int) -> None:
        state = [part.clone() for part in (self.tokens, self.positions, self.count)]

        def restore() -> None:
            for part, value in zip((self.tokens, self.positions, self.count), state, strict=True):
                part.copy_(value)

        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up outside of a recording
            for _ in range(2):
                self._step(window)
                restore()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values())).pool() if self.graphs else None
        with torch.cuda.graph(graph, pool=pool):
            self._step(window)
        restore()
        self.graphs[window] = graph

    def ready(self, prompts: Sequence[Sequence[int]], answer: int) -> None:
        """Record the steps of all windows that such answers pass through."""
        self.prefill(prompts)
        longest = self.longest
        for window in sorted({self.window(held) for held in range(longest, longest + answer - 1)}):
            if self.device.type == "cuda" and window not in self.graphs:
                with torch.inference_mode():
                    self._capture(window)

    def generate(self, prompts: Sequence[Sequence[int]], answer: int) -> Int[Tensor, "rows answer"]:
        """The answers, of `answer` tokens each; nothing is read back before the end."""
        self.prefill(prompts)
        for held in range(self.longest, self.longest + answer - 1):
            self.step(held)
        return self.answers[:, :answer].cpu()
