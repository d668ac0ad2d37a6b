"""Gates per token on layers built as vLLM builds them, against the same arithmetic token by token; without vLLM."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lesion.edits.place import UNITS
from lesion.engines.vllm.hooks import Layer, TokenGates, layers_of
from lesion.errors import LesionError

WIDTH, LAYERS = 6, 3


class Branch(nn.Module):
    """A fixed map; gives a tuple where asked to, as vLLM's linear modules do."""

    def __init__(self, seed: int, paired: bool) -> None:
        super().__init__()
        self.paired = paired
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("matrix", torch.randn(WIDTH, WIDTH, generator=generator) / 3)

    def forward(self, states: Tensor) -> Tensor | tuple[Tensor, None]:
        given = torch.tanh(states @ self.matrix)
        return (given, None) if self.paired else given


class Apart(nn.Module):
    """A decoder layer whose stream is the sum of two tensors, added in place by its norms."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.self_attn = Branch(seed, False)
        self.mlp = Branch(seed + 100, False)

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if residual is None:
            residual = hidden_states
        else:
            residual += hidden_states
            hidden_states.copy_(residual)
        hidden_states = self.self_attn(hidden_states)
        residual += hidden_states
        return self.mlp(residual.clone()), residual


class Whole(nn.Module):
    """A decoder layer that takes and gives the stream; around it there may be a batch of one."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.attn = Branch(seed, False)
        self.fc2 = Branch(seed + 100, True)

    def forward(self, hidden_states: Tensor) -> Tensor:
        hidden_states = hidden_states + self.attn(hidden_states)
        return hidden_states + self.fc2(hidden_states)[0]


def layers(apart: bool) -> list[Layer]:
    if apart:
        modules = [Apart(seed) for seed in range(LAYERS)]
        parameters = "positions", "hidden_states", "residual"
        return [Layer(m, {"attention": m.self_attn, "mlp": m.mlp}, parameters, True) for m in modules]
    wholes = [Whole(seed) for seed in range(LAYERS)]
    return [Layer(m, {"attention": m.attn, "mlp": m.fc2}, ("hidden_states",), False) for m in wholes]


def run(stack: list[Layer], stream: Tensor, batched: bool) -> Tensor:
    """The stream after all layers."""
    if not stack[0].apart:
        states = stream.clone()[None] if batched else stream.clone()
        for layer in stack:
            states = layer.module(states)
        return states.view(-1, WIDTH)
    states, residual = stream.clone(), None
    for layer in stack:
        states, residual = layer.module(torch.zeros(len(stream)), states, residual=residual)
    return states + residual


def by_hand(apart: bool, token: Tensor, factors: np.ndarray, heads: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Tensor:
    """One token through all layers under its factors [layers, units], and those of the slices of one input."""
    for index, (layer, (block, attention, mlp)) in enumerate(zip(layers(apart), factors.tolist(), strict=True)):
        before = token
        given = token * torch.tensor(heads).repeat_interleave(2) if index == 1 else token
        token = token + attention * torch.tanh(given @ layer.branches["attention"].matrix)
        token = token + mlp * torch.tanh(token @ layer.branches["mlp"].matrix)
        token = before + block * (token - before)
    return token


tables = st.lists(
    st.lists(st.sampled_from([0.0, 1.0, 1.0, 1.0, 0.5, -1.5]), min_size=3 * LAYERS, max_size=3 * LAYERS),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(tables, st.booleans(), st.booleans(), st.data())
def test_every_token_is_under_the_edit_of_its_request(table, apart, batched, data):
    assert UNITS == ("block", "attention", "mlp")
    stack = layers(apart)
    gates = TokenGates(stack)
    factors = np.asarray(table).reshape(-1, LAYERS, 3)
    gates.add(factors.tolist())
    known = np.concatenate([np.ones((1, LAYERS, 3)), factors])
    for _ in range(2):  # a second pass of another make-up
        columns = np.asarray(data.draw(st.lists(st.integers(0, len(factors)), min_size=1, max_size=5)))
        counts = np.asarray(data.draw(st.lists(st.integers(1, 4), min_size=len(columns), max_size=len(columns))))
        stream = torch.randn(int(counts.sum()), WIDTH, generator=torch.Generator().manual_seed(len(columns)))
        gates.begin(columns, counts, torch.device("cpu"))
        found = run(stack, stream, batched)
        gates.end()
        for row, (token, column) in enumerate(zip(stream, np.repeat(columns, counts), strict=True)):
            torch.testing.assert_close(found[row], by_hand(apart, token, known[column]), rtol=1e-5, atol=1e-5)


def test_every_token_has_the_heads_and_the_experts_of_its_request_multiplied():
    heads = {2: {0: 0.0}, 3: {1: 0.5, 2: -1.5}, 4: {0: 2.0}}
    experts = {1: {0: 0.5}, 3: {2: 0.0}, 4: {1: -4.0}}
    columns, counts = np.array([4, 0, 3, 1, 2, 3]), np.array([1, 2, 3, 1, 2, 1])
    stream = torch.randn(int(counts.sum()), WIDTH, generator=torch.Generator().manual_seed(0))
    chosen = torch.tensor([[0, 1], [2, 0]] * 5, dtype=torch.int32)
    for apart in (True, False):
        stack = layers(apart)
        stack[2].module.experts = routed = nn.Module()
        routed.router = SimpleNamespace(select_experts=lambda: (torch.ones(10, 2), chosen))
        gates = TokenGates(stack)
        for layer, path, size, products in ((1, "self_attn" if apart else "attn", 2, heads), (2, "", 0, experts)):
            flat = [(edit - 1, number, factor) for edit, own in products.items() for number, factor in own.items()]
            gates.add([], [[layer, path, 3, size, *map(list, zip(*flat, strict=True))]])
        gates.add(np.ones((4, LAYERS, 3)).tolist())
        gates.begin(columns, counts, torch.device("cpu"))
        found, weights = run(stack, stream, False), routed.router.select_experts()[0]
        gates.end()
        for row, column in enumerate(np.repeat(columns, counts).tolist()):
            mine = tuple(heads.get(column, {}).get(number, 1.0) for number in range(3))
            expected = by_hand(apart, stream[row], np.ones((LAYERS, 3)), mine)
            torch.testing.assert_close(found[row], expected, rtol=1e-5, atol=1e-5)
            assert weights[row].tolist() == [
                experts.get(column, {}).get(number, 1.0) for number in chosen[row].tolist()
            ]


def test_factors_of_0_and_1_are_exact_also_where_the_block_is_not_finite():
    for apart in (True, False):
        stack = layers(apart)
        stack[1].branches["mlp"].matrix[:] = float("nan")
        gates = TokenGates(stack)
        silent = np.ones((1, LAYERS, 3))
        silent[0, 1, 0] = 0
        gates.add(silent.tolist())
        stream = torch.randn(2, WIDTH)
        gates.begin(np.array([1, 0]), np.array([1, 1]), torch.device("cpu"))
        found = run(stack, stream, False)
        assert torch.equal(found[0], run([stack[0], stack[2]], stream, False)[0])
        assert found[1].isnan().all()


def test_a_pass_without_a_place_that_is_edited_is_told():
    stack = layers(True)
    gates = TokenGates(stack)
    edit = np.ones((1, LAYERS, 3))
    edit[0, 2, 1] = 0.5
    gates.add(edit.tolist())
    gates.begin(np.array([1]), np.array([2]), torch.device("cpu"))
    run(stack[:2], torch.randn(2, WIDTH), False)
    with pytest.raises(LesionError, match=r"edit of 2\.attention did not take hold"):
        gates.end()
    # The same pass once more: what was passed before does not count.
    gates.begin(np.array([1]), np.array([2]), torch.device("cpu"))
    run(stack, torch.randn(2, WIDTH), False)
    gates.end()
    gates.begin(np.array([1]), np.array([2]), torch.device("cpu"))
    with pytest.raises(LesionError, match="did not take hold"):
        gates.end()


def test_a_network_without_as_many_layers_is_refused():
    network = nn.Sequential(nn.ModuleList([Apart(0), Apart(1)]))
    tails = [{"attention": "self_attn", "mlp": "elsewhere"}] * 2
    assert [layer.branches["mlp"] for layer in layers_of(network, tails, "strange")] == [None, None]
    with pytest.raises(LesionError, match=r"no list of 3 decoder layers.*use --engine transformers"):
        layers_of(network, [*tails, {}], "strange")
